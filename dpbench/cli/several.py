"""Several values of a flag, like `--learner pillar,dp-sgd --epsilon 0.1,1`: a sweep underneath, a table at the end."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from dpbench.errors import SpecError
from dpbench.records.spec import make_spec
from dpbench.sweep.grid import AXES, definition

if TYPE_CHECKING:
    from dpbench.analysis.reader import Filed
    from dpbench.records.spec import Spec
    from dpbench.registry import Registry
    from dpbench.sweep import Summary


@dataclass(frozen=True)
class Asked:
    """Where and on what somebody wants runs."""

    board: str | None
    device: str
    out: Path


def components(texts: Sequence[str] | None, flag: str) -> list[str]:
    """Return the components that flags name, each of which may hold several, separated by commas.

    A part with `key=value` alone is one more option of the component before it.

    >>> components(["pillar:k=40,steps=30,dp-sgd", "jl"], "--learner")
    ['pillar:k=40,steps=30', 'dp-sgd', 'jl']

    Raises:
        SpecError: nothing stands between two commas, or a folder where the name of a dataset belongs.
    """
    found: list[str] = []
    for text in texts or ():
        for place, part in enumerate(text.split(",")):
            if not part.strip():
                raise SpecError(f"Expected {flag} as a name, or several like A,B, got {text!r}.")
            if flag == "--dataset" and "/" in part and Path(part).is_dir():
                raise SpecError(f"Expected {flag} as a name, got the folder {part}. Write imagefolder:{part}.")
            option = place > 0 and "=" in part.partition(":")[0]
            if option:
                found[-1] += f",{part}"
            else:
                found.append(part.strip())
    return found


def numbers(texts: Sequence[str] | None, flag: str) -> list[float]:
    """Return the numbers that flags hold, separated by commas.

    Raises:
        SpecError: one is no number.
    """
    try:
        return [float(part) for text in texts or () for part in text.split(",")]
    except ValueError:
        said = ", ".join(texts or ())
        raise SpecError(f"Expected {flag} as a number, or several like 0.1,1, got {said!r}.") from None


def axes(given: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """Return the flags with several values.

    Raises:
        SpecError: a value stands twice.
    """
    several = {name: given[name] for name in AXES if len(given.get(name) or ()) > 1}
    for name, values in several.items():
        for value in values:
            if values.count(value) > 1:
                raise SpecError(f"Expected each value of --{name.replace('_', '-')} once, got {value} twice.")
    return several


def listed(name: str, written: Mapping[str, Any]) -> list[Any]:
    """Return the values that a file gives for a flag; one or several."""
    value = written.get(name)
    return [] if value is None else list(value) if isinstance(value, list) else [value]


def spec_of(values: Mapping[str, Any], origin: str, board: str | None, plugins: Registry) -> Spec:
    """Return the spec of one run, on a board where one is named."""
    if board is None:
        return make_spec(dict(values), origin)
    from dpbench.records.board import find_board
    from dpbench.registry.boards import entry_spec

    spec = entry_spec(find_board(board), values, plugins, origin)
    _say_what_no_board_takes(plugins.find("learner", spec.learner.name).distribution)
    return spec


def _say_what_no_board_takes(distribution: str) -> None:
    """Say before a run of hours what `dpbench leaderboard add` would refuse after it."""
    from dpbench.records.provenance import source_of, tree

    own = distribution == "dpbench-vision"
    dirty = tree()[1] if own else (source_of(distribution) or {}).get("dirty")
    if dirty:
        whose = "dpbench's tree" if own else f"The tree of {distribution}"
        print(f"dpbench: {whose} has changes that are not committed: no board takes the result.", file=sys.stderr)


def run_all(values: Mapping[str, Any], several: Mapping[str, Sequence[Any]], asked: Asked) -> None:
    """Run the product of some axes, results of earlier calls left out, and print the table.

    Raises:
        SpecError: a cell is invalid; nothing is run.
        typer.Exit: with code 1, where a cell failed.
    """
    from dpbench import sweep as sweeps
    from dpbench.registry import load

    plugins = load()
    plugins.report_broken()
    fixed = _on_board(values, several, asked.board, plugins) if asked.board else values
    cells, resources = definition(fixed, several, plugins), sweeps.Resources(device=asked.device)
    summary = sweeps.sweep(cells, asked.out, resources=resources, retry_failed=True, refresh=True, plugins=plugins)
    show(summary, Console(), "the same command runs them again")


def _on_board(
    values: Mapping[str, Any], several: Mapping[str, Sequence[Any]], name: str, plugins: Registry
) -> dict[str, Any]:
    """Return the values that a board gives to all of several learners, each of which it has to take."""
    from dpbench.records.board import find_board

    board = find_board(name)
    for learner in several.get("learner", ()):
        others = {key: ones[0] for key, ones in several.items() if key != "learner"}  # the board's to fix
        spec_of({**values, **others, "learner": learner}, "the flags of dpbench run", name, plugins)
    return {**board.protocol, **values}


def show(summary: Summary, console: Console, advice: str) -> None:
    """Print a table of a sweep's results, and how many cells there were; `advice` is for those that failed.

    Raises:
        typer.Exit: with code 1, where a cell failed.
    """
    from dpbench.analysis.tables import arrange
    from dpbench.cli.results import show_tables
    from dpbench.registry import load
    from dpbench.registry.components import short

    for cell, error in summary.failed:
        console.print(f"Failed: {cell}: {error}", soft_wrap=True, markup=False, highlight=False)
    filed = list(_filed(summary))
    if filed:
        show_tables(arrange(filed, named=short(load())), console)
    console.print(
        f"{summary.grid.name}: {summary.ran} cells run, {summary.skipped} done before, {len(summary.failed)} failed"
        + (f"; {advice}" if summary.failed else ""),
        soft_wrap=True,
    )
    if summary.renewed:
        console.print(
            f"{len(summary.renewed)} cells were done before, on other data than are here now: run again", soft_wrap=True
        )
    if summary.changed:
        console.print(
            f"{len(summary.changed)} of those done before were run with other code; --refresh runs them again",
            soft_wrap=True,
        )
    console.print(f"Results in {summary.folder.path}", soft_wrap=True)
    if summary.failed:
        raise typer.Exit(1)


def _filed(summary: Summary) -> Iterator[Filed]:
    from dpbench.analysis.reader import Filed

    for cell in summary.grid.cells:
        result = summary.folder.result(cell)
        if result is not None:
            yield Filed(summary.folder.path / cell.file_name, result)
