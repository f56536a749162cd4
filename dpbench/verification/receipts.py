"""Verify a receipt: recompute ε from its events and name every mismatch."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from dpbench.errors import DataError, LeaderboardComplaint, SpecError
from dpbench.receipts import Checked, Receipt, check
from dpbench.verification.documents import KIND_WORDS
from dpbench.verification.report import FileReport


def verify_receipt(file: Path) -> FileReport:
    """Recompute ε of a receipt with two accountants, and hash the files that it is about.

    Raises:
        DataError: the receipt does not fit its schema, or has too many events.
    """
    try:
        checked = check(Receipt.read(file), file.parent)
    except SpecError as error:
        raise DataError(f"{file}: {error}") from error
    receipt = checked.receipt
    unit = f"per {receipt.unit}" if receipt.unit else "of an unknown unit"
    stated = f"ε {receipt.epsilon:.4g} at δ {receipt.delta:g}, {unit}"
    recomputed = [*_describe_recomputed_epsilons(checked), *(f"{name}: {said}" for name, said in checked.curve.items())]
    complaints = tuple(LeaderboardComplaint(str(file), mismatch.name, mismatch.said) for mismatch in checked.mismatches)
    return FileReport(
        str(file), KIND_WORDS["receipt"], (stated,), tuple(recomputed), complaints, checked.remarks,
        _collect_epsilons_as_json(checked),
    )  # fmt: skip


def _describe_recomputed_epsilons(checked: Checked) -> list[str]:
    found = []
    for opinion in checked.opinions:
        more = opinion.upper - checked.receipt.epsilon
        gap = f"{abs(more):.2g} {'more' if more > 0 else 'less'}"
        found.append(f"ε {opinion.upper:.4g} for these events by {opinion.accountant}, {gap}")
    return found


def _collect_epsilons_as_json(checked: Checked) -> dict[str, Any]:
    bounds = [(opinion.accountant, opinion.lower, opinion.upper) for opinion in checked.opinions]
    return {
        "stated": checked.receipt.epsilon,
        "accountants": [
            {"name": name, "lower": _format_json_number(lower), "upper": _format_json_number(upper)}
            for name, lower, upper in bounds
        ],
        "curve": checked.curve,
    }


def _format_json_number(value: float) -> float | str:
    return value if math.isfinite(value) else "Infinity"
