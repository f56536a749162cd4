"""The feature cache: extracted once, resumed after an interruption, rebuilt when damaged."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from dpbench import DataError, Extractor, Split
from dpbench.data import cache, extraction
from dpbench.data.concat import Concat
from dpbench.data.keys import ImageKeys, identify_images
from dpbench.errors import OutputError
from dpbench.support import progress
from tests.helpers.rechecks import compute_alone

CPU = torch.device("cpu")
ROWS = 100
EXPECTED = 2 * torch.arange(ROWS).float()[:, None].expand(ROWS, 4)


@dataclasses.dataclass(frozen=True)
class Doubled(Extractor):
    name: ClassVar[str] = "doubled"
    digest: ClassVar[str] = "weights"

    factor: int = 2

    def weights(self) -> str:
        return self.digest

    def prepare(self, image: Image.Image) -> Tensor:
        return torch.from_numpy(np.array(image)).float()

    def open(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        return lambda images: self.factor * images.flatten(1)


class Photos:
    """Grey images that remember which of them were decoded; decoding number `stop` is interrupted."""

    def __init__(self, stop: int | None = None) -> None:
        self.decoded: list[int] = []
        self.stop = stop

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int, /) -> Image.Image:
        if index == self.stop:
            raise KeyboardInterrupt
        self.decoded.append(index)
        return Image.new("L", (2, 2), index)


@dataclasses.dataclass(frozen=True)
class Square(Doubled):
    name: ClassVar[str] = "square"

    def open(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        return lambda images: self.factor * images


def both(first: int = 2, second: int = 3) -> Concat:
    """Two extractors side by side, the second with features that are not flat."""
    return Concat((Doubled(first), Square(second)))


def features(photos: Photos, extractor: Extractor | Concat | None = None) -> Tensor:
    extractor = extractor or Doubled()
    return cache.load_features(Split(photos, np.zeros(ROWS, np.int64)), known(), extractor, CPU)


def known(data: str = "data", split: str = "train", rows: int = ROWS) -> ImageKeys:
    """Images of which only the dataset's digest is known."""
    return identify_images(Split(Photos(), np.zeros(rows, np.int64)), data, split)


def made_of(manifest: dict[str, Any]) -> cache.FeatureSource:
    names = [field.name for field in dataclasses.fields(cache.FeatureSource)]
    return cache.FeatureSource(**{name: manifest[name] for name in names})


def entry(folder: Path, ending: str = "") -> Path:
    key = cache.make_feature_source(known(), Doubled()).key
    return folder / "features" / f"{key}{ending}"


def flip(file: Path, offset: int = -1) -> None:
    content = bytearray(file.read_bytes())
    content[offset] ^= 1
    file.write_bytes(content)


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extraction, "SHARD", 40)
    monkeypatch.setattr(extraction.LoadedExtractor, "features_beside", compute_alone)


def test_features_are_those_of_the_extractor(fresh_cache: Path) -> None:
    assert torch.equal(features(Photos()), EXPECTED)


def test_each_image_is_decoded_once(fresh_cache: Path) -> None:
    photos = Photos()
    features(photos)
    features(photos)
    assert sorted(photos.decoded) == list(range(ROWS))


def test_nothing_but_features_and_manifest_is_kept(fresh_cache: Path) -> None:
    features(Photos())
    assert {file.name for file in entry(fresh_cache).iterdir()} == {"features.npy", "manifest.json"}
    assert not entry(fresh_cache, ".partial").exists()


def test_the_manifest_says_what_the_key_was_made_of(fresh_cache: Path) -> None:
    features(Photos())
    manifest = json.loads((entry(fresh_cache) / "manifest.json").read_text())
    assert made_of(manifest).key == entry(fresh_cache).name


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux lists a process's maps")
def test_features_are_memory_mapped(fresh_cache: Path) -> None:
    held = features(Photos())
    assert str(entry(fresh_cache) / "features.npy") in Path("/proc/self/maps").read_text()
    assert len(held) == ROWS


def test_writing_to_features_leaves_the_file_alone(fresh_cache: Path) -> None:
    features(Photos()).fill_(-1.0)
    assert features(Photos()).min() == 0


