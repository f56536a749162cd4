"""A spec file as the shell takes it: the keys of a spec, and those of flags that are about the run alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from dpbench.errors import SpecError
from dpbench.records.spec import Spec, with_pixels
from dpbench.support.messages import unknown_name
from dpbench.support.untrusted import read_toml
from dpbench.support.validation import sentence

SWEEP = {"fixed", "grid", "grids", "plot"}  # what a sweep file has, and a spec has not


class RunOptions(BaseModel):
    """What a file may say beside a spec, named as the flags are."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    tune: bool = False
    selection: str | None = None
    space: str | list[str] | dict[str, list[Any]] | None = None
    tries: int | None = None
    repeats: float | None = None
    search_seed: int | None = None
    board: str | None = None
    settings: str | None = None
    device: str | None = None
    out: str | None = None
    threads: int | None = None


def read(file: Path | None, command: str, *, extractor_given: bool = False) -> tuple[dict[str, Any], RunOptions]:
    """Return the keys of a spec in a TOML file, and what else it says; without a file nothing.

    `extractor_given` says that flags name an extractor, or a board that fixes one.

    Raises:
        SpecError: it cannot be read, it is a sweep, a key is unknown, or a value is not of its type.
    """
    values = read_toml(file, "spec") if file else {}
    if SWEEP & values.keys():
        raise SpecError(f"Expected the spec of one {command} in {file}, got a sweep. Run it with: dpbench sweep {file}")
    known = {*Spec.model_fields, *RunOptions.model_fields}
    for name in values:
        if name not in known:
            raise SpecError(unknown_name("key", name, known, str(file)))
    also = {name: values.pop(name) for name in RunOptions.model_fields if name in values}
    if file and not (extractor_given or "extractor" in values or "board" in also):
        values = with_pixels(values, str(file))
    try:
        return values, RunOptions(**also)
    except ValidationError as error:
        raise SpecError(sentence(error, str(file), {"": RunOptions})) from None
