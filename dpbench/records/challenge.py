"""The record of challenge seeds: five fits of a filed result with seeds that nobody chose. No torch here."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

from pydantic import Field

from dpbench.records.result import Result, SeedResult
from dpbench.records.storage import SealedRecord

CHALLENGE_COUNT = 5
DOMAIN = "dpbench challenge seeds 1"
SEED_BYTES = 6  # every program reads such a number in JSON exactly


class Challenge(SealedRecord):
    """The fits of a result's spec with its challenge seeds, who made them and where."""

    schema_version: Literal[1] = 1
    digest: str  # of the result's spec
    content: str  # digest of the result's evidence
    commit: str = Field(pattern="^([0-9a-f]{40}|[0-9a-f]{64})$")  # that filed the result
    # Digests of the evidence of other results that stood in the result's place, each with other challenge seeds.
    replaced: tuple[str, ...] = Field(default=(), exclude_if=lambda value: not value)
    seeds: tuple[SeedResult, ...] = Field(min_length=CHALLENGE_COUNT, max_length=CHALLENGE_COUNT)
    by: str | None = None  # who ran them, as far as that was given
    provenance: dict[str, Any]  # machine, versions, commit, and digests of the code
    seal: str = ""  # over all of the above, as it was written


def derive_challenge_seeds(evidence: str, commit: str) -> tuple[int, ...]:
    """Derive the challenge seeds from the digest of a result's evidence and the commit that files the result.

    The evidence is fixed before the commit exists, and a commit's hash covers its time and everything before it.

    >>> derive_challenge_seeds("0" * 64, "1" * 40)[:2]
    (21958972708734, 104301711103214)
    """
    drawn = (
        hashlib.sha256(f"{DOMAIN}\0{evidence}\0{commit}\0{place}".encode()).digest() for place in range(CHALLENGE_COUNT)
    )
    return tuple(int.from_bytes(digest[:SEED_BYTES]) for digest in drawn)


def replace_seeds(result: Result, seeds: tuple[SeedResult, ...]) -> Result:
    """Return a copy of the result with these seeds, from which its scores are computed; its digests match no file."""
    spec = result.spec.model_copy(update={"seeds": tuple(seed.seed for seed in seeds)})
    return Result.model_construct(**{**dict(result), "spec": spec, "seeds": seeds})
