"""`dpbench list`: what is installed, and what is broken."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import itertools
import json
import re
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from dpbench.cli.presence import HERE, dataset_facts, extractor_facts
from dpbench.errors import SpecError
from dpbench.records.board import Board, board_files
from dpbench.registry import KINDS, Kind, Registry, is_required, load
from dpbench.support.messages import bytes_in_words
from dpbench.sweep import ready_made_sweeps

FACTS: dict[Kind, Callable[[Any, Registry], dict[str, Any]]] = {
    "dataset": dataset_facts,
    "extractor": extractor_facts,
}
SENTENCE = re.compile(r"(?<!et al)\. ")  # where one ends
WIDE = 160  # terminal columns needed for facts and a summary
COLUMNS: dict[Kind, tuple[str, ...]] = {
    "dataset": ("here", "download", "licence"),
    "extractor": ("here", "features", "weights", "licence"),
    "learner": (),
}


LISTED = ("datasets", "extractors", "learners", "boards", "figures")


def list_components(
    what: Annotated[
        str | None,
        typer.Argument(metavar="|".join(LISTED), help="Show only these.", autocompletion=lambda: [*LISTED]),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List datasets, extractors and learners with their origin, and any broken plugins; or list boards or figures."""
    if what is not None and what not in LISTED:
        raise SpecError(_refuse_listing(what))
    if what in FILED:
        _show_filed(FILED[what](), as_json)
        return
    registry = load()
    kinds = [kind for kind in KINDS if what is None or what == f"{kind}s"]
    if as_json:
        print(json.dumps(_plain(registry, kinds), indent=2))
        return
    console = Console()
    for kind in kinds:
        told = kind == "learner" or console.width >= WIDE
        table = Table(Column(f"{kind}s", no_wrap=True), *COLUMNS[kind], "from", box=None)
        if told:
            table.add_column("summary")
        for row in _rows(registry, kind):
            summary = [row["summary"]] if told else []
            table.add_row(row["name"], *_cells(kind, row), row["distribution"], *summary)
        console.print(table, end="\n\n")
    if "extractor" in kinds:
        rows = _rows(registry, "extractor")
        for row in rows:
            _print_layers(console, row)
        console.print(
            "Extractors combine with +, like pixels:size=8+scatternet: their features side by side.", highlight=False
        )
        for row in rows:
            if row["error"]:
                reason = f"Extractor {row['name']!r} does not work: {row['error'].rstrip('.')}."
                console.print(reason, style="red", markup=False)
    for left_out in (*registry.broken, *registry.clashes):
        console.print(str(left_out), style="red", markup=False)


def _boards() -> list[dict[str, str]]:
    """Return every board that --board takes."""
    boards = map(Board.read, board_files().values())
    return [
        {"name": board.name, "shows": board.title, "command": f"dpbench run --board {board.name} --learner ..."}
        for board in sorted(boards, key=lambda board: board.name)
    ]


def _figures() -> list[dict[str, str]]:
    """Return every ready-made sweep, with the first comment of its file."""
    rows = []
    for name in ready_made_sweeps.names():
        lines = itertools.takewhile(lambda line: line.startswith("#"), ready_made_sweeps.lines(name))
        said = " ".join(line.lstrip("# ") for line in lines)
        rows.append({"name": name, "shows": SENTENCE.split(said)[0].rstrip("."), "command": f"dpbench sweep {name}"})
    return rows


def _refuse_listing(what: str) -> str:
    """Return what can be listed, and what to type for what the user may have meant."""
    *others, last = LISTED
    said = f"Expected {', '.join(others)} or {last} after dpbench list, got {what!r}."
    name, registry = what.partition(":")[0], load()
    kinds = [kind for kind in KINDS if name in registry.components[kind]]
    if "dataset" in kinds:
        cls = registry.components["dataset"][name].cls
        path = any(field.name == "path" and is_required(field) for field in dataclasses.fields(cls))
        whole = f"{name}:FOLDER" if path and what == name else what
        return f"{said} It is a dataset: dpbench data info {whole} describes it."
    if kinds:
        return f"{said} It is {KIND_WORDS[kinds[0]]}: dpbench list {kinds[0]}s describes it."
    close = difflib.get_close_matches(what, LISTED, 1)
    return f"{said} Did you mean {close[0]!r}?" if close else said


KIND_WORDS: dict[Kind, str] = {"extractor": "an extractor", "learner": "a learner"}
FILED: dict[str | None, Callable[[], list[dict[str, str]]]] = {"boards": _boards, "figures": _figures}


def _show_filed(rows: list[dict[str, str]], as_json: bool) -> None:
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    table = Table(Column("name", no_wrap=True), "shows", box=None)
    for row in rows:
        table.add_row(row["name"], Text(row["shows"]))
    Console().print(table)
    print(f"To run one: {rows[0]['command']}" if rows else "None.")


def _rows(registry: Registry, kind: Kind) -> list[dict[str, Any]]:
    rows = []
    for name, item in sorted(registry.components[kind].items()):
        who = {"plugin": item.plugin, "distribution": item.distribution, "version": item.version}
        facts = FACTS[kind](item.cls, registry) if kind in FACTS else {}
        rows.append({"name": name, "summary": _summary(item.cls), **who, **facts})
    return rows


def _cells(kind: Kind, row: dict[str, Any]) -> list[str]:
    if kind == "learner":
        return []
    width = [str(row["dimension"] or "-")] if kind == "extractor" else []
    return [HERE[row["present"]], *width, bytes_in_words(row["size"]) or "-", row["licence"] or "-"]


def _print_layers(console: Console, row: dict[str, Any]) -> None:
    shapes = [f"{name} {' x '.join(map(str, shape))}" for name, shape in row["layers"].items()]
    if shapes:
        console.print(
            f"{row['name']}:layer=NAME gives activations, for dp-finetune. By default: {', '.join(shapes)}.",
            highlight=False,
        )


def _plain(registry: Registry, kinds: list[Kind]) -> dict[str, object]:
    listed: dict[str, object] = {f"{kind}s": _rows(registry, kind) for kind in kinds}
    return {**listed, "broken": [vars(broken) for broken in registry.broken], "clashes": [*map(str, registry.clashes)]}


def _summary(cls: type) -> str:
    return " ".join((inspect.getdoc(cls) or "").split("\n\n")[0].split())
