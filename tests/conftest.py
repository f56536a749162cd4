"""What every test gets: no network, its own cache, its share of the machine and only the plugins that are installed."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import shutil
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_SH, LOCK_UN, flock
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import hypothesis
import numpy as np
import pytest
from filelock import FileLock
from pytest_socket import disable_socket

from dpbench.records import provenance
from dpbench.registry import entry_points
from dpbench.support.own_folders import prepare_user_only_folder
from dpbench.support.paths import PACKAGE, cache_folder

if TYPE_CHECKING:
    from tests.helpers.commands import Refusal

Factory = pytest.TempPathFactory
SLOW = {"chromium", "documentation", "explained", "fresh", "wheel"}
"""Fixtures whose tests are slow: a browser, the documentation's site, an explanation of whole runs, an environment to
install into, and a wheel of this tree. Those with jobs of Slurm are long."""

LONG = {"jobs"}
RENAMED = pytest.StashKey[set[str]]()

hypothesis.settings.register_profile("small", max_examples=25, deadline=None)
hypothesis.settings.register_profile("nightly", max_examples=1000, deadline=None)
hypothesis.settings.load_profile("small")  # `--hypothesis-profile=nightly` tries more


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Benchmarks are timed in one process."""
    return 0 if config.getoption("benchmark_enable") else None


