"""Prepare a run from a stored result: same plan, sigma and data, and code that is known to compute the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from dpbench.errors import DataError, DataMissing, NotReproducible, PrivacyError, SpecError
from dpbench.harness.guarantee import make_unit_facts
from dpbench.harness.loaded import LoadedRun, load_run
from dpbench.harness.memo import SharedRunCache
from dpbench.harness.plans import settle_by_stated_rule
from dpbench.harness.prepare import PreparedRun, prepare_run
from dpbench.harness.tuning import space as spaces
from dpbench.privacy import MECHANISM
from dpbench.records.board import drop_local_paths
from dpbench.records.protocol import Component
from dpbench.records.provenance import HARNESS, RELEASED_VERSIONS
from dpbench.records.result import ComponentOrigin, Result
from dpbench.records.search import Selection
from dpbench.records.spec import Spec
from dpbench.registry import Registration, Registry
from dpbench.registry.components import build, component_kind_of_role, make_component_record, resolve
from dpbench.registry.same_code import compare_with_installed_code, describe_code_differences, read_stated_digests
from dpbench.support.fields import list_filled_in_fields
from dpbench.support.threads import limit_threads


def prepare_rerun(
    result: Result, seed: int | None, plugins: Registry, memo: SharedRunCache, dataset: Component | None = None
) -> PreparedRun:
    """Prepare the fit of one seed of a result, or of all its seeds, with the result's plan and sigma.

    Another version of a plugin's distribution is accepted if digests or fingerprints show that its code computes the
    same (`registry.same_code`); missing fingerprints are computed. Noise is derived from the version and the dataset
    that the result states, so that it equals the result's noise.

    Args:
        result: the result to re-run.
        seed: the seed to fit; None prepares all seeds of the result.
        plugins: the installed plugins.
        memo: the work that runs of this process share.
        dataset: the result's dataset with the location of its files on this machine; None if they are where the result
            states. The data must have the digests that the result states.

    Raises:
        NotReproducible: the code, the data or a plugin is not on this machine.
        DpbenchError: the run cannot be prepared, or its plan or data are not those of the result.
    """
    if not result.privacy.uses_current_mechanism:
        raise NotReproducible(
            f"It was made by the code before {MECHANISM} ({result.privacy.mechanism}): its samples, "
            "sums and noise cannot be repeated. Run its spec again for a result of this code."
        )
    check_installed_components(result, plugins)
    try:
        spec = _make_rerun_spec(result, result.spec.seeds if seed is None else (seed,))
        prepared = prepare_run(_load_for_rerun(spec, result, plugins, memo, dataset))
    except DataMissing as error:
        raise NotReproducible(str(error)) from error
    except ImportError as error:
        raise NotReproducible(f"A package is missing: {error}.") from error
    _check_data_and_plan(prepared, result)
    return dataclasses.replace(prepared, privacy=result.privacy)


def repeat_search(
    result: Result, plugins: Registry, memo: SharedRunCache, dataset: Component | None = None
) -> Selection:
    """Repeat the public search that chose a result's settings.

    Raises:
        DpbenchError: the search fails here, or the result had none.
    """
    loaded = _load_for_rerun(result.spec, result, plugins, memo, dataset)
    search = loaded.resolved.search
    if search is None:
        raise SpecError(f"Expected a search in the spec of {result.file_name}, found none.")
    with limit_threads(loaded.threads):
        return loaded.make_trial_runner(search).choose_setting()


def check_installed_components(result: Result, plugins: Registry) -> None:
    """Refuse a re-run if a component is missing, or if its installed version computes differently.

    Raises:
        NotReproducible: the component is missing, of another plugin or distribution, of an unknown version, or its
            code is not known to compute the same.
    """
    other = False
    for role, origin in result.components.items():
        kind, name = component_kind_of_role(role), result.spec.roles[role].name
        item = plugins.components[kind].get(name)
        if item is None or item.distribution != origin.distribution:
            found = f"{item.distribution} {item.version} does" if item else "nothing does"
            raise NotReproducible(f"{origin.distribution} {origin.version} brings {kind} {name!r}; here {found}.")
        _check_component_origin(f"{kind} {name!r}", origin, item)
        other |= item.version != origin.version
    if other:
        _check_same_code(result, plugins)


def _check_component_origin(description: str, origin: ComponentOrigin, item: Registration) -> None:
    """Refuse invented plugins and versions, because a forger could choose the noise by inventing a version."""
    if origin.plugin != item.plugin:
        raise NotReproducible(f"Plugin {origin.plugin!r} brings {description}; here plugin {item.plugin!r} does.")
    known = sorted({item.version, *(RELEASED_VERSIONS if item.distribution == HARNESS else ())})
    if origin.version not in known:
        raise NotReproducible(
            f"{origin.distribution} {origin.version} brings {description}; here {item.distribution} {item.version} "
            f"does. Noise is derived from the version, so a re-run takes only those that are known: {', '.join(known)}."
        )


def _check_same_code(result: Result, plugins: Registry) -> None:
    from dpbench.harness.fingerprints.taking import open_fingerprint_store

    if not read_stated_digests(result):
        raise NotReproducible(
            f"{_describe_versions(result, plugins)} The result states no digests of its code to compare."
        )
    # Data and the settings that were left open are compared before a fit.
    found = compare_with_installed_code(result, plugins, open_fingerprint_store(plugins), same_data=True, choices=False)
    if differ := [*describe_code_differences(found)]:
        raise NotReproducible(
            f"{_describe_versions(result, plugins)} The code is not known to compute the same: {', '.join(differ)}. "
            "Install the version that made the result, or take fingerprints with both: dpbench leaderboard fingerprint."
        )


def _describe_versions(result: Result, plugins: Registry) -> str:
    made = {f"{origin.distribution} {origin.version}" for origin in result.components.values()}
    items = [
        plugins.components[component_kind_of_role(role)][result.spec.roles[role].name] for role in result.components
    ]
    here = {f"{item.distribution} {item.version}" for item in items}
    return f"It was made by {', '.join(sorted(made))}; here is {', '.join(sorted(here))}."


def _load_for_rerun(
    spec: Spec, result: Result, plugins: Registry, memo: SharedRunCache, dataset: Component | None
) -> LoadedRun:
    """Load a spec; its research noise is derived from the dataset, plugins and versions that the result states."""
    stated = None
    if dataset is not None:
        here, stated = (make_component_record(build(plugins, "dataset", part)) for part in (dataset, spec.dataset))
        if drop_local_paths(here) != drop_local_paths(stated):
            raise SpecError(f"Expected --dataset to differ from {stated} in where its files lie alone, got {here}.")
        spec = spec.model_copy(update={"dataset": here})
    loaded = load_run(resolve(spec, plugins), memo, sharing="any")
    return dataclasses.replace(loaded, noise_origins=result.components, noise_dataset=stated)


def _make_rerun_spec(result: Result, seeds: tuple[int, ...]) -> Spec:
    """Return the result's spec with these seeds and all chosen settings fixed; a private search stays in the spec."""
    spec, search = result.spec, result.search
    changed: dict[str, Any] = {"seeds": seeds}
    options = spec.learner.options
    if spec.search is not None and search is not None and search.chosen is not None:
        options, changed["search"] = {**options, **search.chosen}, None
    changed["learner"] = spec.learner.model_copy(update={"options": {**options, **result.settled}})
    return spec.model_copy(update=changed)


