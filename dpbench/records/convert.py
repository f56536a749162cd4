"""Convert folders of results from an earlier schema to the current schema without losing any result.

The new folder is written beside the old folder, every file in it is read back and compared, and only then both folders
are renamed. An interrupted call leaves one complete folder, and the next call starts again or finishes. Audits and
re-runs name a result by a digest of its file, so those below the same folder are updated to name the converted file.
All other files (tunings, logs, figures) are copied unchanged.
"""

from __future__ import annotations

import filecmp
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpbench.errors import DataError, OutputError, SpecError
from dpbench.records.checksums import compute_seal
from dpbench.records.packed import ARCHIVE, read_archive, write_archive
from dpbench.records.result import Result
from dpbench.records.schema1 import find_changed_value, upgrade_to_current_schema
from dpbench.records.storage import validate_record
from dpbench.support.files import write_atomically, write_json
from dpbench.support.folders import lock_folder
from dpbench.support.untrusted import parse_json, read_regular_file

CURRENT_SCHEMA = 2
RECORDS = ("reruns", "audits", "challenges", "released")
"""Folders of a leaderboard whose records name results."""


@dataclass(frozen=True)
class ResultConversion:
    """The outcome of a conversion: the folder, its number of results, and the old folder if it was kept."""

    folder: Path
    results: int  # in the folder
    converted: bool  # by this call; False: they had today's schema already
    kept: Path | None  # the old folder, where it is still there


def convert_results(folder: Path, *, delete_old: bool = False) -> ResultConversion:
    """Convert all results below a folder, packed or not; keep the old folder unless `delete_old` is set.

    Raises:
        SpecError: the folder does not exist, or has no results.
        DataError: it has results of two schemas, or an unreadable or changed result; nothing is changed then.
        OutputError: the new folder cannot be written, or differs from the old folder; nothing is changed then.
    """
    folder = folder.resolve()
    old, new = folder.with_name(f"{folder.name}.schema-1"), folder.with_name(f".{folder.name}.converting")
    beside = [name for name in RECORDS if folder.name == "results" and (folder.parent / name).is_dir()]
    if beside:
        raise SpecError(f"Convert {folder.parent}, not its results alone: the records in {beside[0]}/ name them.")
    try:
        with lock_folder(folder.parent):
            return _convert_folder(folder, old, new, delete_old=delete_old)
    except BlockingIOError as error:
        raise OutputError(f"Another process converts results in {folder.parent} at the moment. Wait for it.") from error
    except OSError as error:
        raise OutputError(f"Cannot convert {folder}: {error.strerror or error}. No result was lost.") from error


def _convert_folder(folder: Path, old: Path, new: Path, *, delete_old: bool) -> ResultConversion:
    if not folder.exists() and old.is_dir() and new.is_dir():  # both whole: cut off between the two renames
        new.rename(folder)
    count, version = _count_results(folder)
    if converted := version != CURRENT_SCHEMA:
        _replace_folder(folder, old, new, _map_converted_digests(folder))
    if delete_old and old.is_dir():
        check_converted_folder(old, folder, _map_converted_digests(old))
        shutil.rmtree(old)
    return ResultConversion(folder, count, converted, old if old.is_dir() else None)


def _count_results(folder: Path) -> tuple[int, int]:
    """Validate all results below a folder, and return their number and their schema version."""
    if not folder.is_dir():
        raise SpecError(f"Expected a folder of results, got {folder}, which is not one.")
    versions = Counter[int]()
    for file in _list_files(folder):
        for name, content in _read_results(folder / file):
            validate_record(Result, content, name)
            versions[content.get("schema_version", 1)] += 1
    if not versions:
        raise SpecError(f"Expected results in {folder}, found none.")
    if len(versions) > 1:
        found = " and ".join(f"{count:,} of schema {version}" for version, count in sorted(versions.items()))
        raise DataError(f"Expected results of one schema in {folder}, got {found}. Move one kind to another folder.")
    ((version, count),) = versions.items()
    return count, version


Successors = Mapping[str, str]
"""Digest of the original file (`converted_from`) -> evidence digest of the converted result."""


def _map_converted_digests(folder: Path) -> Successors:
    """Check the seals of all results; map the digest of each original's seal to the new evidence digest."""
    found: dict[str, str] = {}
    for file in _list_files(folder):
        for name, content in _read_results(folder / file):
            made = upgrade_to_current_schema(content, Result)
            if made is content or "converted_from" not in made:
                continue
            if found.setdefault(made["converted_from"], made["evidence_digest"]) != made["evidence_digest"]:
                raise DataError(f"Expected one result with the seal of {name}, got several that differ.")
    return found


