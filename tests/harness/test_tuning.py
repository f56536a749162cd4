"""Tuning: which settings are tried, on what, and by which labels; private rows and the test split stay out of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NoReturn

import numpy as np
import pytest
import torch
from dpbench_plugins.learners.non_private import NonPrivate
from dpbench_plugins.learners.pillar import Pillar
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from dpbench import (
    Blocks,
    Budget,
    Chunk,
    Curator,
    Learner,
    Predict,
    ProbeLearner,
    PublicData,
    Release,
    SpecError,
    Task,
)
from dpbench.errors import PrivacyError
from dpbench.harness.roles import ExamplesByRole
from dpbench.harness.tuning import space as spaces
from dpbench.harness.tuning import trials
from dpbench.harness.tuning.folds import make_folds
from dpbench.harness.tuning.together import fit_probes_together
from dpbench.harness.tuning.trials import TrialRunner, make_weighted_curator
from dpbench.privacy.core.rows import PrivateRows
from dpbench.records.result import Result
from dpbench.records.search import ResolvedSearch, Search, Selection
from dpbench.records.spec import make_spec
from dpbench.registry.components import resolve_search
from tests.helpers.sessions import session
from tests.helpers.worlds import curator_over, private_rows

pytestmark = pytest.mark.usefixtures("telling")
CLASSES = 3
SPACES = st.dictionaries(
    st.sampled_from("abcdef"), st.lists(st.integers(0, 99), min_size=1, max_size=6, unique=True), min_size=1
)


class Watched(PrivateRows):
    """Private rows that note when anything but their number is read."""

    reads: ClassVar[list[str]] = []

    def __getattribute__(self, name: str) -> Any:
        if name in {"x", "y", "chunks"}:
            Watched.reads.append(name)
        return super().__getattribute__(name)


@dataclass(frozen=True)
class Guess(Learner):
    """Always predicts one class: its accuracy is that class's share."""

    name: ClassVar[str] = "guess"
    seen: ClassVar[list[tuple[int, Mapping[str, float], int]]] = []

    guess: int = 0
    fault: Literal["none", "fit", "diverges"] = "none"

    def __post_init__(self) -> None:
        if self.guess < 0:
            raise SpecError(f"Expected guess={self.guess} >= 0.")

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        return [Release("unused", 2, 0.5, relative_noise=3.0)]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        self.seen.append((curator.task.size, dict(curator.sigma), len(public.x)))
        curator.noisy_sum(lambda chunk: chunk.x, release="unused", clip=1.0)
        if self.fault == "fit":
            raise ZeroDivisionError("no luck")
        scale = math.nan if self.fault == "diverges" else 1.0
        return lambda x: torch.eye(CLASSES)[[self.guess] * len(x)] * scale


@dataclass(frozen=True)
class Tiny(ProbeLearner):
    """A linear head on the features as they are."""

    name: ClassVar[str] = "tiny"

    steps: int = 5

    def features(self, task: Task, public: PublicData, generator: torch.Generator) -> Any:
        return lambda x: x.flatten(1)


@dataclass(frozen=True)
class Recites(Learner):
    """Knows by heart whatever labels it can get at; for all others says class 0."""

    name: ClassVar[str] = "recites"
    public: ClassVar[Literal["none", "unlabelled", "labelled"]] = "labelled"

    steps: int = 1

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        return [Release("look", self.steps)]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        assert public.y is not None
        known = {float(x[0]): int(y) for x, y in zip(public.x, public.y, strict=True)}

        curator.noisy_sum(lambda chunk: chunk.x, release="look", clip=1.0)
        return lambda x: torch.eye(CLASSES)[[known.get(float(row[0]), 0) for row in x]]


def clusters(n: int, seed: int, first: int = 0) -> PrivateRows:
    """Return rows of separable clusters, class 0 never among them; the first feature is a number of the row's own."""
    draw = torch.Generator().manual_seed(seed)
    y = 1 + torch.randint(CLASSES - 1, (n,), generator=draw)
    x = torch.eye(8)[y + 2] * 2 + 0.3 * torch.randn(n, 8, generator=draw)
    x[:, 0] = torch.arange(first, first + n) / 1000
    return PrivateRows(x, y, torch.arange(n))


