"""Resizing in compiled loops gives the bits of Pillow, for every size, filter and crop."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from dpbench import resize_pixels
from dpbench.data.resizing import kernels, resize

Mode = Literal["RGB", "L"]
LEVELS = torch.arange(256).float()
FILTERS = (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC)
SIDE = st.integers(1, 70)


def draw_image(seed: int, size: tuple[int, int], mode: Mode, hard: bool) -> Image.Image:
    """Return random pixels; `hard` ones are black or white, so that a cubic leaves 0 to 255 on both sides."""
    draws = np.random.default_rng(seed)
    width, height = size
    pixels = draws.integers(0, 2, (height, width, 3)) * 255 if hard else draws.integers(0, 256, (height, width, 3))
    return Image.fromarray(pixels.astype(np.uint8)).convert(mode)


def by_pillow(image: Image.Image, mode: Mode, size: tuple[int, int], resample: Image.Resampling, crop: Any) -> Tensor:
    pixels = torch.from_numpy(np.array(image.convert(mode).resize(size, resample).crop(crop))).float()
    return pixels.unsqueeze(0) if mode == "L" else pixels.permute(2, 0, 1)


def resized(image: Image.Image, mode: Mode, size: tuple[int, int], resample: Image.Resampling, crop: Any) -> Tensor:
    return resize_pixels(image, mode, size, resample, LEVELS.expand(1 if mode == "L" else 3, -1), crop)


@st.composite
def crops(draw: st.DrawFn, size: tuple[int, int]) -> tuple[int, int, int, int]:
    left, top = (draw(st.integers(0, side - 1)) for side in size)
    return left, top, draw(st.integers(left + 1, size[0])), draw(st.integers(top + 1, size[1]))


@given(
    st.data(), st.integers(0, 99), st.tuples(SIDE, SIDE), st.tuples(SIDE, SIDE), st.sampled_from(["RGB", "L"]),
    st.sampled_from(FILTERS), st.booleans(),
)  # fmt: skip
def test_the_loops_give_the_bits_of_pillow(
    data: st.DataObject, seed: int, before: tuple[int, int], after: tuple[int, int], mode: Mode,
    resample: Image.Resampling, hard: bool,
) -> None:  # fmt: skip
    image, crop = draw_image(seed, before, mode, hard), data.draw(crops(after))
    assert torch.equal(resized(image, mode, after, resample, crop), by_pillow(image, mode, after, resample, crop))


@pytest.mark.parametrize("resample", FILTERS)
@pytest.mark.parametrize(
    ("before", "after"),
    [((400, 400), (256, 256)), ((500, 375), (341, 256)), ((375, 500), (256, 341)), ((32, 32), (146, 146)),
     ((1, 1), (224, 224)), ((2000, 3), (7, 3)), ((640, 480), (640, 480))],
)  # fmt: skip
def test_sizes_of_photographs(before: tuple[int, int], after: tuple[int, int], resample: Image.Resampling) -> None:
    image = draw_image(1, before, "RGB", hard=False)
    width, height = after
    crop = width // 9, height // 7, width - width // 11, height
    assert resize._is_supported_by_loops(before, after, resample, crop)
    assert torch.equal(resized(image, "RGB", after, resample, crop), by_pillow(image, "RGB", after, resample, crop))


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("stored", ["RGB", "L", "RGBA", "P", "1", "CMYK"])
def test_images_of_other_colours_are_converted_first(stored: str, mode: Mode) -> None:
    image = draw_image(2, (20, 17), "RGB", hard=False).convert(stored)
    found = resized(image, mode, (9, 11), Image.Resampling.BICUBIC, None)
    assert torch.equal(found, by_pillow(image, mode, (9, 11), Image.Resampling.BICUBIC, (0, 0, 9, 11)))


@pytest.mark.parametrize(
    ("size", "resample", "crop"),
    [
        ((9, 11), Image.Resampling.LANCZOS, (0, 0, 9, 11)),
        ((9, 11), Image.Resampling.BICUBIC, (-2, 3, 9, 14)),
        ((38, 8), Image.Resampling.BICUBIC, (1, 0, 30, 8)),
    ],
)
def test_pillow_does_the_rest(
    monkeypatch: pytest.MonkeyPatch, size: tuple[int, int], resample: Image.Resampling, crop: Any
) -> None:
    """Other filters, crops that leave the image, and images of which Pillow resizes the columns first."""
    monkeypatch.setattr(kernels, "resize", None)
    image = draw_image(3, (40, 40), "RGB", hard=True)
    assert torch.equal(resized(image, "RGB", size, resample, crop), by_pillow(image, "RGB", size, resample, crop))


def test_each_channel_has_its_own_values() -> None:
    image, values = draw_image(4, (30, 20), "RGB", hard=False), torch.randn(3, 256)
    pixels = by_pillow(image, "RGB", (12, 13), Image.Resampling.BILINEAR, (2, 3, 12, 13)).long()
    found = resize_pixels(image, "RGB", (12, 13), Image.Resampling.BILINEAR, values, (2, 3, 12, 13))
    assert torch.equal(found, torch.stack([values[channel][pixels[channel]] for channel in range(3)]))


def test_a_pillow_that_gives_other_bits_is_used_itself(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    real = Image.Image.resize
    monkeypatch.setattr(Image.Image, "resize", lambda self, *asked: real(self, *asked).point(lambda level: level ^ 1))
    monkeypatch.setattr(resize, "_agrees_with_pillow", resize._agrees_with_pillow.__wrapped__)
    image = draw_image(5, (30, 20), "RGB", hard=False)
    found = resized(image, "RGB", (12, 13), Image.Resampling.BILINEAR, None)
    assert torch.equal(found, by_pillow(image, "RGB", (12, 13), Image.Resampling.BILINEAR, (0, 0, 12, 13)))
    assert capfd.readouterr().err.count("Pillow resizes images itself, because dpbench's loops give other bits") == 1


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("kept", ["not given", "in several blocks", "in another form"])
def test_images_whose_memory_pillow_does_not_give_are_copied(
    monkeypatch: pytest.MonkeyPatch, kept: str, mode: Mode
) -> None:
    def refuse(self: Image.Image) -> object:
        raise ValueError("Image is in multiple array blocks")

    if kept == "not given":
        monkeypatch.delattr(Image.Image, "__arrow_c_array__", raising=False)
    elif kept == "in several blocks":
        monkeypatch.setattr(Image.Image, "__arrow_c_array__", refuse, raising=False)
    else:
        kernels.compile_resize_kernel()
        monkeypatch.setattr(kernels, "find_buffer", lambda *_: 0)
    image = draw_image(6, (31, 22), mode, hard=False)
    found = resized(image, mode, (12, 13), Image.Resampling.BICUBIC, None)
    assert torch.equal(found, by_pillow(image, mode, (12, 13), Image.Resampling.BICUBIC, (0, 0, 12, 13)))


def test_the_memory_of_an_image_is_found_where_pillow_gives_it() -> None:
    for mode in ("RGB", "L"):
        image = draw_image(7, (31, 22), mode, hard=False)
        kernels.compile_resize_kernel()
        _, owner = resize._locate_pixels(image)
        assert isinstance(owner, np.ndarray) != hasattr(image, "__arrow_c_array__")
