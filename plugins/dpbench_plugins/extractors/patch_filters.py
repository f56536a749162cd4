"""Filters of the extractor `patches`: draw and whiten them, and compute the responses of an image's patches."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from dpbench_plugins.extractors.random_images.generators import make_generator

PROCESSES = ("stylegan-oriented", "dead-leaves")
DRAWN = 40_000  # patches whose second moment is whitened and that filters are taken from
CONTRAST = 10 / 255**2  # added to the variance of a patch, of pixels in [0, 1] (Coates and Ng: 10, of pixels to 255)
RIDGE = 0.1  # added to the eigenvalues of normalised patches (Coates and Ng)
CHANNELS = 3
SMALLEST = 8  # side of an image of the random processes


@dataclass(frozen=True)
class FilterBank:
    """A whitening matrix for patches of p = 3 * patch * patch numbers, and filters of norm 1 for whitened patches."""

    whiten: Tensor  # (p, p), symmetric
    filters: Tensor  # (filters, p); the second half mirrors the first
    rounds: bool = False  # float32 products of numbers with 8 bits of precision, in place of bfloat16 ones

    def compute_responses(self, patches: Tensor) -> Tensor:
        """Whiten patches (n, p) and return their cosines (n, filters) with the filters, in the filters' precision."""
        units = normalize(normalise_patches(patches) @ self.whiten, dim=1)
        if self.rounds:
            return _round_to_bfloat16(_round_to_bfloat16(units) @ _round_to_bfloat16(self.filters).T)
        return units.to(self.filters.dtype) @ self.filters.T


def draw_filter_bank(filter_count: int, side: int, size: int, image_count: int, seed: int) -> FilterBank:
    """Return filters of side x side pixels, float32, drawn on the CPU so that they are the same for every device.

    Args:
        filter_count: the number of filters; half of them mirror the other half.
        side: the side of a patch, in pixels.
        size: the side of the images that the filters are for.
        image_count: the number of images of each random process from which patches are taken.
        seed: the seed of the images and of the choice of patches.
    """
    draws = torch.Generator().manual_seed(seed)
    canvas = max(SMALLEST, 1 << (size - 1).bit_length())  # generators double their images
    made = [make_generator(name, seed, canvas)(torch.arange(image_count)) for name in PROCESSES]
    windows = cut_patches(torch.cat(made), side)  # (all patches, p)
    patches = normalise_patches(windows[torch.randint(len(windows), (DRAWN,), generator=draws)])
    mirrored = patches.view(-1, CHANNELS, side, side).flip(3).flatten(1)
    both = torch.cat([patches, mirrored]).double()
    values, vectors = torch.linalg.eigh(both.T @ both / len(both))
    whiten = vectors * (values + RIDGE).rsqrt() @ vectors.T
    half = filter_count // 2
    chosen = torch.cat([patches[:half], mirrored[:half]]).double()
    return FilterBank(whiten.float(), normalize(chosen @ whiten, dim=1).float())


def _round_to_bfloat16(values: Tensor) -> Tensor:
    return values.bfloat16().float()


def cut_patches(images: Tensor, side: int) -> Tensor:
    """Return the patches (n * places * places, p) of square images (n, 3, size, size), row by row."""
    windows = images.unfold(2, side, 1).unfold(3, side, 1)  # (n, 3, places, places, side, side)
    return windows.permute(0, 2, 3, 1, 4, 5).reshape(-1, CHANNELS * side * side)


def normalise_patches(patches: Tensor) -> Tensor:
    """Return patches (n, p) with mean 0, each divided by its contrast."""
    centred = patches - patches.mean(1, keepdim=True)
    return centred / (centred.square().sum(1, keepdim=True) / (patches.shape[1] - 1) + CONTRAST).sqrt()
