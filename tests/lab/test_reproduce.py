"""What the papers report stands beside what was measured, and verdicts follow from both by one rule."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpbench import registry
from dpbench.errors import DataError, UnknownName
from dpbench.records.result import Interval
from dpbench.sweep import ready_made_sweeps
from dpbench_lab.figures import literature
from dpbench_lab.reproduce.catalogue import ReproductionStudy, find_study, read_studies
from dpbench_lab.reproduce.document import (
    compare_studies,
    format_comparison_rows,
    list_comparison_remarks,
    render_markdown_page,
)
from dpbench_lab.reproduce.measurements import Measurement, TheoremRate
from dpbench_lab.reproduce.protocol import RunFacts
from dpbench_lab.reproduce.verdict import StudyComparison, compare_with_paper
from tests.helpers import readme
from tests.helpers.commands import call
from tests.lab import paper_items
from tests.lab.paper_items import count_items, named_items

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "dpbench" / "docs" / "explanation" / "papers.md"
TABLE_1 = "pillar-table-1-cifar10"  # 84.89, 84.40, 83.22, 84.54, 85.89 of dp-sgd, jl, adadps, gep, pillar


def _study(**given: Any) -> ReproductionStudy:
    return ReproductionStudy(
        **{"name": "a", "paper": "P", "place": "Table 1", "shows": "Something.", "sweep": "s", **given}
    )


def _measured(accuracies: dict[str, float], half: float = 0.1) -> list[Measurement]:
    return [
        Measurement(
            {"dataset": "cifar10", "epsilon": 0.7, "learner": learner},
            Interval(mean=percent / 100, low=(percent - half) / 100, high=(percent + half) / 100),
            True,
            tested=10_000,
        )
        for learner, percent in accuracies.items()
    ]


def _verdict(accuracies: dict[str, float], half: float = 0.1) -> str:
    return compare_with_paper(_study(published=[TABLE_1]), _measured(accuracies, half)).verdict


def test_every_item_that_is_counted_in_the_papers_is_in_the_catalogue_and_no_other() -> None:
    names = [study.name for study in read_studies()]
    assert len(names) == len(set(names))
    for paper, items in json.loads(paper_items.LIST.read_text(encoding="utf-8")).items():
        named = {item for study in read_studies() if study.paper == paper for item in named_items(study.place)}
        assert named == set(items), paper


def test_items_are_counted_from_captions_and_not_from_sentences() -> None:
    text = (
        "Table 2: Accuracy of learners\nTable 3 summarises it.\nTheorem 4.1 (Lower bound). Every class\n"
        "Lemma 3.3]. It follows\nAlgorithm 1 Semi-private learner\nAlgorithm 1. Then\nsee Figure 9: there\n"
    )
    assert {item: subject.split()[0] for item, subject in count_items(text).items()} == {
        "Table 2": "accuracy", "Algorithm 1": "semi-private", "Theorem 4.1": "lower"
    }  # fmt: skip


def test_places_name_items() -> None:
    assert [*named_items("Figures 4 to 6, Tables 2a, 3 and 16")] == [
        "Figure 4", "Figure 5", "Figure 6", "Table 2", "Table 3", "Table 16"
    ]  # fmt: skip
    assert [*named_items("Theorem 4.2, with and without projection")] == ["Theorem 4.2"]


def test_every_published_series_is_compared_and_every_sweep_exists() -> None:
    named = {series for study in read_studies() for series in (*study.published, *study.other_features)}
    assert named == set(literature.read_literature().series)
    assert {study.sweep for study in read_studies() if study.sweep} <= set(ready_made_sweeps.list_sweep_names())


def test_numbers_within_two_points_hold_if_all_are_measured() -> None:
    near = {"dp-sgd": 83.0, "jl": 86.3, "gep": 84.0, "adadps": 83.0, "pillar": 85.0}
    assert _verdict(near) == "holds"
    near.pop("gep")
    assert _verdict(near) == "holds, in part"


def test_the_same_order_at_another_height_holds_in_order_only() -> None:
    lower = {"dp-sgd": 74.9, "jl": 74.5, "gep": 74.6, "adadps": 73.0, "pillar": 76.1}
    assert _verdict(lower) == "holds in order only"
    lower.pop("jl")
    assert _verdict(lower) == "holds in order only, in part"


ORDER = {"says": "b above a", "higher": {"learner": "b"}, "lower": {"learner": "a"}}
PROTOCOL = {"data": ["cifar10"], "learners": ["a", "b"], "own": "b", "n": {"cifar10": 45_000}, "accountant": "prv"}


def _runs(accuracies: dict[str, float], data: str = "cifar10", chance: float = 0.1) -> list[Measurement]:
    """Return measurements of runs, each with its facts."""
    return [
        replace(
            measurement,
            chance=chance,
            facts=RunFacts(data, "pixels", str(measurement.at["learner"]), 45_000, "no search", "pld", 30, 5),
        )
        for measurement in _measured(accuracies)
    ]


def test_an_accuracy_that_is_the_share_of_the_largest_class_decides_nothing() -> None:
    study = _study(orders=[ORDER], protocol=PROTOCOL)
    assert compare_with_paper(study, _runs({"a": 66.9, "b": 70.0}, chance=0.5)).verdict == "holds"
    found = compare_with_paper(study, _runs({"a": 66.9, "b": 70.0}, chance=0.669))
    assert found.verdict == "cannot tell"
    assert "a scores 66.90, which is not clearly above the 66.90 of always" in " ".join(list_comparison_remarks(found))
    claimed = _study(orders=[{**ORDER, "at_chance": True}], protocol=PROTOCOL)
    assert compare_with_paper(claimed, _runs({"a": 66.9, "b": 70.0}, chance=0.669)).verdict == "holds"


def test_orders_alone_do_not_hold_if_the_papers_numbers_are_not_measured() -> None:
    study = _study(orders=[ORDER], published=["dp-randp-table-5"])
    assert compare_with_paper(study, _runs({"a": 50, "b": 60})).verdict == "holds, in part"
    assert compare_with_paper(_study(published=["dp-randp-table-5"]), _runs({"a": 50, "b": 60})).verdict == "not run"


def test_another_learner_than_the_papers_decides_nothing_and_neither_do_baselines_without_it() -> None:
    other = [replace(our, facts=replace(our.facts, learner="c")) for our in _runs({"b": 60}) if our.facts]
    found = compare_with_paper(_study(orders=[ORDER], protocol=PROTOCOL), [*_runs({"a": 50}), *other])
    assert found.verdict == "cannot tell"
    assert "Not decided, because c is not the paper's learner." in list_comparison_remarks(found)
    ours = {"dp-sgd": 84.0, "jl": 84.0}
    alone = _study(published=[TABLE_1], protocol={"own": "pillar"})
    assert compare_with_paper(alone, _runs(ours)).verdict == "cannot tell"
    assert compare_with_paper(alone, _runs({**ours, "pillar": 85.0})).verdict == "holds, in part"


def test_other_data_than_the_papers_has_a_verdict_of_its_own() -> None:
    study = _study(orders=[ORDER], published=["dp-randp-table-5"], protocol=PROTOCOL)
    assert compare_with_paper(study, _runs({"a": 50, "b": 60}, "gtsrb")).verdict == "holds on other data"
    assert compare_with_paper(study, _runs({"a": 60, "b": 50}, "gtsrb")).verdict == "does not hold on other data"


def test_a_line_says_what_differs_from_the_papers_protocol() -> None:
    study = _study(orders=[ORDER], protocol={**PROTOCOL, "steps": [500, 6000], "network": ["resnet50"]})
    said = list_comparison_remarks(compare_with_paper(study, _runs({"a": 50, "b": 60})))[1]
    assert said == (
        "Here (and in the paper): network pixels (resnet50); settings no search (not stated); accountant pld (prv); "
        "steps 30 (500 to 6,000); seeds 5 (not stated)."
    )


def test_losses_of_two_extractors_are_compared_and_one_extractor_does_not_stand_for_both() -> None:
    order = {
        "says": "a loses less", "higher": {"extractor": "a", "epsilon": 1}, "lower": {"extractor": "b", "epsilon": 1},
        "loss_from": {"epsilon": "∞"},
    }  # fmt: skip
    study = _study(orders=[order])

    def measured(extractors: Sequence[str]) -> list[Measurement]:
        found = {("a", 1.0): 0.6, ("a", "∞"): 0.65, ("b", 1.0): 0.7, ("b", "∞"): 0.8}
        return [
            Measurement({"extractor": name, "epsilon": epsilon}, Interval(mean=mean, low=mean, high=mean), True)
            for (name, epsilon), mean in found.items()
            if name in extractors
        ]

    found = compare_with_paper(study, measured(["a", "b"]))
    assert found.verdict == "holds"
    assert format_comparison_rows(found)[-1][2] == "+5.00 points of loss"
    assert compare_with_paper(study, measured(["a"])).verdict == "not run"


def test_the_verdicts_of_the_papers_say_no_more_than_was_measured() -> None:
    found = {comparison.study.name: comparison.verdict for comparison in _kept()}
    assert found["dp-randp-table-1"] == found["dp-randp-table-3"] == "cannot tell"
    assert found["pillar-figure-6"] == found["low-dimensional-figure-3"] == "not run"
    assert found["pillar-figure-5"] == found["pillar-figure-7"] == "does not hold"


def test_a_reversed_order_does_not_hold() -> None:
    assert _verdict({"adadps": 77.0, "pillar": 76.0}) == "does not hold"


def test_an_order_within_the_intervals_is_neither_confirmed_nor_reversed() -> None:
    assert _verdict({"adadps": 76.2, "pillar": 76.0}, half=1.0) == "does not hold"
    assert _verdict({"adadps": 74.0, "dp-sgd": 75.9, "pillar": 76.0}, half=0.5) == "holds in order only, in part"


def test_what_nobody_measured_is_not_run() -> None:
    assert _verdict({}) == "not run"
    assert _verdict({"whitened": 85.0}) == "not run"


def test_a_stated_order_holds_or_does_not() -> None:
    study = _study(orders=[ORDER])
    assert compare_with_paper(study, _measured({"a": 50, "b": 60})).verdict == "holds"
    assert compare_with_paper(study, _measured({"a": 60, "b": 50})).verdict == "does not hold"
    assert compare_with_paper(study, _measured({"a": 60})).verdict == "not run"


def test_an_order_that_chance_could_have_put_so_does_not_hold_and_says_why() -> None:
    study = _study(orders=[ORDER])
    found = compare_with_paper(study, _measured({"a": 59.8, "b": 60.1}, half=0.3))
    assert found.verdict == "does not hold"
    assert format_comparison_rows(found)[-1][2] == "60.10 ± 0.30 and 59.80 ± 0.30: too close to tell"
    assert compare_with_paper(study, _measured({"a": 59.8, "b": 60.3}, half=0.3)).verdict == "holds"
    alone = [
        replace(measurement, interval=Interval(mean=measurement.interval.mean, low=None, high=None))
        for measurement in _measured({"a": 59.8, "b": 60.1})
    ]
    assert compare_with_paper(study, alone).verdict == "does not hold"  # 10,000 test images tell 1.4 points apart
    assert (
        compare_with_paper(study, [replace(measurement, tested=1_000_000) for measurement in alone]).verdict == "holds"
    )


def test_the_best_value_of_an_axis_that_the_paper_leaves_open_is_compared() -> None:
    at = {"dataset": "pneumonia", "epsilon": 0.1}
    ours = [
        Measurement({**at, **k}, Interval(mean=mean, low=mean, high=mean), True)
        for k, mean in (({"learner.k": 10.0}, 0.80), ({"learner.k": 40.0}, 0.84), ({}, 0.66))
    ]
    found = compare_with_paper(_study(published=["pillar-section-5-byol"]), ours)
    assert [row.ours.interval.mean for row in found.rows if row.ours] == [0.84, 0.66]
    assert found.verdict == "holds, in part"


def _beside(errors: dict[int, float], half: float = 0.001, constant: float = 1.0, **given: Any) -> StudyComparison:
    """Return a theorem whose rate is constant / m, fitted at m = 10, beside errors by m."""
    ours = [
        Measurement(
            {}, Interval(mean=error, low=error - half, high=error + half), True,
            TheoremRate({"dataset.m": m}, 1 / (constant * m), m == 10, 1e-4),
        )
        for m, error in errors.items()
    ]  # fmt: skip
    return compare_with_paper(_study(rate=True, finding="It falls.", refutes="Errors above it.", **given), ours)


def test_a_rate_that_errors_follow_within_a_factor_of_two_holds_and_no_error_meets_one_that_cannot_be_seen() -> None:
    found = _beside({10: 0.1, 20: 0.09, 40: 0.014, 100_000: 0.0})
    assert found.verdict == "holds"
    assert found.compared_count == 4
    assert found.rated is not None
    assert found.rated.constant == pytest.approx(1)
    assert found.rated.highest.factor == pytest.approx(1.8)
    assert list_comparison_remarks(found)[0] == "Verdict: holds. It falls."


def test_a_rate_that_is_met_with_another_constant_or_undercut_holds_up_to_a_constant() -> None:
    assert _beside({10: 0.1, 20: 0.05}, constant=3).verdict == "holds up to a constant"
    assert _beside({10: 0.1, 20: 0.0}).verdict == "holds up to a constant"


def test_an_error_above_twice_the_rate_beyond_its_interval_does_not_hold_unless_the_conditions_fail_there() -> None:
    assert _beside({10: 0.1, 20: 0.12}).verdict == "does not hold"
    assert _beside({10: 0.1, 20: 0.12}, half=0.03).verdict == "holds"
    outside = _beside({10: 0.1, 20: 0.12}, outside=[{"dataset.m": 20}])
    assert (outside.verdict, outside.compared_count) == ("holds", 1)
    assert "Not compared, because outside the theorem's conditions: dataset.m 20." in list_comparison_remarks(outside)


def test_a_rate_without_the_cell_of_its_constant_is_not_run() -> None:
    assert _beside({20: 0.05}).verdict == "not run"


def test_what_theorems_say_of_the_best_k_is_what_inspections_say() -> None:
    for order in find_study("theory-prediction").orders:
        _, dimensions, found = readme.predicted(str(order.higher["dataset"]))
        assert order.higher["learner.k"] == found.best_printed, order.says
        assert order.lower["learner.k"] in {dimensions, 521}, order.says  # as many as there are public X-rays


def test_every_figure_of_a_theorem_is_compared_and_its_finding_is_one_sentence() -> None:
    theorems = {study.sweep: study for study in read_studies() if study.finding}
    assert {*theorems} == {name for name in ready_made_sweeps.list_sweep_names() if name.startswith("theory-")}
    for study in theorems.values():
        assert study.finding.endswith(".")
        assert ". " not in study.finding
        assert study.refutes.endswith(".")


def test_a_figure_of_a_theorem_says_what_it_can_refute() -> None:
    said = list_comparison_remarks(_beside({10: 0.1, 20: 0.05}))
    assert said[1] == "What this figure can refute: Errors above it."
    with pytest.raises(ValueError, match="both what was found and what it can refute"):
        _study(rate=True, finding="It falls.")


def _kept() -> Sequence[Any]:
    return compare_studies(ROOT / "leaderboard", registry.load())


@pytest.mark.slow
def test_every_study_has_a_verdict_or_says_what_is_missing_and_a_failure_is_explained() -> None:
    for comparison in _kept():
        if comparison.verdict == "not run":
            assert comparison.study.needs, f"{comparison.study.name} could run here"
        if comparison.verdict == "cannot tell" or comparison.verdict.startswith("does not hold"):
            assert comparison.study.because or comparison.study.finding, (
                f"{comparison.study.name} does not hold, and nobody says why"
            )
        assert list_comparison_remarks(comparison)[0].startswith(f"Verdict: {comparison.verdict}.")


@pytest.mark.slow
def test_the_page_is_made_from_the_results() -> None:
    told = "Run: dpbench reproduce --markdown > dpbench/docs/explanation/papers.md"
    assert PAGE.read_text(encoding="utf-8") == render_markdown_page(_kept()), told


@pytest.mark.long
def test_a_study_runs_its_sweep_and_says_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = tmp_path / "small.toml"
    sweep.write_text(
        'name = "small"\n[fixed]\ndataset = "digits"\nepsilon = 0.7\nseeds = 2\n'
        '[grid]\nlearner = ["pillar", "dp-sgd"]\n'
    )
    study = _study(name="small", published=[TABLE_1.replace("cifar10", "digits")], sweep=str(sweep), differs="Digits.")
    printed = tmp_path / "published.json"
    printed.write_text(literature.FILE.read_text(encoding="utf-8").replace('cifar10"', 'digits"'), encoding="utf-8")
    monkeypatch.setattr(literature, "FILE", printed)
    monkeypatch.setattr("dpbench_lab.reproduce.catalogue.read_studies", lambda: (study,))
    assert call("reproduce", "small", "--out", tmp_path / "out", "--workers", "1") == 0
    said = capsys.readouterr().out
    assert "85.89" in said and "Verdict: " in said and "Differences: Digits." in said
    kept = [json.loads(file.read_text()) for file in (tmp_path / "out").glob("*-digits-*.json")]
    assert {content["spec"]["learner"]["name"] for content in kept} == {"pillar", "dp-sgd"}


def test_a_damaged_inspection_is_named(tmp_path: Path) -> None:
    (tmp_path / "inspections").mkdir()
    (tmp_path / "inspections" / "inspection-digits.json").write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match=r"Inspection .*inspection-digits\.json does not fit the schema"):
        compare_studies(tmp_path, registry.load())


def test_the_list_counts_what_studies_that_were_not_run_need(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    needs = [{"missing": "Weights.", "needs": "weights"}, {"missing": "A GPU.", "needs": "a GPU"}, {"missing": "Time."}]
    found = [compare_with_paper(_study(sweep=None, **need), []) for need in (*needs, needs[0])]
    monkeypatch.setattr("dpbench_lab.reproduce.document.compare_studies", lambda root, plugins: found)
    assert call("reproduce") == 0
    assert "Not run: 2 need weights, 1 need a GPU, 1 could run here." in capsys.readouterr().out
    with pytest.raises(ValueError, match="what it needs is not described"):
        _study(sweep=None, nothing="A diagram.", needs="data")


def test_an_unknown_name_lists_what_exists() -> None:
    with pytest.raises(Exception, match=r"Unknown table or figure 'pillar-table-9'.*pillar-table-1"):
        find_study("pillar-table-9")


def test_a_sweep_that_is_no_study_is_named_as_one() -> None:
    with pytest.raises(UnknownName, match=r"pillar-figure-5-resnet50 is a sweep and no study of its own"):
        find_study("pillar-figure-5-resnet50")


def test_a_study_that_nothing_here_can_run_ends_with_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("reproduce", "dp-randp-table-5") == 1
    said = capsys.readouterr()
    assert "Missing: The archives of ImageNet" in said.out
    assert said.err == "dpbench: dp-randp-table-5 cannot be run here; what it needs is named above.\n"


def test_a_study_without_its_data_ends_with_one_sentence(
    tmp_path: Path, data_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("reproduce", "pillar-figure-6", "--out", tmp_path / "out", "--workers", "1") == 1
    said = capsys.readouterr().err.splitlines()
    assert "is not on this machine: looked for" in said[-1] and said[-1].startswith("dpbench: ")
    assert not any("Traceback" in line for line in said)


@pytest.mark.long
def test_a_grid_above_the_public_rank_ends_with_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = tmp_path / "high.toml"
    sweep.write_text(
        'name = "high"\n[fixed]\ndataset = "digits"\nextractor = "pixels"\nepsilon = 0.7\nseeds = 1\n'
        'learner = "pillar"\n[grid]\n"learner.k" = [1540]\n'
    )
    study = _study(name="high", published=[TABLE_1], sweep=str(sweep))
    monkeypatch.setattr("dpbench_lab.reproduce.catalogue.read_studies", lambda: (study,))
    assert call("reproduce", "high", "--out", tmp_path / "out", "--workers", "1") == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("dpbench: 1 cells of high failed.") and "Expected k=1540 <= 64" in said
