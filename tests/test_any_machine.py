"""A clone is green on any machine: last bits, threads, locale, time zone and hash seed change nothing that is said."""

from __future__ import annotations

import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dpbench import registry
from dpbench.board.build import build_index
from dpbench.board.index import Index
from dpbench.records.packed import list_records, read_record
from tests.helpers import boards, readme

GIVEN = {"spec", "space", "chosen", "setting", "repeats", "delta", "sample_rate", "relative_noise", "provenance"}
"""What somebody asked for, or planned, is text in another form: it comes out of no library."""


def nudged(value: Any, chance: random.Random) -> Any:
    """Return a result's JSON, every number that was computed changed in its last bits, up or down."""
    if isinstance(value, dict):
        return {key: part if key in GIVEN else nudged(part, chance) for key, part in value.items()}
    if isinstance(value, list):
        return [nudged(part, chance) for part in value]
    if not isinstance(value, float) or value == 0:  # no noise, no right answer: exact everywhere
        return value
    away = 0 if value == 1 else chance.choice((-math.inf, math.inf))  # a share stays a share
    return math.nextafter(math.nextafter(value, away), away)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return Path(shutil.copytree(readme.LEADERBOARD, tmp_path / "leaderboard"))


def standings(index: Index) -> dict[str, list[tuple[str, int | None, str]]]:
    return {
        standing.board.name: [(entry.id, entry.rank, entry.role) for entry in standing.entries]
        for standing in index.standings
    }


@pytest.mark.long
def test_the_last_bits_of_all_that_was_computed_change_no_verdict_and_no_rank(copied: Path) -> None:
    shutil.rmtree(copied / "audits")  # an audit is of a result as it was written, to the last bit
    chance = random.Random(0)
    changed = 0
    for file in list_records(copied / "results"):
        before = json.loads(read_record(file))
        after = boards.resealed(nudged(before, chance))
        changed += after["evidence_digest"] != before["evidence_digest"]
        file.write_text(json.dumps(after), encoding="utf-8")
    assert changed > 190
    assert standings(build_index(copied, registry.load())) == standings(readme.index())


OTHERWISE = {
    "OMP_NUM_THREADS": "3",
    "MKL_NUM_THREADS": "3",
    "LC_ALL": "C",
    "PYTHONCOERCECLOCALE": "0",
    "PYTHONUTF8": "0",  # files are ASCII unless somebody says otherwise
    "TZ": "Pacific/Kiritimati",
    "PYTHONHASHSEED": "12345",
}
PROGRAM = """
import sys, torch
from dpbench.cli import main
torch.set_num_threads(3)
main(["leaderboard", "build", "--no-site", "--root", sys.argv[1]])
"""


@pytest.mark.slow
def test_every_committed_result_passes_every_check_and_any_other_process_makes_the_same_leaderboard_of_them(
    copied: Path,
) -> None:
    for name in ("leaderboard.json", "schema.json"):
        with (copied / name).open("ab") as file:
            file.write(b"\n")  # so that it has to be written; what it says of boards is read
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(copied)],
        env={**os.environ, **OTHERWISE}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(re.findall(r"(\d+) results on", done.stdout)[0]) >= 100
    for name in ("leaderboard.json", "schema.json"):
        assert (copied / name).read_bytes() == (readme.LEADERBOARD / name).read_bytes()


@pytest.mark.slow
def test_a_terminal_that_lacks_a_letter_shows_its_number() -> None:
    program = "from dpbench.cli import main; main(['list', 'extractors'])"
    environment = {**os.environ, **OTHERWISE, "COLUMNS": "200"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"Tram\\xe8r" in done.stdout and done.stdout.isascii()
