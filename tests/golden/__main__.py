"""Write the golden files: `python -m tests.golden`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.golden import help_texts, transcript

argparse.ArgumentParser(prog="python -m tests.golden", description="Write the golden files.").parse_args()
for file in help_texts.FOLDER.glob("*.txt"):
    file.unlink()
for name, text in help_texts.help_texts().items():
    (help_texts.FOLDER / f"{name}.txt").write_text(text, encoding="utf-8")
for kept, say in ((transcript.REFUSALS, transcript.refusals), (transcript.COMMANDS, transcript.commands)):
    with TemporaryDirectory() as folder, TemporaryDirectory() as cache:
        os.environ["DPBENCH_CACHE"] = cache
        kept.write_text(say(Path(folder)), encoding="utf-8")
