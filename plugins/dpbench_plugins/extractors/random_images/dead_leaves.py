"""Dead leaves: shapes that occlude one another, each with its own colour and texture."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from dpbench_plugins.extractors.random_images.draws import ImageRandomState
from dpbench_plugins.extractors.random_images.random_fields import draw_power_law_fields

SMALLEST, LARGEST = 0.03, 1.0  # radii, as shares of the image's side
LEAVES = 400  # dropped on an image; what none of them covers belongs to one more, behind all
TEXTURES = 8  # different ones in an image; leaves share them, in colours of their own
CORNERS = 4
KINDS = ("disc", "square", "oriented square", "rectangle", "triangle", "quadrilateral")
_AT_ONCE = 16  # leaves rasterised together


@dataclass(frozen=True)
class DeadLeaves:
    """Images of overlapping discs, squares, oriented squares, rectangles, triangles and quadrilaterals, with textures.

    Source: Baradad et al. 2021 (arXiv:2106.05963), after Lee, Mumford and Huang 2001: the density of radii is
    proportional to r^-3 minus its value at the largest radius; centres and colours are uniform; corners lie on a circle
    of that radius. Differs: a leaf's texture is a field of spectrum 1/f^a added to its colour, where theirs is an image
    of the statistical model; the number of leaves is fixed, where theirs stop when everything is covered.
    """

    seed: int
    size: int

    def __call__(self, indices: Tensor) -> Tensor:
        """Return images (n, 3, size, size), float32 in [0, 1], for image indices (n,) int64."""
        draws = ImageRandomState(self.seed, indices)
        leaf = self._find_topmost_leaves(draws)  # (n, size * size)
        colours = draws.uniform(LEAVES + 1, 3)
        strength = draws.uniform(LEAVES + 1, high=0.5)
        which = draws.integers(LEAVES + 1, below=TEXTURES)
        exponents = draws.uniform(TEXTURES, low=0.5, high=3.5)
        fields = draw_power_law_fields(draws, exponents, self.size).flatten(2)  # (n, textures, size * size)
        here = which.gather(1, leaf)  # (n, size * size)
        texture = fields.gather(1, here.unsqueeze(1)).squeeze(1) * strength.gather(1, leaf)
        painted = colours.gather(1, leaf.unsqueeze(2).expand(-1, -1, 3)) + 0.4 * texture.unsqueeze(2)
        return painted.clamp(0, 1).transpose(1, 2).reshape(-1, 3, self.size, self.size)

    def _find_topmost_leaves(self, draws: ImageRandomState) -> Tensor:
        """Return the index of the leaf visible at each pixel: the first that covers it, `LEAVES` if none does."""
        centres, radii = draws.uniform(LEAVES, 2), compute_radii_at_quantiles(draws.uniform(LEAVES))
        kinds = draws.integers(LEAVES, below=len(KINDS))
        across, up = compute_edge_terms(
            centres, radii, kinds == KINDS.index("disc"), draw_corner_angles(draws, kinds), self.size
        )
        numbers = torch.arange(LEAVES, device=draws.device, dtype=torch.int16)[:, None, None]
        leaf = torch.full((len(across), self.size, self.size), LEAVES, device=draws.device, dtype=torch.int16)
        for start in range(0, LEAVES, _AT_ONCE):
            some = slice(start, start + _AT_ONCE)
            sides = [across[:, some, side, None, :] <= up[:, some, side, :, None] for side in range(CORNERS)]
            covers = sides[0] & sides[1] & sides[2] & sides[3]  # (n, some, size, size)
            leaf = torch.minimum(leaf, torch.where(covers, numbers[some], LEAVES).amin(1))
            if bool((leaf < LEAVES).all()):
                break
        return leaf.long().flatten(1)


def compute_radii_at_quantiles(u: Tensor) -> Tensor:
    """Return the radii at quantiles `u` of the density proportional to r^-3 - LARGEST^-3, from a table."""
    radii = torch.linspace(SMALLEST, LARGEST, 4097, dtype=torch.float64, device=u.device)
    below = (SMALLEST**-2 - radii**-2) / 2 - (radii - SMALLEST) * LARGEST**-3
    place = torch.searchsorted(below / below[-1], u.double().contiguous()).clamp(1, 4096)
    return radii[place].float()


def compute_edge_terms(
    centres: Tensor, radii: Tensor, discs: Tensor, angles: Tensor, size: int
) -> tuple[Tensor, Tensor]:
    """Return column terms and row terms (n, leaves, 4, size): a pixel is inside an edge if column term <= row term.

    The edges of a polygon are its sides. The first edge of a disc is its circle; every pixel is inside the other three.

    Args:
        centres: (n, leaves, 2), across and down, in units of the image's side.
        radii: (n, leaves), in the same units.
        discs: (n, leaves), which leaves are discs.
        angles: (n, leaves, 4), the ascending angles of the other leaves' corners on their circles.
        size: the side of the image, in pixels.
    """
    places = (torch.arange(size, device=radii.device) + 0.5) / size
    x, y = ((places - centres[..., axis, None]) / radii[..., None] for axis in (0, 1))  # (n, leaves, size)
    onwards = torch.cat([angles[..., 1:], angles[..., :1] + 2 * math.pi], -1)
    middle, half = ((angles + onwards) / 2)[..., None], ((onwards - angles) / 2)[..., None]  # of each side
    across, up = middle.cos() * x.unsqueeze(2), half.cos() - middle.sin() * y.unsqueeze(2)
    disc = discs[:, :, None, None]
    circle = torch.arange(CORNERS, device=radii.device)[:, None] == 0
    across = torch.where(disc, x.square().unsqueeze(2) * circle, across)
    return across, torch.where(disc, 1 - y.square().unsqueeze(2) * circle, up)


def draw_corner_angles(draws: ImageRandomState, kinds: Tensor) -> Tensor:
    """Draw ascending corner angles (n, leaves, 4) for the shapes `kinds` (n, leaves); a triangle repeats one angle."""
    leaves = kinds.shape[1]
    turn = draws.uniform(leaves, 1, high=2 * math.pi)
    half = draws.uniform(leaves, high=math.pi / 2)  # half the angle between two corners of a rectangle
    free = draws.uniform(leaves, CORNERS, high=2 * math.pi)
    square = (torch.arange(CORNERS, device=draws.device) * (math.pi / 2) + math.pi / 4).expand_as(free)
    rectangle = torch.stack([-half, half, math.pi - half, math.pi + half], -1)
    triangle = torch.cat([free[..., :3], free[..., 2:3]], -1).sort(-1).values
    angles = torch.stack([square, square, square + turn, rectangle, triangle, free.sort(-1).values], -1)
    return angles.gather(-1, kinds[..., None, None].expand(-1, -1, CORNERS, 1))[..., 0]
