"""Take fingerprints in a checkout of an earlier version, which has no command for it.

Run it by that version's own interpreter, from any folder: `python tests/harness/fingerprints/elsewhere.py RESULTS
FOLDER`. The modules of this tree that take fingerprints are put beside those of that version. They import few names;
those that have come or moved since b1ba9e77 are added here.
"""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parents[3]
TAKEN = (
    "dpbench.records.fingerprints",
    "dpbench.registry.same_code",
    "dpbench.harness.fingerprints",
    "dpbench.harness.fingerprints.core",
    "dpbench.harness.fingerprints.tasks",
    "dpbench.harness.fingerprints.learners",
    "dpbench.harness.fingerprints.taking",
    "dpbench.board.fingerprinting",
)


def main(results: Path, folder: Path) -> None:
    """Take all fingerprints that results ask for, of the code that this interpreter has installed."""
    _add_record()
    _add_fit_once()
    _add_cutting()
    _add_private_search()
    for name in TAKEN:
        importlib.import_module(name.rpartition(".")[0])
        place = HERE.joinpath(*name.split("."))
        spec = spec_from_file_location(name, place / "__init__.py" if place.is_dir() else place.with_suffix(".py"))
        if spec is None or spec.loader is None:
            raise ImportError(name)
        module = module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    from dpbench import registry
    from dpbench.board.fingerprinting import refresh_fingerprints

    for done in refresh_fingerprints(results, folder, registry.load()):
        print(f"{done.kind} {done.name}: {len(done.prints)} settings, {len(done.choices)} choices", flush=True)


def _add_private_search() -> None:
    """Put what a private search costs where it is since 137810b9."""
    new, old = "dpbench.privacy.core.accounting.private_search", "dpbench.privacy.mechanisms.private_selection"
    if find_spec(new) is None:
        sys.modules[new] = importlib.import_module(old)


def _add_record() -> None:
    """Put the base of records where it is since 7c502a81."""
    from pydantic import BaseModel, ConfigDict

    validation = importlib.import_module("dpbench.support.validation")
    if "Record" not in vars(validation):
        rules = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")
        vars(validation)["Record"] = type("Record", (BaseModel,), {"model_config": rules, "__module__": __name__})


def _add_cutting() -> None:
    """Put the cut into public and private rows where it is since 0.3."""
    roles = importlib.import_module("dpbench.harness.roles")
    if "cut" not in vars(roles):
        return
    cutting = ModuleType("dpbench.harness.cutting")
    vars(cutting)["cut_rows"] = lambda *given: [rows.numpy() for rows in roles.cut(*given)]
    sys.modules[cutting.__name__] = cutting


def _add_fit_once() -> None:
    """Fit as versions before 0.3 did, under the names of today."""
    fitting = importlib.import_module("dpbench.harness.fitting")
    if "fit_once" in vars(fitting):
        return
    binding, curator = map(importlib.import_module, ("dpbench.privacy.binding", "dpbench.privacy.curator"))
    fit_isolated, predict_isolated = fitting.fit_isolated, fitting.predict_isolated

    class FitInput(NamedTuple):
        learner: Any
        who: Any
        rows: Any
        task: Any
        public: Any
        plan: Any
        sigma: float
        randomness: Any

    def fit_once(given: FitInput) -> tuple[FitInput, Any]:
        bound = binding.bind(given.rows, given.task, given.plan, given.sigma, given.randomness)
        public = type(given.public)(given.public.x.clone(), None if given.public.y is None else given.public.y.clone())
        handle, start = curator.handle_of(bound), given.randomness.initialisation
        fit = lambda own: own.fit(handle, public, start)
        return given, fit_isolated(given.learner, given.who("fit"), fit, bound.guard)

    def predict_of(fitted: tuple[FitInput, Any], x: Any) -> Any:
        given, predict = fitted
        return predict_isolated(given.learner, given.who("predict"), predict, x, given.task)

    vars(fitting).update(FitInput=FitInput, fit_once=fit_once, predict_isolated=predict_of)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
