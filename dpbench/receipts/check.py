"""Check a receipt: recompute epsilon from its events and list every mismatch by name.

========== ==================================================================================================
name       what is wrong
========== ==================================================================================================
epsilon    the events cost more than is stated, by more than 1%, or no accountant supports them
sampler    the loop did not draw its batches as the events state
rate       the loop's batches are larger than the sampling rate of the events implies
steps      the loop took more steps than the events have
noise      the noise is less than sigma times the clip, counting all releases of a step; it was added in 16-bit numbers;
           or its size is unknown
normaliser sums were divided by a number that depends on which rows were drawn, or on which rows exist
adjacency  it is missing, is not the accountant's, or does not fit the sampler
delta      it is 1/n or more: publishing a random row is allowed
size       n is missing
unit       it is missing, or is not the unit whose contribution was clipped
search     it is not stated how settings were chosen, or epsilon does not cover the runs on private data
hash       a file does not have the SHA-256 that the receipt states
audit      an audit found a larger epsilon than is stated, or failed
========== ==================================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dpbench.analysis.risk import describe_privacy_curve
from dpbench.errors import DataError, SpecError
from dpbench.privacy.core.accounting.crosscheck import EpsilonInterval
from dpbench.receipts.accounting import compute_epsilons, convert_to_plan, needs_huge_grid
from dpbench.receipts.events import (
    WITH_REPLACEMENT,
    BestOf,
    Composed,
    Gaussian,
    Laplace,
    Repeated,
    Term,
    flatten_to_terms,
    list_noisy_sums,
    list_sigmas,
)
from dpbench.receipts.grouping import MAX_UNGROUPED
from dpbench.receipts.noise import RELATIVE_TOLERANCE, find_noise_faults
from dpbench.receipts.receipt import AuditFigures, BatchSampling, Receipt
from dpbench.records.packed import hash_record

RANDOM_SIZE_SAMPLING: frozenset[BatchSampling] = frozenset(
    {"poisson", "truncated-poisson", "cyclic-poisson", "balls-in-bins"}
)
ONCE_PER_EPOCH_SAMPLING: frozenset[BatchSampling] = frozenset({"shuffled", "balls-in-bins"})
LIMITED_SIZE_SAMPLING: frozenset[BatchSampling] = frozenset({"shuffled", "fixed-size", "truncated-poisson"})
"""Batches with a largest size: an added row can displace another row, which moves a sum by two clips."""
LARGEST_RUN_RATIO = 30  # times the mean: of so many runs or more, private selection makes one in 10^12
ROW_UNITS = ("row", "example", "image", "record", "sample")
"""Units that are a single row each: for these, a receipt need not state which unit was clipped."""
EXPECTED_SAMPLER: dict[BatchSampling, str | None] = {
    "everything": None, "shuffled": None, "balls-in-bins": None, "poisson": "poisson", "cyclic-poisson": "poisson",
    "truncated-poisson": "truncated-poisson", "fixed-size": "fixed-size",
    "fixed-size-with-replacement": "fixed-size-with-replacement",
}  # fmt: skip
"""How the loop drew its batches -> the sampler that the events must have."""


@dataclass(frozen=True)
class Mismatch:
    """A contradiction in a receipt: its name, and a sentence that explains it."""

    name: str
    said: str


@dataclass(frozen=True)
class Checked:
    """The outcome of a check: the accountants' results, the mismatches and the remarks."""

    receipt: Receipt
    opinions: tuple[EpsilonInterval, ...]
    mismatches: tuple[Mismatch, ...]
    remarks: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether the check found no mismatch."""
        return not self.mismatches

    @cached_property
    def curve(self) -> dict[str, str]:
        """Epsilon at other deltas and under replace-one, as texts by name.

        It is empty unless the events are few Gaussian sums over Poisson samples or all rows, and choices, under
        add-or-remove-one and with a delta above 0. It is also empty if their grid would need gigabytes.
        """
        receipt, terms = self.receipt, _list_receipt_terms(self.receipt)
        many = isinstance(receipt.training.events, BestOf) or len(terms) > MAX_UNGROUPED
        plan = None if many or not receipt.delta else convert_to_plan(terms, receipt.adjacency or "add-or-remove-one")
        if plan is None or not plan[0] or needs_huge_grid(*plan):
            return {}
        return describe_privacy_curve(*plan, receipt.delta, receipt.training.size)


def check(receipt: Receipt, folder: Path | None = None) -> Checked:
    """Recompute a receipt's epsilon with two accountants, and find every mismatch in the receipt.

    Args:
        receipt: the receipt to check.
        folder: the folder that the paths of its files are relative to; without it, no file is read.

    Raises:
        SpecError: the receipt has more events, or more deeply nested events, than is allowed.
    """
    terms = _list_receipt_terms(receipt)
    found: list[Mismatch] = []
    answered: tuple[EpsilonInterval, ...] = ()
    try:
        answered = compute_epsilons(receipt.training.events, receipt.delta, receipt.adjacency or "add-or-remove-one")
        found += _check_epsilon(receipt, answered)
    except SpecError as error:
        found.append(Mismatch("epsilon", f"cannot be recomputed: {error}"))
    found += (mismatch for judge in CHECKS for mismatch in judge(receipt, terms))
    found += _check_files(receipt, folder) if folder else []
    return Checked(receipt, answered, tuple(found), tuple(_list_remarks(receipt, terms, answered)))


def _list_receipt_terms(receipt: Receipt) -> list[Term]:
    event = receipt.training.events
    return flatten_to_terms(event.event if isinstance(event, BestOf) else event)


def _check_epsilon(receipt: Receipt, epsilons: tuple[EpsilonInterval, ...]) -> Iterator[Mismatch]:
    best = epsilons[0]
    if receipt.epsilon >= min(best.smallest_claimable_epsilon, best.upper - 1e-6):
        return
    cost = f"{best.upper:.4g}" if math.isfinite(best.upper) else "infinitely much"
    said = f"{best.accountant} computes {cost} for the events."
    if not best.lower:
        said = f"no accountant here can show less than {cost} ({best.accountant}). State that, or describe the events "
        said += "in a form that an accountant supports."
    yield Mismatch("epsilon", f"{receipt.epsilon:.4g} is stated, but {said}")


def _check_sampler(receipt: Receipt, terms: list[Term]) -> Iterator[Mismatch]:
    batches = receipt.training.batches
    if batches is None:
        return
    drawn = batches.drawn
    if drawn == "cyclic-poisson" and batches.cycle is None:
        yield Mismatch("sampler", "rows take turns, but `cycle`, the number of groups that take turns, is missing.")
    sums = (Gaussian, Laplace) if drawn == WITH_REPLACEMENT else Gaussian
    accounted = {
        term.sampler if term.rate < 1 or term.sampler == WITH_REPLACEMENT else None
        for term in terms
        if isinstance(term.leaf, sums) or term.rate < 1
    }
    if drawn != WITH_REPLACEMENT:
        if None in accounted and drawn in LIMITED_SIZE_SAMPLING and receipt.adjacency == "add-or-remove-one":
            yield Mismatch(
                "adjacency",
                f"in batches drawn as {drawn!r}, an extra row displaces another, which moves a sum by two clips: "
                "'add-or-remove-one' does not count that. State 'replace-one' or 'zero-out'.",
            )
        accounted -= {None}  # no gain of sampling is counted: that holds whoever is in a batch
    if accounted and accounted != {EXPECTED_SAMPLER[drawn]}:
        said = " and ".join(sorted(account or "no" for account in accounted))
        yield Mismatch(
            "sampler",
            f"batches were drawn as {drawn!r}, but epsilon assumes {said} sampling."
            f"{_describe_unsampled_epsilon(receipt, terms)}",
        )


def _describe_unsampled_epsilon(receipt: Receipt, terms: list[Term]) -> str:
    """Return a sentence on epsilon without amplification by sampling.

    The sentence is empty unless batches have each row once per epoch and all events are Gaussian sums.
    """
    batches, stated = receipt.training.batches, receipt.adjacency or "add-or-remove-one"
    gaussian = all(isinstance(term.leaf, Gaussian) for term in terms)
    if batches is None or batches.drawn not in ONCE_PER_EPOCH_SAMPLING or not gaussian:
        return ""
    epochs = [Repeated(event=term.leaf, times=max(1, math.ceil(term.times * term.rate - 1e-9))) for term in terms]
    replaced = batches.drawn == "shuffled" and stated == "add-or-remove-one"
    cost = compute_epsilons(Composed(events=tuple(epochs)), receipt.delta, "replace-one" if replaced else stated)[0]
    neighbours = " under 'replace-one', because an extra row displaces another" if replaced else ""
    return f" Without amplification by sampling, epsilon is {cost.upper:.4g}{neighbours}."


def _check_rate(receipt: Receipt, terms: list[Term]) -> Iterator[Mismatch]:
    batches, size = receipt.training.batches, receipt.training.size
    sampled = [term for term in terms if term.sampler]
    if batches is None or batches.size is None or size is None:
        return
    actual = batches.size / size * batches.groups  # of the rows whose turn it is
    if batches.drawn == WITH_REPLACEMENT:
        actual = -math.expm1(batches.size * math.log1p(-1 / size)) if size > 1 else 1.0  # some are drawn twice
    weights = [term.times / min(list_sigmas([term]), default=1.0) ** 2 for term in sampled]  # cheap ones hide nothing
    rate = (
        sum(weight * term.rate for weight, term in zip(weights, sampled, strict=True)) / sum(weights) if sampled else 1
    )
    if actual > rate * (1 + RELATIVE_TOLERANCE):
        mean = " on average" if len({term.rate for term in sampled}) > 1 else ""
        yield Mismatch(
            "rate",
            f"batches of {batches.size:g} of {size:,} rows are a rate of {actual:.4g}, but the events have "
            f"{rate:.4g}{mean}.",
        )


def _check_steps(receipt: Receipt, terms: list[Term]) -> Iterator[Mismatch]:
    batches = receipt.training.batches
    if batches is None or batches.steps is None:
        return
    steps = batches.steps
    if batches.drawn == "cyclic-poisson":
        steps = math.ceil(steps / batches.groups)  # that a row can be in
    elif batches.size and receipt.training.size and batches.drawn in ONCE_PER_EPOCH_SAMPLING:
        rate = terms[0].rate if terms and terms[0].sampler else 1.0
        steps = math.ceil(steps * batches.size / (receipt.training.size * rate) - 1e-9)  # the same
    accounted = sum(term.times for term in list_noisy_sums(terms))
    if steps > accounted:
        yield Mismatch("steps", f"the loop took {steps:,} steps, but the events have {accounted:,}.")


def _check_noise(receipt: Receipt, terms: list[Term]) -> Iterator[Mismatch]:
    if receipt.training.noise is not None:
        for said in find_noise_faults(receipt.training.noise, receipt.training.batches, terms):
            yield Mismatch("noise", said)


def _check_normaliser(receipt: Receipt, terms: list[Term]) -> Iterator[Mismatch]:
    batches = receipt.training.batches
    if batches is None or batches.normalised_by != "drawn-size":
        return
    fixed = batches.drawn in {"everything", "shuffled"} and receipt.adjacency == "add-or-remove-one"
    if batches.drawn in RANDOM_SIZE_SAMPLING or fixed:
        yield Mismatch(
            "normaliser",
            "sums were divided by the number of rows drawn, which one row changes: divide by the expected number.",
        )


def _check_adjacency(receipt: Receipt, terms: list[Term]) -> Iterator[Mismatch]:
    stated, accountant = receipt.adjacency, receipt.training.accountant
    assumed = accountant and accountant.adjacency
    if stated is None:
        yield Mismatch("adjacency", "missing: say whether a row is added or removed, replaced, or zeroed out.")
    elif assumed and assumed != stated:
        yield Mismatch("adjacency", f"{stated!r} is stated, but the accountant assumes {assumed!r}.")
    elif stated != "replace-one" and any(str(term.sampler).startswith("fixed-size") for term in terms):
        yield Mismatch(
            "adjacency", f"{stated!r} is stated, but samples of a fixed size are accounted under 'replace-one'."
        )


def _check_delta(receipt: Receipt, terms: list[Term]) -> Iterator[Mismatch]:
    size = receipt.training.size
    if size is None:
        if receipt.delta:
            yield Mismatch("size", "missing: say how many rows there are, or nobody can tell whether delta is small.")
    elif receipt.delta >= 1 / size:
        yield Mismatch(
            "delta",
            f"{receipt.delta:g} is {receipt.delta * size:.3g}/n for n = {size:,}: such a delta even "
            "allows publishing a random row. State epsilon at a delta well below 1/n.",
        )


def _check_unit(receipt: Receipt, terms: list[Term]) -> Iterator[Mismatch]:
    noise = receipt.training.noise
    clipped = noise and noise.clipped_per
    if not receipt.unit:
        yield Mismatch("unit", "missing: say whose data epsilon protects, such as image, example or patient.")
    elif clipped and clipped != receipt.unit:
        yield Mismatch("unit", f"epsilon is stated per {receipt.unit}, but each {clipped} was clipped on its own.")
    elif noise and not clipped and receipt.unit not in ROW_UNITS:
        yield Mismatch(
            "unit", f"epsilon is stated per {receipt.unit}, but the receipt does not say that all rows of one "
            f"{receipt.unit} were clipped together. State noise.clipped_per.",
        )  # fmt: skip


def _check_search(receipt: Receipt, terms: list[Term]) -> Iterator[Mismatch]:
    search, events = receipt.search, receipt.training.events
    if search is None:
        yield Mismatch("search", "missing: say how settings were chosen; runs = 1 if nothing was tried.")
    elif search.runs > 1 and search.data == "none":
        yield Mismatch("search", f"{search.runs:,} settings were compared: say whether on public or on private data.")
    elif search.runs > 1 and search.data == "private" and search.accounted == "no":
        yield Mismatch(
            "search", f"{search.runs:,} settings were compared on private data, but epsilon is that of one run."
        )
    elif search.accounted == "best-of" and not isinstance(events, BestOf):
        yield Mismatch("search", "accounted as 'best-of', but the events have no 'best-of'.")
    elif search.accounted == "best-of" and isinstance(events, BestOf) and search.runs > LARGEST_RUN_RATIO * events.mean:
        yield Mismatch(
            "search", f"accounted as 'best-of' {events.mean:g} runs on average, but {search.runs:,} runs were made."
        )
    elif search.accounted == "composed" and search.data == "private":
        batches = receipt.training.batches
        least, accounted = (
            search.runs * ((batches and batches.steps) or 1),
            sum(term.times for term in list_noisy_sums(terms)),
        )
        if accounted < least:
            yield Mismatch(
                "search", f"accounted as 'composed', but {search.runs:,} runs have at least {least:,} steps, and the "
                f"events have {accounted:,}.",
            )  # fmt: skip


def _has_comparable_delta(audit: AuditFigures, receipt: Receipt) -> bool:
    return audit.delta is None or audit.delta >= receipt.delta  # a smaller delta has a larger epsilon


def _compute_epsilon_at(receipt: Receipt, delta: float) -> float | None:
    """Return the epsilon of the events at another delta; None if no accountant can compute it."""
    try:
        return compute_epsilons(receipt.training.events, delta, receipt.adjacency or "add-or-remove-one")[0].upper
    except SpecError:
        return None


def _check_audit(receipt: Receipt, terms: list[Term]) -> Iterator[Mismatch]:
    audit = receipt.audit
    if audit is None:
        return
    most = (
        receipt.epsilon if _has_comparable_delta(audit, receipt) else _compute_epsilon_at(receipt, audit.delta or 0.0)
    )
    if most is not None and audit.epsilon_lower is not None and audit.epsilon_lower > most:
        less = (
            ""
            if _has_comparable_delta(audit, receipt)
            else f" at delta {audit.delta:g}, and the events cost {most:.4g} there"
        )
        sure = "" if audit.confidence is None else f" at a confidence of {audit.confidence:.4g}"
        yield Mismatch(
            "audit",
            f"{audit.method} found epsilon at least {audit.epsilon_lower:.4g}{sure}"
            f"{less or ', which is more than stated'}.",
        )
    if audit.failed:
        yield Mismatch("audit", f"{audit.method} failed: {'; '.join(audit.failed)}.")


CHECKS: tuple[Callable[[Receipt, list[Term]], Iterator[Mismatch]], ...] = (
    _check_sampler, _check_rate, _check_steps, _check_noise, _check_normaliser, _check_adjacency, _check_delta,
    _check_unit, _check_search, _check_audit,
)  # fmt: skip


def _check_files(receipt: Receipt, folder: Path) -> Iterator[Mismatch]:
    for role, value in receipt.files.items():
        if (trouble := _describe_file_error(folder / value.path, value.sha256)) is not None:
            yield Mismatch("hash", f"{role} {value.path[:200]} {trouble}.")


def _describe_file_error(file: Path, digest: str) -> str | None:
    """Return an error unless the file has this hash. Only regular files are read, because a pipe may never end."""
    try:
        if file.exists() and not file.is_file():
            return "cannot be read: it is not a regular file"
        return None if hash_record(file) == digest else "is not the file that the receipt is about: its SHA-256 differs"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except DataError as error:
        return f"cannot be read: {error}".rstrip(".")


def _list_unstated_facts(receipt: Receipt) -> list[str]:
    """List the facts about the loop that the receipt does not state."""
    batches, noise = receipt.training.batches, receipt.training.noise
    parts = {
        "noise": noise, "batches": batches, "batches.size": not batches or batches.size,
        "batches.steps": not batches or batches.steps is not None,
        "batches.normalised_by": not batches or batches.normalised_by,
    }  # fmt: skip
    return [name for name, stated in parts.items() if not stated]


def _list_remarks(receipt: Receipt, terms: list[Term], epsilons: tuple[EpsilonInterval, ...]) -> Iterator[str]:
    size, batches = receipt.training.size, receipt.training.batches
    if size and 0.5 / size < receipt.delta < 1 / size:
        yield f"Delta {receipt.delta:g} is {receipt.delta * size:.0%} of 1/n. Choose a delta well below 1/n."
    if epsilons and receipt.epsilon > epsilons[0].upper * 1.02:
        cost = f"{epsilons[0].accountant} computes {epsilons[0].upper:.4g}"
        yield f"{receipt.epsilon:.4g} is stated with a margin: {cost}."
    if batches and batches.normalised_by == "expected-size" and receipt.adjacency == "add-or-remove-one":
        yield "Sums are divided by the expected batch size: if it follows from n, then n is public."
    if receipt.unit and receipt.unit not in ROW_UNITS and receipt.training.noise is None:
        yield f"The receipt does not say that all rows of one {receipt.unit} were bounded together."
    if missing := _list_unstated_facts(receipt):
        yield f"Not stated, and so not checked: {', '.join(missing)}."
    if len(list_sigmas(terms)) > 1 and receipt.training.noise:
        yield "The events have noise of several sizes. The receipt states one, which was compared with the smallest."
    if receipt.audit is None or (receipt.audit.epsilon_lower is None and not receipt.audit.failed):
        yield "No audit: nothing but the author's word shows that the loop does what its events say."
    elif (
        not _has_comparable_delta(receipt.audit, receipt)
        and _compute_epsilon_at(receipt, receipt.audit.delta or 0.0) is None
    ):
        yield (
            f"The audit's bound holds at delta {receipt.audit.delta:g}, below the stated {receipt.delta:g}, and no "
            "accountant has an epsilon there, so they were not compared. State the bound at the same delta."
        )
