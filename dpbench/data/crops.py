"""Detect crops: pairs of thumbnails in which one image is the other without a few pixels at each edge.

Cutting 2 of 32 pixels off an edge moves everything in a thumbnail, so crops correlate less than look-alikes do.
Therefore each thumbnail is compared with the four thumbnails that are nearest at 8 x 8. In both directions, one image
of a pair is cropped by 0 to 3 rows and columns at each edge until it fits the other best. Then the details of the two
images are compared; the detail of a thumbnail is the thumbnail minus its 5 x 5 means.

Measured on 100 images of each set, cropped at each edge by 0 to 3 of 32 pixels at random: crops of chest X-rays
correlate by 0.91 in the median, and the nearest other X-rays by at most 0.77 in 9 of 10 cases.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, pad

from dpbench.data.altered import normalise_vectors, shrink_images

SIDE = 32
MIN_DETAIL_CORRELATION = 0.88  # correlation of detail
COARSE_SIDE, LIKELY, MAX_CANDIDATES = 8, 0.6, 4  # candidates: the four that correlate best at 8 x 8, by 0.6 or more
BLOCK, PAIR_BLOCK = 4096, 256
MIN_DETAIL_STD = 1.0  # grey levels: detail that varies less shows nothing


def find_cropped_copies(thumbnails: np.ndarray, originals: np.ndarray) -> Tensor:
    """Return a mask (n,) of the `thumbnails` (n, 1024) that are crops of `originals` (m, 1024).

    A thumbnail also counts if one in `originals` is a crop of it.
    """
    result = torch.zeros(len(thumbnails), dtype=torch.bool)
    if not len(thumbnails) or not len(originals):
        return result
    mine, others = _make_coarse_vectors(thumbnails), _make_coarse_vectors(originals)
    for start in range(0, len(thumbnails), BLOCK):
        likely, places = _find_nearest_thumbnails(mine[start : start + BLOCK], others)
        rows, columns = torch.nonzero(likely >= LIKELY, as_tuple=True)
        for first in range(0, len(rows), PAIR_BLOCK):
            row, place = rows[first : first + PAIR_BLOCK], places[rows, columns][first : first + PAIR_BLOCK]
            image, other = _take_square_thumbnails(thumbnails, row + start), _take_square_thumbnails(originals, place)
            same = (
                torch.maximum(_correlate_with_best_crop(image, other), _correlate_with_best_crop(other, image))
                >= MIN_DETAIL_CORRELATION
            )
            result[row[same] + start] = True
    return result


def _take_square_thumbnails(thumbnails: np.ndarray, rows: Tensor) -> Tensor:
    return torch.from_numpy(thumbnails[rows.numpy()].reshape(-1, SIDE, SIDE)).float()


def _make_coarse_vectors(thumbnails: np.ndarray) -> Tensor:
    return _normalise_images(torch.from_numpy(shrink_images(thumbnails, COARSE_SIDE)))


def _find_nearest_thumbnails(thumbnails: Tensor, candidates: Tensor) -> tuple[Tensor, Tensor]:
    """Return each thumbnail's highest correlations with `candidates` and their indices, (n, up to 4), best first."""
    values, places = torch.empty(len(thumbnails), 0), torch.empty(len(thumbnails), 0, dtype=torch.int64)
    for start in range(0, len(candidates), BLOCK):
        products = thumbnails @ candidates[start : start + BLOCK].T
        best, at = products.topk(min(MAX_CANDIDATES, products.shape[1]), dim=1)
        values, places = torch.cat([values, best], 1), torch.cat([places, at + start], 1)
        values, order = values.topk(min(MAX_CANDIDATES, values.shape[1]), dim=1)
        places = places.gather(1, order)
    return values, places


def _correlate_with_best_crop(original: Tensor, part: Tensor) -> Tensor:
    """Return the correlation (n,) of the detail of `part` (n, 32, 32) and of the best crop of `original`."""
    windows = _make_crop_matrices([(top, bottom) for top in range(4) for bottom in range(4)])
    across = windows[torch.zeros(len(original), dtype=torch.int64)]
    target = _normalise_images(part).reshape(part.shape)
    for _ in range(2):
        down = _find_best_crop_matrices(windows, original @ across.mT, target)
        across = _find_best_crop_matrices(windows, (down @ original).mT, target.mT)
    best = down @ original @ across.mT
    return (_make_detail_vectors(best) * _make_detail_vectors(part)).sum(1)


def _find_best_crop_matrices(windows: Tensor, images: Tensor, target: Tensor) -> Tensor:
    """Return the matrices (n, 32, 32) that crop the rows of each image so that it correlates best with its target.

    Correlations follow from products and lengths of 16 crops per image, which are computed without the crops: the
    product of W X and T is that of W and T X', and the squared length of W X is the product of W' W and X X'.
    """
    centred = images - images.mean((1, 2), keepdim=True)  # crops are means of rows: their correlations stay
    flat = windows.flatten(1)
    products = (target @ centred.mT).flatten(1) @ flat.T  # (n, 16)
    squares = (centred @ centred.mT).flatten(1) @ (windows.mT @ windows).flatten(1).T
    sums = centred.sum(2) @ windows.sum(1).T
    lengths = (squares - sums.square() / SIDE**2).clamp(min=1e-12).sqrt()
    return windows[(products / lengths).argmax(1)]


def _make_crop_matrices(edges: list[tuple[int, int]]) -> Tensor:
    """Return matrices (w, 32, 32) that cut `edges` off an axis and stretch the rest to 32 cells, weighted by area."""
    made = []
    for low, high in edges:
        ends = np.linspace(low, SIDE - high, SIDE + 1)
        cells = np.arange(SIDE)
        shares = np.minimum(ends[1:, None], cells + 1) - np.maximum(ends[:-1, None], cells)
        shares = shares.clip(min=0)
        made.append(shares / shares.sum(1, keepdims=True))
    return torch.from_numpy(np.stack(made)).float()


def _make_detail_vectors(images: Tensor) -> Tensor:
    """Return images minus their 5 x 5 local means, as unit vectors (n, 1024); zero if an image has almost no detail."""
    means: Tensor = avg_pool2d(pad(images[:, None], (2, 2, 2, 2), mode="replicate"), 5, 1)[:, 0]
    left: Tensor = (images - means).flatten(1)
    shows = left.std(1, keepdim=True) >= MIN_DETAIL_STD
    return _normalise_images(left) * shows


def _normalise_images(images: Tensor) -> Tensor:
    """Return images as vectors (n, p) of mean 0 and norm 1."""
    return normalise_vectors(images.flatten(1), 0)
