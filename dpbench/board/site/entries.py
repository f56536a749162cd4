"""Entries' pages, each with a copy of its raw file: thousands of them, so that several processes share the work."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dpbench.board.folder import MAX_BYTES
from dpbench.board.index import Entry, Index, Standing
from dpbench.board.site import output, text
from dpbench.board.site.charts.classes import class_chart, class_specification
from dpbench.board.site.render import Renderer, renderer
from dpbench.errors import DataError
from dpbench.records.metrics import METRICS
from dpbench.records.result import Result
from dpbench.support.validation import misfit

RAW = 20_000  # characters of a raw file that its page shows
SEEDS = 50  # rows of scores; the raw file has all
FACTS = 60  # of one list
ENOUGH = 400  # entries a process has to have to be worth its start
BATCH = 250


@dataclass(frozen=True)
class Batch:
    """Entries of one board that one process writes."""

    standing: Standing  # without its entries
    entries: tuple[Entry, ...]
    root: Path
    site: Path
    specification: str  # of the chart of classes


@contextmanager
def writing(index: Index, root: Path, site: Path) -> Iterator[None]:
    """Write every entry's page and its raw file into `site` while the block does something else.

    Raises:
        DataError: a result that cannot be read.
    """
    batches = list(_batches(index, root, site))
    count = sum(len(batch.entries) for batch in batches)
    processes = min(os.cpu_count() or 1, count // ENOUGH)
    if processes < 2:
        shared = renderer()
        for batch in batches:
            _write(batch, shared)
        yield
        return
    # Spawned: a fork of a process that has threads, as torch's, may hang.
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        pending: list[Future[None]] = [pool.submit(write_batch, batch) for batch in batches]
        try:
            yield
            for one in pending:
                one.result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def write_batch(batch: Batch) -> None:
    """Write the pages of a batch, in a process of its own."""
    gc.disable()  # a page leaves next to nothing to collect, and the search for it takes a tenth of the time
    _write(batch, renderer())
    gc.enable()


def _batches(index: Index, root: Path, site: Path) -> Iterator[Batch]:
    specification = class_specification()
    for standing in index.standings:
        bare = standing.model_copy(update={"entries": ()})
        for start in range(0, len(standing.entries), BATCH):
            yield Batch(bare, standing.entries[start : start + BATCH], root, site, specification)


def _write(batch: Batch, shared: Renderer) -> None:
    for kind in ("entries", "results"):
        (batch.site / kind / batch.standing.board.name).mkdir(parents=True, exist_ok=True)
    for entry in batch.entries:
        raw = _read(output.source(batch.root, entry))
        (batch.site / entry.file).write_bytes(raw)
        (batch.site / output.page(batch.standing, entry)).write_bytes(_page(batch, entry, raw, shared))


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise DataError(f"Cannot read result {file}: {error.strerror}. Build the index again.") from error
    if len(raw) > MAX_BYTES:
        raise DataError(f"Expected at most {MAX_BYTES:,} bytes in result {file}, got more. Take it off the board.")
    return raw


def _page(batch: Batch, entry: Entry, raw: bytes, shared: Renderer) -> bytes:
    result = _parsed(raw, entry.file)
    spent = _spent(result)
    values = {
        "standing": batch.standing,
        "board": batch.standing.board,
        "entry": entry,
        "privacy": result.privacy,
        "releases": [(release, spent[release.name]) for release in result.privacy.plan[:FACTS]],
        "metrics": [name for name in METRICS if name in result.metrics],
        "seeds": result.seeds[:SEEDS],
        "more_seeds": max(len(result.seeds) - SEEDS, 0),
        "task": result.task,
        "search": result.search,
        "settings": list(entry.settings.items())[:FACTS],
        "seconds": list(result.seconds.items())[:FACTS],
        "components": list(result.components.items())[:FACTS],
        "provenance": list(_facts(result.provenance))[:FACTS],
        "chart": class_chart(result, batch.specification),
        "raw": text.shown(raw.decode("utf-8", "replace"), RAW),
    }
    return shared.page("entry", 2, values)


def _parsed(raw: bytes, file: str) -> Result:
    try:
        return Result.model_validate_json(raw)
    except ValidationError as error:
        said = text.shown(str(misfit(error)))
        raise DataError(f"Result {file} does not fit the schema at {said}. Verify it first.") from None


def _spent(result: Result) -> Mapping[str, str]:
    """Return for each release the steps that seeds spent: one number where they agree."""
    found = {}
    for release in result.privacy.plan:
        steps = sorted({seed.spent.get(release.name, 0) for seed in result.seeds})
        found[release.name] = f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,}"
    return found


def _facts(provenance: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in provenance.items():
        if name == "dirty":
            yield "uncommitted changes", "not known" if value is None else "yes" if value else "none"
        elif isinstance(value, dict):
            yield name, ", ".join(f"{key} {one}" for key, one in value.items())
        else:
            yield name, str(value)
