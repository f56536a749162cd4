"""Fit the seeds of a prepared run and make its result, or search for settings without a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from dpbench.data.concat import describe_feature_origin, describe_training_data
from dpbench.errors import SpecError
from dpbench.harness.fit import SeedFit, fit_seed
from dpbench.harness.guarantee import compute_epsilon_for_copies, make_unit_facts
from dpbench.harness.held_copies import refuse_held_copies
from dpbench.harness.loaded import LoadedRun, digest_code, get_component_origins
from dpbench.harness.prepare import PreparedRun, prepare_seed
from dpbench.harness.split_images import SplitComparison
from dpbench.records.group_counts import find_correct_count_error
from dpbench.records.journal import RunJournalFolder
from dpbench.records.provenance import HARNESS, current_date, find_git_source
from dpbench.records.result import Result, SeedResult, TaskFacts, make_result_name
from dpbench.records.search import ResolvedSearch
from dpbench.records.stated_plan import PrivacyGuarantee
from dpbench.records.tuning import Tuning
from dpbench.records.units import encode_units
from dpbench.registry import UNPACKAGED
from dpbench.registry.components import BuiltComponents
from dpbench.support import progress
from dpbench.support.threads import limit_threads

T = TypeVar("T", int, float)


def execute_prepared_run(
    prepared: PreparedRun,
    keep: Callable[[PreparedRun, SeedFit], None] | None = None,
    journal: RunJournalFolder | None = None,
) -> Result:
    """Fit every seed, score each fit on the test split and return the result; see `Session.run`.

    Raises:
        DpbenchError: a fit or a prediction fails.
    """
    seeds, kept = _fit_seeds(prepared, keep, journal)
    with prepared.loaded.phases("compare"):
        compared = compare_splits_of_all_seeds(prepared, prepared.spec.seeds)
    return _make_result(prepared, seeds, compared, {"seeds_of_an_earlier_call": kept} if kept else {})


def _fit_seeds(
    prepared: PreparedRun, keep: Callable[[PreparedRun, SeedFit], None] | None, journal: RunJournalFolder | None
) -> tuple[list[SeedResult], int]:
    """Fit each seed except the seeds kept from an interrupted call; return the scores and the number of kept seeds."""
    spec = prepared.spec
    if prepared.privacy.repeats:  # when a seed ended tells how many runs it had
        journal = None
    own = None if journal is None else journal.open_run(make_result_name(spec), prepared.code_identity)
    kept = {} if own is None else own.seeds()
    before = (
        {seed: value for seed, value in kept.items() if _has_groups_of_test_split(value, prepared.test_groups)}
        if kept
        else {}
    )
    seeds = []
    with _show_progress(prepared) as advance:
        for seed in spec.seeds:
            result = before.get(seed)
            if result is None:
                fit = fit_seed(prepared, seed)
                result = fit.result
                if keep is not None:
                    keep(prepared, fit)
                if own is not None:
                    own.keep(result)
            seeds.append(result)
            advance(1)
    return seeds, len(before.keys() & set(spec.seeds))


def _has_groups_of_test_split(seed: SeedResult, group_sizes: dict[str, dict[str, str]] | None) -> bool:
    """Return whether a stored seed's counts by group fit the groups of the test split; True if neither has groups."""
    if group_sizes is None or seed.group_correct is None:
        return group_sizes is seed.group_correct
    return find_correct_count_error(group_sizes, seed.group_correct) is None


def refuse_private_selection(search: ResolvedSearch | None) -> ResolvedSearch:
    """Return the search of a tuning, after checking that it is not private selection.

    Raises:
        SpecError: there is no search, or it is private selection, which is part of a run.
    """
    if search is None or search.rule == "private-accounted":
        raise SpecError(
            "Private selection returns a model, not a setting. Use it in a run instead: dpbench run --selection "
            "private-accounted."
        )
    return search


def search_settings_without_run(loaded: LoadedRun) -> Tuning:
    """Search for settings without a run; the test split is not read.

    Raises:
        PrivacyError: the learner reaches a copy of the private data.
        DpbenchError: as `TrialRunner.choose_setting` does.
    """
    images, phases = loaded.images, loaded.phases
    with phases("compare"):
        refuse_held_copies(loaded.parts.learner, loaded.roles.private, images)
    with phases("tune"), limit_threads(loaded.threads):
        bench = loaded.make_trial_runner(refuse_private_selection(loaded.resolved.search))
        chosen = bench.choose_setting()
        default = None if chosen.private_touched else bench.score_current_settings()
    public = images.hash_split("public")
    return Tuning(
        digest=loaded.spec.digest, spec=loaded.spec, selection=chosen, default=default, digests=images.digests,
        sketch=public.sketch, looks=public.looks,
        seconds=phases.seconds, components=get_component_origins(loaded.parts),
        provenance=_describe_provenance(loaded.parts, loaded.memo.provenance(loaded.roles.task)),
    )  # fmt: skip


