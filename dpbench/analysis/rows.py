"""Rows of tables: the typed facts of a result, and its standing among comparable results."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dpbench.analysis.reader import StoredResult
from dpbench.privacy.core.accounting.crosscheck import EpsilonInterval
from dpbench.records.metrics import METRIC_FACTS
from dpbench.records.protocol import Component, Protocol
from dpbench.records.result import ComponentOrigin, Interval, Result
from dpbench.records.search import SelectionRule
from dpbench.support.validation import Record

SELECTION_WORDS: Mapping[SelectionRule, str] = {
    "default": "defaults",
    "by-hand": "set by hand",
    "transfer": "tuned elsewhere",
    "public-validation": "tuned",
    "private-accounted": "tuned within ε",
    "private-unaccounted": "tuned outside ε",
    "oracle": "tuned on the test split",
}
"""How settings were chosen, in a few words."""


class Origin(Record):
    """The date of a record and the code that made it; unknown values are None."""

    date: str | None  # of the day, YYYY-MM-DD
    version: str | None  # of dpbench
    commit: str | None
    dirty: bool | None  # whether the tree had other changes


@dataclass(frozen=True)
class ResultFacts:
    """The facts of a result that tables show; an entry of a board has fields of the same names."""

    learner: str
    settings: Mapping[str, str]  # of the learner, spelled out
    selection: SelectionRule
    tried: int | None  # settings that were tried, where that may be told
    status: str | None  # of a file: submitted, disputed or withdrawn; of an entry: see `Entry.status`
    rng: Literal["research", "secure"]
    mechanism: str  # that answered
    made: Origin
    metrics: Mapping[str, Interval]
    seeds: int
    epsilon: float
    independent: EpsilonInterval
    sigma: float
    steps: int  # noisy sums in all
    seconds: float  # of one fit, on the machine that ran it; 0 where it must stay secret (private search)
    cpu_seconds: float | None  # of one fit, all threads; None on a GPU, and where it must stay secret
    peak_bytes: int  # of the process, over all phases of the run; 0 where it is not on record
    unmeasured: str  # why `cpu_seconds` or `peak_bytes` is missing
    plugin: ComponentOrigin

    @property
    def records_cost(self) -> bool:
        """Whether the result records the cost of a fit."""
        return not self.unmeasured and self.cpu_seconds is not None and self.peak_bytes > 0


@dataclass(frozen=True)
class ResultStanding:
    """The standing of a result among comparable results, in a table column or on its board."""

    tied: bool  # the best of them, or statistically tied with it
    behind: float | None  # how far from the best of them, in the metric's own unit; below 0 for a better reference
    board: str = ""  # the rest is known of boards alone
    role: str = "entry"
    rank: int | None = None
    uncorrected_rank: int | None = None
    rivals: int = 0  # among how many entries it is ranked, itself among them
    why: str = ""  # it is not ranked
    trust: str = ""
    checks: str = ""  # what was done to it, in words
    reproduced: bool = False
    reads: str = ""  # of the public data
    command: str = ""  # that repeats it


@dataclass(frozen=True)
class ResultRow:
    """A result in a table: its file, protocol and facts and, after a comparison, its standing."""

    file: str
    protocol: Protocol
    facts: ResultFacts
    standing: ResultStanding | None = None
    stored: Result | None = None  # the whole result; None where only the index of a leaderboard was read

    @property
    def result(self) -> Result:
        """The whole result. Only rows that were read from result files have it."""
        assert self.stored is not None
        return self.stored

    @property
    def score(self) -> Interval | None:
        """The score in the protocol's metric, or None if a seed lacks the metric."""
        return self.facts.metrics.get(self.protocol.metric)


def make_result_row(stored: StoredResult) -> ResultRow:
    """Return the row of a stored result, without a standing."""
    spec = stored.result.spec
    protocol = spec.model_copy(
        update={name: sort_component_options(getattr(spec, name)) for name in ("dataset", "extractor")}
    )
    return ResultRow(str(stored.file), protocol, collect_result_facts(stored.result), stored=stored.result)


