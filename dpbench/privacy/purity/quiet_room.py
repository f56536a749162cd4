"""A quiet room: code that runs in it can open nothing, start nothing and print nothing.

Information that leaves a row function other than by its return value has no noise: through a file, the environment, a
socket, a program, a C library, a printed loss. Python's audit events announce most of these actions before they happen,
and the first such event ends the fit, even if the plugin catches the error. Output is withheld instead (`outlets`),
because third-party code prints and warns.

Covered, in the room's own thread: files and folders, the environment, sockets, programs, `ctypes`, memory maps, file
locks, `torch.save`, `os.write`, starting threads, `atexit`, `input`, tracing; and output to `sys.stdout`, `sys.stderr`,
descriptors 1 and 2, `warnings` and `logging`. Imports are allowed, including all that a module does on its first
import, and so are the internal actions of a few libraries (`INTERNAL_MODULES`). Not covered, because no audit event
announces these: use of sockets that are open already, files that C code opens itself (OpenCV, HDF5, Arrow, traces of
torch's profiler), text that C code keeps in its own buffer, writing to memory by address (`ctypes.memmove`), state that
an extension module keeps in C, threads that run already, and the duration of a call; also the fact that output was
withheld, which is reported once per process. With DPBENCH_DEBUG set, output is not withheld.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache
from types import FrameType
from typing import Any, TypeVar

from dpbench.errors import NotPure
from dpbench.privacy.purity.audit_events import JUDGE, judge_audit_events
from dpbench.privacy.purity.kinds import LIBRARIES
from dpbench.privacy.purity.outlets import DESCRIPTORS, OutputSilencer
from dpbench.support import progress
from dpbench.support.code import get_top_package
from dpbench.support.plugin_calls import DEBUG

A = TypeVar("A")
R = TypeVar("R")

USES = {
    "open": "opened a file", "os": "touched files or processes", "shutil": "moved files", "tempfile": "made a file",
    "glob": "listed files", "pathlib": "listed files", "mmap": "mapped a file", "fcntl": "locked a file",
    "sqlite3": "opened a database", "dbm": "opened a database", "socket": "used the network",
    "urllib": "used the network", "http": "used the network", "ftplib": "used the network",
    "smtplib": "used the network", "imaplib": "used the network", "poplib": "used the network",
    "subprocess": "started a program", "pty": "started a program", "webbrowser": "opened a browser",
    "ctypes": "called C", "syslog": "wrote to the system's log", "signal": "sent a signal",
    "resource": "set limits of the process", "winreg": "touched the registry", "msvcrt": "touched files",
    "builtins.input": "asked for input", "builtins.breakpoint": "stopped in a debugger", "os.putenv": "set a variable "
    "of the environment", "os.unsetenv": "set a variable of the environment", "sys.settrace": "traced code",
    "sys.setprofile": "traced code", "sys.addaudithook": "traced code", "torch.save": "saved a file",
    "atexit.register": "left something to do at the end of the process", "Thread.start": "started a thread",
}  # fmt: skip
"""How a refusal describes an event, by the event's name or the part of it before the first dot."""
READ_EVENTS = frozenset({
    "os.listdir", "os.scandir", "os.walk", "os.fwalk", "glob.glob", "glob.glob/2", "pathlib.Path.glob",
    "pathlib.Path.rglob", "os.getxattr", "os.listxattr", "mmap.__new__",
})  # fmt: skip
"""Events that code may cause if it is allowed to read files."""
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
IMPORT, HERE = "<frozen importlib", "dpbench.privacy.purity"
INTERNAL_MODULES = (
    IMPORT, "torch._dynamo", "torch._inductor", "torch._functorch", "torch.cuda", "triton", "threadpoolctl",
    "joblib.externals.loky",
)  # fmt: skip
"""Modules that are allowed to open files, programs and libraries: they compile code, or count processors."""
HELPING, HELPERS = frozenset({"Thread.start", "atexit.register"}), LIBRARIES | {"joblib"}
"""Events that some packages may cause, to start threads and to clean up at exit; and these packages."""
ADVICE = (
    "What it does beside its result has no noise. Open files, libraries and connections before asking, hand over what "
    "they hold as public values, and let nothing but contributions out."
)


