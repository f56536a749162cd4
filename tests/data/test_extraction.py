"""Extraction: one row per image in order, shards that survive an interruption, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from dpbench_plugins.extractors.pixels import Pixels
from PIL import Image
from torch import Tensor

from dpbench import DataError, DataMissing, Extractor
from dpbench.data import extraction
from dpbench.data.engine import choose_inference_engine
from dpbench.errors import ComponentFailed

CPU = torch.device("cpu")
Network = Callable[[Tensor], Tensor]


def flat(images: Tensor) -> Tensor:
    return images.flatten(1)


@dataclass(frozen=True)
class Raw(Extractor):
    """An image's grey levels, through whatever network a test gives it."""

    name: ClassVar[str] = "raw"

    network: Network = flat

    def prepare(self, image: Image.Image) -> Tensor:
        return torch.from_numpy(np.array(image)).float()

    def open(self, device: torch.device) -> Network:
        return self.network


def grey(level: int, size: tuple[int, int] = (2, 2)) -> Image.Image:
    return Image.new("L", size, level)


def extract(images: Sequence[Image.Image], extractor: Extractor, folder: Path) -> list[np.ndarray]:
    return list(
        extraction.extract_features(images, extractor, folder, choose_inference_engine(extractor, CPU, len(images)))
    )


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extraction, "SHARD", 40)


def test_features_come_one_row_per_image_in_order(tmp_path: Path) -> None:
    features = np.concatenate(extract([grey(level) for level in range(100)], Raw(), tmp_path))
    assert np.array_equal(features, np.repeat(np.arange(100, dtype=np.float32)[:, None], 4, 1))


@pytest.mark.parametrize("more", [1, 20, 31, 32, 50])
def test_features_do_not_depend_on_how_many_images_follow(tmp_path: Path, more: int) -> None:
    network = Raw(lambda images: images.flatten(1) * len(images))  # as the last bits of a product may
    images = [grey(level) for level in range(60)]
    fewer, all_of_them = (
        np.concatenate(extract(some, network, tmp_path / str(len(some)))) for some in (images[:more], images)
    )
    assert fewer.shape == (more, 4)
    assert np.array_equal(fewer, all_of_them[:more])


def test_features_come_in_shards(tmp_path: Path) -> None:
    assert [len(shard) for shard in extract([grey(0)] * 100, Raw(), tmp_path)] == [40, 40, 20]


def test_no_images_give_no_shards(tmp_path: Path) -> None:
    assert extract([], Raw(), tmp_path) == []


def test_features_of_any_precision_become_float32(tmp_path: Path) -> None:
    (features,) = extract([grey(3)], Raw(lambda images: images.flatten(1).double()), tmp_path)
    assert features.dtype == np.float32


def test_the_network_is_opened_once_and_again_to_be_compared(tmp_path: Path) -> None:
    opened = []

    @dataclass(frozen=True)
    class Counting(Raw):
        def open(self, device: torch.device) -> Network:
            opened.append(device)
            return super().open(device)

    extract([grey(0)] * 100, Counting(), tmp_path)
    assert opened == [CPU, CPU]


def test_finished_shards_need_neither_images_nor_network(tmp_path: Path) -> None:
    images = [grey(level) for level in range(100)]
    first = extract(images, Raw(), tmp_path)

    class Gone(list[Image.Image]):
        def __getitem__(self, index: object) -> Image.Image:  # type: ignore[override]
            raise AssertionError(index)

    second = extract(Gone(images), Raw(lambda images: images * torch.nan), tmp_path)
    assert np.array_equal(np.concatenate(first), np.concatenate(second))


def test_a_feature_that_is_not_finite_names_the_image(tmp_path: Path) -> None:
    images = [grey(0) if index == 77 else grey(1) for index in range(100)]
    with pytest.raises(
        DataError, match=r"^Extractor 'raw' gave a feature that is not finite for image 77\."
    ) as refusal:
        extract(images, Raw(lambda images: 1 / images.flatten(1)), tmp_path)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("place", [1, 32, 40])
def test_images_of_another_shape_are_refused_with_a_hint(tmp_path: Path, place: int) -> None:
    """Within one batch, in another batch and in another shard."""
    images = [grey(0, (3, 3)) if index >= place else grey(0) for index in range(100)]
    with pytest.raises(DataError, match=r"one shape from extractor 'raw'.*pixels:size=32"):
        for _ in extract(images, Raw(), tmp_path):
            pass


def test_grey_among_colour_is_told_from_other_sizes(tmp_path: Path) -> None:
    mixed = [grey(0), Image.new("RGB", (2, 2))]
    message = r"\[\(1, 2, 2\), \(3, 2, 2\)\]\. The channels alone differ.*pixels:mode=RGB\.$"
    with pytest.raises(DataError, match=message):
        extract(mixed, Pixels(), tmp_path)
    assert extract(mixed, Pixels(mode="RGB"), tmp_path)[0].shape == (2, 12)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_features_of_any_layout_are_kept_as_they_are(tmp_path: Path, layout: torch.memory_format) -> None:
    def planes(images: Tensor) -> Tensor:
        return torch.stack([images, 2 * images], 1).contiguous(memory_format=layout)

    fresh, kept = (np.concatenate(extract([grey(1)] * 50, Raw(planes), tmp_path)) for _ in range(2))
    assert np.array_equal(fresh, np.broadcast_to(np.array([1, 2])[:, None, None], (50, 2, 2, 2)))
    assert np.array_equal(fresh, kept)


