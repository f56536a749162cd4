"""What the harness does around the core: fits, searches, identities and journals tell no more than they may."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from dpbench_plugins.learners.dp_sgd import DPSGD
from dpbench_plugins.theory.datasets.halfspaces import LowRankHalfspace
from torch import Tensor

from dpbench import Budget, Chunk, Curator, Learner, Predict, PublicData, Release, Splits, Task
from dpbench.api import Choice, Dataset, DeclaredImages, Split
from dpbench.errors import DataError, NotPerExample, NotPlanned, PrivacyError, SpecError
from dpbench.harness.prepare import prepare_seed
from dpbench.privacy.purity.reach import Reach
from dpbench.records.identity import compute_fit_identity
from dpbench.records.journal import RunJournalFolder
from dpbench.records.result import ComponentOrigin
from dpbench.records.spec import Spec, make_spec
from dpbench.records.stated_plan import make_plan_records
from dpbench.registry import Registration, Registry, load
from tests.data.test_duplicates import photo
from tests.helpers.sessions import session
from tests.helpers.worlds import curator_over, private_rows

PRIVATE_SEARCH = {
    "learner": "tried:steps=3", "dataset": "digits", "epsilon": 2, "accountant": "rdp", "public_fraction": 0.1,
    "public_labels": True,
}  # fmt: skip


@dataclass(frozen=True)
class Tried(DPSGD):
    """DP-SGD under a name of its own, fitted by its own fit."""

    name: ClassVar[str] = "tried"

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        return super().fit(curator, public, generator)


def plugins(*brought: type[Learner] | type[Dataset]) -> Registry:
    """Return what is installed, and these."""
    components = {kind: dict(items) for kind, items in load().components.items()}
    for cls in brought:
        kind: Any = "learner" if issubclass(cls, Learner) else "dataset"
        components[kind][cls.name] = Registration(cls, "tiny", "tiny", "0.1")
    return Registry(components)


def private_search(seeds: Sequence[int] = (1,)) -> Spec:
    """Return a run that searches on private data, within its epsilon."""
    search = {"rule": "private-accounted", "space": {"clip": (0.5, 1.0)}, "repeats": 3}
    return make_spec({**PRIVATE_SEARCH, "seeds": list(seeds), "search": search}, "a test")


def test_a_fit_that_swallows_a_refusal_is_refused() -> None:
    class Swallows(Tried):
        def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
            with suppress(PrivacyError):
                curator.noisy_sum(lambda chunk: chunk.x - chunk.x.mean(0), release="gradient", clip=1.0)
            return lambda x: torch.zeros(len(x), 10)

    spec = make_spec({"learner": "tried:steps=3", "dataset": "digits", "seeds": 1}, "a test")
    with pytest.raises(NotPerExample, match="beside other rows"):
        session(plugins(Swallows)).run(spec)


def test_whatever_changes_a_sum_or_its_noise_changes_the_identity() -> None:
    spec = make_spec({"learner": "tried:steps=3", "dataset": "digits", "seeds": 1}, "a test")
    (release,) = make_plan_records([Release("gradient", steps=3)], 2.0)
    origin = ComponentOrigin(plugin="tiny", distribution="tiny", version="0.1")
    given: dict[str, Any] = {
        "spec": spec, "plan": [release], "digests": {"private": "a", "public": "b"}, "components": {"learner": origin},
        "networks": ["resnet 1 abc"],
    }  # fmt: skip
    others: list[dict[str, Any]] = [
        {"spec": spec.model_copy(update={"epsilon": 7.0})},
        {"plan": [release.model_copy(update={"sigma": 2.1})]},
        {"plan": [release.model_copy(update={"steps": 4})]},
        {"plan": []},
        {"digests": {"private": "other", "public": "b"}},
        {"digests": {"private": "a", "public": "other"}},
        {"components": {"learner": origin.model_copy(update={"version": "0.2"})}},
        {"networks": ["resnet 1 abd"]},
        {"networks": []},
    ]
    identities = [compute_fit_identity(**given), *(compute_fit_identity(**given | other) for other in others)]
    assert len(set(identities)) == len(identities)
    assert compute_fit_identity(**given | {"spec": spec.model_copy(update={"seeds": (5,)})}) == identities[0]


@pytest.mark.parametrize("chunk_size", [None, 8])
def test_candidates_are_as_many_as_no_rows_say(chunk_size: int | None) -> None:
    curator = curator_over(private_rows(), [Choice("least", 3)])
    with pytest.raises(SpecError, match="Expected losses by 3 candidates in every chunk, as in an empty chunk"):
        curator.noisy_choice(
            lambda chunk: torch.zeros(len(chunk), 2 if len(chunk) else 3), release="least", chunk_size=chunk_size
        )


def test_a_hundredth_of_a_few_rows_is_no_rounding() -> None:
    def rows(chunk: Chunk) -> Tensor:
        few = chunk.x[:, :1] > 0.8
        return chunk.x * (1 + 0.01 * few * (len(chunk) == 40))

    with pytest.raises(NotPerExample, match="among fewer rows"):
        curator_over(private_rows(), [Release("sum")]).noisy_sum(rows, release="sum", clip=10.0)


def test_small_arrays_are_compared_around_every_chunk() -> None:
    counts = np.zeros(3)
    reach = Reach(lambda chunk: chunk.x * counts[0], thorough=False)
    before = reach.read()
    assert reach.find_change(before, reach.read()) is None
    counts[1] = 1
    assert "closure variable `counts`" in (reach.find_change(before, reach.read()) or "")


def test_nothing_is_kept_of_a_private_search_under_way(tmp_path: Path) -> None:
    kept: list[int] = []

    def interrupts(*_: object) -> None:
        kept.append(len([*tmp_path.rglob("*.jsonl")]))
        if len(kept) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        session(plugins(Tried)).run(private_search([1, 2]), keep=interrupts, journal=RunJournalFolder(tmp_path))
    assert kept == [0, 0]
    assert not [*tmp_path.rglob("*")]


def test_a_journal_that_was_cut_off_or_damaged_costs_no_other_seed(tmp_path: Path) -> None:
    result = session().run(make_spec({"learner": "class-means", "seeds": 2}, "a test"))
    journal = RunJournalFolder(tmp_path).open_run("a.json", "an identity")
    journal.file.parent.mkdir()
    journal.file.write_bytes(b'{"identity": "an iden\xff')
    for seed in result.seeds:
        journal.keep(seed)
    assert [*journal.seeds().values()] == [*result.seeds]


def test_data_drawn_for_another_seed_have_the_size_that_sigma_is_of() -> None:
    @dataclass(frozen=True)
    class Growing(LowRankHalfspace):
        name: ClassVar[str] = "growing"

        def load(self) -> Splits:
            return LowRankHalfspace(n=self.n + 10 * (self.seed or 0), m=self.m, test=self.test, seed=self.seed).load()

    spec = make_spec({"learner": "tried:steps=3", "dataset": "growing:n=100,m=20,test=20", "seeds": 2}, "a test")
    prepared = session(plugins(Tried, Growing)).prepare(spec)
    with pytest.raises(DataError, match="Expected dataset 'growing' to draw the same sizes for every seed"):
        prepare_seed(prepared, 1)


@dataclass(frozen=True)
class CopiedLater(Dataset):
    """Draws images; for seed 1 alone, the public ones are darker copies of private ones."""

    name: ClassVar[str] = "copied-later"
    classes: ClassVar[tuple[str, ...]] = ("even", "odd")
    licence: ClassVar[str] = "CC0"
    citation: ClassVar[str] = "none"

    seed: int | None = None

    def drawn(self, seed: int) -> CopiedLater:
        return replace(self, seed=seed)

    def load(self) -> Splits:
        first = 1000 * (self.seed or 0)
        train, other, test = ([photo(first + start + place, 32) for place in range(20)] for start in (0, 100, 200))
        public = [image.point(lambda level: level * 0.9) for image in train] if self.seed == 1 else other
        labels = np.arange(20, dtype=np.int64) % 2
        private, tested, given = (Split(DeclaredImages(images, "drawn"), labels) for images in (train, test, public))
        return Splits(private, tested, f"copied-later {self.seed}", given)


@pytest.mark.parametrize("seeds", [[0, 1], [1, 0]])
def test_data_that_are_drawn_are_compared_and_counted_for_every_seed(seeds: list[int], fresh_cache: Path) -> None:
    values = {"learner": "tried:steps=3", "dataset": "copied-later", "seeds": seeds, "epsilon": 4}
    opened = session(plugins(Tried, CopiedLater))
    with pytest.raises(SpecError, match="Public in private: expected at most"):
        opened.run(make_spec(values, "a test"))
    result = opened.run(make_spec({**values, "allow_overlap": True}, "a test"))
    assert result.task.overlap["public in private"].near == result.task.private == 18


def test_a_private_search_ends_at_a_refusal() -> None:
    class Asks(Tried):
        def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
            return [replace(*super().plan(task, budget), steps=1)]

        def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
            curator.noisy_sum(lambda chunk: chunk.x - chunk.x.mean(0), release="gradient", clip=1.0)
            return lambda x: torch.zeros(len(x), 10)

    with pytest.raises(NotPerExample, match="beside other rows"):
        session(plugins(Asks)).run(private_search())


def test_a_private_search_goes_on_after_a_question_that_was_not_planned() -> None:
    """What a plan refuses no private row has a part in: such a run scores nothing, and is one of many."""

    class Greedy(Tried):
        def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
            raise NotPlanned("Nothing was planned.")

    assert session(plugins(Greedy)).run(private_search()).seeds[0].setting == {}
