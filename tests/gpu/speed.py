"""Steps, per-example gradients and extraction on the device: beside Opacus there, or the network alone."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import torch
from dpbench_plugins.extractors.efficientnet_lite import EfficientNetLite0
from dpbench_plugins.extractors.vision import Precision

from dpbench.data import extraction
from dpbench.data.engine import BATCH, choose_inference_engine
from dpbench.support.fields import list_changed_fields
from tests.benchmarks.conftest import Ratios
from tests.benchmarks.test_extraction import Encoded, Opened
from tests.benchmarks.test_linear_step import Size, _opacus, _ours
from tests.benchmarks.test_network_steps import World
from tests.gpu.asked import Asked, Row, seconds


def rows(asked: Asked) -> Iterator[Row]:
    """Time all three."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Opacus has advice
        for classes in (10, 100):
            yield _linear(asked, classes)
        for network in ("wrn-16-4",) if asked.quick else ("wrn-16-4", "resnet-9"):
            yield _network(asked, network)
        yield _views(asked)
    for precision in get_args(Precision):
        yield _extraction(asked, precision)


def _linear(asked: Asked, classes: int) -> Row:
    size = Size(200, 16, classes, 20) if asked.quick else Size(45_000, 2048, classes, 1024)
    x, y = size.data()
    ours = seconds(_ours(size, x, y, asked.device), asked) / size.steps
    theirs = {mode: seconds(_opacus(size, x, y, mode, 8, asked.device), asked) / 8 for mode in ("hooks", "ghost")}
    told = ", ".join(
        f"Opacus ({mode}) {1e3 * value:.2f} ms, {value / ours:.1f} times" for mode, value in theirs.items()
    )
    return Row(f"a step on a linear head, {size.d} x {classes}, batch {size.batch}", f"{1e3 * ours:.2f} ms; {told}")


def _network(asked: Asked, network: str) -> Row:
    world = World(Ratios(not asked.quick, []), network, asked.device, batch=512, physical=128)
    ours, theirs = (seconds(step, asked) for step in (world.ours(0), world.opacus()))
    rate = world.batch / ours
    found = f"{rate:.0f} a second; Opacus {world.batch / theirs:.0f}, {theirs / ours:.2f} times the time"
    return Row(f"per-example gradients of {world.name} on {world.shape}, {world.physical} at once", found)


def _views(asked: Asked) -> Row:
    world = World(Ratios(not asked.quick, []), "wrn-16-4", asked.device, batch=64, physical=16)
    rate = 16 * world.batch / seconds(world.ours(16), asked)
    found = f"{rate:.0f}; a step of 4,096 x 16 takes {4096 * 16 / rate:.1f} s"
    return Row(f"views a second of {world.name}, 16 an example", found)


def _extraction(asked: Asked, precision: Precision) -> Row:
    what = f"images a second of efficientnet-lite0 in {precision}"
    extractor = EfficientNetLite0(size=32 if asked.quick else 224, precision=precision)
    if not extractor.present():
        return Row(what, "not run: install dpbench-vision[offline]")
    images = Encoded(32, "PNG", 8 if asked.quick else 2048)
    opened = Opened(extractor.open(asked.device), **list_changed_fields(extractor))
    ready = torch.stack([opened.prepare(images[place]) for place in range(min(len(images), BATCH))])

    def whole() -> None:
        with tempfile.TemporaryDirectory() as folder:
            list(
                extraction.extract_features(
                    images, opened, Path(folder), choose_inference_engine(opened, asked.device, len(images))
                )
            )

    rate = len(images) / seconds(whole, asked)
    alone = len(ready) / seconds(lambda: opened.network(ready).cpu(), asked)
    return Row(what, f"{rate:.0f}; the network alone, {len(ready)} at once, {alone:.0f}")
