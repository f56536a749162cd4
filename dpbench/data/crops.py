"""Detect crops: whether one thumbnail shows all of another but a few pixels at each edge.

Cutting off two pixels of 32 moves every edge in a thumbnail: copies then correlate less than look-alikes do. So each
thumbnail is compared with its few nearest at 8 x 8. They are cropped by 0 to 3 rows and columns at each edge until they
fit it best, and the other way round. The pair is then compared by its detail: the thumbnails less their 5 x 5 means.
Measured on 100 images of each set, cropped at each edge by 0 to 3 of 32 pixels at random: crops of chest X-rays
correlate by 0.91 in the median, and the nearest other X-rays by at most 0.77 in 9 of 10 cases.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, pad

SIDE = 32
MIN_DETAIL_CORRELATION = 0.88  # correlation of detail
COARSE, LIKELY, NEAREST = 8, 0.6, 4  # candidates: the four that correlate best at 8 x 8, by 0.6 or more
BLOCK, PAIRS = 4096, 256
MIN_DETAIL_STD = 1.0  # grey levels: detail that varies less shows nothing


def find_crops(of: np.ndarray, among: np.ndarray) -> Tensor:
    """Return which thumbnails of `of` (n, 1024) are crops of any of `among` (m, 1024) or the reverse: (n,) bool."""
    result = torch.zeros(len(of), dtype=torch.bool)
    if not len(of) or not len(among):
        return result
    mine, others = _downsample(of), _downsample(among)
    for start in range(0, len(of), BLOCK):
        likely, places = _nearest_thumbnails(mine[start : start + BLOCK], others)
        rows, columns = torch.nonzero(likely >= LIKELY, as_tuple=True)
        for first in range(0, len(rows), PAIRS):
            row, place = rows[first : first + PAIRS], places[rows, columns][first : first + PAIRS]
            image, other = _unflatten(of, row + start), _unflatten(among, place)
            same = (
                torch.maximum(_crop_correlation(image, other), _crop_correlation(other, image))
                >= MIN_DETAIL_CORRELATION
            )
            result[row[same] + start] = True
    return result


def _unflatten(thumbnails: np.ndarray, rows: Tensor) -> Tensor:
    return torch.from_numpy(thumbnails[rows.numpy()].reshape(-1, SIDE, SIDE)).float()


def _downsample(thumbnails: np.ndarray) -> Tensor:
    step = SIDE // COARSE
    cells = thumbnails.reshape(-1, COARSE, step, COARSE, step).mean((2, 4), dtype=np.float32)
    return _unit_vectors(torch.from_numpy(cells))


def _nearest_thumbnails(mine: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Return the correlations with the nearest others and their indices, both (n, up to 4), best first."""
    values, places = torch.empty(len(mine), 0), torch.empty(len(mine), 0, dtype=torch.int64)
    for start in range(0, len(others), BLOCK):
        products = mine @ others[start : start + BLOCK].T
        best, at = products.topk(min(NEAREST, products.shape[1]), dim=1)
        values, places = torch.cat([values, best], 1), torch.cat([places, at + start], 1)
        values, order = values.topk(min(NEAREST, values.shape[1]), dim=1)
        places = places.gather(1, order)
    return values, places


def _crop_correlation(whole: Tensor, part: Tensor) -> Tensor:
    """Return the correlation of the detail of `part` (n, 32, 32) with that of the best crop of `whole`: (n,)."""
    windows = _crop_matrices([(top, bottom) for top in range(4) for bottom in range(4)])
    across = windows[torch.zeros(len(whole), dtype=torch.int64)]
    target = _unit_vectors(part)
    for _ in range(2):
        down, _ = _best_windows(windows, whole @ across.transpose(1, 2), target, rows=True)
        across, _ = _best_windows(windows, down @ whole, target, rows=False)
    best = down @ whole @ across.transpose(1, 2)
    return (_detail(best) * _detail(part)).sum(1)


def _best_windows(windows: Tensor, images: Tensor, target: Tensor, *, rows: bool) -> tuple[Tensor, Tensor]:
    """Return the window (n, 32, 32) of rows or columns that makes each image fit its target best, and the fit."""
    form, both = ("wij,njk->nwik", (windows, images)) if rows else ("nij,wkj->nwik", (images, windows))
    made = torch.einsum(form, *both)
    fits = torch.einsum("nwp,np->nw", _unit_vectors(made.flatten(0, 1)).reshape(*made.shape[:2], -1), target)
    best, at = fits.max(1)
    return windows[at], best


def _crop_matrices(edges: list[tuple[int, int]]) -> Tensor:
    """Return matrices (w, 32, 32) that cut `edges` off an axis and stretch the rest to 32 cells by area."""
    made = []
    for low, high in edges:
        ends = np.linspace(low, SIDE - high, SIDE + 1)
        cells = np.arange(SIDE)
        shares = np.minimum(ends[1:, None], cells + 1) - np.maximum(ends[:-1, None], cells)
        shares = shares.clip(min=0)
        made.append(shares / shares.sum(1, keepdims=True))
    return torch.from_numpy(np.stack(made)).float()


def _detail(images: Tensor) -> Tensor:
    """Return images less their 5 x 5 means as vectors of norm 1, (n, 1024); zero for images with nearly no detail."""
    means: Tensor = avg_pool2d(pad(images[:, None], (2, 2, 2, 2), mode="replicate"), 5, 1)[:, 0]
    left: Tensor = (images - means).flatten(1)
    shows = left.std(1, keepdim=True) >= MIN_DETAIL_STD
    return _unit_vectors(left) * shows


def _unit_vectors(images: Tensor) -> Tensor:
    """Return images as vectors of mean 0 and norm 1, (n, p)."""
    flat = images.flatten(1)
    flat = flat - flat.mean(1, keepdim=True)
    unit: Tensor = flat / flat.norm(dim=1, keepdim=True).clamp(min=1e-6)
    return unit
