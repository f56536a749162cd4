"""Formatting of values for pages: numbers as in a paper's tables, and untrusted strings made harmless.

Jinja escapes HTML. This module also shortens long strings, and replaces characters that reorder or hide their
neighbours.
"""

from __future__ import annotations

import re

from dpbench.analysis import formats
from dpbench.analysis.columns import NO_VALUE, format_epsilon, format_percent_cell
from dpbench.records.result import Interval

MAX_LENGTH = 2000  # characters of one string on a page; the raw file has all of it
# Controls, zero widths, overrides of direction, lone surrogates, tags.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)


def sanitise_string(text: str, longest: int = MAX_LENGTH) -> str:
    """Return an untrusted string, shortened, with invisible characters replaced by U+FFFD.

    >>> sanitise_string("abc", 2)
    'ab … (1 more characters)'
    """
    if len(text) <= longest and text.isascii() and text.isprintable():
        return text  # as nearly all are
    if len(text) > longest:
        text = f"{text[:longest]} … ({len(text) - longest:,} more characters)"
    return _HIDDEN.sub("\ufffd", text)


def shorten_string(text: str, longest: int) -> str:
    """Return an untrusted string for a label, with an ellipsis if it is shortened.

    >>> shorten_string("abcdef", 4)
    'abc…'
    """
    return sanitise_string(text if len(text) <= longest else f"{text[: longest - 1]}…")


def escape_markdown(text: str) -> str:
    r"""Escape text for Markdown and put it on one line, because names come from third parties.

    >>> escape_markdown("<b>| [x](y)")
    '\\<b\\>\\| \\[x\\]\\(y\\)'
    """
    shown = "".join(sign if sign.isprintable() else " " for sign in text)
    return re.sub(r"([\\`*_{}\[\]()<>#|~!&$])", r"\\\1", " ".join(shown.split()))


def finalize_template_value(value: object) -> object:
    """Sanitise a plain string before a template prints it; return markup and other values unchanged."""
    return sanitise_string(value) if type(value) is str else value


def format_percent(share: float | None) -> str:
    """Return a share in percent with two digits.

    >>> format_percent(0.72041)
    '72.04'
    """
    return NO_VALUE if share is None else f"{100 * share:.2f}"


def format_points(share: float, digits: int = 2) -> str:
    """Return a difference of shares in points.

    >>> format_points(0.0123)
    '1.23 points'
    """
    return f"{100 * share:.{digits}f} points"


def format_signed_points(share: float, digits: int = 2) -> str:
    """Return a difference of shares in points, with its sign.

    >>> format_signed_points(-0.0123), format_signed_points(0.0)
    ('−1.23', '0')
    """
    return f"{100 * share:+.{digits}f}".replace("-", "−") if share else "0"


def format_score(interval: Interval | None, metric: str) -> str:
    """Return a metric's mean with its interval and its unit, as `dpbench results show` prints it.

    >>> format_score(Interval(mean=0.72, low=0.70, high=0.74), "accuracy")
    '72.00% ± 2.00'
    >>> format_score(Interval(mean=1.5, low=1, high=2), "nll")
    '1.500 ± 0.500'
    """
    return NO_VALUE if interval is None else formats.format_metric_score(metric, interval, unit=True)


def format_plain_score(interval: Interval | None, metric: str) -> str:
    """Return a metric's mean with its interval but without its unit, which the head of the column shows.

    >>> format_plain_score(Interval(mean=0.72, low=0.70, high=0.74), "accuracy"), format_plain_score(None, "nll")
    ('72.00 ± 2.00', '–')
    """
    return NO_VALUE if interval is None else formats.format_metric_score(metric, interval)


def format_seed_score(value: float | None, metric: str) -> str:
    """Return a seed's score in the format of `format_score`.

    >>> format_seed_score(0.72, "accuracy"), format_seed_score(None, "auroc")
    ('72.00%', '–')
    """
    return NO_VALUE if value is None else format_score(Interval(mean=value, low=None, high=None), metric)


def keep_epsilon_together(title: str) -> str:
    """Return a title with a no-break space between ε and its number."""
    return title.replace("ε ", "ε\u00a0")


def format_four_digits(value: float) -> str:
    """Return a number with four significant digits.

    >>> format_four_digits(37.3064), format_four_digits(0.0)
    ('37.31', '0')
    """
    return f"{value:.4g}"


def capitalise_name(name: str) -> str:
    """Return a name with a capital first letter. A symbol stays as it is, because Δ and δ differ in meaning.

    >>> capitalise_name("not covered"), capitalise_name("δ")
    ('Not covered', 'δ')
    """
    return name[:1].upper() + name[1:] if name.isascii() else name


def make_anchor(name: str) -> str:
    """Return a name as the fragment of a web address.

    >>> make_anchor("audit: noise"), make_anchor("cifar10.1")
    ('audit-noise', 'cifar10-1')
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


FILTERS = {
    "percent": format_percent, "points": format_points, "signed": format_signed_points, "spread": format_percent_cell,
    "score": format_score,
    "plain_score": format_plain_score, "seed_score": format_seed_score, "budget": format_epsilon,
    "upward": formats.format_upper_bound, "downward": formats.format_lower_bound,
    "four": format_four_digits, "bound": keep_epsilon_together,
    "capital": capitalise_name, "anchor": make_anchor, "shorten": sanitise_string,
}  # fmt: skip