def _check_data_and_plan(prepared: PreparedRun, result: Result) -> None:
    """Refuse data or a plan that differs from the result's, because the result's sigma would not apply."""
    task, name = prepared.roles.task, result.file_name
    if prepared.images.digests != result.task.digests:
        raise DataError(f"The data differ from those of {name}: expected the digests {result.task.digests}.")
    if task.size != result.task.private:
        raise DataError(f"Expected {result.task.private} private examples, got {task.size}.")
    if (units := result.task.units) is not None:
        here = make_unit_facts(prepared.images.private_units, prepared.images.unit, None)
        if here != units.model_copy(update={"largest_epsilon": None, "median_epsilon": None}):
            raise DataError(f"The units differ from those of {name}: expected {units.count:,} {units.word}s.")
    now, then = ([use.model_dump(exclude={"sigma"}) for use in it.plan] for it in (prepared.privacy, result.privacy))
    if now != then:
        raise PrivacyError(f"Learner {result.spec.learner.name!r} makes a different plan here than the one in {name}.")
    _check_derived_settings(prepared, result)


def _check_derived_settings(prepared: PreparedRun, result: Result) -> None:
    """Refuse stated settings that no version of the learner chooses for the result's budget."""
    spec, learner = result.spec, prepared.learner
    asked = spaces.apply_setting(learner, dict.fromkeys(result.settled))
    settled = settle_by_stated_rule(asked, result.settled, prepared.loaded.who, prepared.roles.task, spec.budget)
    now = {name: list_filled_in_fields(asked, settled).get(name) for name in result.settled}
    if now != result.settled:
        raise DataError(
            f"Learner {spec.learner.name!r} chooses {_format_settings(now)} here, but {result.file_name} states "
            f"{_format_settings(result.settled)}. The stated settings do not follow from the budget."
        )


def _format_settings(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())
