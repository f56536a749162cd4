"""Detect the kind of a file, from its ending or from its keys."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dpbench.errors import DataError
from dpbench.receipts.receipt import MAX_FILE_BYTES
from dpbench.records.packed import list_records, read_packed_record
from dpbench.support.files import MODEL_ENDINGS
from dpbench.support.untrusted import read_regular_file

DocumentKind = Literal["model", "receipt", "result", "attack", "audit", "rerun", "challenge"]
KEYS: dict[DocumentKind, frozenset[str]] = {
    "receipt": frozenset({"training"}),
    "result": frozenset({"spec", "privacy", "seeds"}),
    "attack": frozenset({"shadows", "tests"}),
    "audit": frozenset({"figures", "plan"}),
    "rerun": frozenset({"tolerance", "seeds"}),
    "challenge": frozenset({"commit", "seeds"}),
}
"""The keys that a JSON file of each kind must have; kinds are tried in this order."""
KIND_WORDS: dict[DocumentKind, str] = {
    "model": "a model", "receipt": "a receipt", "result": "a result", "attack": "an attack on released models",
    "audit": "an audit", "rerun": "a re-run", "challenge": "challenge seeds",
}  # fmt: skip
EXPECTED = "a result, a model, a receipt, the record of an audit, attack or re-run, or a folder of them"


@dataclass(frozen=True)
class Document:
    """A file and its kind. The check for this kind reads the file again, within the limits of the kind."""

    file: Path
    kind: DocumentKind


def read_document(file: Path) -> Document:
    """Read a file, packed or not, and detect its kind.

    Raises:
        DataError: the file cannot be read, or states nothing that dpbench can verify.
    """
    if is_model_file(file):
        return Document(file, "model")
    kind = _detect_json_kind(file)
    if kind is None:
        raise DataError(f"Expected {EXPECTED}, got {file}, which is none of these.")
    return Document(file, kind)


def expand_folders(files: Sequence[Path]) -> Iterator[Path]:
    """Yield each file and, for each folder, the models and records in it that can be verified.

    Raises:
        DataError: a folder has no such file, or an archive in it is malformed.
    """
    for place in files:
        if not place.is_dir():
            yield place
            continue
        found = [*filter(_is_verifiable, list_records(place))]
        found += sorted(filter(is_model_file, place.rglob("*")))
        if not found:
            raise DataError(f"Expected {EXPECTED}, got {place}, which has none of these files.")
        yield from found


def is_model_file(file: Path) -> bool:
    """Return whether a file's ending is that of a model."""
    return file.name.endswith((*MODEL_ENDINGS.values(),))


def _is_verifiable(file: Path) -> bool:
    """Return whether a JSON file can be verified; True for a damaged file, because its check reports the damage."""
    try:
        return _detect_json_kind(file) is not None
    except DataError:
        return True


def _detect_json_kind(file: Path) -> DocumentKind | None:
    """Return the kind of a JSON file; None if its keys belong to no kind.

    Raises:
        DataError: the file cannot be read, or is not JSON.
    """
    try:
        content = json.loads(_read_bytes(file))
    except OSError as error:
        raise DataError(f"Cannot read {file}: {error.strerror}. Expected {EXPECTED}.") from error
    except (ValueError, RecursionError) as error:
        said = "it is nested too deeply" if isinstance(error, RecursionError) else f"it is not JSON ({error})"
        raise DataError(f"Expected {EXPECTED}, got {file}: {said}.") from None
    keys = content.keys() if isinstance(content, dict) else frozenset[str]()
    return next((kind for kind, needed in KEYS.items() if needed <= keys), None)


def _read_bytes(file: Path) -> bytes:
    try:
        return read_regular_file(file, MAX_FILE_BYTES)
    except FileNotFoundError:
        packed = read_packed_record(file)
        if packed is None:
            raise
        return packed
