"""Claims of a result that nobody has checked, marked on pages as the author's word."""

from __future__ import annotations

from collections.abc import Iterator, Set

from dpbench.records.provenance import HARNESS, list_plugin_sources
from dpbench.records.rerun import CODE_CLAIM
from dpbench.records.result import Result


def list_unchecked_claims(result: Result, confirmed: Set[str] = frozenset()) -> tuple[str, ...]:
    """Return the claims of a result that nobody has checked, as short phrases.

    Args:
        result: a result that passed every check of `dpbench leaderboard verify`.
        confirmed: claims that a re-run confirmed, such as `task.overlap` (`ClaimCheck.claim`), and `seeds` if all seeds
            came out the same.
    """
    return tuple(_unchecked_claims(result, confirmed))


def _unchecked_claims(result: Result, confirmed: Set[str]) -> Iterator[str]:
    if result.privacy.rng == "secure":
        yield "that this was the only run, and not the best of several"
        yield "that the noise was of the stated size"
    if "seeds" not in confirmed:
        yield "scores"
    if "task.overlap" not in confirmed:
        yield "how many images the splits share"
    if result.task.left_out and "task.left_out" not in confirmed:
        yield "how many private images equal a public one"
    if result.task.groups and "task.groups" not in confirmed:
        yield "which group each test image is in"
    if not any(claim.startswith(CODE_CLAIM) for claim in confirmed):
        yield "which code made it"
    yield from _unchecked_setting_claims(result, confirmed)
    sources = list_plugin_sources(result.provenance) or {}
    strangers = {
        (component.plugin, component.distribution)
        for component in result.components.values()
        if component.distribution != HARNESS
    }
    for plugin, distribution in sorted(strangers):
        if distribution not in sources:
            yield f"the code of plugin {plugin}, for which no repository is on record"
    yield "time, memory, machine and date"


def _unchecked_setting_claims(result: Result, confirmed: Set[str]) -> Iterator[str]:
    source = result.search.source if result.search else None
    if source is not None:
        yield f"that the settings come from run {source.digest[:16]} on {source.dataset} ({source.selection})"
    elif result.selection == "by-hand":
        yield "how somebody chose the settings by hand"
    elif result.selection in {"transfer", "private-unaccounted", "oracle"}:
        yield f"how the settings were chosen ({result.selection})"
    elif result.selection == "public-validation" and "search" not in confirmed:
        yield "the trials by which the settings were chosen"
