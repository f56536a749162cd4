"""Descriptions of results for runs, `results show`, reports, entry pages and model cards."""

from __future__ import annotations

import functools
import html
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpbench.analysis.formats import format_lower_bound, format_metric_score, format_upper_bound
from dpbench.analysis.risk import (
    RiskFunction,
    describe_largest_membership_risk,
    describe_membership_risk,
    describe_privacy_curve,
    max_true_positive_rates,
)
from dpbench.analysis.rows import SELECTION_WORDS
from dpbench.analysis.tables import ComponentNamer, make_result_label
from dpbench.analysis.word import list_unchecked_claims
from dpbench.harness.delta import USUAL_DELTA, compute_default_delta
from dpbench.records.groups import (
    compute_accuracy_by_group,
    compute_price_by_group,
    find_non_private_counterpart,
    format_group_accuracies,
    format_privacy_price,
)
from dpbench.records.metrics import METRIC_FACTS, METRICS
from dpbench.records.result import ComponentOrigin, Result
from dpbench.records.search import SelectionRule
from dpbench.records.spec import Spec
from dpbench.records.stated_plan import PrivacyGuarantee
from dpbench.support.messages import format_bytes, format_duration

if TYPE_CHECKING:
    from rich.table import Table

SELECTION_SENTENCES: Mapping[SelectionRule, str] = {
    "default": "The learner's default settings; nothing was tried.",
    "by-hand": "Settings given by the user; how they were chosen is not recorded.",
    "transfer": "Settings tuned earlier on another dataset.",
    "public-validation": "Tuned on the public split only, with its labels.",
    "private-accounted": "Tuned on private data; ε covers the whole search.",
    "private-unaccounted": "Tuned on private data; ε does not cover the search, so the result is never ranked.",
    "oracle": "Tuned on the test split; never ranked.",
}
"""A sentence for each selection rule: how the settings were chosen."""
NOISE_SOURCES: Mapping[str, str] = {
    "research": "from published seeds, so anyone can repeat this number; do not release a model from this run",
    "secure": "from the operating system, so nobody can subtract it from a released model",
}
"""Where the noise of each random generator comes from."""
HIDDEN_PROVENANCE = {"code", "dpbench", "commit", "dirty", "device", "processor", "platform", "date"}
"""Keys of the provenance that get no fact of their own: other facts state them, or they are digests of code."""


@dataclass(frozen=True)
class ResultFact:
    """A fact of a result: a name and texts, each complete on its own."""

    name: str
    texts: tuple[str, ...]
    brief: bool = False  # part of the summary after a run
    shared: tuple[str, ...] = ()  # what holds of every result of its protocol; empty for a fact of one result

    @property
    def text(self) -> str:
        """All texts of the fact in a single line."""
        return "; ".join(self.texts)


@dataclass(frozen=True)
class FactSection:
    """Facts under a heading."""

    title: str
    facts: tuple[ResultFact, ...]


