"""Random weights in files of the very format that is published, for tests without a network."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dpbench_plugins.extractors.randp.encoder import KEPT, make_random_encoder
from dpbench_plugins.networks.network_checkpoint import Checkpoint
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor

State = dict[str, Tensor]
SMALL = "resnet10t.c3_in1k"  # of timm


def random_state(model: str, **options: Any) -> State:
    """Return the start of a torchvision network, the same every time, statistics of batch norm included."""
    from torchvision import models

    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = models.get_model(model, weights=None, **options)
        for name, buffer in network.named_buffers():  # so that evaluation mode differs from no normalisation
            if name.endswith("running_mean"):
                buffer.normal_(0, 0.1)  # larger ones silence every unit
            elif name.endswith("running_var"):
                buffer.uniform_(0.5, 1.5)
        state: State = network.state_dict()
    return state


def save_named(content: object, folder: Path, model: str) -> Path:
    """Save as torchvision names its files: by the start of their SHA-256."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "unnamed"
    torch.save(content, file)
    return file.rename(folder / f"{model}-{hashlib.sha256(file.read_bytes()).hexdigest()[:8]}.pth")


def publish(patch: pytest.MonkeyPatch, model: str, file: Path) -> None:
    """Make torchvision expect `file` as the IMAGENET1K_V1 weights of a model."""
    patch.setattr(entry(model).value, "url", f"https://download.pytorch.org/models/{file.name}")


def entry(model: str) -> Any:
    """Return what torchvision records of the IMAGENET1K_V1 weights of a model."""
    from torchvision import models

    return models.get_model_weights(model)["IMAGENET1K_V1"]


def save_all(folder: Path) -> None:
    """Save one small network for each source of weights, and a ResNet-50, as they are published."""
    import timm

    for model in ("resnet18", "resnet50"):
        save_named(random_state(model), folder, model)
    (folder / "resnet18.pth").symlink_to(next(folder.glob("resnet18-*.pth")))
    for model in ("resnet50.fb_ssl_yfcc100m_ft_in1k", "resnet50.fb_swsl_ig1b_ft_in1k"):  # timm's keys are the same
        (folder / model).mkdir()
        (folder / model / "pytorch_model.bin").symlink_to(next(folder.glob("resnet50-*.pth")))
    (folder / "resnet50.pth").symlink_to(next(folder.glob("resnet50-*.pth")))
    (folder / SMALL).mkdir()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        save_file(timm.create_model(SMALL, pretrained=False).state_dict(), folder / SMALL / "model.safetensors")
    for network, name in (("wrn-16-4", "randp"), ("wrn-40-4", "randp-wrn40-4"), ("resnet-9", "randp-resnet9")):
        save_encoder(network, folder / f"{name}.safetensors")


def save_encoder(network: str, file: Path) -> None:
    """Save random weights of a network as `dpbench pretrain` saves them."""
    state = make_random_encoder(network, 32, 0, torch.device("cpu")).state_dict()
    Checkpoint(network, {name: value.half() for name, value in state.items() if name.startswith(KEPT)}, {}).save(file)


def publish_all(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Make torchvision expect the files of `save_all`."""
    for model in ("resnet18", "resnet50"):
        publish(patch, model, next(folder.glob(f"{model}-*.pth")))


def same(found: Tensor, expected: Tensor) -> bool:
    """Tell whether features agree up to rounding, and are not all alike, as those of a silenced network would be."""
    size = float(expected.abs().mean())
    return bool(expected.std() > 0.1 * size > 0) and torch.allclose(found, expected, rtol=1e-3, atol=1e-3 * size)


def image(mode: str = "RGB", seed: int = 0) -> Image.Image:
    """Return a small random image that is not square."""
    pixels = np.random.default_rng(seed).integers(0, 256, (40, 32, 4), dtype=np.uint8)
    return Image.fromarray(pixels, "RGBA").convert(mode)
