"""Records as files: each is one JSON file, written atomically and read against its schema. No torch here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from dpbench.errors import DataError
from dpbench.support.files import write_json
from dpbench.support.validation import misfit

Record = TypeVar("Record", bound=BaseModel)


def write(record: BaseModel, file: Path) -> Path:
    """Write a record into `file`, atomically, and return it; infinity is spelled as JSON can.

    Raises:
        OutputError: it cannot be written.
    """
    write_json(file, json.loads(record.model_dump_json()))
    return file


def read(kind: type[Record], file: Path) -> Record:
    """Read a record and check it against its schema.

    Raises:
        DataError: names the file and the first field that does not fit.
    """
    try:
        return kind.model_validate_json(file.read_bytes())
    except OSError as error:
        raise DataError(f"Cannot read {kind.__name__.lower()} {file}: {error.strerror}.") from error
    except ValidationError as error:
        raise DataError(f"{kind.__name__} {file} does not fit the schema at {misfit(error)}.") from error
