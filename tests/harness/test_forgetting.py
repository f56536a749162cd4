"""A fit leaves nothing behind that a later one could find."""

from __future__ import annotations

import ast
import functools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

import dpbench
from dpbench import Budget, Curator, Learner, Predict, PublicData, Release, Task
from dpbench.audit.audit_fit import audit
from dpbench.errors import DpbenchError, LawBroken, NotPure
from dpbench.harness.fitting import fit_several_settings
from dpbench.records.result import Result
from dpbench.records.spec import Spec, make_spec
from dpbench.registry import Registration, Registry, load
from dpbench.testing import LearnerLaws
from tests.helpers.sessions import session
from tests.helpers.worlds import fit_input

START: dict[int, Tensor] = {}
LAW = "test_keeps_nothing_from_one_fit_to_the_next"


@dataclass(frozen=True)
class Sums(Learner):
    """Noisy class sums, asked for in one release."""

    name: ClassVar[str] = "sums"
    search_space: ClassVar[dict[str, tuple[int, ...]]] = {"number": (0, 1, 2, 3)}

    number: int = 0

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        return [Release("sums")]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        total = self.asked(curator)
        return lambda x: (x.flatten(1) - 0.3) @ total.T

    def asked(self, curator: Curator) -> Tensor:
        eye = torch.eye(curator.task.classes)
        rows: Any = lambda chunk: eye[chunk.y].unsqueeze(2) * (chunk.x.flatten(1) - 0.3).unsqueeze(1)
        answer: Tensor = curator.noisy_sum(rows, release="sums", clip=1.0)
        return answer


@dataclass(frozen=True)
class KeepsInAModule(Sums):
    """Asks once, and takes the answer in every later fit of this process."""

    def asked(self, curator: Curator) -> Tensor:
        if curator.task.classes not in START:
            START[curator.task.classes] = super().asked(curator)
        return START[curator.task.classes]


@dataclass(frozen=True)
class KeepsInItself(Sums):
    """Averages over all fits of one object."""

    @cached_property
    def _all(self) -> list[Tensor]:
        return []

    def asked(self, curator: Curator) -> Tensor:
        self._all.append(super().asked(curator))
        return torch.stack(self._all).sum(0)


@dataclass(frozen=True)
class KeepsInAField(Sums):
    """Hands a list on to every learner that is made like it."""

    all: list[Tensor] = field(default_factory=list)

    def asked(self, curator: Curator) -> Tensor:
        self.all.append(super().asked(curator))
        return torch.stack(self.all).sum(0)


@dataclass(frozen=True)
class KeepsInItsClass(Sums):
    """Sets an attribute of its class."""

    latest: ClassVar[Tensor | None] = None

    def asked(self, curator: Curator) -> Tensor:
        answer = super().asked(curator)
        type(self).latest = answer
        return answer


@dataclass(frozen=True)
class KeepsInADefault(Sums):
    """Fills a list that is a default argument."""

    def asked(self, curator: Curator, kept: list[Tensor] = []) -> Tensor:  # noqa: B006
        kept.append(super().asked(curator))
        return torch.stack(kept).sum(0)


@dataclass(frozen=True)
class KeepsInACache(Sums):
    """Remembers by a decorator."""

    def asked(self, curator: Curator) -> Tensor:
        return self._first(curator.task.classes, curator)

    @functools.lru_cache  # noqa: B019
    def _first(self, classes: int, curator: Curator) -> Tensor:
        return super().asked(curator)


@dataclass(frozen=True)
class KeepsInAProperty(Sums):
    """Fills a list that only a property's code names."""

    @property
    def kept(self) -> dict[int, Tensor]:
        return START

    def asked(self, curator: Curator) -> Tensor:
        self.kept[len(self.kept)] = super().asked(curator)
        return self.kept[0]


@dataclass(frozen=True)
class KeepsInTorch(Sums):
    """Seeds a global generator with what it was told."""

    def asked(self, curator: Curator) -> Tensor:
        answer = super().asked(curator)
        torch.manual_seed(int(answer.abs().sum()))
        return answer


