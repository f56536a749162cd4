"""`dpbench features`: feature packs, which carry features to machines that cannot compute them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dpbench.cli.given import UserSettings
from dpbench.cli.takes import add_setting_flags
from dpbench.records.place import RunOptions
from dpbench.records.protocol import Component
from dpbench.support.files import check_writable_folder
from dpbench.support.messages import format_bytes

app = typer.Typer(help="Write and describe feature packs: files with the features of a dataset.", no_args_is_help=True)


@app.command()
@add_setting_flags(RunOptions, only=("device",))
def pack(
    dataset: Annotated[str, typer.Argument(help="Dataset, like cifar10.")],
    extractor: Annotated[str, typer.Argument(help="Extractor, like timm:vit_small_patch14_dinov2.lvd142m.")],
    out: Annotated[Path, typer.Option(help="File to write, like cifar10-dinov2.safetensors.")],
    licence: Annotated[
        str | None, typer.Option(help="Licence of the weights. \\[default: what the extractor states]")
    ] = None,
    trained_on: Annotated[
        str | None, typer.Option(help="What the weights have seen. \\[default: what the extractor states]")
    ] = None,
    *,
    given: UserSettings,
) -> None:
    """Write the features of all images of a dataset to a file that others use as --extractor pack:FILE.

    Features come from the cache, or are extracted and cached first. The file holds no images.
    """
    from dpbench.data.packing import StatedWeightsOrigin, write_feature_pack
    from dpbench.registry import load
    from dpbench.registry.components import build
    from dpbench.support.device import find_device

    registry = load()
    images = build(registry, "dataset", Component.parse(dataset))
    network = build(registry, "extractor", Component.parse_extractor(extractor))
    check_writable_folder(out.parent)
    made = write_feature_pack(
        out, images, network, StatedWeightsOrigin(licence, trained_on), find_device(given.place.device)
    )
    count = sum(made.card.images.values())
    size = format_bytes(out.stat().st_size)
    print(f"Wrote the features of {count:,} images by {made.card.network}: {out} ({size})")


@app.command()
def show(file: Annotated[Path, typer.Argument(help="A feature pack.")]) -> None:
    """Check a feature pack and print its card."""
    from dpbench.analysis.describe import render_terminal
    from dpbench.data.packs import FeaturePack

    found = FeaturePack.read(file)
    shape = " x ".join(map(str, found.example_shape))
    facts = [("features of an image", f"{shape}, in half precision"), ("digest", found.digest)]
    Console().print(render_terminal([*found.card.lines(), *facts]))
