"""Write records as JSON files atomically, and read and validate them, packed or not. No torch here."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ValidationError

from dpbench.errors import DataError, MalformedFile, SpecError
from dpbench.records.checksums import compute_seal
from dpbench.records.packed import read_record
from dpbench.records.schema1 import upgrade_to_current_schema
from dpbench.support.files import write_atomically, write_json
from dpbench.support.untrusted import parse_json
from dpbench.support.validation import Record, first_schema_violation

Kind = TypeVar("Kind", bound=BaseModel)

NOT_PRIVATE = "not-private"
"""The subfolder of the results folder for files that were computed on private data without noise."""
_WARNING_TEXT = (
    "The files in this folder were computed on private data without noise. No guarantee of differential privacy covers "
    "them: keep them where the private data may be seen, and do not publish them.\n"
)


def write_record(record: BaseModel, file: Path) -> Path:
    """Write a record into `file` atomically and return the file; infinity is spelled in valid JSON.

    Raises:
        OutputError: the file cannot be written.
    """
    write_json(file, json.loads(record.model_dump_json()))
    return file


def make_not_private_folder(folder: Path) -> Path:
    """Create `folder/not-private` for records without a guarantee, with a warning file in it, and return it.

    Raises:
        OutputError: the folder cannot be written.
    """
    apart = folder / NOT_PRIVATE
    write_atomically(apart / "NOT-PRIVATE.txt", lambda file: file.write(_WARNING_TEXT.encode()))
    return apart


def read_validated_record(kind: type[Kind], file: Path) -> Kind:
    """Read a record from a file and check it against its schema.

    Raises:
        DataError: the file cannot be read, or does not fit the schema; the message names it and the first wrong field.
    """
    try:
        return validate_record(kind, parse_json(read_record(file), file), file)
    except OSError as error:
        raise DataError(f"Cannot read {_describe_kind(kind)} {file}: {error.strerror}.") from error


def validate_record(kind: type[Kind], content: Any, source: object) -> Kind:
    """Convert JSON of any schema version to a validated record of the current one; `source` names it in messages.

    Raises:
        DataError: a field does not fit; the message names the source and the field.
    """
    try:
        return kind.model_validate(upgrade_to_current_schema(content, kind))
    except (ValidationError, MalformedFile) as error:
        wrong = first_schema_violation(error) if isinstance(error, ValidationError) else error
        raise DataError(f"{_describe_kind(kind).capitalize()} {source} does not fit the schema at {wrong}.") from error
    except SpecError as error:  # of a component's text, which is read as a flag is
        raise DataError(f"{_describe_kind(kind).capitalize()} {source} does not fit the schema: {error}") from error


def _describe_kind(kind: type[BaseModel]) -> str:
    """Return the words of a class's name: `released attack` for `ReleasedModelAttack`."""
    return re.sub("(?<=[a-z])(?=[A-Z])", " ", kind.__name__).lower()


class SealedRecord(Record):
    """The base class of records with a field `seal`: a digest of the whole record, as it was written."""

    def write_to(self, file: Path) -> Path:
        """Write the sealed record into `file`, atomically, and return the file.

        Raises:
            OutputError: the file cannot be written.
        """
        content = json.loads(self.model_dump_json())
        write_json(file, {**content, "seal": compute_seal(content)})
        return file

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a record and check it against the schema.

        Raises:
            DataError: the file cannot be read, or does not fit the schema; the message names it and the first wrong
                field.
        """
        return read_validated_record(cls, file)