PRIVATE, PUBLIC = clusters(300, 1), clusters(53, 2, first=1000)


def search(**values: Any) -> Search:
    return Search.model_validate(values)


def never() -> NoReturn:
    raise AssertionError("The test split was touched.")


def world() -> ExamplesByRole:
    Watched.reads.clear()
    private = Watched(PRIVATE.x, PRIVATE.y, PRIVATE.index)
    task = Task((8,), CLASSES, len(private), torch.device("cpu"))
    return ExamplesByRole(task, private, PublicData(PUBLIC.x, PUBLIC.y))


def chosen(learner: Learner, space: dict[str, Any], rule: str = "public-validation", **values: Any) -> Selection:
    protocol: dict[str, Any] = {"epsilon": 3, "delta": 1e-3, "accountant": "rdp", **values}
    asked = {"rule": rule, "space": space, "tries": protocol.pop("tries", 500), "seed": protocol.pop("seed", 0)}
    spec = make_spec({"learner": learner.name, **protocol}, "the test")
    wanted = ResolvedSearch.model_validate(asked)
    who = lambda doing: f"{doing} of {learner.name!r}"
    return TrialRunner(learner, who, world(), spec.budget, spec.accountant, wanted, "a test").choose_setting()


@given(SPACES, st.integers(1, 20), st.integers(0, 9))
def test_a_space_is_tried_whole_and_in_order_or_drawn_from(space: dict[str, list[int]], tries: int, seed: int) -> None:
    names = sorted(space)
    whole = [dict(zip(names, values, strict=True)) for values in itertools.product(*(space[name] for name in names))]
    found, draw = spaces.list_settings(space, tries, seed)
    assert (found, draw) == spaces.list_settings(dict(reversed(space.items())), tries, seed)
    if len(whole) <= tries:
        assert (found, draw) == (whole, "grid")
        return
    places = [whole.index(setting) for setting in found]
    assert (places, len(places), draw) == (sorted(set(places)), tries, "random")


@pytest.mark.slow
def test_a_search_is_made_again_from_a_written_result_to_the_same_scores(tmp_path: Path) -> None:
    space = {"steps": [20, 60], "k": [10, 20]}  # a file of JSON sorts them
    search = {"rule": "public-validation", "space": space}
    spec = make_spec({"learner": "whitened", "dataset": "digits", "seeds": 1, "search": search}, "the test")
    written = Result.read(session().run(spec, sharing="board").write(tmp_path))
    assert session().repeat_search(written) == written.search


def test_another_seed_draws_other_settings_even_of_a_huge_space() -> None:
    space = {letter: range(100) for letter in "abcdefgh"}
    assert spaces.count_settings(space) == 10**16
    assert spaces.list_settings(space, 5, 0) != spaces.list_settings(space, 5, 1)


def test_a_space_beyond_64_bits_can_be_drawn_from() -> None:
    assert len(spaces.list_settings({letter: range(100) for letter in "abcdefghij"}, 5, 0)[0]) == 5


def spelled(space: Any, fixed: Mapping[str, Any]) -> dict[str, Any]:
    return resolve_search(search(space=space), Pillar(**fixed), fixed).space


def test_fields_that_somebody_set_are_not_searched() -> None:
    assert spelled("own", {}) == Pillar.search_space
    assert set(spelled("own", {"k": 7, "clip": 2.0})) == set(Pillar.search_space) - {"k"}
    assert set(spelled("paper", {"steps": 9})) == set(Pillar.paper_space) - {"steps"}


def test_a_space_on_the_command_line_becomes_values_of_the_fields_types() -> None:
    assert spelled({"k": ("3", "4"), "center": ("false",)}, {}) == {"k": (3, 4), "center": (False,)}


