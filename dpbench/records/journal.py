"""The journal of a run, which stores finished seeds so that an interrupted run can continue."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dpbench.errors import DataError
from dpbench.records.result import SeedResult
from dpbench.records.schema1 import upgrade_to_current_schema
from dpbench.support.files import open_append_file
from dpbench.support.untrusted import read_regular_file

MAX_BYTES = 1_000_000_000  # bytes: it is this machine's own, and what ended is not to be lost


@dataclass(frozen=True)
class RunJournal:
    """The journal file of an unfinished run, with a line per finished seed.

    Args:
        file: the path of the file.
        identity: the identity of the fit, including its code; seeds with another identity are ignored.
    """

    file: Path
    identity: str

    def seeds(self) -> dict[int, SeedResult]:
        """Return the seeds that earlier calls finished, by seed number."""
        found = {}
        with suppress(OSError, DataError):
            for line in read_regular_file(self.file, MAX_BYTES).decode(errors="replace").splitlines():
                with suppress(ValueError, KeyError, TypeError, RecursionError, DataError):  # a line that was cut off
                    content = json.loads(line)
                    if content["identity"] == self.identity:
                        seed = SeedResult.model_validate(upgrade_to_current_schema(content["seed"], SeedResult))
                        found[seed.seed] = seed
        return found

    def keep(self, result: SeedResult) -> None:
        """Append a finished seed to the file; if the file cannot be written, the run continues without it."""
        line = json.dumps({"identity": self.identity, "seed": json.loads(result.model_dump_json())})
        with suppress(OSError):
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with open_append_file(self.file) as file:
                file.write(f"\n{line}\n")  # a line that was cut off before does not take this one with it


@dataclass(frozen=True)
class RunJournalFolder:
    """The journals of a results folder, a file for each unfinished run.

    The journal of result `x.json` is `unfinished/x.jsonl`.
    """

    folder: Path

    def open_run(self, name: str, identity: str) -> RunJournal:
        """Return the journal of an unfinished run, given the name of its future result."""
        return RunJournal(self._file(name), identity)

    def delete(self, name: str) -> None:
        """Delete the journal of a finished run."""
        with suppress(OSError):
            self._file(name).unlink(missing_ok=True)
            self._file(name).parent.rmdir()

    def _file(self, name: str) -> Path:
        return self.folder / "unfinished" / f"{name}l"  # .jsonl: no result
