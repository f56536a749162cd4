"""The pages of entries, and copies of their raw files. There are thousands, so several processes write them."""

from __future__ import annotations

import functools
import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from dpbench.analysis.confusion import MAX_PRINTED_CLASSES, list_largest_errors, sum_confusion_matrices
from dpbench.analysis.describe import ResultFact, describe_result
from dpbench.analysis.palette import LearnerStyle
from dpbench.analysis.released import describe_attack
from dpbench.analysis.risk import RiskFunction, max_true_positive_rates
from dpbench.board.folder import MAX_BYTES
from dpbench.board.index import Entry, Standing
from dpbench.board.rows import EntryRow, count_rivals
from dpbench.board.verify.challenge_record import FOLDER as CHALLENGES
from dpbench.errors import DataError
from dpbench.records.challenge import Challenge, replace_seeds
from dpbench.records.metrics import BIN_COUNT, METRICS
from dpbench.records.packed import read_record, record_exists
from dpbench.records.released import FOLDER as RELEASED
from dpbench.records.released import ReleasedModelAttack
from dpbench.records.result import Result
from dpbench.records.storage import validate_record
from dpbench.site import layout, text, view
from dpbench.site.context import SiteContext
from dpbench.site.group_tables import GroupTable, tabulate_groups
from dpbench.site.render import PREVIEW, PageRenderer, make_renderer
from dpbench.site.settings import SiteSettings
from dpbench.support.processes import process_pool
from dpbench.support.progress import show_progress_bar

MAX_RAW_LENGTH = 20_000  # characters of a raw file that its page shows
MAX_SEEDS = 50  # rows of scores; the raw file has all
MAX_CLASS_ROWS = 60  # of more, the worst are shown
MIN_ENTRIES_PER_PROCESS = 400  # entries a process has to have to be worth its start
BATCH_SIZE = 250
DESCRIPTION = "Writing pages of entries"


@dataclass(frozen=True)
class EntryBatch:
    """Entries of one board; one process writes their pages."""

    standing: Standing
    rows: tuple[EntryRow, ...]  # of some of its entries
    rivals: Mapping[bool, int]  # among how many entries one is ranked that reads no public labels, or does
    tied: frozenset[int | None]  # ranks that several share of those that read no public labels
    free: tuple[Entry, ...]  # of the same learners, without privacy
    looks: Mapping[str, LearnerStyle]  # of their learners
    learners: Mapping[str, str]  # the pages of those
    root: Path
    site: Path
    settings: SiteSettings


