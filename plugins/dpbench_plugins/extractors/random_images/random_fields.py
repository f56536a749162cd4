"""Random fields in the Fourier domain, shared by the generators."""

from __future__ import annotations

import torch
from torch import Tensor

from dpbench_plugins.extractors.random_images.draws import ImageRandomState


def make_fft_frequency_grid(size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return vertical and horizontal frequencies (size, size) in cycles per pixel, in the order of `torch.fft.fft2`."""
    f = torch.fft.fftfreq(size, device=device)
    return f[:, None].expand(size, size), f[None, :].expand(size, size)


def draw_power_law_fields(draws: ImageRandomState, exponents: Tensor, size: int) -> Tensor:
    """Return fields (n, m, size, size) of mean 0, deviation 1 and spectrum 1 / f^exponent, for exponents (n, m)."""
    down, right = make_fft_frequency_grid(size, exponents.device)
    radius = (down.square() + right.square()).sqrt()
    radius[0, 0] = 1.0
    amplitude = radius ** -exponents[..., None, None]
    amplitude[..., 0, 0] = 0.0
    noise = torch.fft.fft2(draws.normal(exponents.shape[1], size, size))
    field: Tensor = torch.fft.ifft2(noise / noise.abs().clamp(min=1e-12) * amplitude).real
    return field / field.square().mean((-2, -1), keepdim=True).sqrt().clamp(min=1e-12)
