"""Judge the numbers of a claim: account its epsilon with two accountants, and give one of four verdicts.

================== =====================================================================================
verdict            when
================== =====================================================================================
reproducible       epsilon by `pld` or by `rdp` is within 2% of the stated one
stated with margin the tighter accountant, mostly `pld`, finds less than the stated epsilon, by more than 2%
understated        the stated epsilon is more than 2% below what both accountants find, for every sigma that
                   rounds to the printed one
underspecified     a number that epsilon depends on is missing, or no accountant answers; the verdict says which
================== =====================================================================================

Both accountants assume Poisson sampling and neighbours that differ by adding or removing one example. Where a paper
states another sampler, or none, the verdict says so. It is about the accounting and says nothing about the training.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Literal, get_args

from pydantic import TypeAdapter, ValidationError

from dpbench.privacy.core.accounting.accountant import AccountantName, approximate_neighbour_distance, epsilon
from dpbench.privacy.core.plan import Release
from dpbench.support.files import canonical_digest, write_atomically
from dpbench.support.processes import process_pool
from dpbench.support.validation import Record
from dpbench_lab.claims.catalogue import Claim, Paper

Judgement = Literal["reproducible", "stated with margin", "understated", "underspecified"]
JUDGEMENTS: tuple[Judgement, ...] = get_args(Judgement)
TOLERANCE = 0.02
LARGEST_DISTANCE = 20.0  # of neighbours, in standard deviations: epsilon is about 280
SMALLEST_SIGMA = 0.2
UNANSWERED = "noise: too little for an accountant to give an answer"
RECORD = "verdicts.json"
"""The file of verdicts beside a catalogue, which the site shows. It is a cache: changed claims are judged again."""


class ClaimVerdict(Record):
    """The verdict on a claim, and the numbers behind it."""

    paper: str
    claim: str
    digest: str  # of the claim as judged
    stated: float
    pld: float | None  # epsilon by privacy loss distributions
    rdp: float | None  # epsilon by Renyi orders
    judgement: Judgement
    missing: tuple[str, ...]
    remarks: tuple[str, ...]


def judge_claim(paper: Paper, claim: Claim) -> ClaimVerdict:
    """Compute a claim's epsilon with two accountants, and compare it with the stated epsilon."""
    missing = list_missing_numbers(claim)
    found: dict[AccountantName, float] = {}
    judgement: Judgement = "underspecified"
    if not missing:
        found = _compute_epsilons(claim, claim.sigma or Decimal(1))
        judgement = _judge_epsilons(claim, found) if found else judgement
        missing = () if found else (UNANSWERED,)
    return ClaimVerdict(
        paper=paper.key, claim=claim.id, digest=digest_claim(claim), stated=float(claim.epsilon), pld=found.get("pld"),
        rdp=found.get("rdp"), judgement=judgement, missing=missing, remarks=list_accounting_remarks(claim),
    )  # fmt: skip


def judge_all_claims(papers: Sequence[Paper], known: Iterable[ClaimVerdict] = ()) -> list[ClaimVerdict]:
    """Return the verdict of every claim, paper by paper; a known verdict with the same digest is reused."""
    kept = {(verdict.paper, verdict.claim, verdict.digest): verdict for verdict in known}
    pairs = [(paper, claim) for paper in papers for claim in paper.claims]
    fresh = [pair for pair in pairs if (pair[0].key, pair[1].id, digest_claim(pair[1])) not in kept]
    made = iter(_judge_in_parallel(fresh))
    return [kept.get((paper.key, claim.id, digest_claim(claim))) or next(made) for paper, claim in pairs]


def _judge_in_parallel(pairs: Sequence[tuple[Paper, Claim]]) -> list[ClaimVerdict]:
    """Judge claims in several processes if there are enough: a composition takes a second or two."""
    if len(pairs) < 8:
        return [judge_claim(paper, claim) for paper, claim in pairs]
    papers, claims = zip(*pairs, strict=True)
    with process_pool(min(8, os.cpu_count() or 1)) as pool:
        return list(pool.map(judge_claim, papers, claims, chunksize=2))


def digest_claim(claim: Claim) -> str:
    """Return the SHA-256 of a claim."""
    return canonical_digest(claim.model_dump(mode="json"))