@pytest.mark.parametrize("rows", [slice(1, None), slice(0, 0)])
def test_other_than_one_row_per_image_is_refused(tmp_path: Path, rows: slice) -> None:
    with pytest.raises(DataError, match=r"returned \d+ rows for a batch of 32 images; expected one each"):
        extract([grey(0)] * 10, Raw(lambda images: images.flatten(1)[rows]), tmp_path)


def test_a_network_that_raises_is_named_with_the_images(tmp_path: Path) -> None:
    def fails(images: Tensor) -> Tensor:
        raise RuntimeError("no memory")

    with pytest.raises(ComponentFailed, match=r"'raw' on images 0 to 9 failed: RuntimeError: no memory"):
        extract([grey(0)] * 10, Raw(fails), tmp_path)


def test_an_extractor_that_cannot_open_is_named(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Closed(Raw):
        name: ClassVar[str] = "closed"

        def open(self, device: torch.device) -> Network:
            raise RuntimeError("no driver")

    with pytest.raises(ComponentFailed, match=r"'closed'.*no driver"):
        extract([grey(0)], Closed(), tmp_path)


def test_an_image_that_cannot_be_prepared_is_named(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Picky(Raw):
        name: ClassVar[str] = "picky"

        def prepare(self, image: Image.Image) -> Tensor:
            if image.getpixel((0, 0)) == 7:
                raise ValueError("odd colours")
            return super().prepare(image)

    with pytest.raises(ComponentFailed, match=r"'picky'.*odd colours"):
        extract([grey(level) for level in range(10)], Picky(), tmp_path)


def test_an_image_that_cannot_be_decoded_is_named(tmp_path: Path) -> None:
    class Truncated(list[Image.Image]):
        def __getitem__(self, index: object) -> Image.Image:  # type: ignore[override]
            raise OSError("image file is truncated")

    with pytest.raises(DataError, match=r"^Image 0 cannot be decoded \(OSError: image file is truncated\)\. Remove or"):
        extract(Truncated([grey(0)]), Raw(), tmp_path)


def test_what_a_dataset_refuses_passes_as_it_is(tmp_path: Path) -> None:
    class Removed(list[Image.Image]):
        def __getitem__(self, index: object) -> Image.Image:  # type: ignore[override]
            raise DataMissing("Expected photo.png, which is gone. Fetch it again.")

    with pytest.raises(DataMissing, match=r"^Expected photo\.png, which is gone\. Fetch it again\.$"):
        extract(Removed([grey(0)]), Raw(), tmp_path)


def test_features_that_follow_other_images_are_refused(tmp_path: Path) -> None:
    """As of batch normalisation where eval() was forgotten: removing an image would move the rows of all others."""
    centred = Raw(lambda images: flat(images) - flat(images).mean(0))
    with pytest.raises(DataError, match=r"that image alone\. Call eval\(\)"):
        extract([grey(level) for level in range(50)], centred, tmp_path)


@pytest.mark.parametrize(
    ("images", "batches"),
    [(1, [1, 0]), (28, [28, 0]), (32, [32, 0]), (33, [32, 1]), (60, [32, 28]), (61, [32, 29, 0]), (64, [32, 32, 0])],
)
def test_the_last_batch_has_room_for_images_of_the_others(images: int, batches: list[int]) -> None:
    assert [len(batch) for batch in extraction._split_into_batches(range(images))] == batches


def test_images_are_computed_again_in_a_batch_that_is_computed_anyway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[int]] = []
    embed = extraction._embed_batch

    def note(network: Network, prepared: Tensor, batch: Sequence[int], extractor: Extractor) -> np.ndarray:
        seen.append([*batch])
        return embed(network, prepared, batch, extractor)

    monkeypatch.setattr(extraction, "_embed_batch", note)
    monkeypatch.setattr(extraction, "SHARD", 60)
    extract([grey(level) for level in range(120)], Raw(), tmp_path)
    assert sorted(map(len, seen)) == [1, 32, 32, 32, 32]  # one image alone, once per extraction
    again = [batch[28:] for batch in seen if batch[:28] in ([*range(32, 60)], [*range(92, 120)])]
    assert len(again) == 2 and all(len({*batch}) == extraction.RECHECKED_IMAGES for batch in again)
    assert {*again[0], *again[1]} <= {*range(32), *range(60, 92)}


def test_what_a_fresh_instance_prepares_otherwise_is_refused(tmp_path: Path) -> None:
    class Own(Raw):
        def prepare(self, image: Image.Image) -> Tensor:
            return super().prepare(image) + (id(self) >> 4) % 2**22

    with pytest.raises(DataError, match=r"prepares image .* differently when a fresh instance prepares it"):
        extract([grey(level) for level in range(50)], Own(), tmp_path)


def test_features_that_are_the_prepared_images_outlive_their_batch(tmp_path: Path) -> None:
    """The memory of a batch is used for the next one, unless features lie in it."""
    features = np.concatenate(extract([grey(level, (5, 5)) for level in range(100)], Pixels(size=3), tmp_path))
    assert np.array_equal(features, np.repeat(np.arange(100, dtype=np.float32)[:, None] / np.float32(255), 9, 1))
