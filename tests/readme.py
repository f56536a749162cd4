"""The README, cut into the parts that tests run."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text()


def commands() -> list[str]:
    """Return every command of every console block, in order."""
    blocks = re.findall(r"^```console\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def file_named(name: str) -> str:
    """Return the code block that follows a line naming the file."""
    found = re.search(rf"^`{re.escape(name)}`:\n\n```\w+\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    assert found, f"README shows no file {name}"
    return found.group(1)
