"""What goes wrong while features are extracted: killed processes, a full disk, what other versions left behind."""

from __future__ import annotations

import dataclasses
import os
import resource
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from dpbench import Extractor, Split
from dpbench.data import cache, extraction, reading
from dpbench.data.concat import Concat
from dpbench.data.keys import ImageKeys, identify_images
from dpbench.errors import OutputError
from tests.helpers.aloud import call_aloud
from tests.helpers.rechecks import compute_alone

ROWS = 100
ROOT = Path(__file__).parents[2]
WHOLE = {"features.npy", "manifest.json"}


@dataclasses.dataclass(frozen=True)
class Logged(Extractor):
    """Writes down each image that it prepares, in the file that LOG names; the one called `fatal` kills the process."""

    name: ClassVar[str] = "logged"

    factor: int = 1
    fatal: ClassVar[int | None] = None

    def prepare(self, image: Image.Image) -> Tensor:
        level = int(np.array(image)[0, 0])
        if level == self.fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        with Path(os.environ["LOG"]).open("a") as file:
            file.write(f"{self.factor} {level}\n")
        return torch.full((4,), float(level))

    def open(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        return lambda images: self.factor * images


PAIR = Concat((Logged(2), Logged(3)))
SUM = 4.0 * (ROWS - 1)  # of the pair's features: 8 a row, each 1/2, but for the black image


class Greys:
    """Image i is grey of level i."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int, /) -> Image.Image:
        return Image.new("L", (1, 1), index)


def known() -> tuple[Split, ImageKeys]:
    split = Split(Greys(), np.zeros(ROWS, np.int64))
    return split, identify_images(split, "data", "train")


def features(extractor: Extractor | Concat | None = None) -> Tensor:
    extractor = extractor or Logged()
    split, images = known()
    return cache.load_features(split, images, extractor, torch.device("cpu"))


def entry(extractor: Extractor | Concat | None = None) -> Path:
    key = cache.make_feature_source(known()[1], extractor or Logged()).key
    return Path(os.environ["DPBENCH_CACHE"]) / "features" / key


def prepared() -> Counter[str]:
    log = Path(os.environ["LOG"])
    return Counter(log.read_text().splitlines() if log.exists() else [])


@pytest.fixture(autouse=True)
def surrounded(fresh_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.setattr(extraction, "SHARD", 20)
    monkeypatch.setattr(extraction.LoadedExtractor, "features_beside", compute_alone)
    monkeypatch.setattr(reading, "call_quietly", call_aloud)


def started(code: str) -> subprocess.Popen[str]:
    begin = (
        "import tests.data.test_extraction_faults as here\n"
        "here.extraction.SHARD = 20\n"
        "here.extraction.OpenExtractor.features_beside = here.compute_alone\n"
        "here.reading.call_quietly = here.call_aloud\n"
    )
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", begin + code], cwd=ROOT, stdout=pipe, stderr=pipe, text=True)


KILLED = {
    "while an image is prepared": "here.Logged.fatal = 50",
    "while the third shard is written": "at = 3",
    "before the features are whole": "at = 6",
}
FIRST, *_ = KILLED  # the others every night
RUN = """
import itertools, os, signal
at = None
{how}
calls = itertools.count(1)
os.fsync = lambda file: next(calls) == at and os.kill(os.getpid(), signal.SIGKILL)
here.features()
"""


@pytest.mark.parametrize(
    "how", [pytest.param(how, id=when, marks=[pytest.mark.long] * (when != FIRST)) for when, how in KILLED.items()]
)
@pytest.mark.slow
def test_a_killed_extraction_goes_on_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    killed = started(RUN.format(how=how))
    assert killed.communicate(timeout=60) == ("", "")
    assert killed.returncode == -signal.SIGKILL
    assert not entry().exists()
    features()
    counts = prepared()
    assert len(counts) == ROWS
    assert sum(counts.values()) <= ROWS + 20  # one shard at most twice
    assert {file.name for file in entry().iterdir()} == WHOLE
    resumed = (entry() / "features.npy").read_bytes()
    monkeypatch.setenv("DPBENCH_CACHE", str(tmp_path / "undisturbed"))
    features()
    assert (entry() / "features.npy").read_bytes() == resumed


@pytest.mark.long
def test_two_processes_at_once_extract_each_part_once() -> None:
    code = "print(float(here.features(here.PAIR).sum()))"
    both = [started(code) for _ in range(2)]
    said = [process.communicate(timeout=60) for process in both]
    assert said == [(f"{SUM}\n", "")] * 2
    assert prepared() == Counter(f"{factor} {level}" for factor in (2, 3) for level in range(ROWS))


@contextmanager
def full_beyond(size: int) -> Iterator[None]:
    """Files cannot grow beyond `size` bytes, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(("size", "again"), [(300, ROWS), (1000, 0)], ids=["for a shard", "for the features"])
def test_a_full_disk_is_one_sentence_and_what_is_whole_stays(size: int, again: int) -> None:
    message = r"^Cannot use the feature cache in .*: File too large\. Free some space, or"
    with pytest.raises(OutputError, match=message) as refusal, full_beyond(size):
        features()
    assert "\n" not in str(refusal.value)
    assert not entry().exists()
    before = prepared()
    assert features().sum() == 4 * sum(range(ROWS))
    assert (prepared() - before).total() == again
    assert {file.name for file in entry().iterdir()} == WHOLE


def test_a_full_disk_while_parts_are_put_together_keeps_the_parts() -> None:
    with pytest.raises(OutputError, match="File too large"), full_beyond(2000):  # a part has 1,728 bytes
        features(PAIR)
    before = prepared()
    assert features(PAIR).sum() == SUM
    assert prepared() == before
    assert {file.name for file in entry(PAIR).iterdir()} == WHOLE


@pytest.mark.parametrize(("name", "other"), [("SHARD_FORMAT", "1"), ("BATCH", 16), ("SHARD", 30)])
def test_shards_of_another_version_are_not_trusted(monkeypatch: pytest.MonkeyPatch, name: str, other: object) -> None:
    with monkeypatch.context() as patch, pytest.raises(OutputError), full_beyond(1000):
        patch.setattr(extraction, name, other)
        features()
    before = prepared()
    features()
    assert (prepared() - before).total() == ROWS
    assert {file.name for file in entry().iterdir()} == WHOLE
