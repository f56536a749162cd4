"""Every law bites: each broken learner of the gallery breaks the law that was written for its fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from dpbench import Joined, RankOne, Release
from dpbench.api import Chunk
from dpbench.errors import ComponentFailed, LawBroken, PrivacyError
from dpbench.testing import DatasetLaws, ExtractorLaws, LearnerLaws
from dpbench.testing.laws import Laws
from tests.helpers import gallery
from tests.helpers.worlds import curator_over, private_rows


def _suite(learner: gallery.Honest) -> LearnerLaws:
    suite: LearnerLaws = type("Suite", (LearnerLaws,), {"learner": learner})()
    return suite


OF_ITS_MODULE = {"test_importing_is_light_and_offline", "test_only_the_contract_is_imported"}


@pytest.mark.quick(4)
@pytest.mark.parametrize("law", [law for law in LearnerLaws.laws() if law not in OF_ITS_MODULE])
def test_the_honest_learner_keeps_every_law(law: str) -> None:
    getattr(_suite(gallery.Honest()), law)()


@pytest.mark.parametrize(
    ("broken", "law", "said"),
    [
        (gallery.CentresByTheBatch, "rows_ignore_their_neighbours", "evaluated beside"),
        (gallery.SkipsBatchesThatAreNotFinite, "rows_ignore_their_neighbours", "over other rows, rows that are odd"),
        (gallery.ScalesBytes, "rows_ignore_their_neighbours", "over other rows, rows that are odd"),
        (gallery.NormalisesByTheDrawnBatchSize, "all_it_learns_comes_from_answers", "beyond the curator's answers"),
        (gallery.KeepsPrivateRows, "no_private_row_outlives_the_fit", "holds a private row"),
        (gallery.KeepsPrivateRows, "a_blind_curator_teaches_nothing", "pure noise"),
        (gallery.KeepsPrivateRows, "a_tiny_budget_stays_at_chance", "at epsilon 0.001"),
        (gallery.FitsComponentsOnPrivateRows, "all_it_learns_comes_from_answers", "beyond the curator's answers"),
        (gallery.ClipsByAQuantileOfPrivateNorms, "questions_follow_answers_alone", "the clip follows private data"),
        (gallery.WeighsClassesByPrivateCounts, "questions_follow_answers_alone", "both hold contribute"),
        (gallery.SpendsOutsideItsPlan, "no_release_outside_the_plan", "planned steps of release 'sums' are spent"),
        (gallery.PlansMoreThanItAsks, "every_planned_step_is_asked", r"sums \(1 of 3\)"),
        (gallery.PlansWhatItNeverAsks, "every_planned_step_is_asked", r"mean \(0 of 1\)"),
        (gallery.PlansAtRandom, "the_plan_repeats", "differ"),
        (gallery.DrawsFromTheGlobalGenerator, "same_seeds_give_same_predictions", "predict differently"),
        (gallery.LearnsNothing, "a_large_budget_beats_chance", "at epsilon 20"),
        (gallery.RemembersBetweenFits, "a_blind_curator_teaches_nothing", "pure noise"),
        (gallery.Honest, "importing_is_light_and_offline", "it imports torch"),
    ],
)
def test_each_fault_breaks_its_law(broken: type[gallery.Honest], law: str, said: str) -> None:
    with pytest.raises(LawBroken, match=said):
        getattr(_suite(broken()), f"test_{law}")()


@pytest.mark.parametrize(
    ("broken", "law", "said"),
    [
        (gallery.PredictsFromTheTestBatch, "predictions_are_per_example", "that example alone"),
        (
            gallery.FailsOnAnEmptyChunk,
            "rows_ignore_their_neighbours",
            "on an empty chunk, which holds nothing private(.|\n)*IndexError",
        ),
    ],
)
def test_what_every_run_refuses_is_refused_before_its_law(broken: type[gallery.Honest], law: str, said: str) -> None:
    with pytest.raises(ComponentFailed, match=said):
        getattr(_suite(broken()), f"test_{law}")()


def test_a_form_whose_norm_function_under_reports_is_refused() -> None:
    class UnderReports(RankOne):
        def norms(self) -> torch.Tensor:
            return super().norms() / 2

    def rows(chunk: Chunk) -> RankOne:
        return UnderReports(torch.ones(len(chunk), 1), chunk.x * 100)

    with pytest.raises(PrivacyError, match="returned a UnderReports"):
        curator_over(private_rows(), [Release("sum")]).noisy_sum(rows, release="sum", clip=1.0)


def test_a_tensor_whose_norm_function_under_reports_is_measured_all_the_same() -> None:
    class Liar(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
            answer = super().__torch_function__(function, types, arguments, keywords or {})  # type: ignore[no-untyped-call]
            return answer * 0 if function is torch.linalg.vector_norm else answer

    def liar(chunk: Chunk) -> torch.Tensor:
        return (100 * chunk.x).as_subclass(Liar)

    rows = private_rows(n=1)
    for answer in (liar, lambda chunk: Joined((liar(chunk), liar(chunk)))):
        total = curator_over(rows, [Release("sum")]).noisy_sum(answer, release="sum", clip=1.0)
        assert float(total.norm()) <= 1 + 1e-6


def test_a_subclass_of_joined_is_refused() -> None:
    class UnderReports(Joined):
        def norms(self) -> torch.Tensor:
            return super().norms() / 2

    with pytest.raises(PrivacyError, match="returned a UnderReports"):
        curator_over(private_rows(), [Release("sum")]).noisy_sum(
            lambda chunk: UnderReports((chunk.x * 100, chunk.x)), release="sum", clip=1.0
        )


@pytest.mark.parametrize("suite", [LearnerLaws, ExtractorLaws, DatasetLaws])
def test_a_suite_without_a_subject_fails_every_law(suite: type[Laws]) -> None:
    empty = type("Empty", (suite,), {})
    assert len(suite.laws()) >= 6
    for law in suite.laws():
        with pytest.raises(LawBroken, match="tests nothing"):
            getattr(empty(), law)()


@pytest.mark.parametrize("change", ["test_the_plan_repeats", "__test__", "pytestmark"])
def test_a_law_cannot_be_overridden_hidden_or_marked_away(change: str) -> None:
    with pytest.raises(LawBroken, match=r"not changed"):
        type("Bent", (LearnerLaws,), {change: None})


def test_importing_more_than_the_contract_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "greedy_plugin.py").write_text("from dpbench.privacy.core.ledger_curator import LedgerCurator\n")
    monkeypatch.syspath_prepend(tmp_path)
    greedy = type("Greedy", (gallery.Honest,), {"__module__": "greedy_plugin"})
    with pytest.raises(LawBroken, match=r"dpbench\.privacy\.core\.ledger_curator"):
        _suite(greedy()).test_only_the_contract_is_imported()
