"""A run: it repeats, it states what it guarantees, and a learner sees what the protocol allows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch
from dpbench_plugins.extractors.pixels import Pixels
from PIL import Image

import dpbench
from dpbench import Budget, Chunk, Curator, Learner, Predict, PublicData, RankOne, Release, SpecError, Task
from dpbench.data import duplicates
from dpbench.errors import ComponentFailed, DataError, NotPlanned
from dpbench.harness.fit import fit_and_score_seed
from dpbench.harness.session import open_session
from dpbench.privacy import MECHANISM
from dpbench.privacy.core.rows import PrivateRows
from dpbench.records.board import find_board
from dpbench.records.overlap import OverlapCounts
from dpbench.records.result import Result
from dpbench.records.spec import make_spec
from dpbench.registry import Registration, Registry, load
from dpbench.registry.boards import make_entry_spec
from dpbench.sweep.conduct import sweep
from tests.helpers.commands import call
from tests.helpers.sessions import session


@dataclass(frozen=True)
class Centroids(Learner):
    """Scores are inner products with the noisy sum of each class."""

    name: ClassVar[str] = "centroids"

    steps: int = 2
    sample_rate: float = 1.0
    clip: float = 1.0

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        return [Release("sum", self.steps, self.sample_rate)]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        def rows(chunk: Chunk) -> RankOne:
            return RankOne(torch.eye(10)[chunk.y], chunk.x - 0.5)

        total = torch.stack([curator.noisy_sum(rows, release="sum", clip=self.clip) for _ in range(self.steps)]).sum(0)
        return lambda x: (x - 0.5) @ total.T


def ran(learner: type[Learner] = Centroids, options: str = "", **values: Any) -> Result:
    installed = load().components
    brought = {**installed["learner"], learner.name: Registration(learner, "tiny-plugin", "tiny-wheel", "0.1")}
    values = {"learner": f"{learner.name}:{options}", "seeds": 2, **values}
    return session(Registry({**installed, "learner": brought})).run(make_spec(values, "the test"))


def test_a_run_repeats_bit_for_bit() -> None:
    first, second = (ran(options="steps=10,sample_rate=0.3", epsilon=4, accountant="rdp") for _ in range(2))
    assert first.seeds == second.seeds
    assert first.metrics == second.metrics


def test_seeds_draw_their_own_noise() -> None:
    first, second = ran(epsilon=0.5).seeds
    assert first.class_accuracy != second.class_accuracy


def test_a_seed_scores_the_same_alone_and_among_others() -> None:
    assert ran(seeds=[1]).seeds[0] == ran(seeds=[0, 1]).seeds[1]


def test_a_secure_run_does_not_repeat() -> None:
    first, second = (ran(epsilon=0.5, secure_rng=True).seeds for _ in range(2))
    assert [seed.class_accuracy for seed in first] != [seed.class_accuracy for seed in second]


@pytest.mark.parametrize("secure", [True, False])
def test_a_result_says_what_its_randomness_leaves_out_and_commits_to_nothing(secure: bool) -> None:
    result = ran(secure_rng=secure)
    assert result.privacy.rng == ("secure" if secure else "research")
    assert result.privacy.mechanism == MECHANISM
    assert result.not_covered[-1].startswith("less than 1e-12 of epsilon" if secure else "whoever knows the seed")


def test_a_result_names_the_engine_of_each_split(fresh_cache: Path) -> None:
    by_torch = f"torch {torch.__version__}"
    assert ran(seeds=1).provenance["engines"] == {"train": by_torch, "test": by_torch}


@dataclass(frozen=True)
class Sums(Learner):
    """Keeps its answers: noise alone, as it sums zeros."""

    name: ClassVar[str] = "sums"
    kept: ClassVar[list[torch.Tensor]] = []
    factor: float = 1.0

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        return [Release("sum", steps=2)]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        for _ in range(2):
            answer = curator.noisy_sum(lambda chunk: 0 * self.factor * chunk.x, release="sum", clip=1.0)
            assert isinstance(answer, torch.Tensor)
            self.kept.append(answer.double() / curator.sigma["sum"])
        return lambda x: torch.zeros(len(x), curator.task.classes)


@dataclass(frozen=True)
class SameSums(Sums):
    """The same questions under another name."""

    name: ClassVar[str] = "same-sums"


@pytest.mark.usefixtures("telling")
def test_no_two_runs_share_noise_that_could_be_subtracted() -> None:
    """Between learners, settings, budgets, data, steps and seeds."""
    components: Any = {kind: dict(known) for kind, known in load().components.items()}
    for cls in (Sums, SameSums):
        components["learner"][cls.name] = Registration(cls, "tiny-plugin", "tiny-wheel", "0.1")
    Sums.kept.clear()
    changes: list[dict[str, Any]] = [
        {}, {"epsilon": 0.11}, {"learner": "same-sums"}, {"learner": "sums:factor=1.001"}, {"public_fraction": 0.2},
        {"split_seed": 1}, {"delta": 1e-6}, {"accountant": "rdp"}, {"train_fraction": 0.9},
    ]  # fmt: skip
    for change in changes:
        asked = {"learner": "sums", "epsilon": 0.1, "seeds": 2, **change}
        session(Registry(components)).run(make_spec(asked, "the test"))
    noise = np.array([answer.numpy() for answer in Sums.kept])  # (36, 64)
    correlations = np.corrcoef(noise)[np.triu_indices(len(noise), 1)]
    assert len(noise) == 2 * 2 * len(changes)
    assert np.abs(correlations).max() < 0.65


def test_infinite_epsilon_means_no_noise() -> None:
    result = ran(epsilon=math.inf)
    assert (result.privacy.sigma, result.privacy.plan[0].sigma, result.privacy.epsilon) == (0, 0, math.inf)
    assert result.seeds[0].accuracy == result.seeds[1].accuracy > 0.6


@dataclass(frozen=True)
class Measuring(Learner):
    """Two releases of unlike noise: asks each for a sum of zeros, and keeps the answers."""

    name: ClassVar[str] = "measuring"
    answers: ClassVar[dict[str, list[torch.Tensor]]] = {"quiet": [], "loud": []}
    sigmas: ClassVar[list[dict[str, float]]] = []

    clip: float = 0.5

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        return [Release("quiet", 2, 0.3), Release("loud", 1, relative_noise=4.0)]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        self.sigmas.append(dict(curator.sigma))
        for name, answers in self.answers.items():
            rows = lambda chunk: torch.zeros(len(chunk), 20_000)
            answers.append(curator.noisy_sum(rows, release=name, clip=self.clip))
        return lambda x: torch.eye(10)[[0] * len(x)]


SEARCHES: dict[str, dict[str, Any]] = {
    "none": {},
    "private-accounted": {"search": {"rule": "private-accounted", "space": {"clip": (0.5,)}, "repeats": 3}},
    "public-validation": {"search": {"rule": "public-validation", "space": {"clip": (0.5,)}, "folds": 2}},
    "private-unaccounted": {"search": {"rule": "private-unaccounted", "space": {"clip": (0.5,)}}},
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.usefixtures("telling")
def test_what_a_learner_is_answered_has_the_noise_that_the_result_states(search: str) -> None:
    """In every fit behind a result: the base sigma times the release's relative noise times the clip."""
    Measuring.sigmas.clear()
    for answers in Measuring.answers.values():
        answers.clear()
    privacy = ran(Measuring, epsilon=2, accountant="rdp", seeds=2, **SEARCHES[search]).privacy
    assert [release.sigma / privacy.sigma for release in privacy.plan] == [1.0, 4.0]
    stated = {release.name: release.sigma for release in privacy.plan}
    assert len(Measuring.sigmas) >= 2
    assert all(sigma == pytest.approx(stated) for sigma in Measuring.sigmas)
    for name, answers in Measuring.answers.items():
        for answer in answers:
            assert float(answer.std()) == pytest.approx(stated[name] * 0.5, rel=5 / math.sqrt(4e4))


