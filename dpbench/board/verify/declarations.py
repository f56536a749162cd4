"""Check a result's declarations: its task, the selection of its settings and its provenance."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from dpbench.board.verify.expectations import FieldComplaints, InstalledComponent
from dpbench.errors import DpbenchError
from dpbench.harness.guarantee import compute_epsilon_for_copies, compute_unit_epsilon
from dpbench.records.identity import normalise_distribution
from dpbench.records.overlap import MAX_LEFT_OUT, find_excess_overlap
from dpbench.records.pack import PACK
from dpbench.records.provenance import HARNESS, current_date, list_plugin_sources
from dpbench.records.result import Result
from dpbench.records.search import Selection, SelectionRule, choose_least_clean_rule, list_settings_chosen_by_hand
from dpbench.records.tolerance import is_close
from dpbench.registry.components import component_kind_of_role

OVERLAP_PAIRS = {"test in private", "test in public", "public in private"}
PRIVATE_TOUCHED = {
    "transfer": False,
    "public-validation": False,
    "private-accounted": True,
    "private-unaccounted": True,
}
MAX_CLASSES = 100_000
PROJECT_PACKS: frozenset[str] = frozenset()
"""Origins of the feature packs that this project made with `.ci/packs`, as results state them; none so far."""


def check_task_facts(result: Result) -> FieldComplaints:
    """Yield a complaint for each impossible size, class, count of copies or cost."""
    task = result.task
    for key, least in (("private", 1), ("public", 0), ("test", 1)):
        if getattr(task, key) < least:
            yield f"task.{key}", f"expected at least {least}, got {getattr(task, key)}"
    if len(set(task.classes)) != len(task.classes) or "" in task.classes:
        yield "task.classes", "expected a name for each class, and each once"
    if not 2 <= len(task.classes) <= MAX_CLASSES:
        yield "task.classes", f"expected 2 to {MAX_CLASSES:,} classes, got {len(task.classes)}"
    if not result.spec.delta * task.private < 1:
        yield "task.private", f"expected delta={result.spec.delta:g} below 1/n with n={task.private}"
    if task.left_out > MAX_LEFT_OUT * (task.images + task.left_out):
        yield "task.left_out", f"expected at most {MAX_LEFT_OUT:.0%} of the private images to be left out as copies"
    even = 1 / max(1, len(task.classes))
    if task.largest < even and not is_close(task.largest, even):
        yield "task.largest", f"expected at least 1 / {len(task.classes)}, as there are so many classes"
    if task.overlap.keys() != OVERLAP_PAIRS:
        yield (
            "task.overlap",
            f"expected {', '.join(sorted(OVERLAP_PAIRS))}, got {', '.join(sorted(task.overlap))[:200]}",
        )
    for pair, counted in task.overlap.items():
        if not counted.exact <= counted.near <= counted.among or (counted.units or 0) > counted.among:
            yield f"task.overlap.{pair}", "expected exact copies to be among near ones, and those among all"
        if pair.startswith("test") and counted.among != task.test:
            yield f"task.overlap.{pair}", f"expected it to be counted over {task.test} test examples"
        if pair == "public in private" and task.public not in {0, counted.among}:
            yield "task.public", f"expected {counted.among} public examples, or 0 where the learner sees none"
    yield from _check_private_copies(result)
    yield from _check_privacy_units(result)
    yield from _check_recorded_costs(result)


def _check_private_copies(result: Result) -> FieldComplaints:
    """Yield complaints about impossible counts of copies in the private split, or a wrong epsilon for copied images."""
    copies, stated = result.task.copies, result.copies_epsilon
    if copies is None:
        return
    if copies.among != result.task.images or not copies.most <= max(1, copies.images) <= max(1, copies.among):
        yield "task.copies", f"expected copies among {result.task.images} private images, the commonest among them"
        return
    found = _try_accountant(lambda: compute_epsilon_for_copies(result.privacy, copies.most))
    if not _is_upper_bound(stated, found):
        yield "copies_epsilon", f"expected {found!r} or more for {copies.most} copies of one image, got {stated!r}"


def _check_privacy_units(result: Result) -> FieldComplaints:
    """Yield complaints about impossible sizes of units, or a wrong epsilon for all images of a unit."""
    units, unit = result.task.units, result.spec.unit
    if unit is not None and (units is None or units.word != unit or units.count != result.task.private):
        yield "task.units", f"expected as many {unit}s as private examples, {result.task.private}"
    if units is None:
        return
    below, above = (units.count - 1) // 2, units.count // 2  # units on either side of the median
    least = below + (above - 1) * units.median + units.median + units.largest if above else units.largest
    most = (below + 1) * units.median + above * units.largest
    if not (units.median <= units.largest and least <= units.images <= most) or (
        unit is None and units.images != result.task.private
    ):
        yield "task.units", f"expected as many private images as the stated sizes of units allow, {result.task.private}"
        return
    for name, size in (("largest", units.largest), ("median", units.median)):
        stated = getattr(units, f"{name}_epsilon")
        found = None if unit else _try_accountant(partial(compute_unit_epsilon, result.privacy, size))
        if not _is_upper_bound(stated, found):
            yield (
                f"task.units.{name}_epsilon",
                f"expected {found!r} or more for {size} images of one {units.word}, got {stated!r}",
            )


def _is_upper_bound(stated: float | None, computed: float | None) -> bool:
    """Return whether a stated epsilon of several rows is at least the computed epsilon, or both are None.

    A larger stated value is accepted, because earlier versions overstated it.
    """
    if stated is None or computed is None:
        return stated is computed
    return stated >= computed or is_close(stated, computed)


def _try_accountant(compute: Callable[[], float | None]) -> float | None:
    """Call an accountant; return None if it rejects the plan (a forged result can hold any plan)."""
    try:
        return compute()
    except DpbenchError:
        return None


def check_image_copies(result: Result) -> FieldComplaints:
    """Yield a complaint for each split that shares or repeats too many images, or whose processing is not stated.

    Boards also refuse a run with `allow_overlap`.
    """
    if result.spec.allow_overlap:
        yield "spec.allow_overlap", "expected a run that refuses public images which are private ones"
    for pair, said in find_excess_overlap(result.task.overlap, result.task.images):
        yield f"task.overlap.{pair}", said
    if result.task.altered and (altered := result.task.altered.excess_complaint):
        yield "task.altered", altered
    if result.task.copies and (many := result.task.copies.excess_complaint):
        yield "task.copies", many
    for role, said in (result.task.processing or {}).items():
        if not said:
            yield f"task.processing.{role}", "expected how each image was made, which the dataset does not declare"


def check_features_origin(result: Result) -> FieldComplaints:
    """Yield a complaint about features from a pack, unless the project made the pack."""
    stated = result.task.made_elsewhere
    if (stated or any(part.name == PACK for part in result.spec.extractor.parts)) and stated not in PROJECT_PACKS:
        yield (
            "task.made_elsewhere",
            f"expected features that the run extracted, or a pack that this project made, got {stated}",
        )


def _check_recorded_costs(result: Result) -> FieldComplaints:
    costs: dict[str, Mapping[str, float]] = {
        "seconds": result.seconds,
        "cpu_seconds": result.cpu_seconds,
        "peak_bytes": result.peak_bytes,
    }
    for name, spent in costs.items():
        for phase, value in spent.items():
            if not 0 <= value < math.inf:
                yield f"{name}.{phase}", f"expected a number that is not negative, got {value}"


def check_settings_selection(result: Result) -> FieldComplaints:
    """Yield a complaint for each contradiction between selection rule, record of the search, spec and guarantee."""
    asked, record = result.spec.search, result.search
    yield from _check_private_search_repeats(result)
    yield from _check_derived_settings(result)
    if record is None:
        if asked is not None:
            yield "search", f"expected the record of the search that the spec asks for ({asked.rule})"
        if result.selection not in {"default", "by-hand"}:
            yield "selection", f"expected default or by-hand where nothing is on record, got {result.selection}"
        return
    if record.rule != result.selection:
        yield "selection", f"expected {record.rule}, as its record has it, got {result.selection}"
    searched = asked.rule if asked else record.rule
    if PRIVATE_TOUCHED.get(searched, record.private_touched) != record.private_touched:
        yield "search.private_touched", f"expected {PRIVATE_TOUCHED[searched]} with {searched}"
    if asked is None:
        yield from _check_transferred_settings(result, record)
        return
    if record.rule not in {asked.rule, choose_least_clean_rule(asked.rule, "by-hand")}:
        yield "search.rule", f"expected {asked.rule}, as the spec asks, or by-hand"
    for key in ("seed", "space"):
        if getattr(asked, key) != getattr(record, key):
            yield f"search.{key}", f"expected what the spec asks for, {str(getattr(asked, key))[:200]}"
    yield from _check_trials(record)


def check_provenance(result: Result, installed: Mapping[tuple[str, str], InstalledComponent]) -> FieldComplaints:
    """Yield a complaint for each malformed or contradictory fact about commit, date, packages, plugins and versions.

    `installed` has the components on this machine, by kind and name.
    """
    commit, version = (result.provenance.get(key) for key in ("commit", "dpbench"))
    roles = result.spec.roles.keys()
    if result.components.keys() != roles:
        yield "components", f"expected {', '.join(sorted(roles))}, got {', '.join(sorted(result.components))[:200]}"
        return
    if commit is not None and not re.fullmatch(r"[0-9a-f]{40}", str(commit)):
        yield "provenance.commit", f"expected 40 hexadecimal digits, got {str(commit)[:80]!r}"
    date = result.provenance.get("date")
    if isinstance(date, str) and date > current_date():
        yield "provenance.date", f"expected a day that has come, got {date[:40]!r}"
    packages = result.provenance.get("packages")
    if not isinstance(packages, dict) or not all(isinstance(package, str) for package in packages.values()):
        yield "provenance.packages", "expected a version for each package"
    engines = result.provenance.get("engines", {})
    if not isinstance(engines, dict) or not all(isinstance(engine, str) for engine in engines.values()):
        yield "provenance.engines", "expected the engine of each split"
    if not isinstance(version, str):
        yield "provenance.dpbench", f"expected a version, got {version!r}"
    if list_plugin_sources(result.provenance) is None:
        yield "provenance.sources", "expected repository and commit for each distribution"
    for role in sorted(roles):
        yield from _check_component(role, result, installed)


_DISTRIBUTION = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,78}[A-Za-z0-9])?"  # names that a package can have


def _check_private_search_repeats(result: Result) -> FieldComplaints:
    asked = result.spec.search
    if (result.privacy.repeats is None) != (asked is None or asked.rule != "private-accounted"):
        yield "privacy.repeats", "expected them with selection private-accounted, and nowhere else"
    elif asked is not None and result.privacy.repeats is not None:
        stated = (result.privacy.repeats.mean, result.privacy.repeats.shape)
        if stated != (asked.repeats, asked.shape):
            yield "privacy.repeats", f"expected mean and shape as the spec asks, {asked.repeats}, {asked.shape}"


def _check_derived_settings(result: Result) -> FieldComplaints:
    """Yield a complaint for each setting that the result calls derived from the budget although the user gave it."""
    chosen = (result.search.chosen if result.search else None) or {}
    given = {**result.spec.learner.options, **chosen}
    for name in result.settled:
        if given.get(name, ...) is not None:
            yield f"settled.{name}", "expected a setting that the spec leaves to the budget (null)"


def _check_transferred_settings(result: Result, record: Selection) -> FieldComplaints:
    """Yield a complaint for each contradiction in settings that were taken from a file of an earlier run or tuning."""
    source, options = record.source, result.spec.learner.options
    if source is None:
        yield "search.source", "expected the file that the settings were taken from, as nothing was searched"
        return
    elsewhere = source.dataset != result.spec.dataset.name or source.selection in {"transfer", "default"}
    if record.rule == "transfer" and not elsewhere:
        yield "search.source", f"expected another dataset than {source.dataset!r} with transfer"
    if choose_least_clean_rule(source.selection, record.rule) != record.rule:
        yield "search.source", f"expected a rule that is not cleaner than {source.selection}, by which they were found"
    if record.rule == "public-validation" and source.selection != record.rule:
        yield "search.source", f"expected settings that were chosen by {record.rule}, got {source.selection}"
    if any(name not in options or options[name] != value for name, value in (record.chosen or {}).items()):
        yield "search.chosen", "expected the options that the run had"


def check_settings_source(result: Result, source: Result) -> FieldComplaints:
    """Yield a complaint for each contradiction between a result and `source`, the run that its settings are from."""
    record = result.search
    if record is None or record.source is None:
        return
    rules = [source.selection] + [origin.selection for origin in [source.search and source.search.source] if origin]
    facts = {"dataset": source.spec.dataset.name, "extractor": source.spec.extractor.names}
    for key, expected in {**facts, "selection": choose_least_clean_rule(*rules)}.items():
        if (stated := getattr(record.source, key)) != expected:
            yield f"search.source.{key}", f"expected {expected}, as {source.file_name} states, got {stated[:200]}"
    had = {**source.spec.learner.options, **((source.search and source.search.chosen) or {})}
    if source.spec.learner.name != result.spec.learner.name or any(
        had.get(name, ...) != value for name, value in (record.chosen or {}).items()
    ):
        yield "search.chosen", f"expected settings that {source.file_name} had"


def _check_trials(record: Selection) -> FieldComplaints:
    if record.rule == "private-accounted":
        if record.tried is not None or record.chosen is not None or record.trials:
            yield "search.trials", "expected no record of the number of runs: epsilon holds only while it is secret"
        return
    if record.tried != len(record.trials):
        yield "search.tried", f"expected {len(record.trials)}, the trials on record, got {record.tried}"
    highest = max((trial.value for trial in record.trials if trial.value is not None), default=None)
    best = [trial.setting for trial in record.trials if highest is not None and is_close(trial.value, highest)]
    outside = [trial for trial in record.trials if not _is_in_search_space(trial.setting, record.space)]
    if outside:
        yield "search.trials", f"expected settings of the space that was searched, got {outside[0].setting}"
    if record.chosen not in best:
        yield "search.chosen", f"expected the best trial, {best[0] if best else None}, got {record.chosen}"


def _check_public_reads(result: Result, public: str) -> FieldComplaints:
    """Yield a complaint if the stated reads of public data differ from those that the learner declares."""
    task = result.task
    if task.public_labels_seen != (public == "labelled"):
        yield "task.public_labels_seen", f"expected {public == 'labelled'}: the learner declares public = {public!r}"
    there = task.overlap.get("public in private")
    expected = 0 if public == "none" else there.among if there else task.public
    if task.public != expected:
        yield "task.public", f"expected {expected}, as the learner declares public = {public!r}, got {task.public}"


def _is_in_search_space(setting: Mapping[str, Any], space: Mapping[str, Sequence[Any]]) -> bool:
    return setting.keys() == space.keys() and all(value in space[name] for name, value in setting.items())


def _check_component(
    role: str, result: Result, installed: Mapping[tuple[str, str], InstalledComponent]
) -> FieldComplaints:
    stated, part = result.components[role], result.spec.roles[role]
    here = installed.get((component_kind_of_role(role), part.name))
    version = result.provenance.get("dpbench")
    spelled = stated.distribution == HARNESS or normalise_distribution(stated.distribution) != HARNESS
    if not (spelled and re.fullmatch(_DISTRIBUTION, stated.distribution)):
        yield (
            f"components.{role}.distribution",
            f"expected the name of a package, and {HARNESS} spelled so, got {stated.distribution[:80]!r}",
        )
        return
    if stated.distribution == HARNESS and stated.version != version:
        yield f"components.{role}.version", f"expected {version}, that of {HARNESS} itself, got {stated.version[:80]!r}"
    if stated.distribution == HARNESS and (here is None or here.distribution != HARNESS):
        yield f"components.{role}.distribution", f"{HARNESS} has no {part.name!r}"
        return
    if here is None or here.distribution != stated.distribution:
        return
    if stated.plugin != here.plugin:
        yield (
            f"components.{role}.plugin",
            f"expected {here.plugin!r}, which brings {part.name!r}, got {stated.plugin[:80]!r}",
        )
    if role == "learner" and here.version == stated.version:
        yield from _check_public_reads(result, here.public)
        yield from _check_manual_options(result, here)


def _check_manual_options(result: Result, installed_learner: InstalledComponent) -> FieldComplaints:
    """Yield a complaint if the selection rule does not reflect the options that the user set by hand."""
    asked, hand = result.spec.search, list_manual_options(result, installed_learner)
    if asked is None and result.search is not None and result.selection != "default":
        return  # the file from which settings were taken decides
    rule: SelectionRule = choose_least_clean_rule(asked.rule if asked else "default", "by-hand" if hand else "default")
    if result.selection != rule:
        by_hand = f"{', '.join(hand)[:200]} set by hand"
        own = f"options are the defaults of {result.spec.learner.name!r}"
        yield "selection", f"expected {rule}: {by_hand if hand else own}"


def list_manual_options(result: Result, installed_learner: InstalledComponent) -> list[str]:
    """List the settings of a result that the user set by hand; settings that a search chose are left out."""
    space = result.search.space if result.search and result.spec.search else {}
    options = result.spec.learner.options
    defaults = installed_learner.list_defaults(result.components["learner"].version, options)
    return list_settings_chosen_by_hand(options, defaults, space, installed_learner.texts)
