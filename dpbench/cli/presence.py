"""Check whether datasets and weights are on this machine, without loading them."""

from __future__ import annotations

import dataclasses
from typing import Any

from dpbench.data import sources
from dpbench.registry import Registry
from dpbench.support.fields import is_required_field

PRESENCE_WORDS = {True: "yes", False: "no", None: "-"}


def collect_dataset_facts(cls: type[Any], registry: Registry) -> dict[str, Any]:
    """Return a dataset's row for listings: whether and where it is on this machine, its size, and how to get it.

    The field `present` is None if an option decides where the data are, or if the dataset raises an exception, which
    the field `how` then states.
    """
    row: dict[str, Any] = {
        "name": cls.name, "present": None, "where": "", "size": 0, "licence": cls.licence,
        "how": f"--dataset {cls.name}:{cls.shorthand.upper() or 'OPTIONS'}",
    }  # fmt: skip
    if cls.shorthand or any(map(is_required_field, dataclasses.fields(cls))):
        return row
    try:
        dataset = registry.build("dataset", cls.name, {})
        source, found = dataset.source(), sources.find_dataset(dataset)
    except Exception as error:  # third-party code may raise anything; the other datasets are still listed
        return {**row, "how": f"{type(error).__name__}: {error}"}
    if source is None:
        return {**row, "present": True, "where": "comes with a Python package", "how": ""}
    command = f"fetch {cls.name}" if source.downloads or source.hub else f"import {cls.name} PATH"
    where = str(found.folder) if found else ""
    return {**row, "present": bool(found), "where": where, "size": source.size, "how": f"dpbench data {command}"}


def collect_extractor_facts(cls: type[Any], registry: Registry) -> dict[str, Any]:
    """Return an extractor's facts: whether its weights are on this machine, their size, its features and its layers.

    The field `present` is None if an option decides, or if the extractor raises an exception, which the field `error`
    then states.
    """
    row: dict[str, Any] = {
        "name": cls.name, "present": None, "dimension": cls.dimension, "size": cls.weights_size,
        "licence": cls.licence, "layers": {}, "error": "",
    }  # fmt: skip
    if cls.shorthand or any(map(is_required_field, dataclasses.fields(cls))):  # an option decides
        return row
    try:
        built = registry.build("extractor", cls.name, {})
        return {**row, "present": built.present(), "layers": built.layers()}
    except Exception as error:  # third-party code may raise anything; the other extractors are still listed
        return {**row, "error": f"{type(error).__name__}: {error}"}
