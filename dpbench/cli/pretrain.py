"""`dpbench pretrain`: weights for an extractor, trained without any real data."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from dpbench.cli.given import UserSettings
from dpbench.cli.output import exit_with_message_on_interrupt
from dpbench.cli.takes import add_setting_flags
from dpbench.errors import SpecError
from dpbench.learning.trainable import Trainable
from dpbench.records.place import RunOptions
from dpbench.records.protocol import Component
from dpbench.registry import Registry, convert_fields, load
from dpbench.support import progress
from dpbench.support.files import check_writable_folder
from dpbench.support.plugin_calls import call_plugin

PROGRESS_LINES = 20  # roughly how many progress lines to print


@add_setting_flags(RunOptions, only=("device",))
def pretrain(
    extractor: Annotated[
        str, typer.Argument(help="Extractor and recipe, like randp-wrn16-4:generator=stylegan-oriented,seed=0.")
    ],
    out: Annotated[Path, typer.Option(help="File for the weights.")],
    steps: Annotated[int | None, typer.Option(help="Training steps. \\[default: the recipe's]")] = None,
    batch: Annotated[int | None, typer.Option(help="Images per step. \\[default: the recipe's]")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted pre-training.")] = False,
    *,
    given: UserSettings,
) -> None:
    """Train an extractor on images drawn from random processes. Use --resume after an interruption."""
    cls, recipe = _find_pretraining_recipe(load(), Component.parse(extractor), {"steps": steps, "batch": batch})
    from dpbench.support.device import find_device

    chosen = find_device(given.place.device)
    check_writable_folder(out.parent)
    kept = "The last saved step is kept; repeat the command with --resume to continue."
    with (
        exit_with_message_on_interrupt(kept),
        progress.show_progress_bar(f"Pre-training {cls.name}", recipe.steps) as advance,
    ):
        report = _make_reporter(recipe.steps, advance)
        call_plugin(f"Pre-training extractor {cls.name!r}", cls.pretrain, recipe, out, chosen, report, resume=resume)
    print(f"Wrote the weights of {cls.name}: {out}")


def _find_pretraining_recipe(
    registry: Registry, component: Component, overrides: Mapping[str, int | None]
) -> tuple[type[Trainable], Any]:
    """Return the class of the extractor and its recipe; flags override the component's options."""
    name = component.name
    cls: type[Any] = registry.find("extractor", name).cls
    if not issubclass(cls, Trainable):
        items = registry.components["extractor"].items()
        able = ", ".join(sorted(name for name, item in items if issubclass(item.cls, Trainable)))
        raise SpecError(f"Extractor {name!r} cannot be pre-trained. These can: {able or 'none'}.")
    if "" in component.options:
        raise SpecError(
            f"Expected key=value after {name!r}, got {component.options['']!r}. Write it like {name}:seed=1."
        )
    options = {**component.options, **{key: value for key, value in overrides.items() if value is not None}}
    return cls, cls.recipe(**convert_fields(cls.recipe, options, f"the recipe of {name!r}"))


def _make_reporter(steps: int, advance: Callable[[int], None]) -> Callable[[str, float], None]:
    """Return a callback that advances the bar at each step and prints the latest figures at regular intervals."""
    latest: dict[str, float] = {}
    every = max(1, steps // PROGRESS_LINES)

    def report_progress(name: str, value: float) -> None:
        if name != "step":
            latest[name] = value
            return
        done = int(value)
        advance(done - int(latest.get("step", 0)))
        latest["step"] = done
        figures = ", ".join(f"{key} {number:.4g}" for key, number in latest.items() if key != "step")
        if figures and (done % every == 0 or done == steps):
            print(f"step {done} of {steps}: {figures}", file=sys.stderr)

    return report_progress