def list_missing_numbers(claim: Claim) -> tuple[str, ...]:
    """Return what is missing to compute epsilon: numbers that the paper does not give, or an accountant."""
    if claim.accountant == "pate":
        return ("the teachers' votes, which a data-dependent epsilon follows from",)
    if claim.adjacency == "replace-one":
        return ("an accountant for replace-one neighbours",)
    values = {"δ": claim.delta, "σ": claim.sigma, "sample rate": claim.rate, "steps": claim.rounds}
    if claim.rounds is None and claim.epochs is not None:
        del values["steps"]  # they follow from the sample rate, which is missing
    lacking = tuple(name for name, value in values.items() if value is None)
    return lacking or (() if _is_within_accountant_range(claim) else (UNANSWERED,))


def _is_within_accountant_range(claim: Claim) -> bool:
    """Return whether accountants answer within seconds: sigma from 0.2, and neighbours at a distance of up to 20."""
    sigma = claim.sigma or Decimal(1)
    least = min(float(decimal) for decimal in (sigma, *(further.sigma for further in claim.further)))
    return (
        least >= SMALLEST_SIGMA
        and approximate_neighbour_distance(_make_plan(claim, sigma), float(sigma)) <= LARGEST_DISTANCE
    )


def list_accounting_remarks(claim: Claim) -> tuple[str, ...]:
    """Return remarks on the accounting: approximations, and assumptions that the source contradicts or leaves open."""
    said = []
    if claim.sampler in {"shuffled", "fixed-size"}:
        said.append(f"batches are {claim.sampler}; accounted as Poisson samples")
    elif claim.sampler is None and claim.sigma is not None:
        said.append("sampler not stated; accounted as Poisson samples")
    if claim.accountant == "gdp":
        said.append("stated by the central limit theorem, an approximation that may be below epsilon")
    return tuple(said)


def _judge_epsilons(claim: Claim, computed: Mapping[AccountantName, float]) -> Judgement:
    stated = float(claim.epsilon)
    if any(abs(value - stated) <= TOLERANCE * stated for value in computed.values()):
        return "reproducible"
    if stated > min(computed.values()):
        return "stated with margin"
    further = [
        release.model_copy(update={"sigma": _largest_sigma_rounding_to(release.sigma)}) for release in claim.further
    ]
    loose = claim.model_copy(update={"further": tuple(further)})
    least = min(_compute_epsilons(loose, _largest_sigma_rounding_to(claim.sigma or Decimal(1))).values())
    return "understated" if least > (1 + TOLERANCE) * stated else "reproducible"


def _largest_sigma_rounding_to(printed: Decimal) -> Decimal:
    """Return the largest sigma that rounds to a printed number: the number plus half a unit in its last digit."""
    exponent = printed.as_tuple().exponent
    return printed + Decimal(5).scaleb((exponent if isinstance(exponent, int) else 0) - 1)


def _compute_epsilons(claim: Claim, sigma: Decimal) -> dict[AccountantName, float]:
    """Return epsilon from each accountant with a finite answer; the grid of `pld` fails if delta is very small."""
    names: tuple[AccountantName, ...] = ("pld", "rdp")
    found = {name: epsilon(_make_plan(claim, sigma), float(sigma), claim.delta or 0.0, name) for name in names}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def _make_plan(claim: Claim, sigma: Decimal) -> list[Release]:
    return [
        Release("gradient", claim.rounds or 1, claim.rate or 1.0),
        *(
            Release(f"further {place}", release.steps, release.sample_rate, float(release.sigma) / float(sigma))
            for place, release in enumerate(claim.further)
        ),
    ]


def read_verdicts(folder: Path) -> tuple[ClaimVerdict, ...]:
    """Return the verdicts recorded beside a catalogue; none if there is no record, or it is damaged."""
    file = folder / RECORD
    try:
        return TypeAdapter(tuple[ClaimVerdict, ...]).validate_json(file.read_bytes())
    except (OSError, ValidationError):  # they are then made anew
        return ()


def write_verdicts(folder: Path, verdicts: Sequence[ClaimVerdict]) -> Path:
    """Write the verdicts beside a catalogue, and return the file."""
    file = folder / RECORD
    content = TypeAdapter(Sequence[ClaimVerdict]).dump_json(verdicts, indent=1) + b"\n"
    write_atomically(file, lambda opened: opened.write(content))
    return file
