"""Find altered copies: images that were blurred, shrunk, brightened, inverted, padded or edge-filtered.

No fixed correlation identifies an altered copy, but the copy is much nearer to its original than to any other image.
So the distances to the nearest and the second nearest image are compared in several pairs of views, which undo an
alteration or apply it to both images:

- Blur, lower resolution: 8 x 8 views of both images, of which one may be blurred further, and 4 x 4 views.
- Brightness, contrast, gamma, saturated or binary pixels: the four nearest images by the ranks of 16 x 16 pixels, each
  with its grey levels replaced by those of the image, in the same order.
- Padding: views without borders of one colour, cut with the accuracy of a fraction of a pixel.
- Edge filters: one image against the edges of the other image, which are stored with the hash.
- Stamps, captions: each half of an 8 x 8 view.
- Inversion: the absolute value of the correlation counts in all views.

An image matches if, in any pair of views, the distance to the nearest image is at most half of that to the second
nearest. In a cloud of points with d dimensions this happens by chance once in 2^d times, however many points there are;
images have d around 10 even where all of them look alike.

Not found: mirror images, rotations, crops by more than a few pixels, collages, and copies of images of which the other
split has several near copies, such as frames of one video, because then the second nearest image is as near.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from PIL import ImageFilter
from PIL.Image import Image, Resampling, fromarray
from torch import Tensor

THUMBNAIL_SIDE, VIEW_SIDE, BLUR_SIDE, COARSE_SIDE = 32, 16, 8, 4
VIEW_COUNT = 3
BORDERLESS, EDGES, SLOPES = range(VIEW_COUNT)  # the stored views of an image
VIEW_FORMAT = "borderless, edges, slopes"  # of `make_image_views`: other words whenever it changes, as views are kept
SEARCH_VERSION = 1  # of `find_altered_copies`: another whenever it finds other images, as counts are kept
DETAIL_SIDE = 256  # pixels of the longer side, at most, of an image whose borders and edges are looked at
BORDER_SPREAD = 10  # grey levels by which the pixels of a border differ from the median of their line
MAX_SPOTS = 0.03  # of the pixels of a border's line, that differ by more
MAX_MIXED = 0.3  # how unlike its neighbour a line may be that is mixed of border and content
MIN_CONTENT = 1 / 16  # of the image's area, within its borders
BLURS = (2.0, 3.0, 4.0)  # standard deviations in cells of a thumbnail
WHOLE, FIRST, SECOND = slice(None), slice(4), slice(4, None)  # of the rows or columns of an 8 x 8 view
HALVES = {
    "upper half": (FIRST, WHOLE), "lower half": (SECOND, WHOLE),
    "left half": (WHOLE, FIRST), "right half": (WHOLE, SECOND),
}  # fmt: skip
CANDIDATES = 4  # images whose grey levels are exchanged
MAX_DISTANCE_RATIO = 0.25  # of the squared distances to the nearest and the second nearest image
MAX_HALF_RATIO = 0.1  # the same for halves, which look alike more often, and are untouched or not
MIN_STD = 0.5  # grey levels: views that vary less show nothing
ROUNDING = 1e-6  # of a squared distance
BLOCK = 4096


def make_image_views(grey: Image) -> np.ndarray:
    """Return 16 x 16 views of a grey image, (3, 256) uint8: the image without borders, its edges, and its slopes."""
    image = grey.copy()
    image.thumbnail((DETAIL_SIDE, DETAIL_SIDE), Resampling.BOX)
    levels = np.asarray(image, np.int16)
    views = (image, image.filter(ImageFilter.FIND_EDGES), _measure_slopes(levels))
    boxes = (_find_content_box(levels), None, None)
    return np.stack([_stretch_view(view, box) for view, box in zip(views, boxes, strict=True)])


def _stretch_view(image: Image, box: tuple[float, float, float, float] | None) -> np.ndarray:
    """Shrink an image, or a box in it, to 16 x 16 cells, (256,) uint8, and scale the brightest cell to 255."""
    cells = np.asarray(image.convert("F").resize((VIEW_SIDE, VIEW_SIDE), Resampling.BOX, box=box)).reshape(-1)
    stretched: np.ndarray = np.rint(cells * (255 / max(cells.max(), 1.0))).astype(np.uint8)
    return stretched


def _find_content_box(levels: np.ndarray) -> tuple[float, float, float, float]:
    """Return the box (left, top, right, bottom) inside one-coloured borders, or the whole image if it is tiny."""
    height, width = levels.shape
    top, bottom = _measure_border_width(levels), _measure_border_width(levels[::-1])
    left, right = _measure_border_width(levels.T), _measure_border_width(levels.T[::-1])
    within = max(0.0, height - top - bottom) * max(0.0, width - left - right)
    if within < MIN_CONTENT * height * width:
        return 0, 0, width, height
    return left, top, width - right, height - bottom


def _measure_border_width(lines: np.ndarray) -> float:
    """Return the width, in lines, of the border at the start of `lines`; a line mixed with content counts in part."""
    colour = int(np.sort(lines[0])[lines.shape[1] // 2])
    if not _is_uniform_line(lines[0], colour):
        return 0.0
    whole = next((place for place, line in enumerate(lines) if not _is_uniform_line(line, colour)), len(lines))
    if whole + 1 >= len(lines):
        return float(whole)
    first, second = (lines[whole : whole + 2] - colour).astype(np.float64)
    share = min(1.0, float(first @ second) / max(float(second @ second), 1e-6))
    mixed = np.linalg.norm(first - share * second) < MAX_MIXED * np.linalg.norm(first)
    return whole + (1 - share if mixed else 0.0)


def _is_uniform_line(line: np.ndarray, colour: int) -> bool:
    return bool(np.count_nonzero(np.abs(line - colour) > BORDER_SPREAD) <= MAX_SPOTS * len(line))


def _measure_slopes(levels: np.ndarray) -> Image:
    """Return half the sum of the absolute differences between each pixel's neighbours, across and down, as uint8."""
    rows, columns = (np.arange(-1, size + 1).clip(0, size - 1) for size in levels.shape)
    across, down = levels[:, columns], levels[rows]
    slopes = np.abs(across[:, 2:] - across[:, :-2]) + np.abs(down[2:] - down[:-2])
    return fromarray((slopes >> 1).astype(np.uint8))


