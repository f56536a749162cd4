"""Find the torch device to compute on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpbench.errors import SpecError

if TYPE_CHECKING:
    import torch


def find_device(name: str) -> torch.device:
    """Return the torch device with this name: `auto`, `cpu`, `cuda`, `cuda:1` ...

    Raises:
        SpecError: the device cannot be used on this machine.
    """
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.device(name)
    except RuntimeError as error:
        raise SpecError(f"Device {name!r} cannot be used: expected auto, cpu, cuda, cuda:1 ...") from error
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise SpecError(f"Device {name!r} cannot be used: {reason}. Use --device cpu or auto.") from error
