"""`dpbench advise`: the accuracy to expect on your own images, before any private run."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from dpbench.cli.given import UserSettings
from dpbench.cli.output import Json
from dpbench.cli.takes import add_setting_flags
from dpbench.errors import SpecError
from dpbench.records.place import RunOptions
from dpbench.records.protocol import Component, Protocol, SplitRule

if TYPE_CHECKING:
    from dpbench.records.spec import Spec
    from dpbench.registry import Registry
    from dpbench_lab.advise.advice import AdviceAtEpsilon, LearnerAdvice
    from dpbench_lab.advise.folder import PublicFolderData
    from dpbench_lab.advise.forecast import Forecast

MIN_LABELS = 10  # labelled public images or units, for five folds
MAX_EPSILONS = 20  # epsilons


@add_setting_flags(
    Protocol, RunOptions,
    several=("epsilon",),
    only=("dataset", "unit", "epsilon", "extractor", "delta", "public_fraction", "split_seed", "device"),
    defaults={"dataset": "imagefolder:FOLDER"},
)  # fmt: skip
def advise(
    folder: Annotated[
        Path | None,
        typer.Argument(help="Folder of images, FOLDER/train/CLASS/IMAGE; or use --dataset imagefolder:FOLDER,units=x."),
    ] = None,
    accuracy: Annotated[
        float | None,
        typer.Option(help="Also find the smallest epsilon, and the fewest images or patients, for this accuracy."),
    ] = None,
    labels: Annotated[
        bool, typer.Option("--public-labels/--no-public-labels", help="Read the labels of public images, or do not.")
    ] = True,
    *,
    given: UserSettings,
    as_json: Json = False,
) -> None:
    """Predict what each learner will score on your images, from the public ones alone. No private image is opened."""
    fixed = {"dataset": _read_dataset_argument(folder, given), "learner": "public-only"}
    asked = [given.spec(changes={**fixed, "epsilon": axis}) for axis in given.axes["epsilon"] or [1.0]]
    epsilons, spec = [spec.epsilon for spec in asked], asked[0]
    if math.inf in epsilons:
        raise SpecError("Expected --epsilon to be finite, got inf: advice is on runs with privacy.")
    if len(epsilons) > MAX_EPSILONS:
        raise SpecError(f"Expected up to {MAX_EPSILONS} values of --epsilon, got {len(epsilons)}.")
    if not spec.public_fraction:
        raise SpecError("Expected --public-fraction above 0: advice needs public images.")

    from dpbench.harness.delta import compute_default_delta
    from dpbench.registry import load
    from dpbench.registry.components import build, default_extractor, resolve
    from dpbench.support.device import find_device
    from dpbench_lab.advise.advice import advise as made
    from dpbench_lab.advise.advice import check_target_accuracy
    from dpbench_lab.advise.folder import open_public_folder_data

    check_target_accuracy(accuracy)
    plugins = load()
    plugins.report_broken_plugins()
    images = _build_folder_dataset(spec, plugins)
    spec = resolve(spec, plugins).spec
    if spec.unit not in (None, images.default_unit()):
        raise SpecError(
            f"Expected --unit {images.default_unit()}, got {spec.unit}. Say whose each image is: --dataset "
            f"imagefolder:{images.path},units=folder,unit={spec.unit}."
        )
    named = "extractor" in asked[0].model_fields_set
    chosen = build(plugins, "extractor", asked[0].extractor if named else default_extractor(plugins, spec.dataset))
    rule, device = (
        SplitRule(spec.public_fraction, 1.0, None, spec.split_seed, spec.unit),
        find_device(given.place.device),
    )
    place = Path(images.path).expanduser()
    part = open_public_folder_data(place, rule, chosen, device, named=named, dataset=images)
    if labels:
        _check_public_count(part)
    delta = spec.delta if "delta" in asked[0].model_fields_set else compute_default_delta(part.private)
    found = made(part, epsilons, delta, plugins, labels=labels, wished=accuracy)
    if as_json:
        print(json.dumps(dataclasses.asdict(found), indent=2))
    else:
        _print_advice(found, place, Console())


def _check_public_count(part: PublicFolderData) -> None:
    """Check that there are enough labelled public units for five folds; the error states a public share that suffices.

    Raises:
        SpecError: there are too few.
    """
    whole = part.public_units + part.private
    if part.public_units >= MIN_LABELS:
        return
    share = math.ceil(100 * MIN_LABELS / whole) / 100
    more = f"use --public-fraction {share:g} or more" if share < 1 else f"there are only {whole} in all"
    raise SpecError(
        f"Expected at least {MIN_LABELS} labelled public {part.unit}s to rehearse on, got {part.public_units} of "
        f"{whole}: {more}, or add --no-public-labels."
    )


def _read_dataset_argument(folder: Path | None, given: UserSettings) -> Component:
    """Return the dataset that the user named, as FOLDER or with --dataset.

    Raises:
        SpecError: neither or both were named, or the dataset is not a folder of images.
    """
    named: str | None = given.keys.get("dataset")
    if folder is not None and named is None:
        return Component(name="imagefolder", options={"path": str(folder)})
    if named is None or folder is not None:
        raise SpecError("Expected a FOLDER of images, or --dataset imagefolder:FOLDER,units=..., and not both.")
    if (dataset := Component.parse(named)).name != "imagefolder":
        raise SpecError(
            f"Expected --dataset imagefolder:FOLDER, got {dataset.name}: advice is on images of your own. The boards "
            "show what learners score on the datasets of dpbench."
        )
    return dataset


def _build_folder_dataset(spec: Spec, plugins: Registry) -> Any:
    """Build the dataset of a spec, and refuse options that change images.

    Raises:
        SpecError: an option does not fit, or asks for another mode than RGB.
    """
    from dpbench.registry.components import build

    images = build(plugins, "dataset", spec.dataset)
    if images.mode != "RGB":
        raise SpecError(f"Expected mode=RGB, as advice reads images, got mode={images.mode}. Drop it.")
    return images


def _print_advice(found: LearnerAdvice, folder: Path, console: Console) -> None:
    console.print(
        f"{folder}: {found.private:,} private {found.unit}s and {found.public:,} public images of "
        f"{len(found.classes)} classes, {found.dimensions} effective dimensions. No private image was opened.",
        soft_wrap=True, markup=False,
    )  # fmt: skip
    console.print("Expected accuracy in percent (90% interval), default settings:")
    console.print(_make_table(found))
    for line in _list_advice_remarks(found):
        console.print(line, soft_wrap=True, markup=False)


def _make_table(found: LearnerAdvice) -> Table:
    table = Table("learner", *(f"ε {epsilon.epsilon:g}" for epsilon in found.at), box=None)
    learners = found.at[-1].forecasts
    for learner in sorted(learners, key=lambda name: -learners[name].mean):
        table.add_row(learner, *(_format_forecast(epsilon.forecasts[learner]) for epsilon in found.at))
    if found.alone is not None:
        table.add_row("public labels only", *(f"{100 * found.alone:.1f}" for _ in found.at))
    return table


def _format_forecast(forecast: Forecast) -> str:
    return f"{100 * forecast.mean:.1f} ({100 * forecast.low:.0f}–{100 * forecast.high:.0f})"


def _list_advice_remarks(found: LearnerAdvice) -> Iterator[str]:
    from dpbench_lab.advise.advice import EPSILON_RANGE, FEWEST_REHEARSED

    picks = {epsilon.pick for epsilon in found.at}
    if len(picks) == 1:
        yield f"Start with `{picks.pop()}`, which has the highest expected accuracy."
    else:
        best = ", ".join(f"`{epsilon.pick}` at ε {epsilon.epsilon:g}" for epsilon in found.at)
        yield f"Start with the learner that has the highest expected accuracy: {best}."
    if found.alone is None:
        yield (
            "Public labels were not read, so dpbench does not know how hard your classes are to tell apart: these are "
            "averages over boards of similar size. --public-labels gives narrower intervals."
        )
    elif behind := [epsilon for epsilon in found.at if _best_forecast_accuracy(epsilon) < found.alone]:
        where = ", ".join(f"{epsilon.epsilon:g}" for epsilon in behind)
        yield (
            f"At ε {where} the {found.public:,} public labels alone are expected to beat every private learner above. "
            "Compare with --learner public-only --public-labels, which has ε 0."
        )
    if found.alone is not None and found.public < FEWEST_REHEARSED:
        yield (
            f"With only {found.public:,} public images, the true intervals are wider: the boards have "
            f"{FEWEST_REHEARSED} or "
            "more, and a rehearsal on fewer is itself uncertain. Raise --public-fraction if you can."
        )
    if found.wish is not None:
        yield _describe_accuracy_target(found)
    if outside := [
        epsilon.epsilon for epsilon in found.at if not EPSILON_RANGE[0] <= epsilon.epsilon <= EPSILON_RANGE[1]
    ]:
        yield (
            f"The boards cover ε {EPSILON_RANGE[0]:g} to {EPSILON_RANGE[1]:g}. No result backs the intervals at ε "
            f"{', '.join(f'{epsilon:g}' for epsilon in outside)}."
        )
    if found.unit != "image":
        yield (
            f"ε is stated for one {found.unit}: the noise hides all images of one, and the numbers above count "
            f"{found.unit}s."
        )
    yield "Expect lower accuracy if your test images differ from your training images: public images cannot show that."


def _best_forecast_accuracy(advice: AdviceAtEpsilon) -> float:
    return max(found.mean for found in advice.forecasts.values())


def _describe_accuracy_target(found: LearnerAdvice) -> str:
    wish = found.wish
    assert wish is not None and math.isfinite(wish.accuracy)
    from dpbench_lab.advise.advice import UNIT_FACTORS

    wanted = f"{100 * wish.accuracy:g}%"
    units = f"more than {UNIT_FACTORS[-1]:g} times as many" if wish.units is None else f"about {wish.units:,}"
    largest = max(point.epsilon for point in found.at)
    needed = f" At ε {largest:g} it takes {units} private {found.unit}s; here are {found.private:,}."
    if wish.expected is None:
        return f"No ε up to 8 is expected to give {wanted} on these images.{needed}"
    safe = "at no ε up to 8" if wish.safe is None else f"at ε {wish.safe:g}"
    return f"{wanted} is expected from ε {wish.expected:g} on. The whole 90% interval lies above it {safe}.{needed}"
