"""Wording that many messages share: unknown names, sizes, durations."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def unknown(what: str, name: str, known: Iterable[str], owner: str = "") -> str:
    """Return a message that `name` is unknown, with the nearest name and all available ones.

    >>> unknown("learner", "pilar", ["pillar", "dp-sgd"])
    "Unknown learner 'pilar'. Did you mean 'pillar'? There is: dp-sgd, pillar."
    """
    known = sorted(known)
    nearest = difflib.get_close_matches(name, known, 1)
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    return f"Unknown {what} {name!r}{owner and f' of {owner}'}.{hint} There is: {', '.join(known) or 'nothing'}."


def in_words(size: int) -> str:
    """Return a number of bytes as text; empty for 0.

    >>> in_words(1_234_000_000), in_words(169_001_437), in_words(0)
    ('1.2 GB', '169 MB', '')
    """
    if size >= 10**9:
        return f"{size / 1e9:.1f} GB"
    return f"{max(1, round(size / 1e6))} MB" if size else ""


def duration(seconds: float) -> str:
    """Return a duration as text, to two units.

    >>> duration(3 * 3600 + 25 * 60 + 7)
    '3 h 25 min'
    """
    whole = round(seconds)
    for size, unit, below, smaller in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // below} {smaller}"
    return f"{whole} s"
