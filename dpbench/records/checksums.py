"""Digests of files' contents, which reveal accidental changes.

A result has a digest of its evidence. The record of an audit, a re-run or challenge seeds names this digest, and has a
digest of its own content. Editing the named digest alone therefore cannot assign the record to another result.

A digest proves nothing about the author of a file, because anybody can compute it again. A statement in a result is
evidence only once it has been recomputed, from plan and sigma or by running the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpbench.support.files import canonical_digest


def evidence_digest(content: Mapping[str, Any]) -> str:
    """Return the digest of a result's JSON without its status, because a board may change the status."""
    return _digest_without_fields(content, "evidence_digest", "status")


def compute_seal(content: Mapping[str, Any]) -> str:
    """Return the digest of a record about a result; it covers the evidence digest of that result."""
    return _digest_without_fields(content, "seal")


def _digest_without_fields(content: Mapping[str, Any], *names: str) -> str:
    return canonical_digest({name: value for name, value in content.items() if name not in names})
