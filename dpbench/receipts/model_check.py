"""Check that the card of a model and a receipt state the same guarantee, of the same fit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dpbench.errors import DataError
from dpbench.receipts.from_result import convert_plan_to_events
from dpbench.receipts.receipt import Receipt

if TYPE_CHECKING:
    from dpbench.models.card import Card

TOLERANCE = 1e-9  # relative: numbers of both come from one result


def check_card_against_receipt(card: Card, digest: str, receipt: Receipt) -> None:
    """Check that a model's card states the plan, epsilon, delta, neighbours and unit of its receipt.

    If the receipt has the hash of a model, it must be that of the model's file.

    Args:
        card: the model's card.
        digest: SHA-256 of the model's file.
        receipt: the receipt of the run, or of the model's file.

    Raises:
        DataError: the card and the receipt differ; the message names the differences.
    """
    if differ := list(_list_card_differences(card, digest, receipt)):
        raise DataError(f"The card of the model and its receipt differ in {', '.join(differ)}.")


def _list_card_differences(card: Card, digest: str, receipt: Receipt) -> Iterator[str]:
    privacy = card.privacy
    if not privacy.sigma or convert_plan_to_events(privacy) != receipt.training.events:
        yield "the plan"
    for name, mine, theirs in (("ε", privacy.epsilon, receipt.epsilon), ("δ", privacy.delta, receipt.delta)):
        if not math.isclose(mine, theirs, rel_tol=TOLERANCE):
            yield f"{name} ({mine:.6g} and {theirs:.6g})"
    if receipt.adjacency != privacy.adjacency:
        yield f"neighbours ({privacy.adjacency} and {receipt.adjacency or 'not stated'})"
    if receipt.unit != (card.spec.unit or "image"):
        yield f"the unit ({card.spec.unit or 'image'} and {receipt.unit or 'not stated'})"
    known = receipt.files.get("model")
    if known is not None and known.sha256 != digest:
        yield "the model's file"