def test_every_hyperparameter_is_spelled_out() -> None:
    spec = ran(options="clip=2").spec
    assert spec.learner.options == {"steps": 2, "sample_rate": 1.0, "clip": 2.0}
    assert spec.extractor.options == {"size": None, "flat": True, "mode": "stored"}


def test_a_default_spelled_out_is_the_same_run() -> None:
    assert ran(options="steps=2").digest == ran().digest == ran().spec.digest


@pytest.mark.quick(1)
@pytest.mark.parametrize(("options", "selection"), [("", "default"), ("steps=2", "default"), ("steps=3", "by-hand")])
def test_a_result_says_how_hyperparameters_were_chosen(options: str, selection: str) -> None:
    assert ran(options=options).selection == selection


def test_a_learner_whose_options_have_no_default_can_run() -> None:
    @dataclass(frozen=True)
    class Demanding(Centroids):
        name: ClassVar[str] = "demanding"

        rank: int = field(kw_only=True)

    assert ran(Demanding, "rank=3").selection == "by-hand"


@pytest.mark.parametrize("place", ["plan", "fit", "predict"])
def test_a_learner_that_raises_is_named_with_plugin_and_distribution(place: str) -> None:
    def fails(*arguments: object) -> Any:
        raise ZeroDivisionError("in the plugin")

    class Failing(Centroids):
        name: ClassVar[str] = "failing"

        def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
            return fails

    Broken = Failing if place == "predict" else type("Broken", (Failing,), {place: fails})
    with pytest.raises(ComponentFailed, match=r"'failing'.*'tiny-plugin', tiny-wheel 0\.1.*ZeroDivisionError"):
        ran(Broken)


