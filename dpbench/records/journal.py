"""The journal of a run: it keeps finished seeds, and an interrupted run continues from them."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dpbench.errors import DataError
from dpbench.records.result import SeedResult
from dpbench.records.schema1 import upgrade
from dpbench.support.files import open_to_append
from dpbench.support.untrusted import read_regular

MAX_BYTES = 1_000_000_000  # bytes: it is this machine's own, and what ended is not to be lost


@dataclass(frozen=True)
class RunJournal:
    """The file of a run under way, with a line per seed.

    Args:
        file: where it is.
        identity: of the fit, code included: seeds of another are not taken.
    """

    file: Path
    identity: str

    def seeds(self) -> dict[int, SeedResult]:
        """Return the seeds that an earlier call finished, by seed."""
        found = {}
        with suppress(OSError, DataError):
            for line in read_regular(self.file, MAX_BYTES).decode(errors="replace").splitlines():
                with suppress(ValueError, KeyError, TypeError, RecursionError, DataError):  # a line that was cut off
                    content = json.loads(line)
                    if content["identity"] == self.identity:
                        seed = SeedResult.model_validate(upgrade(content["seed"], SeedResult))
                        found[seed.seed] = seed
        return found

    def keep(self, result: SeedResult) -> None:
        """Append a seed. The run goes on even if the seed cannot be kept."""
        line = json.dumps({"identity": self.identity, "seed": json.loads(result.model_dump_json())})
        with suppress(OSError):
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with open_to_append(self.file) as file:
                file.write(f"\n{line}\n")  # a line that was cut off before does not take this one with it


@dataclass(frozen=True)
class Journal:
    """A folder of results, with a file for each run under way: `unfinished/<name>l`."""

    folder: Path

    def of(self, name: str, identity: str) -> RunJournal:
        """Return the journal of the run whose result has this name."""
        return RunJournal(self._file(name), identity)

    def end(self, name: str) -> None:
        """Delete the journal of a run whose result has all seeds."""
        with suppress(OSError):
            self._file(name).unlink(missing_ok=True)
            self._file(name).parent.rmdir()

    def _file(self, name: str) -> Path:
        return self.folder / "unfinished" / f"{name}l"  # .jsonl: no result
