"""Presence of datasets and weights on this machine, found out without loading them."""

from __future__ import annotations

import dataclasses
from typing import Any

from dpbench.data import sources
from dpbench.registry import Registry
from dpbench.support.fields import is_required

PRESENCE_WORDS = {True: "yes", False: "no", None: "-"}


def dataset_facts(cls: type[Any], registry: Registry) -> dict[str, Any]:
    """Return where a dataset is, with default options, or how to get it; present is None if an option decides."""
    row: dict[str, Any] = {
        "name": cls.name, "present": None, "where": "", "size": 0, "licence": cls.licence,
        "how": f"--dataset {cls.name}:{cls.shorthand.upper() or 'OPTIONS'}",
    }  # fmt: skip
    if cls.shorthand or any(map(is_required, dataclasses.fields(cls))):
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


def extractor_facts(cls: type[Any], registry: Registry) -> dict[str, Any]:
    """Return whether an extractor's weights are here, their size, its number of features, and its layers.

    `error` is the exception that it raised instead, if any.
    """
    row: dict[str, Any] = {
        "name": cls.name, "present": None, "dimension": cls.dimension, "size": cls.weights_size,
        "licence": cls.licence, "layers": {}, "error": "",
    }  # fmt: skip
    if cls.shorthand or any(map(is_required, dataclasses.fields(cls))):  # an option decides
        return row
    try:
        built = registry.build("extractor", cls.name, {})
        return {**row, "present": built.present(), "layers": built.layers()}
    except Exception as error:  # third-party code may raise anything; the other extractors are still listed
        return {**row, "error": f"{type(error).__name__}: {error}"}