def test_what_the_curator_refuses_passes_through_a_run() -> None:
    class Greedy(Centroids):
        name: ClassVar[str] = "greedy"

        def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
            return [Release("sum", self.steps - 1)]

    with pytest.raises(NotPlanned, match="All 1 planned steps of release 'sum' are spent"):
        ran(Greedy)


def test_the_ledger_spends_what_was_planned() -> None:
    result = ran(options="steps=3")
    assert [seed.spent for seed in result.seeds] == [{"sum": 3}, {"sum": 3}]
    assert result.privacy.plan[0].steps == 3


def test_stopping_early_buys_no_smaller_epsilon() -> None:
    class Lazy(Centroids):
        name: ClassVar[str] = "lazy"

        def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
            curator.noisy_sum(lambda chunk: chunk.x, release="sum", clip=1)
            return lambda x: x[:, :10]

    lazy = ran(Lazy)
    assert lazy.privacy == ran().privacy
    assert lazy.seeds[0].spent == {"sum": 1}


@pytest.mark.quick(1)
@pytest.mark.parametrize("accountant", ["pld", "rdp", "prv"])
@pytest.mark.parametrize("options", ["", "sample_rate=0.3"])
def test_every_accountant_reaches_the_budget_from_below(accountant: str, options: str) -> None:
    privacy = ran(options=options, accountant=accountant, epsilon=2, seeds=1).privacy
    assert privacy.accountant == accountant
    assert 1.98 < privacy.epsilon <= 2


@pytest.mark.quick(1)
@pytest.mark.parametrize("options", ["", "sample_rate=0.3", "steps=20,sample_rate=0.05"])
def test_an_independent_accountant_contains_the_stated_epsilon(options: str) -> None:
    privacy = ran(options=options, epsilon=2, seeds=1).privacy
    assert privacy.independent.accountant == "prv-accountant"
    assert privacy.independent.lower <= privacy.epsilon <= privacy.independent.upper
    assert privacy.independent.upper - privacy.independent.lower < 0.1 * privacy.epsilon


class Seeing(Centroids):
    """Keeps what it was shown of the public data, then writes over it."""

    seen: ClassVar[list[tuple[int, float, list[int] | None]]]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        labels = None if public.y is None else public.y.tolist()
        self.seen.append((len(public.x), float(public.x.sum()), labels))
        public.x.fill_(-1.0)
        return super().fit(curator, public, generator)


def seeing(name: str, need: Literal["none", "unlabelled", "labelled"]) -> type[Seeing]:
    return type("Seen", (Seeing,), {"name": name, "public": need, "seen": []})


