"""Extractor `patches`: what a response is, what features do not depend on, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from dpbench_plugins.extractors.patch_filters import (
    PROCESSES,
    FilterBank,
    cut_patches,
    draw_filter_bank,
    normalise_patches,
)
from dpbench_plugins.extractors.patches import Patches
from dpbench_plugins.extractors.random_images.generators import make_generator
from PIL import Image, ImageOps
from torch import Tensor

from dpbench import SpecError
from tests.helpers import weights

CPU = torch.device("cpu")
SMALL = Patches(filters=16, patch=4, images=2, size=16)


def draw(extractor: Patches) -> FilterBank:
    return draw_filter_bank(extractor.filters, extractor.patch, extractor.size, extractor.images, extractor.seed)


@pytest.fixture(scope="module")
def drawn() -> FilterBank:
    return draw(SMALL)


def features(extractor: Patches, image: Image.Image) -> Tensor:
    return extractor.open(CPU)(extractor.prepare(image)[None])[0]


def test_a_response_is_the_cosine_of_a_whitened_patch_with_a_filter(drawn: FilterBank) -> None:
    image = SMALL.prepare(weights.image())
    patch = image[:, 5:9, 7:11].flatten()
    patch = (patch - patch.mean()) / (patch.var() + 10 / 255**2).sqrt()
    expected = torch.nn.functional.cosine_similarity(drawn.filters, drawn.whiten @ patch, dim=1)
    found = drawn.compute_responses(cut_patches(image[None], 4)).view(13, 13, 16)
    assert torch.allclose(found[5, 7], expected, atol=1e-5)


def test_features_are_roots_of_means_over_parts_of_what_exceeds_the_threshold_on_either_side(drawn: FilterBank) -> None:
    image = SMALL.prepare(weights.image())
    maps = drawn.compute_responses(cut_patches(torch.stack([image, image.flip(2)]), 4)).view(2, 13, 13, 16).double()
    sides = torch.stack([(maps - 0.1).clamp(min=0), (-maps - 0.1).clamp(min=0)], 1)  # (2, 2, 13, 13, 16)
    expected = sides[:, :, :7, 6:, :8].mean((0, 2, 3)).sqrt()  # (2, 8), above and on the right, over both images
    found = SMALL.open(CPU)(image[None])
    assert (found.dtype, found.shape) == (torch.float16, (1, 16 * 4))
    assert torch.allclose(found.view(2, 8, 2, 2)[:, :, 0, 1].double(), expected, atol=1e-3)


def test_an_image_and_its_mirror_image_have_the_same_features() -> None:
    image = weights.image()
    assert torch.allclose(features(SMALL, image), features(SMALL, ImageOps.mirror(image)), atol=1e-3)


def test_filters_are_patches_and_their_mirror_images(drawn: FilterBank) -> None:
    own, mirrored = drawn.filters.view(2, 8, 3, 4, 4)
    assert torch.allclose(own.flip(3), mirrored, atol=1e-5)


def test_patches_have_the_same_variance_in_all_directions_once_whitened(drawn: FilterBank) -> None:
    images = torch.cat([make_generator(name, 0, 16)(torch.arange(2)) for name in PROCESSES])
    patches = normalise_patches(cut_patches(torch.cat([images, images.flip(3)]), 4)) @ drawn.whiten
    values = torch.linalg.eigvalsh(patches.T @ patches / len(patches))
    assert 0.9 < float(values[-1]) < 1.1  # the ridge keeps the small ones below 1


def test_brightness_and_contrast_hardly_matter() -> None:
    pixels = np.array(weights.image().resize((16, 16)))
    softer = Image.fromarray((60 + 0.5 * pixels).astype(np.uint8))
    same = torch.nn.functional.cosine_similarity(
        features(SMALL, Image.fromarray(pixels)).float(), features(SMALL, softer).float(), dim=0
    )
    assert float(same) > 0.99


def test_a_seed_draws_filters_of_its_own_and_always_the_same(drawn: FilterBank) -> None:
    assert torch.equal(draw(SMALL).filters, drawn.filters)
    assert not torch.allclose(draw(replace(SMALL, seed=1)).filters, drawn.filters)


@pytest.mark.parametrize("size", [2, 7, 20])
def test_images_may_have_any_size(size: int) -> None:
    extractor = Patches(filters=4, patch=2, pool=1, images=2, size=size)
    found = features(extractor, weights.image())
    assert found.shape == (4,) and bool(found.isfinite().all())


@pytest.mark.parametrize("instructions", [False, True])
def test_eight_bits_of_precision_are_close(instructions: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: instructions)
    image = weights.image()
    exact, fast = features(SMALL, image), features(replace(SMALL, precision="bfloat16"), image)
    assert not torch.equal(exact, fast)
    assert torch.allclose(exact, fast, atol=0.03)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("filters", 5), ("pool", 28),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_are_refused(option: str, value: float) -> None:
    with pytest.raises(SpecError, match=f"Expected {option}={value}"):
        Patches(**{option: value})  # type: ignore[arg-type]