@dataclass(frozen=True)
class KeepsInNumpy(Sums):
    """Seeds numpy's."""

    def asked(self, curator: Curator) -> Tensor:
        answer = super().asked(curator)
        np.random.seed(int(answer.abs().sum()))
        return answer


@dataclass(frozen=True)
class KeepsInRandom(Sums):
    """Seeds that of `random`."""

    def asked(self, curator: Curator) -> Tensor:
        answer = super().asked(curator)
        random.seed(float(answer.abs().sum()))
        return answer


@dataclass(frozen=True)
class KeepsByPredicting(Sums):
    """Keeps nothing until its predictor is asked."""

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        total = self.asked(curator)

        def predict(x: Tensor) -> Tensor:
            START[len(START)] = total
            return (x.flatten(1) - 0.3) @ total.T

        return predict


KEEPERS = (
    KeepsInAModule, KeepsInItself, KeepsInAField, KeepsInItsClass, KeepsInADefault, KeepsInACache, KeepsInAProperty,
    KeepsInTorch, KeepsInNumpy, KeepsInRandom, KeepsByPredicting,
)  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test is a process of its own, as far as these learners can tell, without a thread of another test's."""
    monkeypatch.setattr("dpbench.privacy.purity.reach.threading.active_count", lambda: 1)
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()
    yield
    torch.set_rng_state(states[0])
    np.random.set_state(states[1])
    random.setstate(states[2])
    START.clear()
    for keeper in KEEPERS:
        if "__left_behind__" in vars(keeper):
            delattr(keeper, "__left_behind__")


def spec(**keys: Any) -> Spec:
    return make_spec({"learner": "sums", "epsilon": 0.5, **keys}, "the test")


def with_learner(learner: type[Learner]) -> Registry:
    installed = load().components
    brought = {**installed["learner"], "sums": Registration(learner, "tiny-plugin", "tiny-wheel", "0.1")}
    return Registry({**installed, "learner": brought})


def ran(learner: type[Learner], **keys: Any) -> Result:
    return session(with_learner(learner)).run(spec(**{"seeds": 3, **keys}))


@pytest.mark.parametrize("keeper", [keeper for keeper in KEEPERS if keeper is not KeepsInItself])
def test_what_a_fit_leaves_behind_is_refused(keeper: type[Learner]) -> None:
    with pytest.raises(NotPure, match="leaves state behind: its fit changed "):
        ran(keeper, seeds=1)


@pytest.mark.parametrize("keeper", KEEPERS)
def test_a_learner_that_keeps_anything_breaks_the_law(keeper: type[Learner]) -> None:
    suite = type("Suite", (LearnerLaws,), {"learner": keeper()})()
    with pytest.raises(LawBroken, match=r"Fitting changed .*which the next fit finds"):
        getattr(suite, LAW)()


def test_an_honest_learner_keeps_the_law() -> None:
    suite = type("Suite", (LearnerLaws,), {"learner": Sums()})()
    getattr(suite, LAW)()


def test_the_law_sees_what_only_an_earlier_law_has_filled() -> None:
    suite = type("Suite", (LearnerLaws,), {"learner": KeepsInAModule()})()
    suite.test_same_seeds_give_same_predictions()  # fills the module's dict; no later fit changes it
    with pytest.raises(LawBroken, match="START"):
        getattr(suite, LAW)()


def test_a_refused_fit_is_not_found_by_the_next_run_of_the_process() -> None:
    for _ in range(2):  # the second changes nothing: all is there already
        with pytest.raises(NotPure, match=r"its fit changed .*START"):
            ran(KeepsInAModule, seeds=1)


def test_what_an_object_keeps_is_gone_with_the_fit() -> None:
    kept, honest = ran(KeepsInItself), ran(Sums)
    assert [seed.predictions for seed in kept.seeds] == [seed.predictions for seed in honest.seeds]


