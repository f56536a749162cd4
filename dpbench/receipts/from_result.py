"""Make the receipt of a dpbench result."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from dpbench.api import Choice, Planned
from dpbench.errors import DataError, SpecError
from dpbench.privacy.mechanisms.choice.choice_plan import compute_eps0
from dpbench.receipts.events import BestOf, Chosen, Composed, Event, Repeated
from dpbench.receipts.receipt import Accountant, Batches, Noise, Receipt, Search, Training, hash_file
from dpbench.receipts.steps import gaussian_steps
from dpbench.records.result import Result
from dpbench.records.stated_plan import PrivacyGuarantee
from dpbench.support.validation import first_schema_violation

ACCOUNTANT_LIBRARIES = {"pld": "dp-accounting", "rdp": "dp-accounting", "prv": "opacus"}


def from_result(file: Path) -> Receipt:
    """Return the receipt of a dpbench result: its plan as events, its guarantee and the hash of the result's file.

    Raises:
        DataError: the file is no result, or was changed after it was written.
        SpecError: the file is a receipt, or the run was not private.
    """
    try:
        result = Result.read(file)
    except DataError:
        with suppress(DataError):
            Receipt.read(file)
            raise SpecError(f"Expected a result, got {file}, which is a receipt already.") from None
        raise
    try:
        return _build_receipt(file, result)
    except ValidationError as error:
        raise DataError(
            f"Result {file} holds something that a receipt cannot state: {first_schema_violation(error)}."
        ) from error


def _build_receipt(file: Path, result: Result) -> Receipt:
    privacy = result.privacy
    if not math.isfinite(privacy.epsilon):
        raise SpecError(f"Expected a private run in {file}, got one at epsilon=inf, which has nothing to state.")
    event = convert_plan_to_events(privacy)
    library, unit = ACCOUNTANT_LIBRARIES[privacy.accountant], result.spec.unit or "image"
    known = result.provenance.get("packages")
    version = known.get(library) if isinstance(known, dict) else None
    return Receipt(
        epsilon=privacy.epsilon, delta=privacy.delta, adjacency=privacy.adjacency, unit=unit,
        training=Training(
            events=event, size=result.task.private,
            batches=Batches(
                drawn="poisson" if any(release.sample_rate < 1 for release in privacy.releases) else "everything",
                steps=_count_steps(result), normalised_by="expected-size",
            ),
            noise=None if (sigma := _find_smallest_sigma(result)) is None else Noise(
                clip=1.0, std=sigma, added_to="sum", clipped_per=unit, dtype="integers"
            ),
            accountant=Accountant(
                name=privacy.accountant, library=library, version=version, adjacency=privacy.adjacency
            ),
            libraries={"dpbench": str(result.provenance.get("dpbench"))},
        ),
        search=_make_search_record(result), files={"result": hash_file(file)},
    )  # fmt: skip


def convert_plan_to_events(privacy: PrivacyGuarantee) -> Event:
    """Convert the plan of a guarantee to the events of a receipt."""
    event: Event = Composed(
        events=tuple(
            _convert_release(release, used.sigma) for release, used in zip(privacy.releases, privacy.plan, strict=True)
        )
    )
    if privacy.repeats is not None:
        event = BestOf(mean=privacy.repeats.mean, shape=privacy.repeats.shape, event=event)
    return event


def _convert_release(planned: Planned, sigma: float) -> Event:
    if isinstance(planned, Choice):
        choice = Chosen(epsilon=compute_eps0(sigma), candidates=planned.candidates)
        return Repeated(event=choice, times=planned.steps)
    return gaussian_steps(sigma=sigma, steps=planned.steps, rate=planned.sample_rate)


def _count_steps(result: Result) -> int:
    """Return the number of noisy sums in the run; if it made only choices, the number of choices."""
    plan = result.privacy.releases
    return sum(use.steps for use in plan if use.gaussian) or sum(use.steps for use in plan)


def _find_smallest_sigma(result: Result) -> float | None:
    """Return the smallest noise of the run's sums, in clips; None if it made only choices."""
    privacy = result.privacy
    sigmas = [used.sigma for release, used in zip(privacy.releases, privacy.plan, strict=True) if release.gaussian]
    return min(sigmas, default=None)


def _make_search_record(result: Result) -> Search | None:
    """Return the record of how settings were chosen; None if that is unknown."""
    rule, tried = result.selection, max(1, (result.search and result.search.tried) or 1)
    if rule == "default":
        return Search(runs=1)
    if rule in {"public-validation", "transfer"}:
        return Search(runs=tried, data="public")
    if rule == "private-accounted":
        return Search(runs=tried, data="private", accounted="best-of")
    return Search(runs=max(2, tried), data="private") if rule in {"private-unaccounted", "oracle"} else None