@pytest.mark.parametrize("weight", [0.4, 6.0])
def test_a_simulated_curator_answers_with_the_weighted_sum_and_the_noise_of_the_real_run(weight: float) -> None:
    rows = private_rows(n=20, d=20_000)
    sigma, clips, plan = 3.0, (0.5, 40.0), [Release("both", steps=2)]
    curator = curator_over(rows, plan, sigma=sigma / weight)
    stand_ins = make_weighted_curator(curator.curator, {"both": sigma}, weight)
    answers = stand_ins.noisy_sum(lambda chunk: Blocks((chunk.x, -chunk.x)), release="both", clip=clips)
    answers = [*answers, stand_ins.map(lambda x: x).noisy_sum(lambda chunk: chunk.x, release="both", clip=2.0)]
    for answer, clip, sign, spread in zip(answers, (*clips, 2.0), (1, -1, 1), (2**0.5, 2**0.5, 1), strict=True):
        scales = (clip / rows.x.double().norm(dim=1)).clamp(max=1)
        noise = (answer.double() - sign * weight * (scales @ rows.x.double())).numpy() / (sigma * clip * spread)
        assert noise.std() == pytest.approx(1, rel=5 / math.sqrt(4e4))
        assert stats.kstest(noise, "norm").pvalue > 1e-3
    assert (stand_ins.task, stand_ins.sigma) == (curator.task, {"both": sigma})


@pytest.mark.parametrize("rule", ["public-validation", "private-unaccounted"])
def test_a_learner_sees_the_size_and_noise_of_its_real_run(rule: str) -> None:
    Guess.seen.clear()
    chosen(Guess(), {"guess": (0, 1)}, rule)
    sizes, sigmas, public = zip(*Guess.seen, strict=True)
    assert set(sizes) == {300}
    assert sigmas[0]["unused"] > 1
    assert all(sigma == sigmas[0] for sigma in sigmas)
    assert set(public) == {0}  # it declares to need none


@pytest.mark.parametrize("learner", [Tiny(), Guess()])
def test_only_a_search_that_says_so_touches_private_rows(learner: Learner) -> None:
    space: dict[str, Any] = {"clip": (0.1, 1.0)} if isinstance(learner, Tiny) else {"guess": (0, 1)}
    assert not chosen(learner, space).private_touched
    assert Watched.reads == []
    assert chosen(learner, space, "private-unaccounted").private_touched
    assert "chunks" in Watched.reads


@pytest.mark.slow
def test_a_reference_is_tuned_on_what_it_may_see_of_the_public_split() -> None:
    found = chosen(NonPrivate(), {"regularisation": (1e-6, 1.0)}, epsilon=math.inf)
    assert Watched.reads == []
    assert max(trial.accuracy or 0 for trial in found.trials) > 0.9


@pytest.mark.parametrize("folds", [2, 5, 20])
def test_every_public_label_is_scored_once_by_what_was_fitted_without_it(folds: int) -> None:
    everything = [float(x[0]) for x in PUBLIC.x]
    folds_ = make_folds(world(), Recites(), search(folds=folds))
    assert sorted(float(x[0]) for fold in folds_ for x in fold.x) == everything
    for fold in folds_:
        held, kept, shown = ({float(x[0]) for x in part} for part in (fold.x, fold.rows.x, fold.public.x))
        assert kept == shown == set(everything) - held
        assert fold.weight == pytest.approx(300 / len(kept))
        assert PUBLIC.y[[everything.index(float(x[0])) for x in fold.x]].tolist() == fold.y.tolist()


@pytest.mark.quick(1)
@pytest.mark.parametrize("rule", ["public-validation", "private-unaccounted"])
def test_a_learner_that_recites_labels_gets_no_credit_and_of_equals_the_first_is_chosen(rule: str) -> None:
    found = chosen(Recites(), {"steps": (2, 1, 3)}, rule)
    assert [trial.accuracy for trial in found.trials] == [0.0] * 3
    assert found.chosen == {"steps": 2}


