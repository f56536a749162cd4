"""The seeds of a run that was interrupted: kept as they end, and taken up by the same run."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dpbench.records.result import SeedResult


@dataclass(frozen=True)
class Unfinished:
    """A folder of results, where each run under way has a file, a line a seed: `unfinished/<name>l`."""

    folder: Path

    def seeds(self, name: str, identity: str) -> dict[int, SeedResult]:
        """Return the seeds of a run that ended in an earlier call, by seed.

        Args:
            name: of the result's file.
            identity: of the fit, code included: seeds of another are not taken.
        """
        found = {}
        with suppress(OSError):
            for line in self._file(name).read_text(encoding="utf-8").splitlines():
                with suppress(ValueError, KeyError, TypeError):  # a line that was cut off
                    content = json.loads(line)
                    if content["identity"] == identity:
                        one = SeedResult.model_validate(content["seed"])
                        found[one.seed] = one
        return found

    def keep(self, name: str, identity: str, one: SeedResult) -> None:
        """Add a seed. A run does not end because it cannot be kept."""
        line = json.dumps({"identity": identity, "seed": json.loads(one.model_dump_json())})
        with suppress(OSError):
            self._file(name).parent.mkdir(parents=True, exist_ok=True)
            with self._file(name).open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")

    def end(self, name: str) -> None:
        """Forget a run: its result has all seeds."""
        with suppress(OSError):
            self._file(name).unlink(missing_ok=True)
            self._file(name).parent.rmdir()

    def _file(self, name: str) -> Path:
        return self.folder / "unfinished" / f"{name}l"  # .jsonl: no result
