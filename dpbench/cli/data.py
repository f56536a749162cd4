"""`dpbench data`: list datasets; fetch, import, describe or remove one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from dpbench.api import Dataset
from dpbench.cli.output import exit_with_message_on_interrupt
from dpbench.cli.presence import PRESENCE_WORDS, collect_dataset_facts
from dpbench.data import sources
from dpbench.errors import SpecError
from dpbench.records.protocol import Component
from dpbench.registry import load
from dpbench.support.messages import format_bytes
from dpbench.support.paths import data_folders, user_data_folder

if TYPE_CHECKING:
    from dpbench.data.survey import DatasetSurvey

app = typer.Typer(help="Datasets: list, fetch, import, describe and remove them.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Dataset, like pcam or dermamnist:size=64.")]
To = Annotated[
    Path | None, typer.Option(help="Folder to store it in, one of DPBENCH_DATA. \\[default: your user data folder]")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_datasets(as_json: Json = False) -> None:
    """List datasets: whether each is on this machine, where, its download size, its licence and how to get it."""
    registry = load()
    rows = [collect_dataset_facts(item.cls, registry) for _, item in sorted(registry.components["dataset"].items())]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    table = Table("dataset", "here", "download", "licence", "where, or how to get it", box=None)
    for row in rows:
        cells = (
            PRESENCE_WORDS[row["present"]],
            format_bytes(row["size"]),
            row["licence"],
            row["where"] or row["how"],
        )
        table.add_row(*map(escape, (row["name"], *cells)))
    Console().print(table)


@app.command()
def fetch(name: Name, to: To = None) -> None:
    """Download a dataset, verify it and store it in a data folder. Resumes interrupted downloads."""
    dataset = _build_dataset(name)
    found = sources.find_dataset(dataset)
    if found is not None:
        print(f"{dataset.name} is already here: {found.folder}")
        return
    from dpbench.data.fetch import store

    folder = _choose_folder(to)
    with exit_with_message_on_interrupt("The partial download is kept; repeat the command to continue."):
        kept = store.fetch_dataset(dataset, folder)
    _print_stored_dataset(dataset, folder, kept)


@app.command("import")
def import_data(
    name: Name,
    path: Annotated[Path, typer.Argument(help="The downloaded archive or folder.")],
    to: To = None,
    link: Annotated[bool, typer.Option("--link", help="Link instead of copying.")] = False,
) -> None:
    """Verify data that you downloaded yourself, and store it in a data folder."""
    from dpbench.data.fetch import store

    dataset, folder = _build_dataset(name), _choose_folder(to)
    _print_stored_dataset(dataset, folder, store.import_dataset(dataset, path, folder, link=link))


@app.command()
def info(name: Name, as_json: Json = False) -> None:
    """Describe a dataset: its sizes and classes, where it is, and how many of its images are duplicates."""
    dataset = _build_dataset(name)
    sources.check_datasets_present(dataset)
    from dpbench.data.survey import survey_dataset

    found = survey_dataset(dataset)
    if as_json:
        print(found.model_dump_json(indent=2))
    else:
        _print_dataset_survey(found, Console())


@app.command()
def remove(
    name: Name,
    to: Annotated[
        Path | None, typer.Option("--from", help="Folder to remove it from. \\[default: your user data folder]")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete the files of a dataset that `fetch` or `import` stored."""
    from dpbench.data.fetch import store

    dataset, folder = _build_dataset(name), _choose_folder(to)
    kept = store.read_stored_dataset_record(dataset, folder)
    if kept is not None and not yes:
        typer.confirm(f"Delete {kept} in {folder}?", abort=True)
    kept = store.remove_dataset(dataset, folder)
    print(f"Deleted {kept} in {folder}")


def _build_dataset(text: str) -> Dataset:
    registry, component = load(), Component.parse(text)
    dataset: Dataset = registry.build("dataset", component.name, component.options)
    return dataset


def _choose_folder(to: Path | None) -> Path:
    if to is None:
        return user_data_folder()
    known = [folder.expanduser().resolve() for folder in data_folders()]
    if to.expanduser().resolve() not in known:
        raise SpecError(f"Expected one of {', '.join(map(str, known))}, got {to}. To use it, add it to DPBENCH_DATA.")
    return to.expanduser().resolve()


def _print_stored_dataset(dataset: Dataset, folder: Path, stored: Any) -> None:
    print(f"{dataset.name} is complete: {stored} in {folder}")
    print(f"Licence: {dataset.licence}. Cite: {dataset.citation}.")


def _print_dataset_survey(survey: DatasetSurvey, console: Console) -> None:
    table = Table.grid(Column(no_wrap=True), Column(overflow="fold"), padding=(0, 2))
    for key, value in survey.lines():
        table.add_row(key, escape(value))
    console.print(table)