def test_an_interruption_reaches_the_caller(fresh_cache: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        features(Photos(stop=60))


def test_finished_shards_are_not_extracted_again(fresh_cache: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        features(Photos(stop=90))
    photos = Photos()
    features(photos)
    assert sorted(photos.decoded) == list(range(80, ROWS))


def test_features_are_the_same_bytes_after_an_interruption(
    tmp_path: Path, fresh_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyboardInterrupt):
        features(Photos(stop=60))
    features(Photos())
    resumed = (entry(fresh_cache) / "features.npy").read_bytes()
    monkeypatch.setenv("DPBENCH_CACHE", str(tmp_path / "straight"))
    features(Photos())
    assert (entry(tmp_path / "straight") / "features.npy").read_bytes() == resumed


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-8])


def empty(file: Path) -> None:
    file.write_bytes(b"")


@pytest.mark.parametrize("damage", [truncate, empty, flip])
def test_a_damaged_shard_is_extracted_again(fresh_cache: Path, damage: Callable[[Path], None]) -> None:
    with pytest.raises(KeyboardInterrupt):
        features(Photos(stop=90))
    damage(entry(fresh_cache, ".partial") / "shard-000000040.npy")
    photos = Photos()
    again = features(photos)
    assert torch.equal(again, EXPECTED)
    assert sorted(photos.decoded) == list(range(40, ROWS))


@pytest.mark.parametrize("file", ["features.npy", "manifest.json"])
@pytest.mark.parametrize("damage", [truncate, empty, flip, Path.unlink])
def test_a_damaged_entry_is_named_and_rebuilt(
    fresh_cache: Path, capsys: pytest.CaptureFixture[str], file: str, damage: Callable[[Path], None]
) -> None:
    good = features(Photos()).clone()
    before = (entry(fresh_cache) / "features.npy").read_bytes()
    damage(entry(fresh_cache) / file)
    assert torch.equal(features(Photos()), good)
    message = capsys.readouterr().err
    assert message.startswith("dpbench: The cache f")
    assert str(entry(fresh_cache)) in message
    assert message.count("\n") == 1
    assert (entry(fresh_cache) / "features.npy").read_bytes() == before