def collect_result_facts(result: Result) -> ResultFacts:
    """Return the facts of a result that tables and boards show."""
    privacy, search, fits = result.privacy, result.search, len(result.seeds)
    measured = _ran_on_cpu(result) and "fit" in result.cpu_seconds
    return ResultFacts(
        learner=result.spec.learner.name, settings=_collect_setting_texts(result), selection=result.selection,
        tried=search.tried if search else 1, status=result.status, rng=privacy.rng, mechanism=privacy.mechanism,
        made=read_origin(result.provenance), metrics=dict(sorted(result.metrics.items())), seeds=fits,
        epsilon=privacy.epsilon, independent=privacy.independent, sigma=privacy.sigma,
        steps=sum(release.steps for release in privacy.plan), seconds=result.seconds.get("fit", 0.0) / fits,
        cpu_seconds=result.cpu_seconds["fit"] / fits if measured else None,
        peak_bytes=max(result.peak_bytes.values(), default=0), unmeasured=_explain_missing_cost(result),
        plugin=result.components["learner"],
    )  # fmt: skip


def sign_adjusted_mean(metric: str, score: Interval) -> float:
    """Return a score's mean, negated for metrics where lower is better, so that larger is always better."""
    return score.mean if METRIC_FACTS[metric].higher else -score.mean


def find_best_score(metric: str, scores: Iterable[Interval]) -> Interval:
    """Return the best score by a metric."""
    return max(scores, key=lambda score: sign_adjusted_mean(metric, score))


def compute_distance_behind(metric: str, score: Interval, best: Interval) -> float:
    """Return how much worse a score is than the best score, in the metric's own unit; negative if it is better.

    All tables and boards use this function; each chooses the score that it calls the best.
    """
    return sign_adjusted_mean(metric, best) - sign_adjusted_mean(metric, score)


def sort_component_options(component: Component) -> Component:
    """Sort a component's options by name, as in stored files; in a new result they may have another order."""
    parts = [Component(name=part.name, options=dict(sorted(part.options.items()))) for part in component.parts]
    return component.with_parts(parts)


def read_origin(provenance: Mapping[str, Any]) -> Origin:
    """Read the origin from a record's provenance; a value that is not in dpbench's format becomes None."""
    text = {
        name: str(provenance.get(name))
        for name, form in _ORIGIN_PATTERNS.items()
        if form.fullmatch(str(provenance.get(name)))
    }
    dirty = provenance.get("dirty")
    return Origin(
        date=text.get("date"), version=text.get("dpbench"), commit=text.get("commit"),
        dirty=dirty if isinstance(dirty, bool) else None,
    )  # fmt: skip


_ORIGIN_PATTERNS = {
    "date": re.compile(r"20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"),
    "dpbench": re.compile(r"[0-9][0-9A-Za-z.+-]{0,39}"),
    "commit": re.compile(r"[0-9a-f]{40}"),
}


def _collect_setting_texts(result: Result) -> dict[str, str]:
    search = result.search
    each = dict.fromkeys(search.space, "chosen for each seed") if search and search.chosen is None else {}
    return {name: str(value) for name, value in sorted({**result.settings, **each}.items())}


def _ran_on_cpu(result: Result) -> bool:
    return result.provenance.get("device") == "cpu"


def _explain_missing_cost(result: Result) -> str:
    """Return why a result does not record the cost of a fit; empty if it does."""
    if result.privacy.repeats:
        return "the cost of a private search stays secret: it tells how many runs there were"
    if not _ran_on_cpu(result):
        return "the fit ran on a GPU, whose time and memory are not those of the processor"
    return "" if "fit" in result.cpu_seconds and "fit" in result.peak_bytes else "the result does not record it"