@dataclass(frozen=True)
class ResultDescription:
    """All facts of a result, or the facts that several results share."""

    title: str
    sections: tuple[FactSection, ...]

    @property
    def facts(self) -> Iterator[ResultFact]:
        """All facts of all sections, in order."""
        return (fact for section in self.sections for fact in section.facts)

    @property
    def brief(self) -> list[tuple[str, str]]:
        """The names and texts of the facts in the summary after a run."""
        return [(fact.name, fact.text) for fact in self.facts if fact.brief]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The names and texts of all facts."""
        return [(fact.name, fact.text) for fact in self.facts]

    def section(self, title: str) -> tuple[ResultFact, ...]:
        """Return the facts under a heading; empty if there is no such section."""
        return next((section.facts for section in self.sections if section.title == title), ())


def describe_result(
    result: Result, others: Iterable[Result] = (), namer: ComponentNamer = lambda _, part: str(part),
    risk: RiskFunction = max_true_positive_rates,
) -> ResultDescription:  # fmt: skip
    """Return all facts of a result.

    Args:
        result: the result to describe.
        others: other results in the same folder; a non-private one gives the cost of privacy for each group.
        namer: writes a component, with all options or with only the options that differ from their defaults.
        risk: computes the largest true-positive rates of membership tests; for many results, pass a cached function.
    """
    data, features = namer("dataset", result.spec.dataset), namer("extractor", result.spec.extractor)
    title = f"{make_result_label(result)} on {data} ({features})"
    sections = (
        FactSection("data", tuple(_data_facts(result, namer))),
        FactSection("scores", tuple(_score_facts(result, others))),
        FactSection("guarantee", tuple(_guarantee_facts(result, risk))),
        FactSection("settings", tuple(_settings_facts(result))),
        FactSection("origin", tuple(_origin_facts(result))),
        FactSection("warnings", tuple(ResultFact("warning", (remark,), brief=True) for remark in result.remarks)),
    )
    return ResultDescription(title, sections)


def describe_shared_facts(results: Sequence[Result], namer: ComponentNamer) -> ResultDescription:
    """Merge the shared facts of several results of one protocol: a fact lists each of its distinct texts once."""
    found: dict[str, dict[str, dict[str, None]]] = {}
    risk = functools.cache(max_true_positive_rates)
    for result in results:
        for section in describe_result(result, namer=namer, risk=risk).sections:
            for fact in section.facts:
                if fact.shared:
                    found.setdefault(section.title, {}).setdefault(fact.name, {}).update(dict.fromkeys(fact.shared))
    private = [result for result in results if result.privacy.sigma]
    if private:
        found["guarantee"]["membership test"] = {describe_largest_membership_risk(private, risk): None}
    facts = {
        title: tuple(ResultFact(name, tuple(texts)) for name, texts in under.items()) for title, under in found.items()
    }
    return ResultDescription("", tuple(FactSection(title, under) for title, under in facts.items()))


def format_settings(settings: Mapping[str, Any]) -> str:
    """Return settings as a line of text; `auto` marks a setting that a rule chooses at the start of a run."""
    return ", ".join(f"{name}={'auto' if value is None else value}" for name, value in settings.items()) or "none"


def _settings_facts(result: Result) -> Iterator[ResultFact]:
    search, settled = result.search, ", ".join(result.settled)
    tried = f", {search.tried} of {search.possible} tried" if search and search.trials else ""
    followed = f"; {settled} from n, ε and δ" * bool(settled)
    written = f"{format_settings(result.settings)} ({SELECTION_WORDS[result.selection]}{tried}{followed})"
    yield ResultFact("settings", (written,), brief=True)
    yield ResultFact("selection", (SELECTION_SENTENCES[result.selection],), shared=(result.selection,))
    if search:
        yield ResultFact("search", tuple(_describe_search(result)))
    for seed in result.seeds:
        if seed.setting:
            yield ResultFact(f"settings of seed {seed.seed}", (format_settings(seed.setting),), brief=True)


def _describe_search(result: Result) -> Iterator[str]:
    search = result.search
    assert search is not None
    many = "a secret number" if search.tried is None else f"{search.tried:,}"
    yield f"{many} of {search.possible:,} settings tried"
    yield f"{'private data used' if search.private_touched else 'no private data used'}"
    yield f"{search.public_labels:,} public labels read"
    if search.source:
        yield f"settings from {search.source.dataset} with {search.source.extractor} ({search.source.selection})"


def count_public_images(result: Result) -> int:
    """Count the public examples, even if the learner does not read them."""
    there = result.task.overlap.get("public in private")
    return max(result.task.public, there.among if there else 0)


def _data_facts(result: Result, namer: ComponentNamer) -> Iterator[ResultFact]:
    spec, task = result.spec, result.task
    yield ResultFact("data", (namer("dataset", spec.dataset),))
    owned = f" {spec.unit}s ({task.images:,} images)" if spec.unit and task.units else ""
    there = count_public_images(result)
    unused = " (not used by the learner)" * (there > 0 and not task.public)
    private, test = f"{task.private:,} private{owned}", f"{task.test:,} test examples of {len(task.classes)} classes"
    sizes = f"{private}, {there:,} public, {test}"
    yield ResultFact("split", (f"{private}, {there:,} public{unused}, {test}",), brief=True, shared=(sizes,))
    yield ResultFact("features", (namer("extractor", spec.extractor),), shared=(namer("extractor", spec.extractor),))
    seen = task.trained_on or "not stated"
    yield ResultFact("weights trained on", (seen,), shared=(seen,))
    if task.edition_names:
        yield ResultFact("copy of the data", task.edition_names, brief=True, shared=task.edition_names)
    yield ResultFact("licence", (task.licence,), shared=(task.licence,))
    read = "read" if task.public_labels_seen else "not read"
    yield ResultFact("public labels", (read,), shared=(read,))
    if task.overlap:
        counted = tuple(f"{pair}: {found}" for pair, found in task.overlap.items())
        yield ResultFact("overlap", counted, brief=any(found.near for found in task.overlap.values()), shared=counted)
    if task.altered is not None:
        found = (f"{task.altered} images of the smaller of the public and private splits",)
        yield ResultFact("altered copies", found, shared=found)


def _score_facts(result: Result, others: Iterable[Result]) -> Iterator[ResultFact]:
    for metric in METRICS:
        if metric in result.metrics:
            said = format_metric_score(metric, result.metrics[metric], unit=True)
            yield ResultFact(
                METRIC_FACTS[metric].inline_title, (said,), brief=metric in {"accuracy", result.spec.metric}
            )
    many = len(result.seeds)
    mean = ": mean with its 95% interval" * (many > 1)
    drawn = "; noise follows from seed and whole spec" * (result.privacy.rng == "research" and result.privacy.sigma > 0)
    yield ResultFact("seeds", (f"{many}{mean}{drawn}",), brief=True)
    if "ece" not in result.metrics:
        kept = any(seed.confusion for seed in result.seeds)
        why = "the learner gives none" if kept else "the result is from a version that did not record them"
        yield ResultFact("probabilities", (f"none: {why}",))
    seeds = ", ".join(f"{100 * seed.accuracy:.2f}% (seed {seed.seed})" for seed in result.seeds)
    yield ResultFact("by seed", (seeds,))
    yield from _group_facts(result, others)


def _group_facts(result: Result, others: Iterable[Result]) -> Iterator[ResultFact]:
    """Yield accuracy by group, the gap between the best and the worst group, and the price of privacy by group."""
    for column in compute_accuracy_by_group(result):
        groups = format_group_accuracies(column, lambda score: format_metric_score("accuracy", score, unit=True))
        gap = () if column.gap is None else (f"gap {100 * column.gap:.2f} points",)
        yield ResultFact(f"accuracy by {column.name}", (groups, *gap), brief=True)
    ceiling = find_non_private_counterpart(result, others)
    for price in compute_price_by_group(result, ceiling) if ceiling else ():
        if price.most:
            yield ResultFact(f"cost of privacy by {price.column}", (format_privacy_price(price),))


def _guarantee_facts(result: Result, risk: RiskFunction) -> Iterator[ResultFact]:
    privacy, spec = result.privacy, result.spec
    if math.isinf(spec.epsilon):
        yield ResultFact("guarantee", ("none: no noise was added",), brief=True)
        return
    if not privacy.plan:
        yield ResultFact("guarantee", (result.zero_epsilon_remark,), brief=True)
        return
    yield from describe_guarantee(spec, privacy, result.not_covered, result.task.private)
    yield ResultFact("membership test", (describe_membership_risk(result, risk),))
    for release in privacy.plan:
        spent = sorted({seed.spent.get(release.name, 0) for seed in result.seeds})
        unspent = f"{spent[0]:,} to {spent[-1]:,} spent" if spent[0] < release.steps else "all spent"
        steps = f"{release.steps:,} steps" if release.steps > 1 else "one step"
        planned = release.as_planned
        said = f"{steps} ({unspent}), {planned.describe(release.sigma)}"
        yield ResultFact(f"{type(planned).__name__.lower()} {release.name}", (said,))


def describe_guarantee(
    spec: Spec, privacy: PrivacyGuarantee, not_covered: tuple[str, ...], size: int | None
) -> Iterator[ResultFact]:
    """Yield the facts of a guarantee: ε by both accountants, unit, δ, neighbours, noise, and what ε does not cover.

    `size` is the number of private units, or None if it is not recorded.
    """
    other, whose = privacy.independent, f"for one {spec.unit or 'image'}"
    bounds = f"{format_lower_bound(other.lower)} to {format_upper_bound(other.upper)} by {other.accountant}"
    stated = f"ε {format_upper_bound(privacy.epsilon)} {whose} by {privacy.accountant}"
    names = f"{privacy.accountant}, checked by {other.accountant}"
    yield ResultFact(
        "guarantee", (f"{stated}, {bounds}",), brief=True, shared=(f"ε {spec.epsilon:g} {whose}, {names}",)
    )
    pure = " (pure)" * (not privacy.delta)
    delta = f"{privacy.delta:g}{pure}"
    if size is not None and privacy.delta == compute_default_delta(size) < USUAL_DELTA:
        delta += f" (at most 1/(2n), n = {size:,})"
    yield ResultFact("δ", (delta,), brief=True, shared=(delta,))
    if privacy.repeats is None:
        for name, said in describe_privacy_curve(privacy.releases, privacy.sigma, privacy.delta, size).items():
            yield ResultFact(name, (said,))
    yield ResultFact("neighbours", (privacy.adjacency,), brief=True, shared=(privacy.adjacency,))
    if privacy.repeats:
        mean, shape = privacy.repeats.mean, privacy.repeats.shape
        said = f"a random number of runs, {mean:.4g} on average (shape {shape:.4g}); ε covers all of them"
        yield ResultFact("repeats", (said,))
    noise = f"{privacy.rng} RNG: {NOISE_SOURCES[privacy.rng]}"
    yield ResultFact("noise", (f"σ {privacy.sigma:.4g}, {noise}", privacy.mechanism), brief=True, shared=(noise,))
    yield ResultFact("not covered", not_covered, shared=not_covered)


def _origin_facts(result: Result) -> Iterator[ResultFact]:
    made, fit = result.provenance, result.seconds.get("fit", 0.0)
    phases = ", ".join(f"{phase} {format_duration(seconds)}" for phase, seconds in result.seconds.items())
    yield ResultFact(
        "time",
        (f"{format_duration(sum(result.seconds.values()))} in all, {format_duration(fit)} of it fitting",),
        brief=True,
    )
    yield ResultFact("phases", (phases,))
    yield ResultFact("peak memory", (format_bytes(max(result.peak_bytes.values(), default=0)),))
    commit = f"{str(made.get('commit'))[:12]}{' with changes' if made.get('dirty') else ''}"
    where = f"{made.get('device')} ({made.get('processor')}, {made.get('platform')})"
    yield ResultFact("made with", (f"dpbench {made.get('dpbench')}, commit {commit}, on {where}",))
    yield from describe_components(result.components)
    for name, value in made.items():
        if name not in HIDDEN_PROVENANCE:
            said = ", ".join(f"{key} {part}" for key, part in value.items()) if isinstance(value, dict) else str(value)
            yield ResultFact(name, (said,))
    yield ResultFact("date", (str(made.get("date", "not noted")),))
    yield ResultFact("digest", (result.digest,))
    yield ResultFact("author's word", list_unchecked_claims(result))


def describe_components(components: Mapping[str, ComponentOrigin]) -> Iterator[ResultFact]:
    """Yield a fact for each component: the distribution, version and plugin that provide it."""
    for role, item in components.items():
        said = f"{item.distribution} {item.version}, plugin {item.plugin}"
        yield ResultFact(f"{role.replace('_', ' ')} from", (said,))


def render_terminal(pairs: Iterable[tuple[str, str]]) -> Table:
    """Return names and texts as a table of two columns for a terminal."""
    from rich.table import Column, Table
    from rich.text import Text

    table = Table.grid(Column(style="bold", no_wrap=True), Column(overflow="fold"), padding=(0, 2))
    for name, text in pairs:
        table.add_row(name, Text(text))
    return table


def render_markdown(description: ResultDescription, lines: Iterable[str] = ()) -> str:
    """Render a description in Markdown: a heading per section, a bullet per fact, and `lines` in a code block."""
    parts = [f"# {_escape_markdown(description.title)}"]
    for section in description.sections:
        if section.facts:
            points = "\n".join(
                f"- **{_escape_markdown(fact.name)}**: {_escape_markdown(fact.text)}" for fact in section.facts
            )
            parts.append(f"## {section.title.capitalize()}\n\n{points}")
    if text := "\n".join(lines):
        parts.append(f"```text\n{text}\n```")
    return "\n\n".join(parts) + "\n"


def _escape_markdown(text: str) -> str:
    return " ".join(text.split()).replace("\\", "\\\\").replace("*", "\\*").replace("_", "\\_").replace("<", "&lt;")


def render_html(pairs: Iterable[tuple[str, str]]) -> str:
    """Return names and texts as an HTML table for a notebook."""
    rows = "".join(f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>" for name, text in pairs)
    return f"<table>{rows}</table>"
