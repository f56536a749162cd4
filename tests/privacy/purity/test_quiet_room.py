"""What a row function does beside its result is refused, and what it says is withheld."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import io
import logging
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from torch import Tensor

from dpbench.api import Chunk, Release
from dpbench.errors import NotPure
from dpbench.privacy.purity import quiet_room
from dpbench.privacy.purity.quiet_room import call_quietly
from tests.helpers.worlds import Bound, curator_over, private_rows

PLAN = [Release("sum", steps=20)]
SECRET = "the loss is 0.7312"


def asked(does: Callable[[Chunk], object], curator: Bound | None = None) -> Tensor:
    """Ask with a row function that does something else over its private rows."""

    def rows(chunk: Chunk) -> Tensor:
        if len(chunk):
            does(chunk)
        return chunk.x

    answer: Tensor = (curator or curator_over(private_rows(), PLAN)).noisy_sum(rows, release="sum", clip=1.0)
    return answer


def meet(begun: threading.Event, over: threading.Event) -> None:
    """Let another thread begin, and wait until it is over; then print."""
    begun.set()
    over.wait()
    print(SECRET)


DOORS: dict[str, Callable[[Path], object]] = {
    "open": lambda path: path.write_text(SECRET),
    "os.remove": lambda path: path.unlink(),
    "os.mkdir": lambda path: (path / "new").mkdir(),
    "os.putenv": lambda path: os.environ.__setitem__("DPBENCH_SEEN", SECRET),
    "os.unsetenv": lambda path: os.unsetenv("DPBENCH_SEEN"),
    "os.system": lambda path: os.system("true"),
    "os.fork": lambda path: os.fork(),
    "os.chdir": lambda path: os.chdir(path),
    "os.listdir": lambda path: os.listdir(path.parent),  # noqa: PTH208 (pathlib scans in Python 3.13)
    "subprocess.Popen": lambda path: subprocess.run(["true"], check=True),
    "socket.gethostname": lambda path: socket.gethostname(),
    "sqlite3.connect": lambda path: sqlite3.connect(path),
    "shutil.copyfile": lambda path: shutil.copyfile(__file__, path),
    "tempfile.mkstemp": lambda path: tempfile.mkstemp(),
    "ctypes.dlopen": lambda path: ctypes.CDLL(None),
    "ctypes.string_at": lambda path: ctypes.string_at(id(path), 1),
    "builtins.input": lambda path: input(SECRET),
    "sys.setprofile": lambda path: sys.setprofile(None),
    "torch.save": lambda path: torch.save(torch.zeros(2), path),
    "os.write": lambda path: os.write(99, SECRET.encode()),
    "atexit.register": lambda path: atexit.register(print, SECRET),
    "Thread.start": lambda path: threading.Thread(target=print).start(),
}


@pytest.mark.parametrize("event", DOORS)
def test_what_leaves_a_row_function_beside_its_result_is_refused_before_it_happens(event: str, tmp_path: Path) -> None:
    path = tmp_path / "seen"
    with pytest.raises(NotPure, match=rf"A row function of release 'sum' .* \({event}.*\)") as caught:
        asked(lambda chunk: DOORS[event](path))
    assert SECRET not in str(caught.value)
    assert str(path) not in str(caught.value)
    assert not path.exists()
    assert "DPBENCH_SEEN" not in os.environ


@pytest.mark.parametrize("save", [np.save, np.savetxt, lambda path, x: x.tofile(path)])
def test_a_librarys_ways_to_a_file_are_refused_too(save: Callable[[Path, Any], object], tmp_path: Path) -> None:
    with pytest.raises(NotPure, match="opened a file"):
        asked(lambda chunk: save(tmp_path / "x", chunk.x.numpy()))
    assert not [*tmp_path.iterdir()]


def test_a_refusal_that_a_row_function_catches_is_final_all_the_same(tmp_path: Path) -> None:
    curator = curator_over(private_rows(), PLAN)

    def caught(chunk: Chunk) -> None:
        with contextlib.suppress(Exception):
            (tmp_path / "seen").write_text(SECRET)

    with pytest.raises(NotPure, match="opened a file"):
        asked(caught, curator)
    with pytest.raises(NotPure, match="opened a file"):
        asked(lambda chunk: None, curator)
    with pytest.raises(NotPure, match="opened a file"):
        curator.guard.raise_earlier_refusal()


def test_a_map_and_a_teacher_are_in_a_quiet_room_too(tmp_path: Path) -> None:
    def teacher(shard: Chunk, queries: Tensor) -> Tensor:
        np.save(tmp_path / "seen", shard.x.numpy())
        return torch.zeros(len(queries), dtype=torch.int64)

    def transform(x: Tensor) -> Tensor:
        os.putenv("DPBENCH_SEEN", str(len(x)))
        return x

    curator = curator_over(private_rows(), [Release("votes")])
    with pytest.raises(NotPure, match="A teacher of release 'votes' opened a file"):
        curator.noisy_votes(teacher, torch.zeros(2, 5), release="votes", shards=4)
    with pytest.raises(NotPure, match=r"A transform given to map set a variable of the environment"):
        curator_over(private_rows(), PLAN).map(transform)


def test_modules_may_be_imported_and_null_written_to() -> None:
    def imports(chunk: Chunk) -> None:
        sys.modules.pop("xmlrpc.client", None)
        import xmlrpc.client

        assert xmlrpc.client
        with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
            print(SECRET)

    asked(imports)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_teacher_of_scikit_learn_counts_processors_and_sets_threads() -> None:
    def teacher(shard: Chunk, queries: Tensor) -> Tensor:
        found = KMeans(2, n_init=1, random_state=0).fit(shard.x.numpy().astype(np.float64))
        return torch.from_numpy(found.predict(queries.double().numpy())).long()

    curator = curator_over(private_rows(), [Release("votes")])
    assert curator.noisy_votes(teacher, torch.zeros(2, 5), release="votes", shards=3).shape == (2, 3)


def test_another_threads_files_are_its_own(tmp_path: Path) -> None:
    begun, over = threading.Event(), threading.Event()

    def writes() -> None:
        begun.wait()
        (tmp_path / "own").write_text("progress")
        over.set()

    other = threading.Thread(target=writes)
    other.start()
    call_quietly(lambda _: meet(begun, over), None, "A row function")
    other.join()
    assert (tmp_path / "own").read_text() == "progress"


def test_whoever_may_read_files_may_not_write_them(tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(b"pixels")
    read = lambda path: (path.read_bytes(), [*path.parent.iterdir()])
    assert call_quietly(read, tmp_path / "image", "Reading a record", reads=True)[0] == b"pixels"
    with pytest.raises(NotPure, match=r"Reading a record opened a file \(open\)"):
        call_quietly(lambda path: path.write_bytes(b""), tmp_path / "image", "Reading a record", reads=True)
    with pytest.raises(NotPure, match="Preparing an image opened a file"):
        call_quietly(read, tmp_path / "image", "Preparing an image")
    assert (tmp_path / "image").read_bytes() == b"pixels"


class TestOutput:
    """What is printed, warned of and logged."""

    @pytest.fixture(autouse=True)
    def fresh(self) -> None:
        quiet_room._report_withheld_output.cache_clear()

    @pytest.mark.filterwarnings("default")
    def test_nothing_of_it_is_seen_whatever_road_it_takes(
        self, capfd: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        kept, log = os.fdopen(2, "w", closefd=False), logging.getLogger("a plugin")
        log.addHandler(handler := logging.FileHandler(tmp_path / "log"))

        def says(rows: object) -> None:
            print(SECRET)
            print(SECRET, file=sys.stderr, flush=True)
            sys.stdout.buffer.write(SECRET.encode())
            sys.stdout.writelines([SECRET])
            print(SECRET, file=kept, flush=True)
            print(SECRET, file=sys.__stdout__)
            os.write(2, SECRET.encode())
            warnings.warn(SECRET, stacklevel=1)
            log.error(SECRET)

        with warnings.catch_warnings(record=True) as recorded:
            for _ in range(3):
                call_quietly(says, private_rows(), "A row function")
        handler.close()
        kept.close()
        log.removeHandler(handler)
        shown = capfd.readouterr()
        assert shown.out == ""
        assert shown.err.count("dpbench: Output that a plugin printed, warned or logged") == 1
        assert len(shown.err.splitlines()) == 1
        assert not recorded
        assert (tmp_path / "log").read_text() == ""

    def test_a_row_function_may_log_with_a_logger_of_its_own(self, caplog: pytest.LogCaptureFixture) -> None:
        log = logging.getLogger("a learner")
        asked(lambda chunk: log.error(SECRET))
        assert SECRET not in caplog.text

    def test_what_was_said_before_and_after_is_seen(self, capfd: pytest.CaptureFixture[str]) -> None:
        print("before", end=" ")
        asked(lambda chunk: print(SECRET))
        print("after")
        assert capfd.readouterr().out == "before after\n"

    def test_a_stream_that_a_row_function_puts_in_place_is_taken_away_again(self) -> None:
        own = sys.stdout

        def replaces(chunk: Chunk) -> None:
            sys.stdout = io.StringIO()

        asked(replaces)
        assert sys.stdout is own

    def test_a_stand_in_that_somebody_kept_writes_to_no_number_that_a_file_reuses(self, tmp_path: Path) -> None:
        kept: list[Any] = []
        call_quietly(lambda _: kept.append(sys.stderr), None, "a test")
        with (tmp_path / "other").open("w") as other:
            held = [os.dup(other.fileno()) for _ in range(8)]
            print(SECRET, file=kept[0])
            for number in held:
                os.close(number)
        assert SECRET not in (tmp_path / "other").read_text()

    def test_another_threads_words_are_seen(self, capfd: pytest.CaptureFixture[str]) -> None:
        begun, over = threading.Event(), threading.Event()

        def says() -> None:
            begun.wait()
            print("progress", file=sys.stderr)
            logging.getLogger("progress").warning("goes on")
            over.set()

        other = threading.Thread(target=says)
        other.start()
        call_quietly(lambda _: meet(begun, over), None, "A row function")
        other.join()
        shown = capfd.readouterr()
        assert "progress\n" in shown.err
        assert SECRET not in shown.out + shown.err

    def test_for_debugging_it_is_let_through(
        self, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("DPBENCH_DEBUG", "1")
        asked(lambda chunk: print(SECRET))
        assert SECRET in capfd.readouterr().out
        with pytest.raises(NotPure):
            asked(lambda chunk: (tmp_path / "seen").write_text(SECRET))


class TestState:
    """Memory that lies in C, or in a library's module."""

    def test_what_ctypes_made_is_refused_unread(self) -> None:
        kept, libc = (ctypes.c_double * 1)(), ctypes.CDLL(None)

        def keeps(chunk: Chunk) -> None:
            kept[0] = float(chunk.x.norm())

        with pytest.raises(NotPure, match=r"closure variable `kept` .*is a c_double_Array_1, whose state cannot be"):
            asked(keeps)
        with pytest.raises(NotPure, match=r"closure variable `libc` .*is a CDLL, whose state cannot be compared"):
            asked(lambda chunk: libc.srand(int(chunk.y.sum())))

    @pytest.mark.parametrize("before", [None, 0.0])
    def test_an_attribute_of_a_librarys_module(self, before: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch, "seen", before, raising=False)
        monkeypatch.setattr(torch.nn.functional, "seen", [], raising=False)

        def assigns(chunk: Chunk) -> None:
            torch.seen = float(chunk.x.norm())  # type: ignore[attr-defined]

        def fills(chunk: Chunk) -> None:
            torch.nn.functional.seen.append(chunk.x.norm())  # type: ignore[attr-defined]

        def sets(chunk: Chunk) -> None:
            setattr(torch.nn.Linear, "seen", float(chunk.x.norm()))  # noqa: B010

        monkeypatch.setattr(torch.nn.Linear, "seen", before, raising=False)
        with pytest.raises(NotPure, match="attribute `seen` of module `Linear`"):
            asked(sets)
        with pytest.raises(NotPure, match="attribute `seen` of module `torch`"):
            asked(assigns)
        with pytest.raises(NotPure, match=r"attribute `seen` of module `torch.nn.functional` \(list, had 0"):
            asked(fills)

    @pytest.mark.parametrize(
        ("sets", "undo", "said"),
        [
            (lambda: np.seterr(over="raise"), lambda: np.seterr(over="warn"), "numpy's error handling"),
            (lambda: np.set_printoptions(3), lambda: np.set_printoptions(8), "numpy's print options"),
            (
                lambda: sys.setrecursionlimit(sys.getrecursionlimit() + 1),
                lambda: sys.setrecursionlimit(sys.getrecursionlimit() - 1),
                "Python's recursion limit",
            ),
        ],
    )
    def test_a_setting_of_a_library(self, sets: Callable[[], object], undo: Callable[[], object], said: str) -> None:
        try:
            with pytest.raises(NotPure, match=f"changed what it reaches: {said} .changed in place"):
                asked(lambda chunk: sets())
        finally:
            undo()