@pytest.mark.slow
@pytest.mark.usefixtures("telling")
def test_a_learner_that_needs_no_public_data_sees_none() -> None:
    learner = seeing("blind", "none")
    result = ran(learner, public_labels=True)
    assert learner.seen == [(0, 0.0, None)] * 2
    assert result.task.public == 0


@pytest.mark.usefixtures("telling")
def test_an_unlabelled_learner_sees_no_labels_even_where_labels_are_allowed() -> None:
    learner = seeing("seeing", "unlabelled")
    result = ran(learner, public_labels=True)
    assert [(size, labels) for size, _, labels in learner.seen] == [(144, None)] * 2
    assert not result.task.public_labels_seen


def test_a_labelled_learner_is_refused_without_public_labels() -> None:
    with pytest.raises(SpecError, match=r"'reading' needs labelled public data.*--public-labels"):
        ran(seeing("reading", "labelled"))


def test_a_labelled_learner_is_refused_without_public_data() -> None:
    with pytest.raises(SpecError, match=r"'reading' needs public data.*--public-fraction"):
        ran(seeing("reading", "labelled"), public_labels=True, public_fraction=0)


@pytest.mark.usefixtures("telling")
def test_a_labelled_learner_sees_labels_where_they_are_allowed() -> None:
    learner = seeing("reading", "labelled")
    result = ran(learner, public_labels=True)
    labels = learner.seen[0][2]
    assert labels is not None
    assert (len(labels), set(labels)) == (144, set(range(10)))
    assert result.task.public_labels_seen


@pytest.mark.usefixtures("telling")
def test_a_learner_that_writes_over_public_data_does_not_touch_the_next_seed() -> None:
    learner = seeing("writing", "unlabelled")
    ran(learner)
    assert learner.seen[0] == learner.seen[1]


def test_a_result_names_who_brought_each_component() -> None:
    components = ran().components
    assert components["learner"].model_dump() == {
        "plugin": "tiny-plugin", "distribution": "tiny-wheel", "version": "0.1"
    }  # fmt: skip
    assert set(components) == {"learner", "extractor", "dataset"}


def test_preparing_reads_no_private_row_and_fitting_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> None:
        raise DataError("A private row was read.")

    monkeypatch.setattr(PrivateRows, "chunks", read)
    prepared = session().prepare(make_spec({"learner": "dp-sgd:steps=3", "seeds": 1}, "the test"))
    assert 0.9 < prepared.privacy.epsilon <= 1
    with pytest.raises(DataError, match="A private row was read"):
        fit_and_score_seed(prepared, 0)


