"""A sweep file: its cells and their order, what is refused, and what is left to do."""

from __future__ import annotations

import json
import math
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from dpbench import registry
from dpbench.errors import OutputError, SpecError
from dpbench.records.result import Result
from dpbench.records.spec import make_spec
from dpbench.registry import Registry
from dpbench.support.messages import format_duration
from dpbench.sweep.cell_files import SweepFolder
from dpbench.sweep.conduct import get_sweep_overview, sweep
from dpbench.sweep.display import CellCounter
from dpbench.sweep.executor import CellOutcome, SweepExecutor
from dpbench.sweep.grid import Cell, SweepGrid, read_grid
from dpbench.sweep.local import LocalPool
from dpbench.sweep.resources import SweepResources
from dpbench.sweep.start import make_sweep_executor
from dpbench.sweep.worker import CellWorker
from tests.helpers.sessions import session

FIXED = {"dataset": "digits", "seeds": 1}


@pytest.fixture(scope="module")
def plugins() -> Registry:
    return registry.load()


def grid_of(plugins: Registry, **tables: Any) -> SweepGrid:
    return read_grid({"name": "tiny", "fixed": FIXED, **tables}, plugins)


def test_cells_are_the_product_in_the_files_order(plugins: Registry, tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text("""
name = "tiny"
fixed = {seeds = 3}
grid = {epsilon = [0.5, inf]}
[[grids]]
learner = ["pillar:steps=9", "jl"]
"learner.k" = [5, 10]
[[grids]]
learner = ["dp-sgd"]
""")
    grid = read_grid(file, plugins)
    tail = [("pillar:steps=9", 5), ("pillar:steps=9", 10), ("jl", 5), ("jl", 10)]
    expected = [(epsilon, *options) for epsilon in (0.5, math.inf) for options in tail]
    assert [tuple(cell.values.values()) for cell in grid.cells] == [*expected, (0.5, "dp-sgd"), (math.inf, "dp-sgd")]
    assert grid.axes == ("epsilon", "learner", "learner.k")
    assert grid.cells[0].spec.learner.options == {"steps": "9", "k": 5}
    assert {cell.spec.seeds for cell in grid.cells} == {(0, 1, 2)}
    assert len({cell.digest for cell in grid.cells}) == 10


def test_an_option_may_be_written_without_quotes(plugins: Registry) -> None:
    quoted = grid_of(plugins, fixed={"learner": "pillar"}, grid={"learner.k": [5, 7], "epsilon": [1]})
    bare = grid_of(plugins, fixed={"learner": "pillar"}, grid={"learner": {"k": [5, 7]}, "epsilon": [1]})
    assert quoted == bare
    assert [str(cell) for cell in bare.cells] == ["learner.k=5, epsilon=1", "learner.k=7, epsilon=1"]


def test_a_cell_described_twice_is_one_cell(plugins: Registry) -> None:
    grids = [{"learner": ["dp-sgd", "dp-sgd:steps=auto"]}, {"learner": ["dp-sgd", "jl"], "epsilon": [1.0]}]
    grid = grid_of(plugins, grids=grids)
    assert [str(cell) for cell in grid.cells] == ["learner=dp-sgd", "learner=jl, epsilon=1.0"]
    assert grid.duplicates == 2


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"girds": []}, "Unknown key 'girds' of the sweep. Did you mean 'grids'?"),
        ({"name": None}, "name=None in the sweep does not fit"),
        ({"fixed": {"epsilom": 1}}, "Unknown key 'epsilom' of [fixed] of the sweep. Did you mean 'epsilon'?"),
        ({"grid": {"learnr.k": [1]}}, "Unknown key 'learnr.k' of [grid] of the sweep"),
        ({"grid": {"epsilon.k": [1]}}, "Expected an option of dataset, extractor"),
        ({"grid": {}}, "Expected an axis in [grid] or [[grids]]"),
        ({"grid": {"learner": []}}, "Expected at least one value for 'learner' in [grid]"),
        ({"grid": {"learner": "jl"}}, "Expected a list of values for 'learner' in [grid]"),
        ({"grid": {"seeds": [1, 2]}}, "Expected 'seeds' in only one of [fixed]"),
        ({"grid": {"learner": ["jl"]}, "grids": [{"learner": ["jl"]}]}, "Expected 'learner' in only one of [fixed]"),
        ({"grid": {"epsilon": [1]}}, "Expected 'learner' in cell epsilon=1 of the sweep"),
        ({"grid": {"learner.k": [1]}}, "Expected 'learner' beside 'learner.k' in cell learner.k=1"),
        ({"grid": {"learner": ["jl:k=3"], "learner.k": [1]}}, "Expected option 'k' once in cell learner=jl:k=3"),
        ({"grid": {"learner": ["jl"], "epsilon": [1, -1]}}, "epsilon=-1 in cell learner=jl, epsilon=-1 of the sweep"),
        (
            {"grid": {"learner": ["jl"], "learner.kk": [1]}},
            "In cell learner=jl, learner.kk=1 of the sweep: Unknown opt",
        ),
        ({"grid": {"learner": ["jk"]}}, "In cell learner=jk of the sweep: Unknown learner 'jk'."),
        ({"grid": {"learner": ["jl"], "split_seed": [*range(100_001)]}}, "Expected at most 100,000 cells, got 100,001"),
    ],
)
def test_a_bad_file_is_refused_by_name(plugins: Registry, tables: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as refused:
        grid_of(plugins, **tables)
    assert said in str(refused.value)


@pytest.mark.parametrize("content", ["name = ", None])
def test_a_file_that_cannot_be_read_is_named(plugins: Registry, tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "sweep.toml"
    if content is not None:
        file.write_text(content)
    with pytest.raises(SpecError, match=str(file)):
        read_grid(file, plugins)


@pytest.mark.parametrize(
    "resources",
    [
        {"executor": "slurm"},
        {"scheduler": "tcp://a:1"},
        {"executor": "dask", "scheduler": "tcp://a:1", "workers": 2},
        {"workers": 0},
        {"threads": 0},
    ],
)
def test_resources_that_make_no_sense_are_refused(resources: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        SweepResources(**resources)


def test_dask_without_a_scheduler_is_processes_of_this_machine(tmp_path: Path) -> None:
    asked = [SweepResources(executor=name, workers=2, device="cpu") for name in ("local", "dask")]
    local, dask = (make_sweep_executor(resources, SweepFolder(tmp_path)) for resources in asked)
    assert isinstance(local, LocalPool) and dask == local


SEARCH = {"rule": "public-validation", "space": {"steps": [2, 3]}, "folds": 2}


def test_an_answer_of_another_version_is_the_error_of_its_cell(plugins: Registry) -> None:
    (cell,) = grid_of(plugins, fixed=FIXED, grid={"learner": ["jl:k=5,steps=3"]}).cells
    outcome = CellOutcome.from_answer(cell, '{"result": {"of_a_later_version": 1}}')
    assert outcome.result is None and "The worker's result does not fit" in outcome.error


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"search": SEARCH}, {"epsilon": "inf"}])
def test_a_remembering_worker_gives_what_a_run_gives(plugins: Registry, more: dict[str, Any]) -> None:
    learner = "jl:k=5" if "search" in more else "jl:k=5,steps=3"
    (cell,) = grid_of(plugins, fixed={**FIXED, **more}, grid={"learner": [learner]}).cells
    alone, worker = session(plugins).run(cell.spec), CellWorker("cpu", torch.get_num_threads(), plugins)
    for _ in range(2):
        outcome = CellOutcome.from_answer(cell, worker.run_cell(cell.spec.model_dump_json()))
        result = outcome.result
        assert result is not None, outcome.error
        assert result.file_name == cell.file_name
        own = {"seconds", "cpu_seconds", "peak_bytes"}
        apart = {*own, "evidence_digest"}
        assert result.model_dump(exclude=apart) == alone.model_dump(exclude=apart)
        assert [set(getattr(result, name)) for name in own] == [set(getattr(alone, name)) for name in own]