@dataclass(frozen=True)
class ImageViews:
    """Thumbnails and views of images, without exact copies."""

    thumbnails: np.ndarray  # (n, 1024) uint8
    views: np.ndarray  # (n, 3, 256) uint8, see `make_image_views`

    def __len__(self) -> int:
        return len(self.thumbnails)

    def take_block(self, start: int) -> ImageViews:
        """Return up to `BLOCK` images, from the index `start` on."""
        return ImageViews(self.thumbnails[start : start + BLOCK], self.views[start : start + BLOCK])


Vectors = Callable[[ImageViews], Tensor]
"""Returns vectors (n, d), one per image, of mean 0 and length 1; zero for an image that shows nothing."""


def find_altered_copies(images: ImageViews, others: ImageViews) -> Tensor:
    """Return a mask (n,) of the images that match an image in `others`, which must have at least two images."""
    mine = {name: make(images) for name, make in VECTORS.items()}
    nearest = {pair: torch.zeros(len(images), 2) for pair in PAIRS}
    likely, places = torch.zeros(len(images), CANDIDATES), torch.zeros(len(images), CANDIDATES, dtype=torch.int64)
    for start in range(0, len(others), BLOCK):
        block = others.take_block(start)
        theirs = {name: make(block) for name, make in VECTORS.items()}
        for (name, other), best in nearest.items():
            _merge_largest_values(best, (mine[name] @ theirs[other].T).abs_())
        found = _merge_largest_values(likely, (mine["ranks"] @ theirs["ranks"].T).abs_())
        places = torch.cat([places, found[1] + start], 1).gather(1, found[0])
    limits = {pair: MAX_HALF_RATIO if pair[0] in HALVES else MAX_DISTANCE_RATIO for pair in PAIRS}
    matched = torch.stack([_mask_distinct_matches(1 - best, limits[pair]) for pair, best in nearest.items()]).any(0)
    return matched | _mask_distinct_matches(_histogram_matched_distances(images, others, places))


def _merge_largest_values(best: Tensor, products: Tensor) -> tuple[Tensor, Tensor]:
    """Merge new values (n, m) into `best` (n, k), the k largest values of each row so far, in place.

    Return the indices (n, k) of the merged values in the old values followed by the largest new ones, and the columns
    of `products` that the largest new ones came from.
    """
    values, at = products.topk(min(best.shape[1], products.shape[1]), dim=1)
    merged, order = torch.cat([best, values], 1).topk(best.shape[1], dim=1)
    best.copy_(merged)
    return order, at


def _mask_distinct_matches(distances: Tensor, limit: float = MAX_DISTANCE_RATIO) -> Tensor:
    """Return a mask (n,) of rows (n, k) whose smallest squared distance is at most `limit` times the next."""
    first, second = distances.sort(1).values[:, :2].unbind(1)
    return first <= limit * second - ROUNDING