def test_other_weights_of_an_extractor_have_noise_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the difference of two runs, before and after a checkpoint trained on, would be free of noise."""
    spec, found = make_spec({"learner": "dp-sgd:steps=3", "seeds": 1}, "the test"), []
    for weights in ("", "of Monday", "of Tuesday"):
        monkeypatch.setattr(Pixels, "weights", lambda self, weights=weights: weights)
        found.append(session().prepare(spec).identity)
    assert len(set(found)) == 3


def test_an_unusable_device_is_refused() -> None:
    with pytest.raises(SpecError, match="Device 'abacus' cannot be used"):
        open_session("abacus")


def test_splits_that_share_images_are_a_warning_and_on_a_board_a_refusal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(duplicates, "count_overlap", lambda of, _: OverlapCounts(exact=9, near=9, among=len(of)))
    said = "Test in private: expected at most 1% of the 359 images of the smaller split to be exact copies, got 9."
    assert said in session().run(make_spec({"learner": "class-means", "seeds": 1}, "the test"), sharing="any").remarks
    once = ("run", "--learner", "class-means", "--seeds", "1", "--out", str(tmp_path))
    assert call(*once, "--allow-overlap") == 0
    assert f"warning {said}" in " ".join(capsys.readouterr().out.split())
    asked = ("run", "--board", "digits-eps1", "--out", str(tmp_path))
    for learners in ("class-means", "class-means,pillar"):
        assert call(*asked, "--learner", learners) == 1  # beside a warning of uncommitted changes, where there are some
        assert f"No board accepts this run. {said} Run it without --board" in capsys.readouterr().err


def same_photos_twice(folder: Path) -> dict[str, Any]:
    """Return a private folder of photos, and a public one of the same photos under other names."""
    random = np.random.default_rng(0)
    for split, place in itertools.product(("train", "test"), range(40)):
        photo = Image.fromarray(random.integers(0, 256, (8, 8), np.uint8))
        for name in ("private", "public"):
            file = folder / name / split / "ab"[place % 2] / f"{name}-{place}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            photo.save(file)
    return {"dataset": f"imagefolder:{folder / 'private'}", "public_dataset": f"imagefolder:{folder / 'public'}"}


@pytest.mark.slow
def test_public_images_that_are_private_ones_under_other_names_are_refused_unless_the_spec_allows_it(
    tmp_path: Path,
) -> None:
    """At "epsilon 0: no private example was read", once."""
    data: dict[str, Any] = {**same_photos_twice(tmp_path), "public_labels": True, "seeds": 1}
    with pytest.raises(SpecError, match=r"^Public in private: .* got 40\. Epsilon does not cover"):
        dpbench.run("public-only", out=tmp_path / "one", **data)
    data["allow_overlap"] = True
    (found,) = dpbench.run("public-only", out=tmp_path / "one", **data).records
    assert found.spec.allow_overlap
    assert any(remark.startswith("Public in private") for remark in found.remarks)
    assert (
        found.zero_epsilon_remark == "ε 0 by its plan, but 40 of 40 public images are near-duplicates of private ones "
        "(40 identical)"
    )
    flags = [f"--{key.replace('_', '-')}={data[key]}" for key in ("dataset", "public_dataset", "seeds")]
    alone = ("run", "--learner=public-only", *flags, "--public-labels", "--allow-overlap")
    assert call(*alone, f"--out={tmp_path / 'alone'}") == 0


@pytest.mark.slow
def test_a_sweep_may_allow_public_images_that_are_private_ones(tmp_path: Path) -> None:
    data = {**same_photos_twice(tmp_path), "public_labels": True, "seeds": 1, "allow_overlap": True}
    swept = sweep({"name": "shared", "fixed": data, "grid": {"learner": ["public-only"]}}, tmp_path / "sweep")
    assert (swept.ran, swept.failed) == (1, ())


def test_no_board_takes_a_run_that_allows_public_images_to_be_private_ones() -> None:
    with pytest.raises(SpecError, match="the test: no board allows public images that are also private"):
        make_entry_spec(
            find_board("digits-eps1"), {"learner": "class-means", "allow_overlap": True}, load(), "the test"
        )


@dataclass(frozen=True)
class Wasteful(Centroids):
    """Plans a step more than it asks for."""

    name: ClassVar[str] = "wasteful"

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        return [Release("sum", self.steps + 1, self.sample_rate), Release("mean")]


@pytest.mark.slow
def test_budget_that_bought_nothing_is_in_the_result() -> None:
    assert not [remark for remark in ran().remarks if remark.startswith("Release")]
    assert not [remark for remark in ran(Wasteful, epsilon=math.inf).remarks if remark.startswith("Release")]
    first, second = (remark for remark in ran(Wasteful).remarks if remark.startswith("Release"))
    assert first.startswith("Release 'sum' asked for 2 of its 3 planned steps")
    assert second.startswith("Release 'mean' asked for 0 of its 1 planned steps")


def test_copies_of_public_images_that_were_left_out_are_stated_as_not_covered(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x, y = random.integers(0, 256, (400, 8, 8), dtype=np.uint8), np.arange(400) % 2
    public = dpbench.dataset(x[190:], y[190:], x[:20], y[:20], name="public")
    private = dpbench.dataset(x[:200], y[:200], x[:20], y[:20], name="private")
    (found,) = dpbench.run("dp-sgd:steps=2", private, public_dataset=public, seeds=1, out=tmp_path).records
    assert (found.task.left_out, found.task.private) == (10, 190)
    assert any(remark.startswith("10 private images equal a public image") for remark in found.remarks)
    assert found.not_covered[-1].startswith("that 10 private images equal a public image")
