"""The registry: what plugins bring, what is refused, and that a broken plugin never takes others down."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import ClassVar, Literal

import numpy as np
import pytest
from dpbench_plugins.learners.class_means import ClassMeans

import dpbench.registry.entry_points
from dpbench import Dataset, Split, Splits, hookimpl
from dpbench.errors import ComponentFailed, DuplicateName, SpecError, UnknownName
from dpbench.records.spec import make_spec
from dpbench.registry import BrokenPlugin, Registration, Registry, load
from dpbench.registry.components import make_component_record, resolve_search
from tests.helpers.commands import call
from tests.helpers.strangers import extend_registry


@dataclass(frozen=True)
class Distribution:
    name: str
    version: str = "1.0"


@dataclass(frozen=True)
class Point:
    """An entry point for a module that is already imported, or whose import fails."""

    name: str
    dist: Distribution
    load: Callable[[], ModuleType]


@dataclass(frozen=True)
class Shapes(Dataset):
    name: ClassVar[str] = "shapes"
    classes: ClassVar[tuple[str, ...]] = ("disc", "square")
    licence: ClassVar[str] = "CC0"
    citation: ClassVar[str] = "none"

    sides: int = 8
    noise: float = 0.1
    grey: bool = True
    colour: Literal["rgb", "lab"] = "rgb"
    limit: int | None = 100

    def load(self) -> Splits:
        empty = Split([], np.zeros(0, np.int64))
        return Splits(empty, empty, "shapes")


def module(name: str, **hooks: Callable[..., object]) -> ModuleType:
    made = ModuleType(name)
    for hook, function in hooks.items():
        function.__name__ = hook
        setattr(made, hook, hookimpl(function))
    return made


def point(name: str, made: ModuleType, distribution: str = "tiny") -> Point:
    return Point(name, Distribution(distribution), lambda: made)


def broken_import() -> ModuleType:
    raise ModuleNotFoundError("No module named 'missing_wheel'")


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def installed(*points: Point) -> None:
        monkeypatch.setattr(
            dpbench.registry.entry_points, "entry_points", lambda group: list(points) if group == "dpbench" else []
        )

    return installed


Install = Callable[..., None]
GOOD = point("good", module("good", dpbench_datasets=lambda: [Shapes]))


def reason(registry: Registry, plugin: str) -> str:
    (found,) = [broken.reason for broken in registry.broken if broken.plugin == plugin]
    return found


def named(claimed: str) -> type[Dataset]:
    return dataclass(frozen=True)(type("Other", (Shapes,), {"name": claimed}))


def test_a_component_carries_its_plugin_distribution_and_version(install: Install) -> None:
    install(point("good", module("good", dpbench_datasets=lambda: [Shapes]), "shapes-wheel"))
    assert load().find("dataset", "shapes") == Registration(Shapes, "good", "shapes-wheel", "1.0")


def test_an_unknown_name_lists_what_exists_and_suggests_the_nearest(install: Install) -> None:
    install(GOOD, point("more", module("more", dpbench_datasets=lambda: [named("letters")])))
    with pytest.raises(UnknownName, match=r"dataset 'shape'.*mean 'shapes'.*Available: letters, shapes\."):
        load().find("dataset", "shape")


def test_an_unknown_name_where_nothing_exists_says_so(install: Install) -> None:
    install(GOOD)
    with pytest.raises(UnknownName, match="Available: none"):
        load().find("learner", "pillar")


def test_an_unknown_name_mentions_plugins_that_were_left_out(install: Install) -> None:
    install(GOOD, Point("bad", Distribution("bad"), broken_import))
    with pytest.raises(UnknownName, match=r"1 broken plugin.*dpbench list"):
        load().find("dataset", "letters")


def test_an_unknown_option_lists_the_options_and_suggests_the_nearest(install: Install) -> None:
    install(GOOD)
    with pytest.raises(
        SpecError, match=r"option 'side' of dataset 'shapes'.*'sides'.*colour, grey, limit, noise, sides"
    ):
        load().build("dataset", "shapes", {"side": "3"})


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        ("sides", "3", 3),
        ("noise", "1e-2", 0.01),
        ("grey", "false", False),
        ("colour", "lab", "lab"),
        ("limit", "none", None),
        ("limit", "None", None),
        ("limit", "7", 7),
    ],
)
def test_options_are_read_from_text(install: Install, option: str, text: str, value: object) -> None:
    install(GOOD)
    assert getattr(load().build("dataset", "shapes", {option: text}), option) == value


def test_options_from_toml_keep_their_values(install: Install) -> None:
    install(GOOD)
    built = load().build("dataset", "shapes", {"sides": 3, "noise": 1, "grey": False, "limit": None})
    assert built == Shapes(sides=3, noise=1.0, grey=False, limit=None)
    assert isinstance(built.noise, float)


@pytest.mark.parametrize(
    ("option", "text", "expected"),
    [
        ("sides", "3.5", "a whole number"),
        ("sides", "none", "a whole number"),
        ("noise", "loud", "a number"),
        ("grey", "maybe", "true or false"),
        ("colour", "hsv", "rgb"),
        ("limit", "many", "a whole number or auto"),
    ],
)
def test_an_option_of_another_type_is_refused(install: Install, option: str, text: str, expected: str) -> None:
    install(GOOD)
    with pytest.raises(SpecError, match=rf"Expected {option}={text} in dataset 'shapes' to be .*{expected}"):
        load().build("dataset", "shapes", {option: text})


@pytest.mark.parametrize(("option", "value"), [("sides", True), ("noise", False), ("limit", True)])
def test_a_truth_value_is_no_number(install: Install, option: str, value: bool) -> None:
    install(GOOD)
    with pytest.raises(SpecError, match=rf"Expected {option}={value} in dataset 'shapes' to be a (whole )?number"):
        load().build("dataset", "shapes", {option: value})


@pytest.mark.parametrize("given", ["nan", " nan", math.nan])
def test_what_is_no_number_is_refused_as_one(install: Install, given: object) -> None:
    install(GOOD)
    with pytest.raises(SpecError, match=r"^Expected noise= ?nan in dataset 'shapes' to be a number, got nan"):
        load().build("dataset", "shapes", {"noise": given})


def test_a_search_space_holds_numbers_alone() -> None:
    values = {"rule": "public-validation", "space": {"learning_rate": [0.1, math.nan]}}
    search = make_spec({"learner": "dp-sgd", "search": values}, "the test").search
    assert search is not None
    with pytest.raises(SpecError, match=r"learning_rate=nan in learner 'dp-sgd', in the search space to be a number"):
        resolve_search(search, load().build("learner", "dp-sgd", {}), {})


@pytest.mark.parametrize(
    ("search", "unused"),
    [
        ({"repeats": 5}, "repeats for search in the test: public-validation"),
        ({"rule": "private-unaccounted", "shape": 0}, "shape for search in the test: private-unaccounted"),
        ({"rule": "private-accounted", "tries": 7}, "tries for search in the test: private-accounted"),
    ],
)
def test_a_setting_that_the_rule_of_a_search_ignores_is_refused(search: dict[str, object], unused: str) -> None:
    with pytest.raises(SpecError, match=f"^Expected no {unused} does not use it"):
        make_spec({"learner": "dp-sgd", "search": search}, "the test")


def test_a_missing_option_without_default_is_refused(install: Install) -> None:
    @dataclass(frozen=True)
    class Demanding(Shapes):
        name: ClassVar[str] = "demanding"

        folder: str = field(kw_only=True)

    install(point("demanding", module("demanding", dpbench_datasets=lambda: [Demanding])))
    with pytest.raises(SpecError, match="folder"):
        load().build("dataset", "demanding", {})


def test_an_option_that_a_component_itself_refuses_is_told_with_its_owner_and_line(install: Install) -> None:
    @dataclass(frozen=True)
    class Picky(Shapes):
        name: ClassVar[str] = "picky"

        def __post_init__(self) -> None:
            if self.sides > 9:
                raise ValueError("more sides than fingers.")

    install(point("picky", module("picky", dpbench_datasets=lambda: [Picky])))
    said = (
        r"^Building of 'picky' \(plugin 'picky', tiny 1.0\) failed: ValueError: more sides than fingers, "
        r"in test_registry.py, line \d+\. Add --debug"
    )
    with pytest.raises(ComponentFailed, match=said):
        load().build("dataset", "picky", {"sides": "10"})


def test_a_name_that_two_plugins_claim_is_refused_where_it_is_asked_for_and_takes_nothing_else_down(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    other = module("other", dpbench_datasets=lambda: [named("shapes"), named("letters")])
    install(
        point("first", module("first", dpbench_datasets=lambda: [Shapes]), "wheel-a"), point("second", other, "wheel-b")
    )
    said = r"dataset 'shapes' is left out: plugins 'first' .*'wheel-a' and 'second' .*'wheel-b' claim that name"
    with pytest.raises(DuplicateName, match=said):
        load().find("dataset", "shapes")
    with pytest.raises(DuplicateName, match=said):
        load().with_component("dataset", named("shapes"))
    assert load().build("dataset", "letters", {}).sides == 8
    load().report_broken_plugins()
    assert re.search(said, capsys.readouterr().err)
    assert call("list", "datasets") == 0
    shown = capsys.readouterr().out
    assert "letters" in shown
    assert re.search(said, " ".join(shown.split()))


@pytest.mark.parametrize("error", [ModuleNotFoundError("no wheel"), RuntimeError("no driver"), SystemExit(3)])
def test_a_plugin_that_fails_to_import_is_broken_and_others_still_load(install: Install, error: BaseException) -> None:
    def fails() -> ModuleType:
        raise error

    install(Point("bad", Distribution("bad-wheel"), fails), GOOD)
    registry = load()
    assert registry.broken == (BrokenPlugin("bad", "bad-wheel", f"{type(error).__name__}: {error}"),)
    assert set(registry.components["dataset"]) == {"shapes"}


def test_broken_plugins_are_named_on_standard_error(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install(Point("bad", Distribution("bad-wheel"), broken_import))
    load().report_broken_plugins()
    assert capsys.readouterr().err == (
        "dpbench: Plugin 'bad' of distribution 'bad-wheel' is left out: "
        "ModuleNotFoundError: No module named 'missing_wheel'\n"
    )


def test_a_hook_that_does_not_exist_breaks_the_plugin(install: Install) -> None:
    install(point("bad", module("bad", dpbench_backbones=lambda: [Shapes])), GOOD)
    registry = load()
    assert "unknown hook 'dpbench_backbones'" in reason(registry, "bad")
    assert set(registry.components["dataset"]) == {"shapes"}


def test_a_plugin_refused_while_it_registers_leaves_nothing_behind(install: Install) -> None:
    twice_wrong = module("bad", dpbench_backbones=lambda: [], dpbench_learners=lambda unexpected: [unexpected])
    install(point("bad", twice_wrong), GOOD)
    registry = load()
    assert "unexpected" in reason(registry, "bad")
    assert [broken.plugin for broken in registry.broken] == ["bad"]


def test_a_hook_wrapper_is_refused(install: Install) -> None:
    @hookimpl(wrapper=True)
    def dpbench_datasets():  # type: ignore[no-untyped-def]  # pluggy's wrappers are generators
        return (yield)

    made = ModuleType("bad")
    made.dpbench_datasets = dpbench_datasets  # type: ignore[attr-defined]
    install(point("bad", made), GOOD)
    assert "dpbench_datasets is a hook wrapper" in reason(load(), "bad")


def test_a_plugin_without_hooks_is_broken(install: Install) -> None:
    install(point("bad", ModuleType("bad")), GOOD)
    assert "implements none of the hooks" in reason(load(), "bad")


def made(base: type[Dataset] = Dataset, **body: object) -> type[Dataset]:
    return type("Made", (base,), {"load": Shapes.load, "name": "made", **body})


WRONG: dict[str, tuple[type[Dataset], str]] = {
    "not a dataclass": (made(), "Made is not a frozen dataclass"),
    "not frozen": (dataclass(made()), "Made is not a frozen dataclass"),
    "abstract": (dataclass(frozen=True)(made(load=Dataset.load)), "Made does not define load"),
    "with a path for a name": (dataclass(frozen=True)(made(name="../up")), "is called '../up'; expected lower-case"),
    "without name": (dataclass(frozen=True)(made(name=None)), "Made has no `name`"),
    "called as several are": (dataclass(frozen=True)(made(name="concat")), "is called 'concat', which dpbench keeps"),
}


@pytest.mark.parametrize(("cls", "said"), WRONG.values(), ids=WRONG)
def test_a_class_that_breaks_the_contract_is_refused(install: Install, cls: type[Dataset], said: str) -> None:
    install(point("bad", module("bad", dpbench_datasets=lambda: [cls])), GOOD)
    registry = load()
    assert said in reason(registry, "bad")
    assert set(registry.components["dataset"]) == {"shapes"}


@pytest.mark.parametrize("returned", [[Shapes()], ["shapes"], [dict]])
def test_a_hook_that_returns_other_things_than_classes_of_its_kind_is_refused(
    install: Install, returned: Sequence[object]
) -> None:
    install(point("bad", module("bad", dpbench_datasets=lambda: returned)))
    assert "expected subclasses of dpbench.Dataset" in reason(load(), "bad")


def test_a_learner_hook_may_not_return_datasets(install: Install) -> None:
    install(point("bad", module("bad", dpbench_learners=lambda: [Shapes])))
    assert "expected subclasses of dpbench.Learner" in reason(load(), "bad")


def test_dpbench_plugins_chooses_a_set(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install(GOOD, Point("bad", Distribution("bad"), broken_import))
    monkeypatch.setenv("DPBENCH_PLUGINS", " good ,")
    assert not load().broken


def test_a_name_that_a_chosen_set_lacks_is_told_with_the_set(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install(GOOD)
    monkeypatch.setenv("DPBENCH_PLUGINS", "good")
    with pytest.raises(UnknownName, match=r"Available: none\. DPBENCH_PLUGINS=good excludes every other plugin\."):
        load().find("extractor", "pixels")


def test_an_unknown_name_in_dpbench_plugins_is_an_error(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install(GOOD)
    monkeypatch.setenv("DPBENCH_PLUGINS", "good,goood")
    with pytest.raises(UnknownName, match=r"DPBENCH_PLUGINS 'goood'.*mean 'good'"):
        load()


def test_every_installed_plugin_loads() -> None:
    registry = load()
    assert not registry.broken
    assert {"dp-sgd", "pillar"} <= set(registry.components["learner"])


def test_a_field_that_a_learner_computes_is_no_option() -> None:
    @dataclass(frozen=True)
    class Computes(ClassMeans):
        table: np.ndarray = field(init=False, repr=False, compare=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "table", np.eye(4))

    plugins = extend_registry(Computes)
    built = plugins.build("learner", Computes.name, {})
    assert "table" not in make_component_record(built).options
    with pytest.raises(SpecError, match="table"):
        plugins.build("learner", Computes.name, {"table": 1})
