"""`dpbench list`: list the installed components and the broken plugins."""

from __future__ import annotations

import difflib
import itertools
import json
import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from dpbench.cli.presence import PRESENCE_WORDS, collect_dataset_facts, collect_extractor_facts
from dpbench.errors import SpecError
from dpbench.records.board import Board, list_board_files
from dpbench.records.provenance import HARNESS
from dpbench.registry import KINDS, ComponentKind, Registration, Registry, load
from dpbench.registry.components import READS_WORDS, read_docstring_summary
from dpbench.support.messages import format_bytes
from dpbench.support.settings import list_settings
from dpbench.sweep import ready_made_sweeps

FACTS_BY_KIND: dict[ComponentKind, Callable[[Any, Registry], dict[str, Any]]] = {
    "dataset": collect_dataset_facts,
    "extractor": collect_extractor_facts,
}
SENTENCE_END = re.compile(r"(?<!et al)\. ")  # where one ends
LISTABLE = ("datasets", "extractors", "learners", "boards", "figures")


def list_components(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar=f"{'|'.join(LISTABLE)}|NAME",
            help="Show only these, or the settings of one component.",
            autocompletion=lambda: [*LISTABLE],
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List datasets, extractors and learners with their origin, and any broken plugins; or list boards or figures.

    One line each: the name, whether it is on this machine (or how large the download is), and what it is. With the NAME
    of a component, list its settings with their defaults, ranges and meanings, its licence and what it needs.
    """
    if what is not None and what not in LISTABLE:
        _show_component(what, as_json)
        return
    if what in FILE_LISTINGS:
        _print_component_table(FILE_LISTINGS[what](), as_json)
        return
    registry = load()
    kinds = [kind for kind in KINDS if what is None or what == f"{kind}s"]
    if as_json:
        print(json.dumps(_build_json_listing(registry, kinds), indent=2))
        return
    console = Console()
    for kind in kinds:
        rows = _list_component_rows(registry, kind)
        wide = max((len(row["name"]) for row in rows), default=0)
        console.print(f"{len(rows)} {kind}s; dpbench list NAME says more", style="bold", highlight=False)
        for row in rows:
            here = "" if kind == "learner" else f"{_format_availability(row):8} "
            line = Text(f"{row['name']:{wide}}  {here}{_format_short_summary(row)}")
            line.truncate(console.width, overflow="ellipsis")
            console.print(line, highlight=False, soft_wrap=True)
        console.print()
        for row in rows:
            if row.get("error"):
                reason = f"Extractor {row['name']!r} does not work: {row['error'].rstrip('.')}."
                console.print(reason, style="red", markup=False)
    if "extractor" in kinds:
        console.print(
            "Extractors combine with +, like pixels:size=8+scatternet: their features side by side.", highlight=False
        )
    for left_out in (*registry.broken, *registry.clashes):
        console.print(str(left_out), style="red", markup=False)


def _list_boards() -> list[dict[str, str]]:
    boards = map(Board.read, list_board_files().values())
    return [
        {"name": board.name, "shows": board.title, "command": f"dpbench run --board {board.name} --learner ..."}
        for board in sorted(boards, key=lambda board: board.name)
    ]


def _list_ready_made_sweeps() -> list[dict[str, str]]:
    """Return a row per ready-made sweep: its name, the first sentence of its file's comment, and its command."""
    rows = []
    for name in ready_made_sweeps.list_sweep_names():
        lines = itertools.takewhile(lambda line: line.startswith("#"), ready_made_sweeps.read_sweep_lines(name))
        said = " ".join(line.lstrip("# ") for line in lines)
        rows.append(
            {"name": name, "shows": SENTENCE_END.split(said)[0].rstrip("."), "command": f"dpbench sweep {name}"}
        )
    return rows


def _show_component(name: str, as_json: bool) -> None:
    registry = load()
    found = [kind for kind in KINDS if name in registry.components[kind]]
    if not found:
        raise SpecError(_describe_unknown_listing(name, registry))
    if as_json:
        print(json.dumps([_describe_component(registry, kind, name) for kind in found], indent=2))
        return
    console = Console()
    for kind in found:
        row = _describe_component(registry, kind, name)
        console.print(f"{kind} {name}, from {row['distribution']}", markup=False, highlight=False)
        console.print(row["summary"], markup=False, highlight=False)
        table = Table(Column("setting", no_wrap=True), "default", "values", "meaning", box=None)
        for setting in row["settings"]:
            table.add_row(*map(Text, map(str, setting.values())))
        console.print(table if row["settings"] else "It has no settings.")
        for said in _describe_component_facts(kind, row):
            console.print(said, markup=False, highlight=False)
        if kind == "dataset":
            option = registry.components[kind][name].cls.shorthand.upper()
            print(f"The images: dpbench data info {name}{option and f':{option}'}")


def _describe_component(registry: Registry, kind: ComponentKind, name: str) -> dict[str, Any]:
    item = registry.components[kind][name]
    settings = [row._asdict() for row in list_settings(item.cls)]
    facts = FACTS_BY_KIND[kind](item.cls, registry) if kind in FACTS_BY_KIND else {}
    if kind == "learner":
        facts = {"public data read": READS_WORDS[item.cls.public], "constants chosen on": item.cls.rule_origin}
    return {"kind": kind, **_describe_origin(name, item), **facts, "settings": settings}


def _describe_component_facts(kind: ComponentKind, row: dict[str, Any]) -> Iterator[str]:
    """Yield lines on facts that the listing omits.

    For a learner: the public data that it reads, and the data that its constants were chosen on. For a dataset or an
    extractor: presence, size and licence. For an extractor also the number of features and the layers.
    """
    if kind == "learner":
        yield from (f"{fact}: {row[fact]}" for fact in ("public data read", "constants chosen on") if row[fact])
        return
    size = f" ({format_bytes(row['size'])})" if row["size"] else ""
    yield f"here: {PRESENCE_WORDS[row['present']]}{size}; licence: {row['licence'] or 'none stated'}"
    if kind == "extractor":
        yield from ([f"features: {row['dimension']}"] if row["dimension"] else [])
        shapes = [f"{name} {' x '.join(map(str, shape))}" for name, shape in row["layers"].items()]
        yield from ([f"layers for dp-finetune (layer=NAME): {', '.join(shapes)}"] if shapes else [])


def _describe_unknown_listing(what: str, registry: Registry) -> str:
    """Return the message for an unknown listing, with the valid listings and the closest match."""
    name, _, options = what.partition(":")
    said = f"Expected {', '.join(LISTABLE)} or the name of a component after dpbench list, got {what!r}."
    if options and name in registry.components["dataset"]:
        return f"{said} dpbench data info {what} describes this dataset."
    names = [known for kind in KINDS for known in registry.components[kind]]
    close = difflib.get_close_matches(name, [*LISTABLE, *names], 1)
    return f"{said} Did you mean {close[0]!r}?" if close else said


FILE_LISTINGS: dict[str | None, Callable[[], list[dict[str, str]]]] = {
    "boards": _list_boards,
    "figures": _list_ready_made_sweeps,
}


def _print_component_table(rows: list[dict[str, str]], as_json: bool) -> None:
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    table = Table(Column("name", no_wrap=True), "shows", box=None)
    for row in rows:
        table.add_row(row["name"], Text(row["shows"]))
    Console().print(table)
    print(f"To run one: {rows[0]['command']}" if rows else "None.")


def _list_component_rows(registry: Registry, kind: ComponentKind) -> list[dict[str, Any]]:
    rows = []
    for name, item in sorted(registry.components[kind].items()):
        facts = FACTS_BY_KIND[kind](item.cls, registry) if kind in FACTS_BY_KIND else {}
        rows.append({**_describe_origin(name, item), **facts})
    return rows


def _describe_origin(name: str, item: Registration) -> dict[str, Any]:
    """Return the first fields of every row: name, summary, and the plugin that provides the component."""
    who = {"plugin": item.plugin, "distribution": item.distribution, "version": item.version}
    return {"name": name, "summary": read_docstring_summary(item.cls), **who}


def _format_availability(row: dict[str, Any]) -> str:
    """Return whether a component is on this machine; if it is missing, return the size of its download."""
    missing = format_bytes(row["size"]) if row["present"] is False else ""
    return missing or PRESENCE_WORDS[row["present"]]


def _format_short_summary(row: dict[str, Any]) -> str:
    """Return the first sentence of a component's summary, preceded by its distribution if that is not dpbench."""
    origin = "" if row["distribution"] == HARNESS else f"({row['distribution']}) "
    return f"{origin}{SENTENCE_END.split(row['summary'])[0].rstrip('.')}"


def _build_json_listing(registry: Registry, kinds: list[ComponentKind]) -> dict[str, object]:
    listed: dict[str, object] = {f"{kind}s": _list_component_rows(registry, kind) for kind in kinds}
    return {**listed, "broken": [vars(broken) for broken in registry.broken], "clashes": [*map(str, registry.clashes)]}
