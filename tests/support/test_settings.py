"""Settings state their range and meaning: every one is checked, however a plugin is written, and a refusal says all."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import pytest
import torch

from dpbench import Budget, Curator, Learner, Predict, PublicData, Release, SpecError, Task, registry, setting
from dpbench.registry.components import make_component_record
from dpbench.support.settings import list_settings


class Idle(Learner):
    """A learner that asks nothing."""

    def plan(self, task: Task, budget: Budget) -> list[Release]:
        return []

    def fit(self, curator: Curator, public: PublicData, generator: Any) -> Predict:
        raise NotImplementedError


@dataclass(frozen=True)
class Sized(Idle):
    name = "sized"
    public = "unlabelled"
    search_space = {"size": (1, 2)}

    size: int | None = setting(None, ge=1, le=9, says="rows kept")
    share: float = setting(0.5, gt=0, lt=1, says="share of the budget")
    norm: Literal["one", "none"] = setting("one", says="norm of a row")
    side: int = setting(28, choices=(28, 64))
    flat: bool = setting(True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"size": 0}, "Expected size=0 in [1, 9] in learner 'sized': rows kept. Set sized:size=... or leave it out (a"),
        ({"share": 1.0}, "Expected share=1.0 in (0, 1) in learner 'sized': share of the budget."),
        ({"share": math.nan}, "Expected share=nan to be a number in (0, 1) in learner 'sized'"),
        ({"size": 2.5}, "Expected size=2.5 to be a whole number in [1, 9] or auto in learner 'sized'"),
        ({"size": True}, "Expected size=True to be a whole number in [1, 9] or auto"),
        ({"size": "3"}, "Expected size='3' to be a whole number in [1, 9] or auto"),
        ({"norm": "two"}, "Expected norm='two' to be 'one' or 'none' in learner 'sized': norm of a row."),
        ({"side": 32}, "side=32 to be one of 28, 64 in learner 'sized'. Set sized:side=... or leave it out (28)."),
        ({"flat": 1}, "Expected flat=1 to be true or false"),
        ({"norm": "x" * 1000}, "xxx to be 'one' or 'none'"),
    ],
    ids=str,
)  # fmt: skip
def test_a_value_of_another_type_or_out_of_range_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as refused:
        Sized(**options)
    assert said in str(refused.value)
    assert len(str(refused.value)) < 300
    with pytest.raises(SpecError):
        dataclasses.replace(Sized(), **options)


def test_values_in_range_are_kept_and_none_is_a_value_where_the_type_has_it() -> None:
    assert Sized(size=1, share=0.25, norm="none", side=64, flat=False).size == 1
    assert Sized(size=9).size == 9
    assert Sized(size=None).size is None
    with pytest.raises(SpecError, match="side=None"):
        Sized(side=None)  # type: ignore[arg-type]


def test_whole_numbers_are_numbers() -> None:
    @dataclass(frozen=True)
    class Scaled(Idle):
        name = "scaled"
        factor: float = setting(1.0, ge=0)

    assert Scaled(factor=3).factor == 3


class Mixin:
    """Knows nothing of learners."""

    def __post_init__(self) -> None:
        pass


@dataclass(frozen=True)
class Forgetful(Sized):
    name = "forgetful"

    def __post_init__(self) -> None:
        if self.size == 3:
            raise SpecError("Three is refused here.")


@dataclass(frozen=True)
class Mixed(Mixin, Sized):
    name = "mixed"


@dataclass(frozen=True)
class Further(Forgetful):
    name = "further"
    more: int = setting(1, ge=1)


@dataclass(frozen=True)
class Dutiful(Forgetful):
    name = "dutiful"

    def __post_init__(self) -> None:
        super().__post_init__()


@dataclass(frozen=True, slots=True)
class Slotted(Forgetful):
    name = "slotted"


@pytest.mark.parametrize("cls", [Forgetful, Mixed, Further, Dutiful, Slotted], ids=lambda cls: cls.__name__)
def test_a_range_is_checked_whatever_post_init_a_subclass_or_a_mixin_defines(cls: type[Sized]) -> None:
    for options in ({"size": 0}, {"share": 0.0}, {"norm": "two"}):
        with pytest.raises(SpecError, match=f"in learner '{cls.name}'"):
            cls(**options)
    assert cls(size=2).size == 2


@pytest.mark.parametrize("cls", [Forgetful, Further, Dutiful, Slotted], ids=lambda cls: cls.__name__)
def test_checks_across_settings_run_after_those_of_each(cls: type[Sized]) -> None:
    with pytest.raises(SpecError, match="Three is refused here"):
        cls(size=3)
    with pytest.raises(SpecError, match=r"share=2\.0"):
        cls(size=3, share=2.0)


@dataclass(frozen=True)
class Old(Idle):
    """As plugins were written for 0.2."""

    name: ClassVar[str] = "old"
    public: ClassVar[Literal["none", "unlabelled", "labelled"]] = "unlabelled"
    search_space: ClassVar[Mapping[str, tuple[int, ...]]] = {"k": (1, 2)}

    k: int = 3
    later: int = field(default=1, metadata={"added": True})

    def __post_init__(self) -> None:
        if self.k < 1:
            raise SpecError(f"Expected k={self.k} >= 1 in learner 'old'.")


def test_old_spellings_work() -> None:
    known = registry.load().with_component("learner", Old)
    assert known.build("learner", "old", {"k": "5"}) == Old(k=5)
    with pytest.raises(SpecError, match=r"Expected k=0 >= 1 in learner 'old'\."):
        known.build("learner", "old", {"k": "0"})
    assert make_component_record(Old()).options == {"k": 3}
    assert [row.values for row in list_settings(Old)] == ["a whole number", "a whole number"]


def test_a_setting_that_came_later_is_left_out_of_specs_at_its_default() -> None:
    @dataclass(frozen=True)
    class Grown(Idle):
        name = "grown"
        k: int = setting(3)
        later: int = setting(1, added=True, kw_only=True)

    assert make_component_record(Grown()).options == {"k": 3}
    assert make_component_record(Grown(later=2)).options == {"k": 3, "later": 2}


def test_a_setting_without_a_default_is_required() -> None:
    @dataclass(frozen=True)
    class Needy(Idle):
        name = "needy"
        path: str = setting(says="a file")

    known = registry.load().with_component("learner", Needy)
    with pytest.raises(SpecError, match="Expected option 'path' for learner 'needy'; it has no default"):
        known.build("learner", "needy", {})
    assert list_settings(Needy)[0].default == "required"


def test_each_of_several_values_is_checked() -> None:
    @dataclass(frozen=True)
    class Listed(Idle):
        name = "listed"
        sizes: tuple[int, ...] = setting((1, 2), ge=1)

    assert Listed((3, 4)).sizes == (3, 4)
    with pytest.raises(SpecError, match=r"Expected sizes=\(3, 0\) >= 1"):
        Listed((3, 0))


def test_a_type_that_only_type_checkers_know_is_told_as_it_is_written_and_the_others_are_checked() -> None:
    @dataclass(frozen=True)
    class Unknown(Idle):
        name = "unknown"
        k: Elsewhere = setting(3, ge=1)  # type: ignore[name-defined]  # noqa: F821
        size: int = setting(3, ge=1)

    assert [row.values for row in list_settings(Unknown)] == ["Elsewhere >= 1", "a whole number >= 1"]
    with pytest.raises(SpecError, match="Expected k=0 >= 1"):
        Unknown(k=0)
    with pytest.raises(SpecError, match=r"Expected size=2\.5 to be a whole number >= 1"):
        Unknown(size=2.5)  # type: ignore[arg-type]
    known = registry.load().with_component("learner", Unknown)
    assert known.build("learner", "unknown", {"k": 2, "size": "4"}) == Unknown(2, 4)
    with pytest.raises(SpecError, match="Expected size=many in learner 'unknown' to be a whole number"):
        known.build("learner", "unknown", {"size": "many"})


@dataclass(frozen=True)
class Handmade(Sized):
    name = "handmade"

    def __init__(self, **settings: Any) -> None:
        for name, value in settings.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class Patched(Sized):
    name = "patched"


Patched.__post_init__ = lambda self: None  # type: ignore[method-assign]


@dataclass(frozen=True)
class Marked(Sized):
    name = "marked"

    def __post_init__(self) -> None:
        pass

    __post_init__.checks_settings = True  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Shifted(Sized):
    name = "shifted"

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", self.size and self.size - 1)


@dataclass(frozen=True)
class Redeclared(Sized):
    name = "redeclared"
    size: int | None = 2


BYPASSES = [Handmade, Patched, Marked, Shifted, Redeclared]


@pytest.mark.parametrize("cls", BYPASSES, ids=lambda cls: cls.__name__)
def test_the_registry_checks_what_it_built_whatever_the_class_did(cls: type[Sized]) -> None:
    known = registry.load().with_component("learner", cls)
    for size, said in (("0", "0"), ("11", "11"), ("1", "0")):
        if cls is Shifted or size != "1":
            with pytest.raises(SpecError, match=rf"Expected size={said} in \[1, 9\] in learner"):
                known.build("learner", cls.name, {"size": size})
    assert known.build("learner", cls.name, {"size": "3"}).size == (2 if cls is Shifted else 3)


@pytest.mark.parametrize("cls", BYPASSES, ids=lambda cls: cls.__name__)
def test_a_learner_of_a_search_is_checked_before_it_plans(cls: type[Sized]) -> None:
    task = Task(example_shape=(4,), classes=2, size=100, device=torch.device("cpu"))
    beyond = cls(size=2)
    object.__setattr__(beyond, "size", 11)
    with pytest.raises(SpecError, match=r"Expected size=1[01] in \[1, 9\] in learner"):
        beyond.settle(task, Budget(1.0, 1e-5))


def test_a_field_that_is_declared_anew_keeps_its_range_unless_it_states_another() -> None:
    @dataclass(frozen=True)
    class Wider(Sized):
        name = "wider"
        size: int | None = setting(2, ge=1, le=20)

    assert list_settings(Redeclared)[0].meaning == "rows kept"
    with pytest.raises(SpecError, match="Expected size=10 in"):
        Redeclared(size=10)
    assert Wider(size=10).size == 10


def test_a_marker_in_a_plugin_does_not_turn_the_check_off() -> None:
    with pytest.raises(SpecError, match="Expected size=0"):
        Marked(size=0)


@dataclass(frozen=True)
class SeveralTypes(Idle):
    name: ClassVar[str] = "several-types"

    steps: int | Literal["auto"] = setting("auto", ge=1, says="steps")
    rates: tuple[float | None, ...] = setting((None, 0.1), gt=0, says="rates of steps")
    weights: dict[str, float] | None = setting(None, ge=0, says="weights of classes")


def test_bounds_are_of_the_numbers_among_values_of_several_types() -> None:
    assert SeveralTypes(weights={"a": 1.0}).steps == "auto"
    for options in ({"steps": 0}, {"rates": (None, 0.0)}, {"weights": {"a": -1.0}}):
        with pytest.raises(SpecError, match=f"Expected {next(iter(options))}="):
            SeveralTypes(**options)