def test_an_entry_that_is_whole_is_silent(fresh_cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    features(Photos())
    features(Photos())
    assert capsys.readouterr().err == ""


TWO = """
import sys, time
from pathlib import Path
import tests.data.test_cache as here
here.extraction.OpenExtractor.features_beside = here.compute_alone
from dpbench.data import reading
from tests.helpers.aloud import call_aloud
reading.call_quietly = call_aloud
counter, ready, me = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
class Slow(here.Photos):
    def __getitem__(self, index, /):
        with counter.open("a") as file:
            file.write(f"{index}\\n")
        time.sleep(0.002)
        return super().__getitem__(index)
(ready / me).touch()
while len(list(ready.iterdir())) < 2:
    time.sleep(0.001)
print(float(here.features(Slow()).sum()))
"""


@pytest.mark.slow
def test_two_processes_at_once_extract_once(fresh_cache: Path, tmp_path: Path) -> None:
    counter, ready = tmp_path / "counter", tmp_path / "ready"
    ready.mkdir()
    command = [sys.executable, "-c", TWO, str(counter), str(ready)]
    root = Path(__file__).parents[2]
    both = [subprocess.Popen([*command, me], cwd=root, stdout=subprocess.PIPE, text=True) for me in ("a", "b")]
    sums = [process.communicate(timeout=60)[0].strip() for process in both]
    assert sums == [str(float(8 * sum(range(ROWS))))] * 2
    assert sorted(map(int, counter.read_text().split())) == list(range(ROWS))


def test_a_refused_extraction_leaves_no_entry(fresh_cache: Path) -> None:
    @dataclasses.dataclass(frozen=True)
    class Infinite(Doubled):
        def open(self, device: torch.device) -> Callable[[Tensor], Tensor]:
            return lambda images: images.flatten(1) / 0

    with pytest.raises(DataError, match="not finite"):
        features(Photos(), Infinite())
    assert not entry(fresh_cache).exists()


def test_the_key_names_data_split_and_rows() -> None:
    others = [known("other"), known(split="test"), known(rows=99)]
    assert len({cache.make_feature_source(images, Doubled()).key for images in [known(), *others]}) == 4


@pytest.mark.parametrize("change", [{"name": "other"}, {"version": "2"}, {"digest": "retrained"}])
def test_the_key_names_the_extractor_its_version_and_its_weights(change: dict[str, str]) -> None:
    class Other(Doubled):
        name = change.get("name", Doubled.name)
        version = change.get("version", Doubled.version)
        digest = change.get("digest", Doubled.digest)

    assert cache.make_feature_source(known(), Other()).key != cache.make_feature_source(known(), Doubled()).key


def test_the_key_names_the_options() -> None:
    keys = {cache.make_feature_source(known(), Doubled(factor)).key for factor in (2, 3)}
    assert len(keys) == 2


def test_parts_stand_side_by_side_each_of_norm_1(fresh_cache: Path) -> None:
    expected = torch.full((ROWS, 8), 0.5)
    expected[0] = 0.0  # a black image
    assert torch.equal(features(Photos(), both()), expected)


@pytest.mark.parametrize("extractor", [Doubled(), both()], ids=["one", "two"])
def test_the_cache_knows_the_engine_of_its_features(
    fresh_cache: Path, capsys: pytest.CaptureFixture[str], extractor: Extractor | Concat
) -> None:
    assert cache.find_recorded_engine(known(), extractor) is None
    features(Photos(), extractor)
    capsys.readouterr()
    assert cache.find_recorded_engine(known(), extractor) == f"torch {torch.__version__}"
    progress.set_verbosity(nothing=False, everything=True)
    try:
        features(Photos(), extractor)
    finally:
        progress.set_verbosity(nothing=False, everything=False)
    assert (
        capsys.readouterr().err == f"dpbench: The cache has train features that torch {torch.__version__} computed.\n"
    )


@pytest.mark.parametrize("said", ["{", '{"sha256": ""}'])
def test_the_engine_of_features_of_an_earlier_version_is_not_known(fresh_cache: Path, said: str) -> None:
    entry(fresh_cache).mkdir(parents=True)
    (entry(fresh_cache) / "manifest.json").write_text(said)
    assert cache.find_recorded_engine(known(), Doubled()) is None


def test_a_part_that_is_cached_is_not_extracted_again(fresh_cache: Path) -> None:
    features(Photos())
    photos = Photos()
    features(photos, both())
    assert sorted(photos.decoded) == list(range(ROWS))  # for the second part alone


def test_features_of_parts_are_an_entry_of_their_own(fresh_cache: Path) -> None:
    first = features(Photos(), both())
    shutil.rmtree(entry(fresh_cache))
    photos = Photos()
    assert torch.equal(features(photos, both()), first)
    assert photos.decoded == []
    key = cache.make_feature_source(known(), both()).key
    manifest = json.loads((fresh_cache / "features" / key / "manifest.json").read_text())
    assert made_of(manifest).key == key


def test_a_damaged_part_is_named_and_rebuilt(fresh_cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    features(Photos())
    flip(entry(fresh_cache) / "features.npy")
    assert torch.equal(features(Photos(), both())[1:], torch.full((ROWS - 1, 8), 0.5))
    assert str(entry(fresh_cache)) in capsys.readouterr().err


def test_the_key_names_the_sources_of_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {cache.make_feature_source(known(), both(*factors)).key for factors in ((2, 3), (3, 2), (2, 2))}
    keys.add(cache.make_feature_source(known("other"), both()).key)
    monkeypatch.setattr(Square, "digest", "retrained", raising=False)
    keys.add(cache.make_feature_source(known(), both()).key)
    assert len(keys) == 5


@dataclasses.dataclass(frozen=True)
class Grown(Doubled):
    mirror: bool = False


def test_an_extractor_that_gains_an_option_keeps_what_is_cached() -> None:
    keys = [
        cache.make_feature_source(known(), doubled).key for doubled in (Doubled(3), Grown(3), Grown(3, mirror=True))
    ]
    assert keys[0] == keys[1] != keys[2]


def test_the_keys_of_ordinary_extractors_stay() -> None:
    assert cache.make_feature_source(known(), Doubled()).key == "d8657defbce0b124bbf18aaff4048e1f"


def test_a_cache_folder_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("DPBENCH_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(OutputError, match=r"Cannot use the feature cache in .*file/cache/features.*DPBENCH_CACHE"):
        features(Photos())