def test_a_remembering_worker_refuses_what_a_run_refuses(plugins: Registry) -> None:
    worker = CellWorker("cpu", 1, plugins)
    for delta, refused in ((1e-5, False), (0.01, True)):
        spec = make_spec({"learner": "jl:k=5,steps=1", "seeds": 1, "delta": delta}, "the test")
        content = json.loads(worker.run_cell(spec.model_dump_json()))
        assert ("Expected delta=0.01 in (0, 1/n)" in content.get("error", "")) == refused


class Idle(SweepExecutor):
    """Runs nothing."""

    workers = 1

    def run(self, cells: Sequence[Cell]) -> Generator[CellOutcome]:
        """Yield nothing."""
        yield from ()


def finished(plugins: Registry, folder: SweepFolder, cells: tuple[Cell, ...]) -> Result:
    result = session(plugins).run(cells[0].spec)
    folder.save_result(cells[0], result)
    return result


def test_an_overview_tells_done_from_failed_from_to_do_and_estimates(plugins: Registry, tmp_path: Path) -> None:
    definition = {"name": "tiny", "fixed": FIXED, "grid": {"learner": ["jl:k=5,steps=2"], "split_seed": [0, 1, 2, 3]}}
    before = get_sweep_overview(definition, tmp_path, plugins)
    assert (before.states, before.seconds) == (("to do",) * 4, None)
    cells, folder = before.grid.cells, before.folder
    result = finished(plugins, folder, cells)
    folder.record_failure(cells[1], "It rained.")
    (tmp_path / cells[2].file_name).write_text("{")
    after = get_sweep_overview(definition, tmp_path, plugins)
    assert after.states == ("done", "failed", "to do", "to do")
    assert after.seconds == pytest.approx(2 * sum(result.seconds.values()))
    assert folder.read_failure(cells[1]) == "It rained."
    assert f"damaged  {cells[2].file_name}" in folder.log_file.read_text()