def _histogram_matched_distances(images: ImageViews, candidates: ImageViews, candidate_indices: Tensor) -> Tensor:
    """Match histograms of the `candidates` at `candidate_indices` to each image; return squared distances (n, k)."""
    levels = shrink_images(images.thumbnails, VIEW_SIDE)
    ordered, target = torch.from_numpy(np.sort(levels, 1)), normalise_vectors(torch.from_numpy(levels))
    distances = []
    for column in candidate_indices.T:
        other = shrink_images(candidates.thumbnails[column.numpy()], VIEW_SIDE)
        order = torch.from_numpy(other.argsort(1, kind="stable").argsort(1))
        same = (normalise_vectors(ordered.gather(1, order)) * target).sum(1)
        inverse = (normalise_vectors(ordered.flip(1).gather(1, order)) * target).sum(1)
        distances.append(1 - torch.maximum(same, inverse))
    return torch.stack(distances, 1)


def normalise_vectors(levels: Tensor, least: float = MIN_STD) -> Tensor:
    """Scale grey levels (n, d) to mean 0 and length 1; rows with a standard deviation below `least` become zero."""
    centred = levels - levels.mean(1, keepdim=True)
    lengths = centred.norm(dim=1, keepdim=True)
    return torch.where(lengths >= least * levels.shape[1] ** 0.5, centred / lengths.clamp(min=1e-6), 0)


def shrink_images(images: np.ndarray, side: int) -> np.ndarray:
    """Shrink square images (n, pixels) to another side length, (n, side * side) float32."""
    step = round(images.shape[1] ** 0.5) // side
    cells = images.reshape(len(images), side, step, side, step)
    means: np.ndarray = cells.mean((2, 4), dtype=np.float32).reshape(len(images), side**2)
    return means


def _make_blur_function(std: float) -> Vectors:
    """Return the function that shrinks thumbnails to 8 x 8 after a Gaussian blur with this standard deviation."""
    cells = torch.arange(THUMBNAIL_SIDE)
    weights = torch.exp(-((cells[:, None] - cells) ** 2) / (2 * std**2))
    rows = (weights / weights.sum(1, keepdim=True)).reshape(BLUR_SIDE, -1, THUMBNAIL_SIDE).mean(1)  # (8, 32)
    both = torch.kron(rows, rows)  # (64, 1024)
    return lambda images: normalise_vectors(torch.from_numpy(images.thumbnails).float() @ both.T)


def _make_crop_function(rows: slice, columns: slice) -> Vectors:
    """Return the function that crops the 8 x 8 views of thumbnails to these rows and columns."""

    def crop_view(images: ImageViews) -> Tensor:
        cells = torch.from_numpy(shrink_images(images.thumbnails, BLUR_SIDE)).reshape(-1, BLUR_SIDE, BLUR_SIDE)
        return normalise_vectors(cells[:, rows, columns].flatten(1))

    return crop_view


def _convert_to_rank_vectors(levels: np.ndarray) -> Tensor:
    """Return the ranks of grey levels (n, d) as unit vectors; equal levels have equal ranks."""
    whole = levels.round().astype(np.int64) + 256 * np.arange(len(levels))[:, None]
    counts = np.bincount(whole.reshape(-1), minlength=256 * len(levels)).reshape(-1, 256)
    ranks = (counts.cumsum(1) - counts / 2).reshape(-1)[whole]
    shown = normalise_vectors(torch.from_numpy(levels)).any(1, keepdim=True)
    return normalise_vectors(torch.from_numpy(ranks.astype(np.float32)), 0) * shown


VECTORS: dict[str, Vectors] = {
    "plain": lambda images: normalise_vectors(torch.from_numpy(shrink_images(images.thumbnails, BLUR_SIDE))),
    "coarse": lambda images: normalise_vectors(torch.from_numpy(shrink_images(images.thumbnails, COARSE_SIDE))),
    **{f"blurred by {std}": _make_blur_function(std) for std in BLURS},
    "borderless": lambda images: normalise_vectors(
        torch.from_numpy(shrink_images(images.views[:, BORDERLESS], BLUR_SIDE))
    ),
    "edges": lambda images: normalise_vectors(torch.from_numpy(shrink_images(images.views[:, EDGES], BLUR_SIDE))),
    **{name: _make_crop_function(rows, columns) for name, (rows, columns) in HALVES.items()},
    "ranks": lambda images: _convert_to_rank_vectors(shrink_images(images.thumbnails, VIEW_SIDE)),
    "slopes": lambda images: _convert_to_rank_vectors(images.views[:, SLOPES].astype(np.float32)),
}
_EITHER_WAY = [
    *((f"blurred by {std}", "plain") for std in BLURS),
    ("borderless", "plain"),
    ("edges", "plain"),
    ("slopes", "ranks"),
]
PAIRS = [
    *((name, name) for name in ("plain", "coarse", "borderless", *HALVES)),
    *_EITHER_WAY,
    *((other, name) for name, other in _EITHER_WAY),
]
"""The pairs of views that are compared: a view of an image, and a view of the other images."""
