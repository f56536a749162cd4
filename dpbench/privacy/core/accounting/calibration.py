"""Cache sigma between runs. A cached sigma is only a hint: its epsilon is computed again every time.

The hint is used if its epsilon is at most the target, and less than 0.1% below it. So somebody who writes to the cache
cannot make a run less private than it states, and can hardly increase its noise.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from dpbench.errors import OutputError
from dpbench.privacy.core.accounting import accountant
from dpbench.privacy.core.accounting.accountant import AccountantName
from dpbench.privacy.core.plan import Budget, Planned
from dpbench.support.code import core_digest
from dpbench.support.files import canonical_digest, write_json
from dpbench.support.paths import cache_folder

_PLAUSIBLE = (1e-2, 1e7)  # a damaged file must not send an accountant where it cannot answer


def calibrate(plan: Sequence[Planned], budget: Budget, name: AccountantName) -> float:
    """Call `accountant.calibrate` with the cached sigma, if any, as a hint; write a new sigma to the disk cache."""
    file = _locate_sigma_cache_file(plan, budget, name)
    hint = _read_cached_sigma(file)
    sigma = accountant.calibrate(plan, budget, name, hint)
    if sigma != hint:
        try:
            write_json(file, {"sigma": sigma})
        except OutputError:
            return sigma  # a run does not fail because its calibration cannot be remembered
    return sigma


def _locate_sigma_cache_file(plan: Sequence[Planned], budget: Budget, name: AccountantName) -> Path:
    library = "opacus" if name == "prv" else "dp-accounting"
    question = {
        "plan": [release.record() for release in plan],
        "budget": {**dataclasses.asdict(budget), "epsilon": str(budget.epsilon)},
        "accountant": [name, library, version(library)],
        "precision": accountant.PRECISION,
        "code": core_digest(),  # a sigma that other code found may differ in its last digits
    }
    return cache_folder() / "calibrations" / f"{canonical_digest(question)[:32]}.json"


def _read_cached_sigma(file: Path) -> float | None:
    try:
        sigma = float(json.loads(file.read_text(encoding="utf-8"))["sigma"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return sigma if _PLAUSIBLE[0] <= sigma <= _PLAUSIBLE[1] else None