@dataclass(frozen=True)
class Catches(Recites):
    """Remembers how many rows it saw, and catches the refusal."""

    name: ClassVar[str] = "catches"

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        counts: list[int] = []

        def look(chunk: Chunk) -> Tensor:
            counts.append(len(chunk))
            return chunk.x

        with suppress(PrivacyError):
            curator.noisy_sum(look, release="look", clip=1.0)
        return lambda x: torch.eye(CLASSES)[[1] * len(x)]


@pytest.mark.parametrize("rule", ["public-validation", "private-unaccounted"])
def test_a_setting_whose_learner_catches_a_refusal_has_no_score(rule: str) -> None:
    with pytest.raises(SpecError, match=r"Every setting .* failed \(1 tried\).* closure variable `counts`"):
        chosen(Catches(), {"steps": (1,)}, rule)


@pytest.mark.parametrize("public", [PublicData(PUBLIC.x[:9], PUBLIC.y[:9]), PublicData(PUBLIC.x, None)])
def test_too_few_public_labels_are_refused_in_one_sentence(public: PublicData) -> None:
    with pytest.raises(SpecError, match=r"at least 10 labelled public examples .* Add --public-fraction"):
        make_folds(replace(world(), public=public), Tiny(), search())


def test_the_best_setting_wins_and_what_cannot_be_tried_is_on_record() -> None:
    faults = ("fit", "diverges", "none")
    found = chosen(Guess(), {"fault": faults, "guess": (-1, 0, 1, 2)})
    shares = np.bincount(PUBLIC.y.numpy(), minlength=3) / len(PUBLIC.y)
    assert found.chosen == {"fault": "none", "guess": int(shares.argmax())}
    by_fault = {fault: [t for t in found.trials if t.setting["fault"] == fault] for fault in faults}
    assert [trial.accuracy for trial in by_fault["none"]] == [None, *shares]
    for fault, said in {"fit": "ZeroDivisionError", "diverges": "diverged"}.items():
        assert [trial.accuracy for trial in by_fault[fault]] == [None] * 4
        assert all(said in str(trial.error) for trial in by_fault[fault][1:])
    assert all("guess=-1" in str(trials_[0].error) for trials_ in by_fault.values())
    assert (found.possible, found.tried, found.draw, found.public_labels) == (12, 12, "grid", 53)


@dataclass(frozen=True)
class Leans(Recites):
    """Takes a share of the frequent class for the rare one, or says the frequent class of everything."""

    name: ClassVar[str] = "leans"

    blind: bool = False

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        def predict(x: Tensor) -> Tensor:
            second = (x[:, 4] > 1) | (torch.arange(len(x)) % 3 == 0)
            return torch.eye(CLASSES)[1 + (second & (not self.blind)).long()]

        return predict


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("metric", "blind"), [("accuracy", True), ("balanced_accuracy", False), ("worst_class_accuracy", False)]
)
def test_settings_are_chosen_by_what_the_protocol_compares_by(metric: Any, blind: bool) -> None:
    frequent, rare = ((PUBLIC.y == label).nonzero().flatten() for label in (1, 2))
    kept = torch.cat([frequent, rare[:2]])
    roles = world()
    task = replace(roles.task, metric=metric)
    roles = replace(roles, task=task, public=PublicData(PUBLIC.x[kept], PUBLIC.y[kept]))
    wanted = ResolvedSearch.model_validate({"space": {"blind": (True, False)}})
    who = lambda doing: f"{doing} of 'leans'"
    found = TrialRunner(Leans(), who, roles, Budget(3, 1e-3), "rdp", wanted, "a test").choose_setting()
    assert found.chosen == {"blind": blind}
    assert [trial.score is None for trial in found.trials] == [metric == "accuracy"] * 2
    assert found.trials[0].accuracy == len(frequent) / len(kept)


def test_where_nothing_can_be_tried_the_first_reason_is_given() -> None:
    with pytest.raises(
        SpecError, match=r"Every setting of learner 'guess' failed \(2 tried\).* ZeroDivisionError: no luck"
    ) as refused:
        chosen(Guess(fault="fit"), {"guess": (0, 1)})
    assert "\n" not in str(refused.value)


