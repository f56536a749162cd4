"""Entries in the formats of other collections: valid there, a file per entry, with the numbers of the board."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from dpbench.board.evaluation_logs import render_evaluation_logs, render_hub_results
from dpbench.board.index import Index
from dpbench.records.board import find_board
from dpbench.records.result import Interval
from tests.helpers.boards import synthetic
from tests.site.test_site import HOSTILE, standing_of


@pytest.fixture(scope="module")
def index() -> Index:
    board = find_board("digits-eps1")
    return Index(ranking="By the mean.", standings=(standing_of(board, synthetic(board, 4, seed=0)),))


def logs(index: Index) -> Mapping[str, dict[str, Any]]:
    return {path: json.loads(content) for path, content in render_evaluation_logs(index)}


def test_every_entry_has_a_log_with_the_scores_and_the_guarantee_of_its_board(index: Index) -> None:
    (standing,) = index.standings
    found = logs(index)
    assert len(found) == len(standing.entries)
    for entry, log in zip(standing.entries, found.values(), strict=True):
        scores = {result["metric_config"]["metric_id"]: result["score_details"] for result in log["evaluation_results"]}
        assert {name: score["score"] for name, score in scores.items()} == {
            name: interval.mean for name, interval in entry.metrics.items()
        }
        details = scores["accuracy"]["details"]
        assert (details["delta"], details["rank"]) == (str(standing.board.delta), str(entry.rank or ""))
        assert json.loads(log["model_info"]["additional_details"]["settings"]) == entry.settings


def test_every_log_passes_the_validator_of_every_eval_ever(index: Index, tmp_path: Path) -> None:
    core = pytest.importorskip(
        "every_eval_ever.validator.validation_core", reason="needs Python 3.12 and the extra logs"
    )
    for path, content in render_evaluation_logs(index):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
        report = core.validate_aggregate(tmp_path / path, repo_path=path, run_semantic_checks=True)
        assert report.valid and not report.errors and not report.warnings, report


def test_an_interval_of_a_log_stays_within_the_range_of_its_metric(index: Index) -> None:
    wide = {"accuracy": Interval(mean=0.99, low=0.9, high=1.08)}
    entry = index.standings[0].entries[1].model_copy(update={"metrics": wide})
    changed = index.standings[0].model_copy(update={"entries": (entry,)})
    (log,) = logs(index.model_copy(update={"standings": (changed,)})).values()
    ends = log["evaluation_results"][0]["score_details"]["uncertainty"]["confidence_interval"]
    assert (ends["lower"], ends["upper"]) == (0.9, 1.0)


def test_a_day_that_no_calendar_has_is_no_day(index: Index) -> None:
    standing = index.standings[0]
    entry = standing.entries[0]
    made = entry.made.model_copy(update={"date": "2025-02-30"})
    changed = standing.model_copy(update={"entries": (entry.model_copy(update={"made": made}),)})
    ((_, content),) = render_evaluation_logs(index.model_copy(update={"standings": (changed,)}))
    assert json.loads(content)["retrieved_timestamp"] == "0"


def test_no_name_of_a_stranger_leads_out_of_the_folder(index: Index) -> None:
    entry = index.standings[0].entries[1]
    origin = entry.plugin.model_copy(update={"distribution": "../.."})
    bad = entry.model_copy(update={"learner": f"../../{HOSTILE}", "plugin": origin})
    changed = index.standings[0].model_copy(update={"entries": (bad,)})
    (path,) = logs(index.model_copy(update={"standings": (changed,)}))
    parts = Path(path).parts
    assert len(parts) == 5 and parts[:2] == ("data", "dpbench")
    assert ".." not in parts and all(part.isascii() and "<" not in part for part in parts)


def test_the_hub_reads_the_result_of_every_ranked_entry(index: Index) -> None:
    from huggingface_hub import parse_eval_result_entries

    (standing,) = index.standings
    ranked = [entry for entry in standing.entries if entry.role == "entry"]
    files = dict(render_hub_results(index, "owner/board"))
    assert list(files) == [f"{standing.board.name}/{entry.id}.yaml" for entry in ranked]
    for entry, content in zip(ranked, files.values(), strict=True):
        (result,) = parse_eval_result_entries(yaml.safe_load(content))
        assert (result.dataset_id, result.task_id) == ("owner/board", standing.board.name)
        assert result.value == pytest.approx(100 * entry.metrics["accuracy"].mean, abs=1e-4)
        assert result.notes is not None and f"rank {entry.rank};" in result.notes and "at ε 1, δ 1e-05" in result.notes
