"""A paper's protocol, and one line that states how our runs differ from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dpbench.records.result import Result
from dpbench.support.validation import Record

PARTS = ("data", "network", "learners", "n", "settings", "accountant", "steps", "seeds")


class PublishedProtocol(Record):
    """The facts that a paper states about the runs behind a table or figure; omitted facts have their defaults."""

    data: tuple[str, ...] = ()  # names of datasets, as here; the paper's names for those that are not here
    network: tuple[str, ...] = ()  # names of extractors, likewise
    learners: tuple[str, ...] = ()  # names of learners here that run the paper's algorithms
    own: str | None = None  # the learner that the paper proposes
    n: Mapping[str, int] = {}  # dataset -> private examples
    settings: str | None = None  # how they were chosen
    accountant: str | None = None
    steps: tuple[int, ...] = ()  # the fewest and the most
    seeds: int | None = None


@dataclass(frozen=True)
class RunFacts:
    """The facts of a run that a paper's protocol also states; of an inspection, only `data` and `network` are known."""

    data: str
    network: str
    learner: str | None = None
    n: int | None = None  # private examples
    settings: str | None = None  # how they were chosen
    accountant: str | None = None
    steps: int | None = None  # of all releases
    seeds: int | None = None

    @classmethod
    def from_result(cls, result: Result) -> RunFacts:
        """Return the facts of a result."""
        spec = result.spec
        return cls(
            data=spec.dataset.name, network=spec.extractor.name, learner=spec.learner.name, n=result.task.private,
            settings="no search" if result.search is None else f"{result.selection} search", accountant=spec.accountant,
            steps=sum(use.steps for use in result.privacy.plan), seeds=len(result.seeds),
        )  # fmt: skip


def describe_differences(protocol: PublishedProtocol | None, runs: Iterable[RunFacts]) -> str:
    """Return one line on the `PARTS` of a protocol that differ; empty if nothing was run.

    For each part that differs, the line has our value and then the paper's in brackets. Without a protocol, as for a
    theorem, the line has all of our values.
    """
    kept, paper = tuple(runs), protocol or PublishedProtocol()
    if not kept:
        return ""
    ours = [
        _list_distinct_values(run.data for run in kept), _list_distinct_values(run.network for run in kept),
        _list_distinct_values(run.learner for run in kept), _list_private_sizes(kept),
        _list_distinct_values(run.settings for run in kept),
        _list_distinct_values(run.accountant for run in kept), _format_min_to_max(run.steps for run in kept),
        _format_min_to_max(run.seeds for run in kept),
    ]  # fmt: skip
    known = {name: size for name, size in paper.n.items() if name in paper.data}
    sizes = {name: size for name, size in known.items() if name in ours[0]} or known
    theirs = [
        paper.data, paper.network, paper.learners,
        _list_distinct_values(f"{n:,} of {name}" for name, n in sizes.items()),
        _list_distinct_values([paper.settings]), _list_distinct_values([paper.accountant]),
        _format_min_to_max(paper.steps), _format_min_to_max([paper.seeds]),
    ]  # fmt: skip
    if protocol is None:
        parts = [f"{name} {', '.join(mine)}" for name, mine in zip(PARTS, ours, strict=True) if mine]
        return f"Run with {'; '.join(parts)}. The theorem fixes no experiment."
    parts = [
        f"{name} {', '.join(mine)} ({', '.join(stated) or 'not stated'})"
        for name, mine, stated in zip(PARTS, ours, theirs, strict=True)
        if mine and set(mine) != set(stated)
    ]
    return f"Here (and in the paper): {'; '.join(parts)}." if parts else "No difference from the paper's protocol."


def _list_distinct_values(values: Iterable[str | None]) -> list[str]:
    return sorted({value for value in values if value is not None})


def _list_private_sizes(runs: Iterable[RunFacts]) -> list[str]:
    sizes: dict[str, list[int | None]] = {}
    for run in runs:
        sizes.setdefault(run.data, []).append(run.n)
    return [f"{extent} of {name}" for name, found in sorted(sizes.items()) for extent in _format_min_to_max(found)]


def _format_min_to_max(values: Iterable[int | None]) -> list[str]:
    known = [value for value in values if value is not None]
    if not known:
        return []
    least, most = min(known), max(known)
    return [f"{least:,}" if least == most else f"{least:,} to {most:,}"]
