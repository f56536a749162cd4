"""The paper's pre-training on images from random processes: its rate, its checkpoint, and all of it on request."""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from dpbench_plugins.extractors.randp import RandPWRN
from dpbench_plugins.extractors.randp.checkpoints import export_checkpoint, unfinished_state_path
from dpbench_plugins.extractors.randp.pretraining import Pretrainer
from dpbench_plugins.extractors.randp.probe import AccuracyProbe
from dpbench_plugins.extractors.randp.recipe import PretrainingRecipe
from dpbench_plugins.extractors.vision import Precision
from dpbench_plugins.networks.network_checkpoint import SHIPPED, Checkpoint

from dpbench import DataMissing
from tests.gpu.asked import Asked, Row, settle
from tests.helpers.randp import Tiny
from tests.helpers.randp import recipe as few_steps

LARGEST = 8e6  # bytes of a checkpoint that comes with dpbench


def rows(asked: Asked) -> Iterator[Row]:
    """Start the recipe, say what all of it takes, export what is there; with `full`, train to the end and score it."""
    kind = Tiny if asked.quick else RandPWRN
    recipe = few_steps() if asked.quick else PretrainingRecipe()
    precisions: tuple[Precision, ...] = ("bfloat16", "float32")  # the recipe's own last: its weights are kept
    for precision in precisions:
        training = Pretrainer(kind.network, kind.size, dataclasses.replace(recipe, precision=precision), asked.device)
        yield _rate(asked, training, precision)
    started = asked.out / f"{kind.name}-started.safetensors"
    export_checkpoint(training.encoder.state_dict(), training.state(), started)
    yield from _half(asked, kind, training, started)
    if asked.full:
        yield from _whole(asked, kind, recipe, started)


def checkpoint(asked: Asked) -> Path:
    """Return where the whole pre-training leaves its weights."""
    return asked.out / f"{(Tiny if asked.quick else RandPWRN).name}.safetensors"


def _rate(asked: Asked, training: Pretrainer, precision: str) -> Row:
    training.step()
    settle(asked.device)
    first, begin = training.done, time.perf_counter()
    while training.done < training.recipe.steps and time.perf_counter() - begin < 60 * asked.minutes / 2:
        loss = float(training.step())  # which waits for the device
    spent, recipe = time.perf_counter() - begin, training.recipe
    rate, images = (training.done - first) * recipe.batch / spent, recipe.steps * recipe.batch
    found = f"{rate:.0f} images a second, loss {loss:.2f}; all {images:,} take {images / rate / 3600:.2g} h"
    return Row(f"pre-training of {training.network} in {precision}, batch {recipe.batch}", found, math.isfinite(loss))


def _half(asked: Asked, kind: type[RandPWRN], training: Pretrainer, file: Path) -> Iterator[Row]:
    """Hold the exported weights to their size, and their features to those in float32."""
    state, size = Checkpoint.load(file).state, file.stat().st_size
    half = all(tensor.dtype == torch.float16 and bool(tensor.isfinite().all()) for tensor in state.values())
    yield Row("the checkpoint in half precision", f"{size / 1e6:.2f} MB", half and size < LARGEST)
    images = torch.rand(32, 3, kind.size, kind.size, generator=torch.Generator().manual_seed(0)).to(asked.device)
    ours = kind(path=str(file), stages="last").open(asked.device)(images)
    with torch.no_grad():
        exact = training.encoder.features(images)
    error = float(((ours - exact).norm(dim=1) / exact.norm(dim=1)).max())
    yield Row("its features beside those of the float32 weights", f"{error:.1e} of the norm at most", error < 0.01)


def _whole(asked: Asked, kind: type[RandPWRN], recipe: PretrainingRecipe, started: Path) -> Iterator[Row]:
    """Train to the last step, from where an interrupted call stopped, and score the weights beside the shipped ones."""
    out = checkpoint(asked)
    if not out.exists():
        kind.pretrain(recipe, out, asked.device, _teller(recipe.steps), resume=unfinished_state_path(out).exists())
    files = {"new": out, "shipped": started if asked.quick else SHIPPED[kind.name]}
    try:
        found = {name: _probed(asked, kind(path=str(file))) for name, file in files.items()}
    except DataMissing as error:
        yield Row("probes of the checkpoints", f"not run: {error}")
        return
    told = ", ".join(f"{name} {100 * accuracy:.1f}" for name, accuracy in found.items())
    better = "ship the new one" if found["new"] > found["shipped"] else "keep the shipped one"
    yield Row(f"probes of the checkpoints on {_dataset(asked)}", f"{told}: {better}")


def _dataset(asked: Asked) -> str:
    return "digits" if asked.quick else "cifar10"


def _probed(asked: Asked, extractor: RandPWRN) -> float:
    features = extractor.open(asked.device)
    return AccuracyProbe(_dataset(asked), extractor.prepare)(features)


def _teller(steps: int) -> Callable[[str, float], None]:
    """Return what says a hundred times how far it is, and what probes find."""
    every = max(1, steps // 100)

    def report(name: str, value: float) -> None:
        if name == "probe" or (name == "step" and int(value) % every == 0):
            print(f"{name} {value:g}", file=sys.stderr)

    return report
