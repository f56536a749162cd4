"""Digests over the content of files, which reveal accidental changes.

A result has one over its evidence. The record of an audit or a re-run has one over everything, and names the evidence
that it saw, so that it cannot be passed on to another result by editing that one line.

A digest proves nothing about who wrote the file: anybody can compute it anew. What a result states is evidence only
where it is derived again, from plan and sigma or by running it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpbench.support.files import canonical_digest


def evidence_digest(content: Mapping[str, Any]) -> str:
    """Return the digest of a result's JSON without its status, which belongs to the board."""
    return _digest_without(content, "evidence_digest", "status")


def record_seal(content: Mapping[str, Any]) -> str:
    """Return the digest of an audit's or re-run's record, including the digest of the result that it saw."""
    return _digest_without(content, "seal")


def _digest_without(content: Mapping[str, Any], *names: str) -> str:
    return canonical_digest({name: value for name, value in content.items() if name not in names})