def test_a_success_takes_a_failure_back(plugins: Registry, tmp_path: Path) -> None:
    cells = grid_of(plugins, grid={"learner": ["jl:k=5,steps=2"]}).cells
    folder = SweepFolder(tmp_path)
    folder.record_failure(cells[0], "It rained.")
    finished(plugins, folder, cells)
    assert folder.read_failure(cells[0]) is None
    assert folder.result(cells[0]) is not None


def test_a_result_of_a_run_of_its_own_takes_a_failure_back(plugins: Registry, tmp_path: Path) -> None:
    definition = {"name": "tiny", "fixed": FIXED, "grid": {"learner": ["jl:k=5,steps=2"]}}
    cells, folder = grid_of(plugins, grid=definition["grid"]).cells, SweepFolder(tmp_path)
    finished(plugins, folder, cells)
    folder.record_failure(cells[0], "It rained before.")
    summary = sweep(definition, tmp_path, plugins=plugins)
    assert (summary.ran, summary.skipped, summary.failed) == (0, 1, ())
    assert folder.read_failure(cells[0]) is None


def test_a_failed_refresh_is_a_failure_beside_the_older_result(
    plugins: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = {"name": "tiny", "fixed": FIXED, "grid": {"learner": ["jl:k=5,steps=2"]}}
    cells, folder = grid_of(plugins, grid=definition["grid"]).cells, SweepFolder(tmp_path)
    finished(plugins, folder, cells)
    monkeypatch.setattr("dpbench.registry.same_code.code_digest", lambda _: "0" * 16)
    assert get_sweep_overview(definition, tmp_path, plugins).states == ("other code",)
    folder.record_failure(cells[0], "It rained.")
    assert get_sweep_overview(definition, tmp_path, plugins).states == ("failed",)
    summary = sweep(definition, tmp_path, plugins=plugins)
    assert (summary.ran, summary.skipped, summary.changed) == (0, 0, ()) and len(summary.failed) == 1


def test_a_result_that_was_edited_is_run_again(plugins: Registry, tmp_path: Path) -> None:
    definition = {"name": "tiny", "fixed": FIXED, "grid": {"learner": ["jl:k=5,steps=2"]}}
    cells, folder = grid_of(plugins, grid=definition["grid"]).cells, SweepFolder(tmp_path)
    finished(plugins, folder, cells)
    file = tmp_path / cells[0].file_name
    content = json.loads(file.read_text())
    content["seeds"][0]["predictions"] = "0" * 64
    file.write_text(json.dumps(content))
    assert folder.result(cells[0]) is None
    assert get_sweep_overview(definition, tmp_path, plugins).states == ("to do",)
    assert "changed after the file was written" in folder.log_file.read_text()


def test_two_sweeps_do_not_work_in_one_folder(plugins: Registry, tmp_path: Path) -> None:
    definition = {"name": "tiny", "fixed": FIXED, "grid": {"learner": ["jl"]}}
    with SweepFolder(tmp_path).lock(), pytest.raises(OutputError, match="Another sweep is running in"):
        sweep(definition, tmp_path, plugins=plugins)


def test_a_folder_that_cannot_be_written_is_refused_before_anything_else(plugins: Registry) -> None:
    definition = {"name": "tiny", "fixed": FIXED, "grid": {"learner": ["jl"]}}
    with pytest.raises(OutputError, match="Cannot write /dev/null/x"):
        sweep(definition, Path("/dev/null/x"), plugins=plugins)


def test_the_count_says_rate_and_time_left() -> None:
    count = CellCounter(10, Idle())
    assert str(count) == "0 done, 1 running, 0 failed"
    count.done, count.failed, count._begin = 4, 1, count._begin - 50
    assert str(count).startswith("4 done, 1 running, 1 failed, 6.0 per minute, 50 s left")
    assert [format_duration(seconds) for seconds in (59, 61, 7200, 90_000)] == [
        "59 s",
        "1 min 1 s",
        "2 h 0 min",
        "1 d 1 h",
    ]
