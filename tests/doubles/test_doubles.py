"""Doubles of published datasets: what they are, and that each is imported, described, run and fetched as published."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from dpbench import DataError, Download
from dpbench.data.fetch import download, store
from dpbench.records.result import Result
from dpbench.registry import load
from tests.conftest import built_once
from tests.doubles import catalogue, measure
from tests.doubles.catalogue import NAMES, build, pack, write
from tests.doubles.folders import imagenet_counts
from tests.doubles.pictures import draw, encode, read_number
from tests.helpers.commands import Output, call
from tests.helpers.publisher import Server, publisher
from tests.helpers.readme import DOCS

SHARES = {"imagenet": 1e-5, "pcam": 0.0005, "pneumoniamnist": 0.02, "pneumoniamnist:size=64": 0.02}
EXAMPLES = 20  # of a split, that are looked at
VERSIONS = (*NAMES, "cifar10.1:version=v4", "pcam:val=train", "dermamnist:val=train", "flowers102:val=train")
FETCHED = [name for name in VERSIONS if name not in {"dermnet", "flower16", "imagenet"}]  # those need a login
FAULTS = {
    "breaks off": {},
    "announces more": {"extra": 9},
    "announces less": {"extra": -9},
    "floods": {"flood": 3 << 20},
}

Loaders = Callable[[Path], None]
Few = Callable[[str], Path]
Patch = pytest.MonkeyPatch


@pytest.fixture
def few(tmp_path_factory: pytest.TempPathFactory) -> Few:
    """Return the folder of a small double, which is written once."""

    def built(name: str) -> Path:
        folder = "double-" + name.replace(":", "-").replace(".", "-")  # a dot would begin a suffix
        return built_once(tmp_path_factory, folder, lambda place: write(name, place, SHARES.get(name, 0.002)))

    return built


@pytest.fixture
def loaders(monkeypatch: pytest.MonkeyPatch) -> Loaders:
    """Make the loaders of this process expect the double in a folder, until the test ends."""
    return lambda folder: catalogue.apply(folder, monkeypatch.setattr)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(download, "time", SimpleNamespace(sleep=lambda _: None))
    with publisher() as running:
        yield running


# What a double is


@pytest.mark.parametrize("side", [28, 32, 48, 64, 96, 384])
@pytest.mark.parametrize("channels", [1, 3])
def test_an_image_shows_its_number(side: int, channels: int) -> None:
    numbers = np.array([0, 1, 262_143, 1_331_166, (1 << 24) - 1])
    assert [read_number(image) for image in draw(numbers, numbers % 2, (side, side), channels)] == numbers.tolist()


def test_a_number_is_readable_in_a_jpeg_file() -> None:
    numbers = np.array([5, 1_331_166])
    for number, image in zip(numbers, draw(numbers, numbers % 2, (384, 384)), strict=True):
        assert read_number(np.asarray(Image.open(io.BytesIO(encode(image, "JPEG"))))) == number


def test_an_image_follows_from_its_number_and_class_alone() -> None:
    numbers = np.arange(100)
    alone = draw(numbers[40:41], numbers[40:41] % 3, (32, 32))
    assert (draw(numbers, numbers % 3, (32, 32))[40] == alone[0]).all()


def test_the_classes_of_imagenet_have_the_published_total_and_extremes() -> None:
    counts = imagenet_counts(1_281_167, 1000)
    assert (len(counts), sum(counts), min(counts), max(counts)) == (1000, 1_281_167, 732, 1300)
    assert counts.count(1300) == 895


@pytest.mark.quick(6)
@pytest.mark.parametrize("name", VERSIONS)
def test_a_loader_reads_a_double_and_its_images_have_different_numbers(
    name: str, few: Few, data_folder: Path, loaders: Loaders, monkeypatch: Patch
) -> None:
    loaders(few(name))
    monkeypatch.setenv("DPBENCH_DATA", str(few(name)))
    splits, seen = build(name).load(), []
    for split in (splits.train, splits.test):
        step = max(1, len(split.labels) // EXAMPLES)
        seen += [read_number(np.asarray(split.images[row])) for row in range(0, len(split.labels), step)]
    assert len(seen) == len(set(seen)) >= min(EXAMPLES, len(splits.train.labels))


def test_a_whole_double_needs_nothing_but_its_checksum(data_folder: Path, loaders: Loaders) -> None:
    assert set(write("pneumoniamnist", data_folder)) == {"md5"}
    loaders(data_folder)
    splits = build("pneumoniamnist").load()
    assert (len(splits.train.labels), len(splits.test.labels)) == (4708, 624)


def test_a_loader_refuses_a_double_of_which_it_was_told_nothing(data_folder: Path) -> None:
    write("pneumoniamnist", data_folder)
    with pytest.raises(DataError, match="its MD5 is"):
        build("pneumoniamnist").load()


# Imported, described and run


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_small_double_is_imported_described_and_run(
    name: str, few: Few, data_folder: Path, tmp_path: Path, loaders: Loaders, capsys: Output
) -> None:
    given = few(name)
    loaders(given)
    assert call("data", "import", name, str(given), "--to", str(data_folder)) == 0
    capsys.readouterr()
    assert call("data", "info", name, "--json") == 0
    assert all(found["exact"] == 0 for found in json.loads(capsys.readouterr().out)["overlap"].values())
    of = ("digits", "--public-dataset", name) if name in measure.PUBLIC else (name, "--public-fraction", "0.3")
    words = ("--extractor", measure.EXTRACTOR, "--learner", "class-means", "--seeds", "1")
    assert call("run", "--dataset", *of, *words, "--json", "--out", str(tmp_path / "out")) == 0
    assert 0 <= Result.model_validate_json(capsys.readouterr().out).metrics["accuracy"].mean <= 1


@pytest.mark.slow
def test_commands_in_fresh_processes_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "RUN", ("--learner", "class-means", "--seeds", "1", "--json"))
    found = measure.measure("pcam", 0.002, tmp_path)
    assert (found.train, found.test, found.patched) == (524, 66, ["sizes"])
    assert found.features > 590 * 16 * 16 * 3 * 4
    assert all(cost.processor > 0.1 and 2**25 < cost.peak < measure.LIMIT for cost in found.costs.values())
    assert found.costs["import"].peak < found.costs["run"].peak  # not that of the process which measures


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_whole_double_is_imported_described_and_run_within_eight_gigabytes(name: str, tmp_path: Path) -> None:
    found = measure.measure(name, catalogue.SHARES.get(name, 1.0), tmp_path)
    assert all(cost.peak < measure.LIMIT for cost in found.costs.values())


def test_the_page_has_the_seconds_of_the_record() -> None:
    found = measure.read_record().values()
    page = " ".join((DOCS / "explanation" / "scaling.md").read_text(encoding="utf-8").split())
    ranges = {}
    for command in ("import", "info", "run"):
        seconds = sorted(round(measured.costs[command].processor) for measured in found)
        ranges[command] = f"{seconds[0]} to {seconds[-1]}"
    assert (
        f"`dpbench data import` takes {ranges['import']} seconds of processor time, `data info` {ranges['info']}"
        in page
    )
    assert f"on 16 x 16 pixels {ranges['run']}, with at most 1 GiB" in page
    assert max(cost.peak for measured in found for cost in measured.costs.values()) < 1.05 * 2**30


# Fetched


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", FETCHED)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_double_is_fetched_in_spite_of_a_server_that(
    name: str,
    fault: str,
    few: Few,
    data_folder: Path,
    tmp_path: Path,
    loaders: Loaders,
    server: Server,
    monkeypatch: Patch,
) -> None:
    loaders(few(name))
    serve(name, pack(downloads(name), few(name), tmp_path / "published"), server, monkeypatch)
    dataset, lies = build(name), fault in {"announces less", "floods"}
    if fault == "breaks off":
        server.cuts = [len(next(iter(server.files.values()))) // 2, 0]
    for attribute, value in FAULTS[fault].items():
        setattr(server, attribute, value)
    if lies:
        with pytest.raises(DataError, match=f"^Expected [^\n]* (from|of) {server.url()[:-6]}[^\n]* deleted"):
            store.fetch_dataset(dataset, data_folder)
        server.extra = server.flood = 0
    kept = store.fetch_dataset(dataset, data_folder)
    assert dataset.load().digest == kept.digest
    assert any(server.asked) != lies  # what was deleted is not continued


def downloads(name: str) -> Sequence[Download]:
    source = build(name).source()
    assert source is not None
    return source.downloads


def serve(name: str, files: Sequence[Path], server: Server, monkeypatch: Patch) -> None:
    """Put what the publisher of a dataset has on the server, and make the dataset expect it there."""
    dataset, contents = build(name), [file.read_bytes() for file in files]
    server.files = {file.name: content for file, content in zip(files, contents, strict=True)}
    here = [
        replace(
            wanted, url=server.url(f"/{file.name}?download=1"), size=len(content),
            checksum=f"sha256:{hashlib.sha256(content).hexdigest()}",
        )
        for wanted, file, content in zip(downloads(name), files, contents, strict=True)
    ]  # fmt: skip
    source = dataset.source()
    assert source is not None
    rewritten = replace(source, downloads=here, elsewhere=())
    monkeypatch.setattr(type(dataset), "source", lambda _: rewritten)


@pytest.mark.slow
def test_a_double_is_fetched_from_a_hub_that_breaks_off(
    few: Few, data_folder: Path, tmp_path: Path, server: Server
) -> None:
    given = few("cifar10")
    files = sorted((given / "uoft-cs/cifar10/plain_text").iterdir())
    server.files, server.below = {file.name: file.read_bytes() for file in files}, "plain_text"
    server.cuts = [1 << 20, 1000]  # the list of files comes whole
    hub = {"HF_ENDPOINT": server.url(""), "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path / "hub")}
    command = [sys.executable, "-m", "tests.doubles.command", str(given)]
    words = ("data", "fetch", "cifar10", "--to", str(data_folder))
    done = subprocess.run([*command, *words], env={**os.environ, **hub}, capture_output=True, text=True, check=False)
    assert (done.returncode, server.cuts) == (0, []), done.stderr
    for file in files:
        assert (data_folder / file.relative_to(given)).read_bytes() == file.read_bytes()


def test_every_dataset_with_an_address_is_fetched_here() -> None:
    known = {name: item.cls for name, item in load().components["dataset"].items() if name not in {"hf", "imagefolder"}}
    sources = {name: build(name).source() for name in known}
    assert {build(name).name for name in FETCHED} == {
        name for name, value in sources.items() if value and value.downloads
    }
