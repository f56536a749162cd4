"""A tuning: the JSON file of a search for settings without a run. No torch here."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from dpbench.records import storage
from dpbench.records.result import ComponentOrigin
from dpbench.records.search import Selection, Trial
from dpbench.records.spec import Spec
from dpbench.support.validation import Record


class Tuning(Record):
    """A complete search for settings: its spec, trials and choice."""

    schema_version: Literal[1] = 1
    digest: str
    spec: Spec
    selection: Selection
    default: Trial | None  # what the settings that were not searched for score; None where nobody looked
    digests: dict[str, str]  # of the data behind the private and the public split
    sketch: str  # of the public images (`Hashes.sketch`)
    looks: str | None  # of the public images (`Hashes.looks`); None where nobody looked
    seconds: dict[str, float]
    components: dict[str, ComponentOrigin]
    provenance: dict[str, Any]

    def write(self, folder: Path) -> Path:
        """Write the tuning into `folder`, atomically, and return the file.

        Raises:
            OutputError: the folder cannot be written.
        """
        name = f"tuning-{self.spec.learner.name}-{self.spec.dataset.name}-{self.digest[:16]}.json"
        return storage.write_record(self, folder / name)

    @classmethod
    def read(cls, file: Path) -> Tuning:
        """Read a tuning and check it against the schema.

        Raises:
            DataError: the file cannot be read, or does not fit the schema; the message names it and the first wrong
                field.
        """
        return storage.read_validated_record(cls, file)
