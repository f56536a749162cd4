"""Format parts that many messages share: unknown names, sizes and durations."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable


def format_unknown_name_message(kind: str, name: str, known_names: Iterable[str], owner: str = "") -> str:
    """Return the message that `name` is unknown, with the nearest name and all available names.

    >>> format_unknown_name_message("learner", "pilar", ["pillar", "dp-sgd"])
    "Unknown learner 'pilar'. Did you mean 'pillar'? Available: dp-sgd, pillar."
    >>> format_unknown_name_message("dataset", "MNIST", ["fashion-mnist", "pcam"])
    "Unknown dataset 'MNIST'. Did you mean 'fashion-mnist'? Available: fashion-mnist, pcam."
    """
    known_names = sorted(known_names)
    nearest = _find_nearest_name(name, known_names)
    hint = f" Did you mean {nearest!r}?" if nearest else ""
    return f"Unknown {kind} {name!r}{owner and f' of {owner}'}.{hint} Available: {', '.join(known_names) or 'none'}."


def _find_nearest_name(name: str, known_names: list[str]) -> str | None:
    """Return the known name that the user probably meant, with similar spelling or with `name` as one of its parts."""
    lower = {name.lower(): name for name in known_names}
    wanted = name.strip().lower()
    if wanted in lower:
        return lower[wanted]
    within = [name for name in lower if wanted in name.split("-")]
    found = [*difflib.get_close_matches(wanted, lower, 1, 0.75), *within, *difflib.get_close_matches(wanted, lower, 1)]
    return lower[found[0]] if found else None


def format_bytes(size: int) -> str:
    """Return a number of bytes as text; empty text for 0 bytes.

    >>> format_bytes(1_234_000_000), format_bytes(169_001_437), format_bytes(0)
    ('1.2 GB', '169 MB', '')
    """
    if size >= 10**9:
        return f"{size / 1e9:.1f} GB"
    return f"{max(1, round(size / 1e6))} MB" if size else ""


def format_seconds(value: float) -> str:
    """Return seconds as text with three significant digits, never in scientific notation.

    >>> [format_seconds(spent) for spent in (0.0731, 4.443, 76.25, 1234.0)]
    ['0.0731', '4.44', '76.2', '1,234']
    """
    digits = max(0, 2 - math.floor(math.log10(value))) if value > 0 else 0
    return f"{value:,.{min(digits, 4)}f}"


def format_duration(seconds: float) -> str:
    """Return a duration as text: in two units from one minute, else in seconds; below 10 s with two significant digits.

    >>> format_duration(3 * 3600 + 25 * 60 + 7), format_duration(75.2), format_duration(0.6219)
    ('3 h 25 min', '1 min 15 s', '0.62 s')
    """
    if seconds < 10:
        return f"{seconds:.2g} s"
    whole = round(seconds)
    for size, unit, below, smaller in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // below} {smaller}"
    return f"{whole} s"
