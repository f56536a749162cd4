"""`dpbench predict`: classify images with a saved model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from dpbench.cli.given import UserSettings
from dpbench.cli.takes import add_setting_flags
from dpbench.data.ignored import report_ignored_names
from dpbench.errors import DataError
from dpbench.records.place import RunOptions
from dpbench.support.files import IMAGE_ENDINGS
from dpbench.support.untrusted import make_printable

if TYPE_CHECKING:
    from dpbench.models import Model


@add_setting_flags(RunOptions, only=("device",))
def predict(
    model: Annotated[Path, typer.Argument(help="A model that dpbench run --models wrote.")],
    images: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[IMAGE]...", help="Images or folders of images. \\[default: none, show the model card]"
        ),
    ] = None,
    *,
    given: UserSettings,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with the score of each class.")] = False,
) -> None:
    """Classify images with a saved model. Without images, describe the model and its privacy guarantee."""
    from dpbench.models import Model
    from dpbench.models.model import find_unreadable_images
    from dpbench.registry import load

    plugins = load()
    plugins.report_broken_plugins()
    chosen = Model.load(model, device=given.place.device, plugins=plugins)
    if not images:
        _print_model_card(chosen, as_json)
        return
    files = [file for place in images for file in _find_image_files(place)]
    try:
        scores, refused = chosen.decision_function(files), {}
    except DataError:  # of one image, for which the others are not left without a label
        refused = find_unreadable_images(files, chosen.card.mode)
        files = [file for file in files if file not in refused]
        if not refused or not files:
            raise
        scores = chosen.decision_function(files)
    names = [chosen.card.classes[place] for place in scores.argmax(1)]
    if as_json:
        rows = [
            {"image": str(file), "class": name, "scores": dict(zip(chosen.card.classes, row.tolist(), strict=True))}
            for file, name, row in zip(files, names, scores, strict=True)
        ]
        print(json.dumps(rows, indent=2))
    else:
        for file, name in zip(files, names, strict=True):
            print("\t".join(map(_format_table_cell, (str(file), name))))
    if refused:
        raise DataError("\n".join(refused.values()))


def _format_table_cell(text: str) -> str:
    """Make a text printable without tabs and line breaks, for one cell of a line; --json prints it unchanged."""
    return make_printable(text).replace("\t", "?").replace("\n", "?")


def _print_model_card(model: Model, as_json: bool) -> None:
    if as_json:
        print(model.card.model_dump_json(indent=2))
        return
    from dpbench.analysis.describe import render_terminal

    Console().print(render_terminal(model.lines()))


def _find_image_files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    named = [file for file in path.rglob("*") if file.suffix.lower() in IMAGE_ENDINGS and not file.is_dir()]
    found = sorted(file for file in named if file.is_file())
    report_ignored_names(str(path), [f"{file}/" for file in named if not file.is_file() and file.exists()])
    if not found:
        endings = ", ".join(sorted(IMAGE_ENDINGS))
        raise DataError(f"Expected images in folder {path}, found none. Image files end in {endings}.")
    return found
