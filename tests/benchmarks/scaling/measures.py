"""What is measured, each in a process of its own: see `tables`."""

from __future__ import annotations

import ctypes
import re
import resource
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks.scaling import way
from tests.helpers.readme import ROOT

if TYPE_CHECKING:
    import torch

    from dpbench import Learner
    from dpbench.board.verify.expectations import ReviewContext
    from dpbench.board.verify.review import LeaderboardReview

BOARD = "digits-eps1"
Found = dict[str, float]


def fits(asked: Sequence[Mapping[str, Any]], on_disk: bool) -> list[Found]:
    """Return what `fit` finds of each, one after the other: peaks are measured beyond what is held before."""
    from dpbench import registry

    plugins, found = registry.load(), []
    for question in asked:
        learner, (n, d, classes) = (
            plugins.build("learner", question["learner"], dict(question["options"])),
            question["size"],
        )
        with tempfile.TemporaryDirectory() as folder:
            found.append(fit(learner, _make_features(n, d, Path(folder) if on_disk else None), classes))
    return found


def _make_features(n: int, d: int, folder: Path | None) -> torch.Tensor:
    """Return features (n, d) in memory, or of a file in a folder, mapped as the cache's are."""
    import numpy as np
    import torch

    draw, deviations = torch.Generator().manual_seed(0), torch.linspace(2, 0.1, d)
    kept = None if folder is None else np.lib.format.open_memmap(folder / "x.npy", "w+", np.float32, (n, d))
    x = torch.empty(n, d) if kept is None else torch.from_numpy(kept)
    for part in torch.split(x, 4096):  # in place: a second copy would not fit
        part.normal_(generator=draw).mul_(deviations)
    return x if folder is None else torch.from_numpy(np.load(folder / "x.npy", mmap_mode="c", allow_pickle=False))


def fit(learner: Learner, x: torch.Tensor, classes: int) -> Found:
    """Return processor seconds of one fit's private part and of all else, and its peak bytes beyond the features.

    The private part is what the fit costs beyond the same one on 200 rows.
    """
    import torch

    from dpbench import Budget, PublicData, Task
    from dpbench.privacy.binding import bind
    from dpbench.privacy.core.randomness import Randomness
    from dpbench.privacy.core.rows import PrivateRows
    from dpbench.privacy.curator import make_learner_curator
    from dpbench.support.phases import PhaseProfiler

    n, d = x.shape
    y = torch.randint(classes, (n,), generator=torch.Generator().manual_seed(1))
    public, budget, phases = PublicData(x[:1000].clone(), y[:1000].clone()), Budget(1.0, 1e-5), PhaseProfiler()
    for name, count in (("start", 200), ("few", 200), ("all", n)):  # what libraries take once is not a fit's
        rows = PrivateRows(x[:count], y[:count], torch.arange(count))
        task = Task((d,), classes, count, torch.device("cpu"), public=len(public.x))
        settled = learner.settle(task, budget)
        _trim()
        with phases(f"before {name}"):
            pass
        with _Watch() as watch, phases(name):
            randomness = Randomness.research(0, "scaling")
            curator = bind(rows, task, settled.plan(task, budget), 3.0, randomness)
            settled.fit(make_learner_curator(curator), public, randomness.initialisation)
    few, peak = phases.cpu_seconds["few"], phases.peak_bytes["all"]
    beyond, private = peak - phases.peak_bytes["before all"], phases.cpu_seconds["all"] - few
    return {"private": private, "public": few, "beyond": beyond, "peak": peak, "unmapped": watch.most}


class _Watch:
    """Looks a hundred times a second how much memory the process has that is not of a file; 0 where none tells."""

    def __init__(self) -> None:
        self.most, self._ended = 0, threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        status = Path("/proc/self/status")
        while status.exists() and not self._ended.wait(0.01):
            found = re.search(r"^RssAnon:\s+(\d+) kB", status.read_text(encoding="utf-8"), re.MULTILINE)
            self.most = max(self.most, 1024 * int(found[1]) if found else 0)


def sweep(cells: int, workers: int) -> Found:
    """Return processor seconds of a sweep: all, those of its cells' own fits and scores, and of finding all done."""
    from dpbench import registry
    from dpbench.records.result import Result
    from dpbench.sweep.conduct import sweep as conduct
    from dpbench.sweep.resources import SweepResources

    plugins = registry.load()
    axes = {"learner.k": list(range(5, 15)), "epsilon": [round(0.1 + 0.01 * place, 2) for place in range(cells // 10)]}
    fixed = {"dataset": "digits", "seeds": 1, "learner": "class-means"}
    grid = {"name": "scaling", "fixed": fixed, "grid": axes}
    with tempfile.TemporaryDirectory() as folder:
        out, resources = Path(folder) / "out", SweepResources(workers=workers, threads=1, device="cpu")
        begin = _worked()
        done = conduct(grid, out, resources=resources, plugins=plugins)
        spent = _worked() - begin
        begin = _worked()
        again = conduct(grid, out, resources=resources, plugins=plugins)
        resumed = _worked() - begin
        results = [Result.read(file) for file in out.glob("*.json")]
        own = sum(result.cpu_seconds["fit"] + result.cpu_seconds["score"] for result in results)
    assert done.ran == again.skipped == len(results) == cells and not done.failed
    return {"all": spent, "own": own, "resume": resumed}


def leaderboard(root: str, count: int) -> Found:
    """Return processor seconds of checking so many results and of making the index of them, and the peak bytes."""
    from dpbench import registry
    from dpbench.board import build
    from dpbench.support.phases import peak_bytes

    verified, spent = build.verify_leaderboard, Found()

    def timed(root: Path, context: ReviewContext) -> LeaderboardReview:
        begin = _worked()
        found = verified(root, context)
        spent["verify"] = _worked() - begin
        return found

    plugins, begin = registry.load(), _worked()
    build.verify_leaderboard = timed
    try:
        index = build.build_index(Path(root), plugins)
    finally:
        build.verify_leaderboard = verified
    assert [len(standing.entries) for standing in index.standings] == [count]
    content = index.encode()
    return {**spent, "index": _worked() - begin, "peak": peak_bytes(), "bytes": len(content)}


def results(root: str, count: int) -> Found:
    """Write synthetic results for `leaderboard`."""
    import shutil

    from dpbench.records.board import find_board
    from tests.helpers import boards

    (Path(root) / "boards").mkdir(parents=True)
    shutil.copy(ROOT / "leaderboard" / "boards" / f"{BOARD}.toml", Path(root) / "boards")
    boards.write(boards.made(find_board(BOARD), count, seed=0), Path(root) / "results" / BOARD)
    return {}


def _trim() -> None:
    """Give back what was freed, so that a peak counts what is taken from now on; glibc alone can."""
    if sys.platform == "linux":
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def _worked() -> float:
    """Return processor seconds of this process and of those it has started and that ended."""
    mine, theirs = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return mine.ru_utime + mine.ru_stime + theirs.ru_utime + theirs.ru_stime


MEASURES: Mapping[str, Callable[..., Found | list[Found]]] = {
    "fits": fits, "sweep": sweep, "leaderboard": leaderboard, "results": results,
    "ours": way.ours, "theirs": way.theirs,
}  # fmt: skip
