"""Ctrl-C, sent to real processes: one line and exit code 130, whatever they were doing; and `python -m dpbench`.

From its first line on, dpbench decides what Ctrl-C does; before it, while Python itself starts, nobody can.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import dpbench

RUN = ("run", "--learner", "pillar", "--dataset", "digits", "--seeds", "300")  # longer than any test waits
HOOK = """
import os, sys

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["WATCHED"]:
            {action}

sys.meta_path.insert(0, Watch())
"""
"""A `sitecustomize.py`, which Python runs as it starts: it acts as a module is looked for."""
INTERRUPT = "os.kill(os.getpid(), 2)"
MARK = 'open(os.environ["MARK"], "w").close()'
OURS = "dpbench.cli.program"  # the first module that is imported after dpbench listens


def started(folder: Path, watched: str, action: str) -> subprocess.Popen[str]:
    (folder / "sitecustomize.py").write_text(HOOK.format(action=action), encoding="utf-8")
    paths = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        [sys.executable, "-m", "dpbench", *RUN], cwd=folder, text=True, start_new_session=True,
        env={**os.environ, "PYTHONPATH": paths, "WATCHED": watched, "MARK": str(folder / "mark")},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def check_interrupted(code: int, err: str) -> None:
    assert err.startswith("dpbench: Interrupted. ") and err.endswith("\n") and err.count("\n") == 1, err
    assert code == 130


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "dpbench", "--version"], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"dpbench {dpbench.__version__}\n", "")


def test_dpbench_listens_before_it_imports_anything_heavy() -> None:
    code = (
        "import sys; from dpbench.main import main; print(*{'typing', 'pydantic', 'numpy', 'typer'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": str(Path(dpbench.__file__).parent.parent)})  # fmt: skip
    assert done.stdout == "\n"


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "module",
    [
        OURS, "torch",
        *(pytest.param(name, marks=pytest.mark.slow) for name in (
            "pydantic", "typer", "numpy", "numpy.random", "dpbench.cli.run", "torch._C",
            "dpbench_plugins.learners.pillar", "dp_accounting",
        )),
    ],
)  # fmt: skip
def test_an_interruption_while_a_module_is_imported_is_one_line(module: str, tmp_path: Path) -> None:
    process = started(tmp_path, module, INTERRUPT)
    check_interrupted(process.wait(100), process.communicate()[1])


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "seconds",
    [0.1, 0.6, *(pytest.param(n / 20, marks=pytest.mark.slow) for n in range(41) if n not in {2, 12})],
)
def test_an_interruption_at_any_moment_is_one_line(seconds: float, tmp_path: Path) -> None:
    process = started(tmp_path, OURS, MARK)
    while not (tmp_path / "mark").exists() and process.poll() is None:
        time.sleep(0.005)
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGINT)  # the whole group, as a terminal does
    _, err = process.communicate(timeout=100)
    check_interrupted(process.returncode, err)


MOMENTS = {
    "in a destructor, where Python would lose it": """
class Destroyed:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
with interrupt.raise_on_interrupt():
    Destroyed()
    time.sleep(60)
""",
    "twice, the second time after the line": """
with interrupt.raise_on_interrupt():
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        interrupt.print_interrupted("Once.")
        signal.raise_signal(signal.SIGINT)
        time.sleep(60)
""",
    "while Python ends": """
import atexit
from dpbench.cli import main
atexit.register(signal.raise_signal, signal.SIGINT)
sys.argv = ["dpbench", "--version"]
main()
""",
    "in an import that turns it into another error": """
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "absent":
            try:
                signal.raise_signal(signal.SIGINT)
            except BaseException:
                raise ImportError("it failed to import") from None
sys.meta_path.insert(0, Finder())
with interrupt.raise_on_interrupt():
    import absent
""",
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("moment", MOMENTS)
def test_an_interruption_that_python_would_not_report_well_is_one_line(moment: str, tmp_path: Path) -> None:
    begin = "import signal, sys, time\nfrom dpbench.cli import interrupt\ninterrupt.install_handler()\n"
    code = f"{begin}{MOMENTS[moment]}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False,
                          cwd=tmp_path)  # fmt: skip
    check_interrupted(done.returncode, done.stderr)


def test_what_was_printed_before_python_ends_is_not_lost_to_an_interruption(tmp_path: Path) -> None:
    code = f"import signal, sys\n{MOMENTS['while Python ends']}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False,
                          cwd=tmp_path)  # fmt: skip
    assert done.stdout == f"dpbench {dpbench.__version__}\n"


def test_a_process_that_is_to_ignore_interruptions_ignores_them() -> None:
    code = """
import signal
from dpbench.cli import interrupt
signal.signal(signal.SIGINT, signal.SIG_IGN)
interrupt.install_handler()
with interrupt.raise_on_interrupt():
    signal.raise_signal(signal.SIGINT)
print("went on")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("went on\n", "", 0)


POOL = """
import time
from pathlib import Path
import typer
from dpbench.cli import interrupt
from dpbench.cli.output import exit_with_message_on_interrupt
from dpbench.support.processes import process_pool

if __name__ == "__main__":
    interrupt.install_handler()
    try:
        with interrupt.raise_on_interrupt(), exit_with_message_on_interrupt("Done."), process_pool(2) as pool:
            waiting = pool.map(time.sleep, [60] * 8)
            Path("mark").touch()
            list(waiting)
    except typer.Exit as ended:
        raise SystemExit(ended.exit_code) from None
"""


@pytest.mark.parametrize("seconds", [0.0, *(pytest.param(n / 10, marks=pytest.mark.slow) for n in range(1, 10))])
def test_workers_of_a_pool_that_is_interrupted_end_without_a_word(seconds: float, tmp_path: Path) -> None:
    (tmp_path / "pool.py").write_text(POOL, encoding="utf-8")
    process = subprocess.Popen([sys.executable, "pool.py"], cwd=tmp_path, text=True, start_new_session=True,
                               stderr=subprocess.PIPE)  # fmt: skip
    while not (tmp_path / "mark").exists() and process.poll() is None:
        time.sleep(0.005)
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=50)
    check_interrupted(process.returncode, err)