def _update_evidence_digest(raw: bytes, successors: Successors) -> bytes:
    """Return an audit or re-run with the evidence digest of its converted result; return other records unchanged."""
    if b'"content": "' not in raw or b'"seal": "' not in raw:
        return raw
    content = parse_json(raw, Path("record"))
    if not isinstance(content, dict) or content.get("content") not in successors:
        return raw
    updated = {**content, "content": successors[content["content"]]}
    return _encode_json(
        {**updated, "seal": compute_seal(updated)} if content.get("seal") == compute_seal(content) else updated
    )


def _replace_folder(folder: Path, old: Path, new: Path, successors: Successors) -> None:
    if os.path.lexists(old):
        raise DataError(f"{old} is where the old results would be kept, and it exists already. Move it elsewhere.")
    shutil.rmtree(new, ignore_errors=True)  # of a call that was cut off
    try:
        _write_converted_folder(folder, new, successors)
        check_converted_folder(folder, new, successors)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    folder.rename(old)
    new.rename(folder)


def _write_converted_folder(folder: Path, new: Path, successors: Successors) -> None:
    for place, names, _ in os.walk(folder):
        inside = new / Path(place).relative_to(folder)
        inside.mkdir(mode=0o700)
        names[:] = [name for name in names if not Path(place, name).is_symlink()]
    for file in _list_files(folder):
        source, target = folder / file, new / file
        results = {name: upgrade_to_current_schema(content, Result) for name, content in _read_results(source)}
        if file.name == ARCHIVE:
            whole = {
                name: _update_evidence_digest(raw, successors) for name, raw in read_archive(source.parent).items()
            }
            write_archive(
                target.parent, {**whole, **{Path(name).name: _encode_json(made) for name, made in results.items()}}
            )
        elif results:
            (made,) = results.values()
            write_json(target, made)
        elif (
            _may_contain_records(source)
            and (updated := _update_evidence_digest(raw := read_regular_file(source), successors)) != raw
        ):
            write_atomically(target, lambda out: out.write(updated))
        else:
            shutil.copyfile(source, target, follow_symlinks=False)
        shutil.copystat(source, target, follow_symlinks=False)  # of two results of one spec the newer counts
    for place, _, _ in os.walk(folder, topdown=False):
        shutil.copystat(place, new / Path(place).relative_to(folder))


def _encode_json(content: Any) -> bytes:
    return (json.dumps(content, indent=2, sort_keys=True) + "\n").encode()


def check_converted_folder(old: Path, new: Path, successors: Successors) -> None:
    """Check that the converted folder has the same files as the original folder, with the same values.

    Raises:
        OutputError: a file or value differs; the message names the first one.
    """
    if (before := _list_files(old)) != (now := _list_files(new)):
        raise OutputError(f"Expected the same files in {old} and {new}, got others: {min({*before} ^ {*now})}.")
    for file in before:
        results = {Path(name).name: content for name, content in _read_results(old / file)}
        if not _may_contain_records(old / file):
            same = _is_same_file(old / file, new / file)
        else:
            after, others = _read_contents(new / file), _read_contents(old / file)
            same = after.keys() == others.keys()
            for name in after.keys() & others.keys():
                if name in results:
                    _check_conversion(results[name], after[name], new / file.with_name(name))
                else:
                    same = same and after[name] == _update_evidence_digest(others[name], successors)
        if not same:
            raise OutputError(f"Expected {new / file} to have what {old / file} has, got something else.")


def _check_conversion(before: Mapping[str, Any], raw: bytes, name: Path) -> None:
    content = parse_json(raw, name)
    read = validate_record(Result, content, name)
    loss = find_changed_value(before, read) if before.get("schema_version", 1) != CURRENT_SCHEMA else None
    if loss is None and content != upgrade_to_current_schema(before, Result):
        loss = "something"
    if loss is not None:
        raise OutputError(f"{name} does not have {loss} as the file that it was converted from: nothing is converted.")


def _is_same_file(path: Path, other: Path) -> bool:
    if path.is_symlink() or other.is_symlink():
        return path.is_symlink() and other.is_symlink() and path.readlink() == other.readlink()
    return filecmp.cmp(path, other, shallow=False)


def _list_files(folder: Path) -> list[Path]:
    """Return all files and links below a folder, as paths relative to it."""
    found = []
    for place, folders, names in os.walk(folder):
        links = [name for name in folders if Path(place, name).is_symlink()]
        found += [Path(place, name).relative_to(folder) for name in (*names, *links)]
    return sorted(found)


def _read_results(file: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the path and JSON of each result in a file, which may be an archive."""
    if not _may_contain_records(file):
        return
    for name, raw in _read_contents(file).items():
        content = parse_json(raw, file.with_name(name))
        if isinstance(content, dict) and content.keys() >= {"spec", "privacy", "seeds"}:
            yield str(file.with_name(name)), content


def _may_contain_records(file: Path) -> bool:
    return not file.is_symlink() and (file.suffix == ".json" or file.name == ARCHIVE)


def _read_contents(file: Path) -> Mapping[str, bytes]:
    return read_archive(file.parent) if file.name == ARCHIVE else {file.name: read_regular_file(file)}
