"""Owners of the user's own images, from a CSV file, folders or file names."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from unicodedata import category, normalize

from dpbench import DataError, SpecError
from dpbench_plugins.datasets.image_folders.tables import TABLE, find_repeated_names, raise_for_table_faults, read_table
from dpbench_plugins.datasets.image_trees import ImageFile

FOLDER = "folder"
"""Value of `units` with which the folder directly below the class names the unit."""
MAX_PATTERN = 200  # characters
MATCH_SECONDS = 20
MATCH = """
import json, re, sys
pattern, names = json.load(sys.stdin)
found = (re.search(pattern, name) for name in names)
json.dump([[group for group in match.groups() if group] if match else [] for match in found], sys.stdout)
"""


def is_table_name(units: str) -> bool:
    """Return whether the option `units` names a table, rather than a pattern or folders."""
    return units.endswith(TABLE)


def check_unit_options(units: str, unit: str) -> None:
    """Check that a pattern in `units` has a group for the unit, and that `unit` is given only with `units`.

    Raises:
        SpecError: an option is missing or malformed; the message states what to write.
    """
    if not units and unit != "unit":
        raise SpecError(
            f"Expected units beside unit={unit}: a {TABLE} file, a pattern that says whose each image is, or "
            f"units={FOLDER} if the images of each {unit} are in a folder of their own."
        )
    if not units or units == FOLDER or is_table_name(units):
        return
    if len(units) > MAX_PATTERN:
        raise SpecError(f"Expected a pattern units=... of at most {MAX_PATTERN} characters, got {len(units):,}.")
    try:
        groups = re.compile(units).groups
    except (re.error, OverflowError) as error:
        raise SpecError(
            f"Expected units={units} to be {FOLDER}, a {TABLE} file or a regular expression: {error}."
        ) from error
    if not groups:
        raise SpecError(
            f"Expected a group in the pattern units={units} that names the unit, as in (person[0-9]+)_, or a {TABLE} "
            f"file with the columns file and unit, or units={FOLDER}."
        )


def find_owners(units: str, names: Sequence[str]) -> dict[str, str]:
    """Return the owner of each image, by image name (`make_image_name`).

    The owner comes from the table that `units` names, from the image's folder, or from the groups of a pattern.

    Raises:
        DataMissing: the table does not exist.
        DataError: the table does not name every image once, an image is not in a unit's folder, or the pattern finds no
            unit in a name.
    """
    if is_table_name(units):
        owners = _find_owners_by_table(Path(units).expanduser(), names)
    else:
        owners = _find_owners_by_folder(names) if units == FOLDER else _find_owners_by_name(units, names)
    return {place: _normalise_name(owner) for place, owner in owners.items()}


def _normalise_name(owner: str) -> str:
    """Normalise a name to NFC without invisible characters, because the same letters have several encodings."""
    return "".join(character for character in normalize("NFC", owner) if category(character) != "Cf").strip()


def make_image_name(file: ImageFile) -> str:
    """Return an image's name: its split folder (val is not renamed to test), its class and the path below the class."""
    return "/".join([*file.below.split("/")[-3:-1], file.file])


def _strip_split_and_class(name: str) -> str:
    """Return the path of an image below its class."""
    return name.split("/", 2)[2]


def _find_owners_by_folder(names: Sequence[str]) -> dict[str, str]:
    if loose := sorted(name for name in names if "/" not in _strip_split_and_class(name)):
        raise DataError(
            f"Expected train/CLASS/UNIT/IMAGE with units={FOLDER}, got images outside of a unit's folder: {loose[0]} "
            f"({len(loose):,} of {len(names):,}). Move each into the folder of its unit."
        )
    return {name: _strip_split_and_class(name).partition("/")[0] for name in names}


def _find_owners_by_name(pattern: str, names: Sequence[str]) -> dict[str, str]:
    found = _match_pattern_to_names(pattern, [_strip_split_and_class(name) for name in names])
    owners = {name: "/".join(groups) for name, groups in zip(names, found, strict=True)}
    if missing := sorted(name for name, owner in owners.items() if not owner):
        raise DataError(
            f"Expected the pattern units={pattern} to find a unit in every file name, got none in {missing[0]} "
            f"({len(missing):,} of {len(names):,}). Correct it, or give a {TABLE} file with the columns file and unit."
        )
    return owners


def _match_pattern_to_names(pattern: str, names: Sequence[str]) -> list[list[str]]:
    """Return the non-empty groups that a pattern matches in each name.

    The pattern may come from a stranger, so it is matched in a process of its own, for at most 20 seconds.

    Raises:
        DataError: the pattern needs too much memory or time (some never end).
    """
    command = [sys.executable, "-I", "-c", MATCH]  # a process can be stopped, and a search in this one cannot
    try:
        done = subprocess.run(
            command, input=json.dumps([pattern, names]), capture_output=True, text=True, check=True,
            timeout=MATCH_SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        late = f" within {MATCH_SECONDS} seconds" if isinstance(error, subprocess.TimeoutExpired) else ""
        raise DataError(
            f"The pattern units={pattern} cannot be found in {len(names):,} file names{late}. Write a simpler one, "
            f"or give a {TABLE} file with the columns file and unit."
        ) from None
    groups: list[list[str]] = json.loads(done.stdout)
    return groups


def _find_owners_by_table(table: Path, names: Sequence[str]) -> dict[str, str]:
    lines = [(line["file"], line["unit"].strip()) for line in read_table(table, ("file", "unit"))]
    owners, places = dict(lines), set(names)
    raise_for_table_faults(
        {
            "names images that are not there": owners.keys() - places,
            "misses images": places - owners.keys(),
            "names images more than once": find_repeated_names(name for name, _ in lines),
            "has no unit for images": {name for name, owner in lines if not owner},
        },
        f"Expected {table} to name every image once, as train/CLASS/IMAGE, and its unit",
    )
    return owners
