"""Verify files of any kind; files that the user names together are also compared with each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from dpbench.board.verify.expectations import ReviewContext
from dpbench.errors import DpbenchError
from dpbench.receipts.receipt import Receipt
from dpbench.records.result import Result
from dpbench.registry import Registry
from dpbench.verification.documents import Document, read_document
from dpbench.verification.receipts import verify_receipt
from dpbench.verification.records import verify_record
from dpbench.verification.report import FileReport
from dpbench.verification.results import ResultVerifier

ResultOrReceipt = TypeVar("ResultOrReceipt", Result, Receipt)


def verify_files(
    files: Sequence[Path], root: Path, plugins: Registry, *, submission: bool = False
) -> Iterator[tuple[Document, FileReport] | DpbenchError]:
    """Yield each file with its report, or the error that prevented reading or checking it.

    Args:
        files: results, models, receipts and records; models and records are compared with the results among them.
        root: the leaderboard whose boards results are compared with.
        plugins: the installed plugins.
        submission: whether a board must accept each result.
    """
    documents = [_try_read_document(file) for file in files]
    read = [document for document in documents if isinstance(document, Document)]
    results, receipts = [*_read_valid_records(Result, "result", read)], [*_read_valid_records(Receipt, "receipt", read)]
    verifier: ResultVerifier | None = None
    for document in documents:
        if isinstance(document, DpbenchError):
            yield document
            continue
        try:
            if document.kind == "result":
                verifier = verifier or ResultVerifier(root, ReviewContext.read(root, plugins), submission=submission)
                yield document, verifier.verify(document.file)
            elif document.kind == "receipt":
                yield document, verify_receipt(document.file)
            elif document.kind == "model":
                from dpbench.verification.models import verify_model  # which loads torch

                yield document, verify_model(document.file, results, receipts, plugins)
            else:
                yield document, verify_record(document, results)
        except DpbenchError as error:
            yield error


def _try_read_document(file: Path) -> Document | DpbenchError:
    try:
        return read_document(file)
    except DpbenchError as error:
        return error


def _read_valid_records(
    kind: type[ResultOrReceipt], kind_name: str, documents: Sequence[Document]
) -> Iterator[ResultOrReceipt]:
    """Yield the documents of a kind that fit the kind's schema."""
    for document in documents:
        if document.kind == kind_name:
            with suppress(DpbenchError):
                yield kind.read(document.file)
