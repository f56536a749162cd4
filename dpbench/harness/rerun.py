"""Prepare a run from a stored result: same plan, sigma, data and plugin versions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from dpbench.errors import DataError, DataMissing, NotReproducible, PrivacyError, SpecError
from dpbench.harness.guarantee import unit_facts
from dpbench.harness.loaded import load_run
from dpbench.harness.memo import Memo
from dpbench.harness.plans import settle
from dpbench.harness.prepare import PreparedRun, prepare_run
from dpbench.harness.tuning import space as spaces
from dpbench.privacy import MECHANISM
from dpbench.records.result import ComponentOrigin, Result
from dpbench.records.search import Selection
from dpbench.records.spec import Spec
from dpbench.registry import Registry
from dpbench.registry.components import kind_of, resolve
from dpbench.support.fields import filled_fields
from dpbench.support.threads import computing


def prepare_rerun(result: Result, seed: int | None, plugins: Registry, memo: Memo) -> PreparedRun:
    """Return all that the fit of one seed needs, or of all seeds (None), with the plan and sigma of the result.

    Raises:
        NotReproducible: the code, the data, a plugin or its version is not on this machine.
        DpbenchError: the run cannot be prepared, or its plan or data are not those of the result.
    """
    if not result.privacy.repeatable:
        raise NotReproducible(
            f"It was made by the code before {MECHANISM} ({result.privacy.mechanism}): its samples, "
            "sums and noise cannot be repeated. Run its spec again for a result of this code."
        )
    for role, origin in result.components.items():
        _check_installed(role, origin, result, plugins)
    try:
        spec = _spec(result, result.spec.seeds if seed is None else (seed,))
        prepared = prepare_run(load_run(resolve(spec, plugins), memo, sharing="any"))
    except DataMissing as error:
        raise NotReproducible(str(error)) from error
    except ImportError as error:
        raise NotReproducible(f"A package is missing: {error}.") from error
    _check_same(prepared, result)
    return dataclasses.replace(prepared, privacy=result.privacy)


def search_again(result: Result, plugins: Registry, memo: Memo) -> Selection:
    """Search for the settings of a result once more, on public data as it did.

    Raises:
        DpbenchError: the search fails here, or the result had none.
    """
    loaded = load_run(resolve(result.spec, plugins), memo, sharing="any")
    search = loaded.resolved.search
    if search is None:
        raise SpecError(f"Expected a search in the spec of {result.file_name}, found none.")
    with computing(loaded.threads):
        return loaded.bench(search).choose()


def _check_installed(role: str, origin: ComponentOrigin, result: Result, plugins: Registry) -> None:
    kind, name = kind_of(role), result.spec.roles[role].name
    item = plugins.components[kind].get(name)
    here = item and (item.distribution, item.version)
    if here != (origin.distribution, origin.version):
        found = f"{here[0]} {here[1]} does" if here else "nothing does"
        raise NotReproducible(f"{origin.distribution} {origin.version} brings {kind} {name!r}; here {found}.")


def _spec(result: Result, seeds: tuple[int, ...]) -> Spec:
    """Return the spec of some seeds: its settings as numbers, unless choosing them is a part of the mechanism."""
    spec, search = result.spec, result.search
    changed: dict[str, Any] = {"seeds": seeds}
    options = spec.learner.options
    if spec.search is not None and search is not None and search.chosen is not None:
        options, changed["search"] = {**options, **search.chosen}, None
    changed["learner"] = spec.learner.model_copy(update={"options": {**options, **result.settled}})
    return spec.model_copy(update=changed)


def _check_same(prepared: PreparedRun, result: Result) -> None:
    """Refuse data and plans that are not those of the result: its plan and sigma would be of something else."""
    task, name = prepared.roles.task, result.file_name
    if prepared.images.digests != result.task.digests:
        raise DataError(f"The data differ from those of {name}: expected the digests {result.task.digests}.")
    if task.size != result.task.private:
        raise DataError(f"Expected {result.task.private} private examples, got {task.size}.")
    if (units := result.task.units) is not None:
        here = unit_facts(prepared.images.private_units, prepared.images.unit, None)
        if here != units.model_copy(update={"largest_epsilon": None, "median_epsilon": None}):
            raise DataError(f"The units differ from those of {name}: expected {units.count:,} {units.word}s.")
    now, then = ([one.model_dump(exclude={"sigma"}) for one in it.plan] for it in (prepared.privacy, result.privacy))
    if now != then:
        raise PrivacyError(f"Learner {result.spec.learner.name!r} makes a different plan here than the one in {name}.")
    _check_settled(prepared, result)


def _check_settled(prepared: PreparedRun, result: Result) -> None:
    """Refuse numbers that are said to follow from the budget and do not, by the same version of the learner."""
    spec, learner = result.spec, prepared.learner
    asked = spaces.candidate(learner, dict.fromkeys(result.settled))
    settled = settle(asked, prepared.loaded.who, prepared.roles.task, spec.budget)
    now = {name: filled_fields(asked, settled).get(name) for name in result.settled}
    if now != result.settled:
        raise DataError(
            f"Learner {spec.learner.name!r} chooses {_listed(now)} here, but {result.file_name} states "
            f"{_listed(result.settled)}. The stated settings do not follow from the budget."
        )


def _listed(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())