@pytest.mark.quick(1)
@pytest.mark.parametrize("rule", ["public-validation", "private-unaccounted"])
def test_a_setting_that_is_better_by_construction_is_chosen(rule: str) -> None:
    found = chosen(Tiny(init="uniform"), {"learning_rate": (1e-7, 0.5, 3e38), "clip": (1.0, 2.0)}, rule, epsilon=50)
    assert found.chosen is not None
    assert found.chosen["learning_rate"] == 0.5
    assert max(trial.accuracy or 0 for trial in found.trials) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["public-validation", "private-unaccounted"])
def test_what_trains_together_does_not_change_what_is_chosen(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    groups: list[int] = []

    def counted(learners: Sequence[ProbeLearner], *arguments: Any) -> list[Predict]:
        groups.append(len(learners))
        return fit_probes_together(learners, *arguments)

    monkeypatch.setattr(trials, "fit_probes_together", counted)
    space, found = {"learning_rate": (0.05, 0.5), "clip": (0.1, 1.0), "sample_rate": (0.5, 1.0)}, []
    for together, sizes in ((0, set()), (1, {1}), (3, {3, 1}), (16, {4})):  # four settings at each of two rates
        monkeypatch.setattr(trials, "MAX_TRAINED_TOGETHER", max(1, together))
        monkeypatch.setattr(trials, "is_stackable", lambda learner, together=together: together > 0)
        found.append(chosen(Tiny(init="uniform"), space, rule, epsilon=0.03))
        assert set(groups) == sizes
        groups.clear()
    for alone, *others in zip(*(selection.trials for selection in found), strict=True):
        for other in others:
            assert other.setting == alone.setting
            assert other.accuracy == pytest.approx(alone.accuracy, abs=2 / 53)
    assert all(selection.chosen == found[0].chosen for selection in found)


@pytest.mark.slow
def test_a_search_repeats_and_another_seed_searches_elsewhere() -> None:
    space = {"learning_rate": (0.1, 0.3, 1.0), "clip": (0.1, 0.3, 1.0), "momentum": (0.0, 0.5)}
    first, second, other = (chosen(Tiny(), space, tries=5, seed=seed) for seed in (0, 0, 1))
    assert first == second
    assert (first.tried, first.possible, first.draw) == (5, 18, "random")
    assert [trial.setting for trial in first.trials] != [trial.setting for trial in other.trials]


@pytest.mark.quick(1)
@pytest.mark.parametrize("clip", [-1.0, math.inf])
def test_a_setting_that_fails_does_not_take_others_with_it(clip: float) -> None:
    found = chosen(Tiny(), {"clip": (1.0, clip)})
    assert [trial.accuracy is None for trial in found.trials] == [False, True]


def test_a_learner_with_a_fit_of_its_own_is_tuned_by_that_fit() -> None:
    class Stubborn(Tiny):
        def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
            return lambda x: torch.eye(CLASSES)[[0] * len(x)]

    assert {trial.accuracy for trial in chosen(Stubborn(), {"clip": (0.1, 1.0)}).trials} == {0.0}


def test_a_learner_that_cannot_be_built_with_a_setting_is_on_record() -> None:
    @dataclass(frozen=True)
    class Fragile(Tiny):
        def __post_init__(self) -> None:
            assert 1 / self.momentum

    found = chosen(Fragile(), {"momentum": (0.0, 0.5)})
    assert "ZeroDivisionError" in str(found.trials[0].error)


def test_what_a_learner_writes_into_public_data_reaches_no_other_trial() -> None:
    class Scribbler(Tiny):
        public: ClassVar[Literal["none", "unlabelled", "labelled"]] = "unlabelled"

        def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
            assert bool(public.x.abs().sum() > 0)
            public.x.zero_()
            return lambda x: torch.eye(CLASSES)[[0] * len(x)]

    assert {trial.error for trial in chosen(Scribbler(), {"clip": (0.1, 1.0)}).trials} == {None}