class SideEffectBlocker:
    """Refuses audit events of one call that have a lasting effect, and records output and refusals."""

    def __init__(self, what: str, reads: bool) -> None:
        self._what, self._reads = what, reads
        self.spoke = False
        self.refused: str | None = None

    def judge(self, event: str, details: tuple[Any, ...]) -> None:
        """Refuse an event that has a lasting effect, unless it is allowed.

        Raises:
            NotPure: the event is refused. The message names the action, but not the event's arguments, which may be
                private values.
        """
        said = USES.get(event) or USES.get(event.partition(".")[0])
        if said is None or self._is_allowed(event, details):
            return
        asked = _find_caller(sys._getframe(2))
        if asked.startswith(INTERNAL_MODULES) or (event in HELPING and get_top_package(asked) in HELPERS):
            return
        self.refused = f"{self._what} {said} ({event}). {ADVICE}"
        raise NotPure(self.refused)

    def _is_allowed(self, event: str, details: tuple[Any, ...]) -> bool:
        if event == "builtins.breakpoint":
            return DEBUG in os.environ
        if event in {"os.write", "os.pwrite", "os.writev"}:
            return details[0] in DESCRIPTORS  # which lead nowhere
        if event == "open":
            path, _, flags = details
            code = str(path).endswith(".py")  # read to show a line of it
            return path == os.devnull or (not flags & WRITE_FLAGS and (self._reads or code))
        return self._reads and event in READ_EVENTS


def call_quietly(function: Callable[[A], R], argument: A, what: str, reads: bool = False) -> R:
    """Call a function in a quiet room; `what` names it in a refusal, and `reads` allows it to read files.

    Raises:
        NotPure: the function opened, started or reached something, even if it caught the error.
    """
    room, outlets = SideEffectBlocker(what, reads), None if DEBUG in os.environ else _get_output_silencer()
    if outlets:
        outlets.withhold_output()
    with judge_audit_events(room):
        try:
            found: R | None = function(argument)
        except Exception:
            if room.refused is None:
                raise
            found = None
        finally:
            if outlets:
                outlets.resume_output()
    if room.spoke:
        _report_withheld_output()
    if room.refused is not None:
        raise NotPure(room.refused)  # out here it carries no frame of the function, where private rows may lie
    return found  # type: ignore[return-value]


def _find_caller(frame: FrameType | None) -> str:
    """Return the innermost calling module outside Python's library; `IMPORT` for an import or a finaliser."""
    asked = ""
    while frame is not None and frame.f_code is not call_quietly.__code__:
        name, code = str(frame.f_globals.get("__name__")), frame.f_code
        if code.co_filename.startswith(IMPORT) or name == "importlib.metadata":
            return IMPORT
        if code.co_name == "__del__" or name == "weakref":  # whenever the collector runs
            return IMPORT
        if not asked and get_top_package(name) not in sys.stdlib_module_names and not name.startswith(HERE):
            asked = name
        frame = frame.f_back
    return asked


def _should_withhold_output() -> bool:
    """Return whether this thread is in a quiet room; if it is, record that it produced output there."""
    room = JUDGE.get()
    if isinstance(room, SideEffectBlocker):
        room.spoke = True
        return True
    return False


@cache
def _get_output_silencer() -> OutputSilencer:
    """Return the silencer of this process, which has only one standard output."""
    return OutputSilencer(_should_withhold_output, _judge_event)


def _judge_event(event: str, details: tuple[Any, ...]) -> None:
    room = JUDGE.get()
    if isinstance(room, SideEffectBlocker):
        room.judge(event, details)


@cache
def _report_withheld_output() -> None:
    progress.print_progress_line(
        "Output that a plugin printed, warned or logged while it held private rows is withheld, because it "
        "may tell private values. Add --debug to see it, where those may be seen."
    )