@contextmanager
def write_entry_pages(site: SiteContext, folder: Path) -> Iterator[None]:
    """Write the page and the raw file of every entry into `folder`.

    Worker processes write these files while the with-block runs. If there are few entries, the files are written before
    the block, without workers.

    Raises:
        DataError: a result cannot be read.
    """
    batches = list(_split_into_batches(site, folder))
    count = sum(len(batch.rows) for batch in batches)
    processes = min(os.cpu_count() or 1, count // MIN_ENTRIES_PER_PROCESS)
    if processes < 2:
        shared = make_renderer(site.settings, root=site.root)
        with show_progress_bar(DESCRIPTION, count) as advance:
            for batch in batches:
                _write_pages_and_results(batch, shared)
                advance(len(batch.rows))
        yield
        return
    with process_pool(processes) as pool:
        pending: list[Future[None]] = [pool.submit(write_batch_pages, batch) for batch in batches]
        try:
            yield
            with show_progress_bar(DESCRIPTION, count) as advance:
                for batch, pages in zip(batches, pending, strict=True):
                    pages.result()
                    advance(len(batch.rows))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def write_batch_pages(batch: EntryBatch) -> None:
    """Write the pages of a batch; runs in a worker process."""
    _write_pages_and_results(batch, make_renderer(batch.settings, root=batch.root))


def _split_into_batches(site: SiteContext, folder: Path) -> Iterator[EntryBatch]:
    for standing in site.index.standings:
        rows, bare = site.rows[standing.board.name], standing.model_copy(update={"entries": ()})
        shared = Counter(row.entry.rank for row in rows if row.entry.rank and not row.entry.reads_labels)
        tied = frozenset(rank for rank, count in shared.items() if count > 1)
        rivals = {labels: count_rivals(standing, labels=labels) for labels in (False, True)}
        for start in range(0, len(rows), BATCH_SIZE):
            some = tuple(rows[start : start + BATCH_SIZE])
            names = {row.entry.learner for row in some}
            looks = {name: site.looks[name] for name in names}
            pages = {name: site.learners[name] for name in names}
            free = tuple(row.entry for row in rows if math.isinf(row.entry.epsilon) and row.entry.learner in names)
            yield EntryBatch(bare, some, rivals, tied, free, looks, pages, site.root, folder, site.settings)


def _write_pages_and_results(batch: EntryBatch, renderer: PageRenderer) -> None:
    for kind in ("entries", "results"):
        (batch.site / kind / batch.standing.board.name).mkdir(parents=True, exist_ok=True)
    risk = functools.cache(max_true_positive_rates)  # entries of a board share plans
    for row in batch.rows:
        raw = _read_raw_result(layout.result_path(batch.root, row.entry))
        path = layout.entry_page_path(batch.standing, row.entry)
        (batch.site / row.entry.file).write_bytes(raw)
        (batch.site / path).write_bytes(_render_page(batch, row, raw, risk, renderer))


def _describe_rank(batch: EntryBatch, row: EntryRow) -> str:
    """Describe an entry's rank in words. An unranked entry is "not ranked"; a reference has its own label."""
    entry = row.entry
    if entry.rank is None:
        return view.REFERENCE_LABELS.get(entry.role, "not ranked")
    other = view.uncorrected_rank(entry)
    without = f" ({other} without correction for the number of comparisons)" if other else ""
    count = batch.rivals[entry.reads_labels]
    if entry.reads_labels:  # others that are tied with it have a rank among fewer
        return f"rank {entry.rank}, alone or tied, of all {count} entries{without}"
    tied = " (tied)" if entry.rank in batch.tied else ""
    return f"rank {entry.rank}{tied} of the {count} entries that read no public labels{without}"


def _read_raw_result(file: Path) -> bytes:
    try:
        raw = read_record(file)
    except OSError as error:
        raise DataError(f"Cannot read result {file}: {error.strerror}. Build the index again.") from error
    if len(raw) > MAX_BYTES:
        raise DataError(f"Expected at most {MAX_BYTES:,} bytes in result {file}, got more. Take it off the board.")
    return raw


def _render_page(batch: EntryBatch, row: EntryRow, raw: bytes, risk: RiskFunction, shared: PageRenderer) -> bytes:
    entry, board = row.entry, batch.standing.board
    filed = _parse_result(raw, entry.file)
    result = _read_scored_result(batch.root, entry, filed)
    values = {
        "standing": batch.standing, "board": board, "entry": entry, "row": row, "place": _describe_rank(batch, row),
        "look": batch.looks[entry.learner], "learner_page": batch.learners[entry.learner],
        "description": describe_result(filed, risk=risk),
        "metrics": [name for name in METRICS if name in result.metrics],
        "seeds": result.seeds[:MAX_SEEDS], "more_seeds": max(len(result.seeds) - MAX_SEEDS, 0),
        "task": result.task, "old": view.has_earlier_mechanism(entry), "classes": _list_least_accurate_classes(result),
        "groups": _make_group_tables(batch, entry, result), "confusion": _make_confusion_rows(result),
        "errors": _list_largest_confusions(result),
        "reliability": list(_make_reliability_rows(result)),
        "attack": _describe_attack(batch.root, entry),
        "probabilities": "ece" in result.metrics, "more_classes": max(len(result.task.classes) - MAX_CLASS_ROWS, 0),
        "raw": text.sanitise_string(raw.decode("utf-8", "replace"), MAX_RAW_LENGTH),
        "tree": batch.settings.code("", entry.made.commit) if entry.made.commit else "",
    }  # fmt: skip
    preview = f"boards/{board.name}.png" if batch.rivals[True] else PREVIEW
    return shared.page("entry", layout.entry_page_path(batch.standing, entry), "home", values, preview)


def _list_least_accurate_classes(result: Result) -> list[tuple[str, float, float, float]]:
    """Return at most `MAX_CLASS_ROWS` classes, the least accurate: name, and mean, minimum and maximum over seeds.

    Classes without test images are left out.
    """
    rows = [
        (text.sanitise_string(name, 40), fmean(values), min(values), max(values))
        for name, values in zip(result.task.classes, result.class_accuracies, strict=True)
        if values
    ]
    worst = sorted(rows, key=lambda row: row[1])[:MAX_CLASS_ROWS]
    return [row for row in rows if row in worst]


def _make_group_tables(batch: EntryBatch, entry: Entry, result: Result) -> list[GroupTable]:
    """Return tables of accuracy by group, with the price of privacy if the learner has a non-private result.

    The list is empty if the test images have no groups.
    """
    if not result.task.groups:
        return []
    free = [other for other in batch.free if other.learner == entry.learner]
    others = [
        _read_scored_result(
            batch.root, entry, _parse_result(_read_raw_result(layout.result_path(batch.root, entry)), entry.file)
        )
        for entry in free
    ]
    return tabulate_groups([("%", result)], others)


def _make_confusion_rows(result: Result) -> list[tuple[str, list[float | None]]]:
    """Return for each true class the share of its images in each guessed class; None for a class without images.

    The list is empty if there is no confusion matrix, or one with too many classes to show.
    """
    matrix = sum_confusion_matrices(result)
    if matrix is None or len(matrix) > MAX_PRINTED_CLASSES:
        return []
    rows = [[count / row.sum() if row.sum() else None for count in row] for row in matrix]
    return [(text.shorten_string(name, 16), row) for name, row in zip(result.task.classes, rows, strict=True)]


def _list_largest_confusions(result: Result) -> list[tuple[str, str, float]]:
    """Return the largest errors of a confusion matrix that is too large to show in full.

    The list is empty if there is no such matrix.
    """
    matrix = sum_confusion_matrices(result)
    if matrix is None or len(matrix) <= MAX_PRINTED_CLASSES:
        return []
    return [
        (text.sanitise_string(a, 40), text.sanitise_string(b, 40), part)
        for a, b, part in list_largest_errors(result, matrix)
    ]


def _make_reliability_rows(result: Result) -> Iterator[tuple[str, float, float, float]]:
    """Yield each confidence bin that has images: its range, share of images, mean confidence and accuracy."""
    kept = [seed.calibration for seed in result.seeds if seed.calibration]
    total = sum(sum(calibration.count) for calibration in kept)
    for place in range(BIN_COUNT):
        count = sum(calibration.count[place] for calibration in kept)
        if count:
            confidence = math.fsum(calibration.confidence[place] for calibration in kept) / count
            span = f"{100 * place / BIN_COUNT:.0f} to {100 * (place + 1) / BIN_COUNT:.0f}%"
            yield span, count / total, confidence, sum(calibration.right[place] for calibration in kept) / count


def _read_scored_result(root: Path, entry: Entry, result: Result) -> Result:
    """Return the result with the seeds that decide its entry's score: its own or the challenge seeds."""
    if entry.scored != "challenge seeds":
        return result
    file = root / CHALLENGES / entry.file.removeprefix("results/")
    return replace_seeds(result, Challenge.read(file).seeds)


def _describe_attack(root: Path, entry: Entry) -> list[ResultFact]:
    """Return the facts of the attack on the entry's models; empty if there was no attack."""
    file = root / RELEASED / entry.file.removeprefix("results/")
    return list(describe_attack(ReleasedModelAttack.read(file))) if record_exists(file) else []


def _parse_result(raw: bytes, file: str) -> Result:
    try:
        return validate_record(Result, json.loads(raw), file)
    except (DataError, ValueError) as error:
        raise DataError(f"{text.sanitise_string(str(error))} Verify it first.") from None
