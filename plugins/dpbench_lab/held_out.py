"""Choose constants without the test split: hold out some private training examples, and score choices on them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dpbench.data.units import renumber_units
from dpbench.harness.fitting import fit_once, predict_isolated
from dpbench.harness.loaded import LoadedRun
from dpbench.harness.prepare import PreparedRun, prepare_run
from dpbench.harness.scoring import score_predictions
from dpbench.privacy.core.rows import PrivacyUnits, PrivateRows
from dpbench.records.metrics import StoredPredictions
from dpbench.support.threads import limit_threads

SHARE = 0.2  # of the private units


@dataclass(frozen=True)
class HeldOutRun:
    """A run that trains on some of its private examples and is scored on the rest. Its scores are not private."""

    prepared: PreparedRun
    x: Tensor  # (m, *example_shape), the held-out examples
    y: np.ndarray  # (m,)

    def score(self, seed: int) -> StoredPredictions:
        """Fit with a seed, and score the fit on the held-out examples."""
        with limit_threads(self.prepared.loaded.threads):
            scores = predict_isolated(fit_once(self.prepared.make_fit_input(seed)), self.x)
        return score_predictions(scores, self.y, self.prepared.learner.logits)


def hold_out_examples(loaded: LoadedRun, seed: int = 0) -> HeldOutRun:
    """Hold out a fifth of a run's private units, drawn with `seed`; settings and sigma are those of the smaller run.

    Raises:
        DpbenchError: the learner refuses the smaller task.
    """
    rows = loaded.roles.private
    owners = np.arange(len(rows)) if rows.units is None else rows.units.of
    drawn = np.random.default_rng(seed).permutation(rows.count)[: round(SHARE * rows.count)]
    held = torch.from_numpy(np.isin(owners, drawn))
    units = None if rows.units is None else renumber_units(owners[~held.numpy()])
    kept = PrivateRows(rows.held, rows.y[~held], rows.index[~held], None if units is None else PrivacyUnits(units))
    task = dataclasses.replace(loaded.roles.task, size=kept.count)
    roles = dataclasses.replace(loaded.roles, private=kept, task=task)
    prepared = prepare_run(dataclasses.replace(loaded, roles=roles))
    return HeldOutRun(prepared, rows.held[rows.index[held]].float(), rows.y[held].numpy())
