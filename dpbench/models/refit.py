"""Rebuild the model of a stored result: refit a seed and check that its predictions are the same."""

from __future__ import annotations

from dpbench.errors import DataError, NotReproducible, SpecError
from dpbench.harness.fit import fit_seed
from dpbench.harness.session import Session
from dpbench.models.model import Model
from dpbench.records.result import Result


def refit_model(result: Result, seed: int, session: Session) -> Model:
    """Refit a seed of a stored result and return its model.

    The result's guarantee covers the refit: the refit repeats the noise of the first fit, so it reveals nothing new
    about the private data.

    Raises:
        SpecError: the result has no such seed, or the predictor cannot be kept.
        NotReproducible: the noise cannot be drawn again, or data, plugin or code are not on this machine.
        DataError: the refit gives other labels than the result states.
    """
    stated = next((entry for entry in result.seeds if entry.seed == seed), None)
    if stated is None:
        raise SpecError(f"Expected a seed of {result.file_name}, {', '.join(map(str, result.spec.seeds))}, got {seed}.")
    if result.privacy.rng == "secure":
        raise NotReproducible(
            "The noise of a run with --secure-rng is drawn once, and another fit would spend ε again. Keep the models "
            "of such a run as it ends: keep_models=True, or dpbench run --models."
        )
    prepared = session.rerun(result, seed)
    refit = fit_seed(prepared, seed)
    if refit.result.predictions != stated.predictions:
        raise DataError(
            f"Seed {seed} of {result.file_name} gives other labels here than the result states: the processor or "
            "the package versions differ. Run its spec again to get a model made on this machine."
        )
    return Model.from_fit(prepared, refit, session.plugins, result)