def _make_result(
    prepared: PreparedRun, seeds: Sequence[SeedResult], compared: SplitComparison, extra_provenance: Mapping[str, Any]
) -> Result:
    spec, parts, phases = prepared.spec, prepared.parts, prepared.loaded.phases
    return Result(
        spec=spec, selection=prepared.rule, search=prepared.selection, settled=prepared.settled,
        task=make_task_facts(prepared, compared), privacy=prepared.privacy,
        seconds=_select_publishable_costs(phases.seconds, prepared.privacy),
        cpu_seconds=_select_publishable_costs(phases.cpu_seconds, prepared.privacy),
        peak_bytes=_select_publishable_costs(phases.peak_bytes, prepared.privacy),
        components=get_component_origins(parts),
        provenance={**_describe_provenance(parts, prepared.loaded.provenance), **extra_provenance},
        seeds=tuple(seeds), copies_epsilon=compute_epsilon_for_copies(prepared.privacy, compared.copies.most),
    ).with_evidence_digest()  # fmt: skip


def _describe_provenance(parts: BuiltComponents, process_provenance: Mapping[str, Any]) -> dict[str, Any]:
    others = {registration.distribution for registration in parts.brought.values()} - {HARNESS, UNPACKAGED[1]}
    sources = {name: found for name in sorted(others) if (found := find_git_source(name))}
    made = {**process_provenance, "code": digest_code(parts), "date": current_date()}
    return {**made, "sources": sources} if sources else made


def make_task_facts(prepared: PreparedRun, compared: SplitComparison) -> TaskFacts:
    """Return the facts about a run's task, for its result."""
    dataset, images, public, labels = prepared.parts.dataset, prepared.images, prepared.public, prepared.test.scorer.y
    task, own = prepared.roles.task, None if prepared.spec.unit else prepared.privacy
    units, owners = make_unit_facts(images.private_units, images.unit, own), images.units["test"]
    return TaskFacts(
        example_shape=task.example_shape, classes=dataset.classes, private=task.size,
        public=len(public.x), test=len(labels), public_labels_seen=public.y is not None,
        digests=images.digests, licence=dataset.licence, overlap=compared.overlap,
        largest=float(np.bincount(labels).max() / len(labels)), sketch=compared.sketch,
        looks=compared.looks, copies=compared.copies, altered=compared.altered,
        processing=images.processing_by_split, units=units, left_out=images.left_out, groups=prepared.test_groups,
        editions=images.editions or None, test_units=None if owners is None else encode_units(owners),
        trained_on=describe_training_data(prepared.parts.extractor),
        made_elsewhere=describe_feature_origin(prepared.parts.extractor),
    )  # fmt: skip


def compare_splits_of_all_seeds(prepared: PreparedRun, seeds: Sequence[int]) -> SplitComparison:
    """Compare the images of the splits; if each seed draws its own data, return the largest counts over all seeds.

    Raises:
        DpbenchError: as `prepare_seed` does.
    """
    first, *others = (prepare_seed(prepared, seed).images.compare() for seed in seeds)
    overlap = {
        pair: max([counted, *(other.overlap[pair] for other in others)], key=lambda found: (found.near, found.exact))
        for pair, counted in first.overlap.items()
    }
    copies = max([first.copies, *(other.copies for other in others)], key=lambda found: (found.most, found.images))
    altered = max(
        (found for seed in (first, *others) if (found := seed.altered)), key=lambda counted: counted.found, default=None
    )
    return dataclasses.replace(first, overlap=overlap, copies=copies, altered=altered)


@contextmanager
def _show_progress(prepared: PreparedRun) -> Iterator[Callable[[int], None]]:
    """Show the progress of the fits, except in a private search, where it would reveal the number of runs."""
    doing, seeds = f"Fitting {prepared.learner.name}", len(prepared.spec.seeds)
    if not prepared.privacy.repeats:
        with progress.show_progress_bar(doing, seeds) as advance:
            yield advance
    else:
        with progress.show_status(doing):
            yield lambda _: None


def _select_publishable_costs(costs: dict[str, T], privacy: PrivacyGuarantee) -> dict[str, T]:
    """Return the costs that may be published: for a private search, only the costs of phases before it.

    Time and memory reveal the number of runs, which must stay secret.
    """
    return {phase: cost for phase, cost in costs.items() if not privacy.repeats or phase in {"load", "calibrate"}}
