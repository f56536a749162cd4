"""Random views of images: crop, flip, colours, grey; all images at once, each with its own draws."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from dpbench_plugins.extractors.random_images.draws import ImageRandomState

AREAS = (0.08, 1.0)  # of the crop, as shares of the image
RATIOS = (3 / 4, 4 / 3)  # width to height
JITTER = 0.4  # brightness, contrast and saturation change by up to this share, the hue by up to this part of a turn
GREY = 0.2  # chance of losing colour
LUMINANCE = (0.299, 0.587, 0.114)
# From RGB to luminance and two axes of colour (YIQ), whose plane a hue turns.
YIQ = (LUMINANCE, (0.596, -0.274, -0.322), (0.211, -0.523, 0.312))


def augment_images(images: Tensor, draws: ImageRandomState, size: int) -> Tensor:
    """Return one view (n, 3, size, size) of each image (n, 3, h, w) in [0, 1].

    A view is a random resized crop, flipped half of the time, with colour jitter, and grey with probability 0.2. The
    ranges are those of Wang and Isola 2020. Differs: the parts of the jitter have a fixed order, and hue is a rotation
    in YIQ, so that all images are processed at once.
    """
    cropped = _crop_and_flip(images, draws, size)
    bright = (cropped * draws.uniform(1, 1, 1, low=1 - JITTER, high=1 + JITTER)).clamp(0, 1)
    middle = _convert_to_grey(bright).mean((1, 2, 3), keepdim=True)
    contrast = draws.uniform(1, 1, 1, low=1 - JITTER, high=1 + JITTER)
    coloured = (middle + contrast * (bright - middle)).clamp(0, 1)
    mixed = (_draw_colour_matrix(draws, images.device) @ coloured.flatten(2)).reshape_as(coloured).clamp(0, 1)
    return torch.where(draws.uniform(1, 1, 1) < GREY, _convert_to_grey(mixed).expand_as(mixed), mixed)


def _crop_and_flip(images: Tensor, draws: ImageRandomState, size: int) -> Tensor:
    area = draws.uniform(low=AREAS[0], high=AREAS[1])
    root = torch.exp(draws.uniform(low=math.log(RATIOS[0]), high=math.log(RATIOS[1])) / 2)
    width, height = ((area.sqrt() * side).clamp(max=1) for side in (root, 1 / root))
    right, down = draws.uniform(low=-1) * (1 - width), draws.uniform(low=-1) * (1 - height)
    flip = torch.where(draws.uniform() < 0.5, -1.0, 1.0)
    zero = torch.zeros_like(area)
    affine = torch.stack([flip * width, zero, right, zero, height, down], 1).reshape(-1, 2, 3)
    grid = affine_grid(affine, [len(images), 3, size, size], align_corners=False)
    return grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)


def _convert_to_grey(images: Tensor) -> Tensor:
    weights = torch.tensor(LUMINANCE, device=images.device)
    return (images * weights[:, None, None]).sum(1, keepdim=True)


def _draw_colour_matrix(draws: ImageRandomState, device: torch.device) -> Tensor:
    """Return matrices (n, 3, 3) that change saturation and hue of RGB colours."""
    saturation = draws.uniform(low=1 - JITTER, high=1 + JITTER)
    turn = draws.uniform(low=-JITTER, high=JITTER) * 2 * math.pi
    cos, sin, zero = saturation * turn.cos(), saturation * turn.sin(), torch.zeros_like(turn)
    inner = torch.stack([torch.ones_like(turn), zero, zero, zero, cos, -sin, zero, sin, cos], 1).reshape(-1, 3, 3)
    yiq = torch.tensor(YIQ, device=device)
    back: Tensor = torch.linalg.inv(yiq)
    return back @ inner @ yiq
