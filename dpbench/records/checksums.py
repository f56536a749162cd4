"""A seal over a result: one digest a field, so that a slip of the hand in a file is found and named.

The record of an audit or a re-run has one digest over everything. It names the result that was seen, so that the record
cannot be passed on to another result by editing that one line.

A seal proves nothing about who wrote the file: anybody can seal anew. What a result states is evidence only where it is
derived again, from plan and sigma or by running it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpbench.support.files import canonical_digest

UNSEALED = ("seal", "status")  # the status is the board's to change
DIGITS = 16  # of each digest, in hex


def seal_of(content: Mapping[str, Any]) -> dict[str, str]:
    """Return field -> digest of a result's JSON; a field of `privacy` is `privacy.sigma`, a seed is `seeds.0`.

    >>> sorted(seal_of({"digest": "d", "privacy": {"sigma": 1.5}, "seal": {}, "seeds": [{}, {}]}))
    ['digest', 'privacy', 'privacy.sigma', 'seeds', 'seeds.0', 'seeds.1']
    """
    seal: dict[str, str] = {}
    for name, value in content.items():
        if name in UNSEALED:
            continue
        parts = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
        inner = {f"{name}.{key}": _digest(part) for key, part in parts}
        seal |= inner
        seal[name] = _digest(sorted(str(key) for key in inner) if inner else value)  # what is in it, by name
    return seal


def record_seal(content: Mapping[str, Any]) -> str:
    """Return the digest of all that the record of an audit or a re-run says, that of the result it saw included."""
    return canonical_digest({name: value for name, value in content.items() if name != "seal"})


def broken_fields(content: Mapping[str, Any]) -> list[str]:
    """Return the fields of a result's JSON that its seal does not fit, the innermost where there is a choice."""
    stated, found = content.get("seal") or {}, seal_of(content)
    return sorted(field for field in {*stated, *found} if stated.get(field) != found.get(field))


def _digest(value: object) -> str:
    return canonical_digest(value)[:DIGITS]
