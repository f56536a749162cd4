"""The help text of every command, as a terminal of 100 columns without colour shows it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent / "help"
COLUMNS = "100"
COLOURED = ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TTY_COMPATIBLE", "TERMINAL_WIDTH")
"""Variables by which typer and rich would draw colours, or another width, into a pipe."""
CODE = """
import contextlib, io, json
from dpbench.cli import main
from dpbench.main import load_root_command

def paths(command, words=()):
    yield words
    for name, sub in getattr(command, "commands", {}).items():
        yield from paths(sub, (*words, name))

texts = {}
for words in paths(load_root_command()):
    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
        main([*words, "--help"])
    texts["-".join(words) or "dpbench"] = shown.getvalue()
print(json.dumps(texts))
"""


def help_texts() -> dict[str, str]:
    """Return the text of `--help` by command, such as `leaderboard-build`; that of the program is `dpbench`."""
    kept = {name: value for name, value in os.environ.items() if name not in COLOURED}
    plain = {**kept, "COLUMNS": COLUMNS, "NO_COLOR": "1", "TERM": "dumb"}
    done = subprocess.run([sys.executable, "-c", CODE], env=plain, capture_output=True, text=True, check=True)
    texts: dict[str, str] = json.loads(done.stdout)
    return {name: "\n".join(line.rstrip() for line in text.strip("\n").split("\n")) + "\n"
            for name, text in texts.items()}  # fmt: skip