def pytest_configure(config: pytest.Config) -> None:
    """Beside other workers each computes in one thread, and so does every process that a test starts."""
    os.environ.pop("PYTEST_ADDOPTS", None)  # options of this run, and not of those that tests start
    if not hasattr(config, "workerinput"):
        os.environ.pop("PYTEST_XDIST_WORKER", None)  # of the worker whose test started this run
    if config.getoption("numprocesses", None):
        os.environ["OMP_NUM_THREADS"] = "1"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected lives as long as the session: no collection of garbage looks through it again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs a slow fixture, cases that are not `quick`, and benchmarks that are run to see that they work."""
    benchmarks = None if config.getoption("benchmark_enable") else f"{Path(__file__).parent / 'benchmarks'}{os.sep}"
    cases = defaultdict[str, dict[str, pytest.Item]](dict)  # by test
    for item in items:
        test, _, case = item.nodeid.partition("[")
        cases[test][case.removesuffix("]")] = item
    for item in items:
        fixtures = set(item.fixturenames) if isinstance(item, pytest.Function) else set[str]()
        if LONG & fixtures:
            item.add_marker(pytest.mark.long)
        if (
            SLOW & fixtures
            or (benchmarks and str(item.path).startswith(benchmarks))
            or item.get_closest_marker("long")
            or not _is_quick(item, cases[item.nodeid.partition("[")[0]], config)
        ):
            item.add_marker(pytest.mark.slow)


def _is_quick(item: pytest.Item, cases: Mapping[str, pytest.Item], config: pytest.Config) -> bool:
    """Whether `quick` names a case or counts it among the first of its test. If a name is missing, the test fails."""
    marker = item.get_closest_marker("quick")
    if marker is None:
        return True
    order = [*cases.values()]
    missing = {name for name in marker.args if isinstance(name, str)} - cases.keys()
    if missing and item is order[0] and not any("[" in word for word in config.args):  # all cases were asked for
        item.stash[RENAMED] = missing
        return True
    return any(
        item in order[:wanted] if isinstance(wanted, int) else item is cases.get(wanted) for wanted in marker.args
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail if a case that was quick has another name now: it would be slow, and nobody would notice."""
    if renamed := item.stash.get(RENAMED, None):
        pytest.fail(f"Expected the quick cases {', '.join(sorted(renamed))}. No case has that name.", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test marked `serial` has the machine to itself, whichever worker runs it."""
    with _turn(alone=item.get_closest_marker("serial") is not None):
        return (yield)


@contextmanager
def _turn(*, alone: bool) -> Iterator[None]:
    """Wait for the machine; who waits to be alone is not overtaken, since others queue behind."""
    with (Path(__file__).parent / "__init__.py").open() as queue, Path(__file__).open() as machine:
        flock(queue, LOCK_EX)
        flock(machine, LOCK_EX if alone else LOCK_SH)
        flock(queue, LOCK_UN)
        try:
            yield
        finally:
            flock(machine, LOCK_UN)  # a forked child may hold the file open


def shared_kernels(factory: Factory) -> Path:
    """Return a folder for compiled loops that workers and later sessions share, with those of the user's own runs."""
    folder, own = shared_folder(factory).parent / "dpbench-kernels", cache_folder() / "kernels"
    trusted, _ = prepare_user_only_folder("kernels", "compiled loops") if own.exists() else (None, "")
    with FileLock(f"{folder}.lock"):
        folder.mkdir(mode=0o700, exist_ok=True)
        for entry in [*trusted.iterdir()] if trusted else []:
            if not (folder / entry.name).exists():
                shutil.copytree(entry, folder / entry.name)
    return folder


@pytest.fixture(scope="session", autouse=True)
def surroundings(tmp_path_factory: Factory) -> Iterator[None]:
    """Keep caches of this session apart from the user's; all workers share its calibrations and features.

    What is installed, and what git says of this tree, is asked once.
    """
    with pytest.MonkeyPatch.context() as patch:
        cache = shared_folder(tmp_path_factory) / "cache"
        cache.mkdir(exist_ok=True)
        with contextlib.suppress(FileExistsError):
            (cache / "kernels").symlink_to(shared_kernels(tmp_path_factory))
        patch.setenv("DPBENCH_CACHE", str(cache))
        patch.setenv("HF_HOME", str(tmp_path_factory.mktemp("huggingface")))
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.delenv("DPBENCH_PLUGINS", raising=False)
        patch.delenv("DPBENCH_DEBUG", raising=False)
        _remember(patch, provenance, "_run_git", lambda root, *_: root == PACKAGE.parent)
        installed = [*sys.path]
        _remember(patch, entry_points, "entry_points", lambda **_: sys.path == installed)
        yield


def _remember(patch: pytest.MonkeyPatch, module: ModuleType, name: str, allowed: Callable[..., bool]) -> None:
    """Let a function of a module remember its answers to the questions for which that is allowed."""
    ask: Callable[..., object] = getattr(module, name)
    remember = functools.cache(ask)
    answer = lambda *given, **named: (remember if allowed(*given, **named) else ask)(*given, **named)
    patch.setattr(module, name, answer)


@pytest.fixture(autouse=True)
def no_network(surroundings: None) -> None:
    """Sockets raise; Unix sockets stay, processes talk through them."""
    disable_socket(allow_unix_socket=True)


@pytest.fixture
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of this test's own."""
    folder = tmp_path / "own-cache"
    monkeypatch.setenv("DPBENCH_CACHE", str(folder))
    return folder


@pytest.fixture(scope="session")
def cifar_mirror(surroundings: None, tmp_path_factory: Factory) -> Path:
    """A folder for DPBENCH_DATA with a small look-alike of CIFAR-10 in the hub's layout."""
    return built_once(tmp_path_factory, "mirror", lambda folder: write_mirror(folder, train=1000, test=200))


def built_once(factory: Factory, name: str, build: Callable[[Path], object]) -> Path:
    """Return a folder of that name, which the first worker that wants it builds for all of them; none may change it."""
    folder = shared_folder(factory) / name
    done = folder.with_suffix(".done")
    with FileLock(folder.with_suffix(".lock")):
        if not done.exists():
            folder.mkdir()
            build(folder)
            done.touch()
    return folder


def shared_folder(factory: Factory) -> Path:
    """Return the session's temporary folder, the same in all of its workers."""
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


def write_mirror(folder: Path, train: int, test: int) -> Path:
    """Write so many examples of the look-alike; return the folder."""
    for seed, (split, size) in enumerate((("train", train), ("test", test))):
        _write_split(folder / f"uoft-cs/cifar10/plain_text/{split}-00000-of-00001.parquet", size, seed)
    return folder


def _write_split(file: Path, size: int, seed: int) -> None:
    import datasets
    from PIL import Image

    datasets.disable_progress_bars()
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.arange(size) % 10)
    tints = np.random.default_rng(99).integers(40, 216, (10, 3))
    pixels = np.clip(tints[labels][:, None, None] + generator.normal(0, 30, (size, 32, 32, 3)), 0, 255).astype(np.uint8)
    features = datasets.Features({"img": datasets.Image(), "label": datasets.ClassLabel(num_classes=10)})
    rows = {"img": [Image.fromarray(image) for image in pixels], "label": labels.tolist()}
    file.parent.mkdir(parents=True, exist_ok=True)
    datasets.Dataset.from_dict(rows, features=features).to_parquet(str(file))


@pytest.fixture
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder where data is looked for, empty."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DPBENCH_DATA", str(folder))
    return folder


@pytest.fixture
def real_data() -> Path:
    """The folder of real data that DPBENCH_DATA names."""
    named = os.environ.get("DPBENCH_DATA")
    if not named:
        pytest.skip("set DPBENCH_DATA to a folder with real data, such as uoft-cs/cifar10/plain_text/*.parquet")
    return Path(named)


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> Refusal:
    """The message with which a call of Python or a command is refused."""
    from tests.helpers.commands import Refusal

    return Refusal(capsys)


@pytest.fixture
def telling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let learners tell a test what they saw: a fit that leaves something behind is not refused.

    Tests of many small fits use it as well, because the search for leftovers takes longer than such a fit.
    """
    monkeypatch.setattr("dpbench.harness.fitting.refuse_leftovers", contextlib.nullcontext)


@pytest.fixture(autouse=True)
def nothing_noted() -> None:
    """No test finds what the row functions of another one noted (`worlds.note`)."""
    vars(threading.main_thread()).pop("dpbench_notes", None)