PRIVATE_SEARCH = {
    "search": {"rule": "private-accounted", "repeats": 5.0}, "accountant": "rdp", "public_fraction": 0.3,
    "public_labels": True,
}  # fmt: skip


def test_a_fit_that_fails_and_leaves_something_behind_is_told_of_both() -> None:
    class SeedsAndFails(KeepsInTorch):
        def asked(self, curator: Curator) -> Tensor:
            super().asked(curator)
            raise ValueError("on purpose")

    both = r"its fit changed torch's global generator \(changed in place\).*It failed as well: .*ValueError: on purpose"
    with pytest.raises(NotPure, match=both):
        ran(SeedsAndFails, seeds=1)


@pytest.mark.parametrize(("end", "raised"), [(KeyboardInterrupt, KeyboardInterrupt), (SystemExit, NotPure)])
def test_an_interruption_goes_on_as_one_and_what_was_left_behind_is_noted(
    end: type[BaseException], raised: type[BaseException]
) -> None:
    class KeepsAndIsStopped(Sums):
        def asked(self, curator: Curator) -> Tensor:
            START[len(START)] = super().asked(curator)
            raise end

    with pytest.raises(raised):  # an exit of a plugin's choice is its failure
        ran(KeepsAndIsStopped, seeds=1)
    with pytest.raises(NotPure, match="START"):  # in whatever state the second fit finds it
        fit_several_settings([fit_input(KeepsAndIsStopped())], lambda _: [])


def test_runs_of_a_private_search_find_nothing_of_each_other() -> None:
    with pytest.raises(NotPure, match="START"):
        ran(KeepsInAModule, seeds=1, **PRIVATE_SEARCH)


def test_a_run_that_fails_after_it_has_kept_something_ends_a_private_search() -> None:
    class KeepsAndFails(Sums):
        def asked(self, curator: Curator) -> Tensor:
            START[len(START)] = super().asked(curator)
            raise ValueError("on purpose")

    with pytest.raises(NotPure, match="START"):
        ran(KeepsAndFails, seeds=1, **PRIVATE_SEARCH)


def test_trials_of_a_search_find_nothing_of_each_other() -> None:
    search = {"rule": "public-validation", "folds": 2, "tries": 4}
    with pytest.raises(DpbenchError, match=r"Every setting .*\(4 tried\).*leaves state behind.*START"):
        ran(KeepsInAModule, search=search, public_fraction=0.3, public_labels=True)


def test_an_audited_fit_leaves_nothing_behind() -> None:
    with pytest.raises(NotPure, match="START"):
        audit(spec(), session(with_learner(KeepsInAModule)), canaries=8)


@pytest.mark.slow
@pytest.mark.lab
def test_an_explanation_lifts_fits_that_leave_nothing_behind() -> None:
    from dpbench_lab.explain.ladder import explain_learners

    class KeepsWithoutNoise(Sums):
        """Keeps what it can tell to be no private run: the sums are whole."""

        def asked(self, curator: Curator) -> Tensor:
            answer = super().asked(curator)
            if "lift_protection" in curator._answer.__qualname__:
                START[len(START)] = answer
            return answer

    with pytest.raises(NotPure, match="START"):
        explain_learners([spec(seeds=1)], session(with_learner(KeepsWithoutNoise)))


REPLAYS = {
    "audit/auditing_curator.py", "audit/sensitivity.py", "harness/fingerprints/core.py",
    "privacy/mechanisms/choice/replay.py",
    "privacy/mechanisms/votes.py",
}  # fmt: skip
"""Where an audit, or a fingerprint of the core, puts questions to rows of its own."""


def test_whoever_makes_a_curator_fits_through_the_one_way() -> None:
    root = Path(dpbench.__file__).parent
    binds = set()
    for file in root.rglob("*.py"):
        place, nodes = file.relative_to(root).as_posix(), [*ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
        calls = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
        binds |= {place} if "bind" in calls and place not in REPLAYS else set()
    laws = {"testing/learners.py", "testing/worlds.py"}  # over made-up rows: their fits go through `_fit_learner`
    assert binds == {"harness/fitting.py", *laws}
