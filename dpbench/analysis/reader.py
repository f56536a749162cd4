"""Read results from files and folders; only the newest result of each spec counts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpbench.errors import DataError
from dpbench.records.packed import get_modification_time, list_records, read_packed_record, read_record
from dpbench.records.result import Result
from dpbench.records.storage import validate_record
from dpbench.support.untrusted import parse_json


@dataclass(frozen=True)
class StoredResult:
    """A result and its file."""

    file: Path
    result: Result


def read_results(paths: Sequence[Path]) -> tuple[list[StoredResult], list[str]]:
    """Return the results in files and below folders, and for each unreadable file the reason.

    JSON files that are not results are skipped. If a spec has several results, the newest file counts.

    Raises:
        DataError: a path does not exist, or no path holds a result.
    """
    found: dict[str, StoredResult] = {}
    damaged: list[str] = []
    times: list[tuple[int, Path]] = []
    for file in _find_files(paths):
        try:
            times.append((get_modification_time(file), file))
        except OSError as error:
            if os.path.lexists(file):  # a link to nothing; what is gone by now was a sweep's to remove
                damaged.append(f"Cannot read {file}: {error.strerror}.")
    for _, file in sorted(times):
        try:
            content = _read_json_content(file)
            if file in paths or _is_result_record(content):
                result = validate_record(Result, content, file)
                found[result.digest] = StoredResult(file, result)
        except DataError as error:
            damaged.append(str(error))
    if not found:
        where = " or ".join(map(str, paths))
        why = f" {damaged[0]}" if damaged else " dpbench run and dpbench sweep write them."
        raise DataError(f"Expected results in {where}, found none.{why}")
    return sorted(found.values(), key=lambda filed: str(filed.file)), damaged


def read_related_results(stored: StoredResult) -> list[Result]:
    """Return the results below a result's folder whose file names start with the same learner and dataset.

    Files that cannot be read are skipped.
    """
    spec, found = stored.result.spec, list[Result]()
    for file in list_records(stored.file.parent):
        if file.name.startswith(f"{spec.learner.name}-{spec.dataset.name}-"):
            with suppress(DataError, OSError):
                found.append(Result.read(file))
    return found


def _find_files(paths: Sequence[Path]) -> Iterator[Path]:
    for place in paths:
        if not place.exists() and read_packed_record(place) is None:
            raise DataError(f"Expected a folder of results or a result file, got {place}, which does not exist.")
        yield from list_records(place) if place.is_dir() else [place]


def _read_json_content(file: Path) -> Any:
    try:
        return parse_json(read_record(file), file)
    except OSError as error:
        raise DataError(f"Cannot read {file}: {error.strerror}.") from error


def _is_result_record(content: Any) -> bool:
    return isinstance(content, dict) and content.keys() >= {"spec", "privacy", "seeds"}
