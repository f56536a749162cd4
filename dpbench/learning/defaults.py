"""Compute settings from the budget: the number of components, and the distance that training moves a head.

The settings are computed from n / sigma, the number of examples relative to the noise of one sum. Here sigma is the
noise multiplier of one release over all examples (`gaussian_sigma`). While the gradient hardly changes, T noisy
gradients, each with sqrt(T) times that noise, tell as much as that one sum, so the number of steps hardly matters. The
distance that the head travels does matter: noise grows with the distance, and the signal saturates (the linear scaling
rule of Panda et al. 2024).

The constants were chosen on training images only, with some held out for validation; no test split was used. The number
of components and the distance come from CIFAR-10 (efficientnet-lite0; 5,000 public images without labels, 1,000 to
40,000 private, 4,000 held out; epsilon 0.03 to 8; all classes, five classes, and all classes in the ratio 1 to 20). The
dependence of the distance on the number of features was also chosen on the pixels of the digits and of Fashion-MNIST
(repeat this with `python -m tests.helpers.travel_constant`). There, with about 1,000 private images, the best of five
distances is between half and twice the chosen distance at each of five epsilons. On the digits at that distance, clips
of a quarter, half and all of the norm of a row score 0 to 3, 1 to 9 and 2 to 9 points less than a clip of 1, so heads
keep a clip of 1. Steps are full batches, so there is no batch size to choose.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from dpbench.api import Budget, Task
from dpbench.errors import SpecError
from dpbench.privacy.core.accounting.accountant import gaussian_sigma

DISTANCE_ORIGIN = "training images of CIFAR-10, Fashion-MNIST and the digits"
MAX_EFFECTIVE_SIZE = 8000.0  # to travel further gained nothing, whatever the budget
ROW_FEATURES = {"unit-norm": 5, "version 0.2": 1280}  # standardised features that a row counts as
Rows = Literal["standardised", "unit-norm", "version 0.2"]
"""What is known about the norm of a row. Version 0.2 assumed that every row has 1,280 standardised features."""
STEP_LIMITS = (30, 100)  # at least, at most
MAX_TRAVEL_PER_STEP = 1e9  # in one step: beyond that, no score means anything
TRAVEL_PER_STEP = 3.0  # of travel in a step, between them


def effective_size(task: Task, budget: Budget) -> float:
    """Return n / sigma, the number of private examples relative to the noise of one release; inf without noise."""
    sigma = gaussian_sigma(budget)
    return task.size / sigma if sigma else float("inf")


def components(task: Task, budget: Budget) -> int:
    """Return the number of principal components of the features that the budget supports: 1.3 (n / sigma)^0.6.

    The result is at most a quarter of the number of public examples, because the components are estimated from these,
    and at most the number of features.
    """
    most = min(max(task.public // 4, 1), math.prod(task.example_shape))
    return max(1, round(min(1.3 * math.pow(effective_size(task, budget), 0.6), most)))


def travel(task: Task, budget: Budget, rows: Rows = "standardised") -> float:
    """Return the distance that a linear head should travel over all steps, in clips: (n / sigma) sqrt(5 / d).

    n / sigma is capped at 8,000. d is the number of features if rows are standardised; their norm is then about
    sqrt(d). A score is the product of a head and a row, so shorter rows need a larger head for the same scores. For
    rows of norm 1, d is set to 5, so the distance is n / sigma. See `ROW_FEATURES` for other rows.
    """
    features = ROW_FEATURES.get(rows) or math.prod(task.example_shape)
    return min(effective_size(task, budget), MAX_EFFECTIVE_SIZE) * math.sqrt(ROW_FEATURES["unit-norm"] / features)


def check_training_settings(
    momentum: float, clip: float, rate: float | None = None, who: str = "a linear head"
) -> None:
    """Check a head's clip and momentum and, if given, its learning rate.

    Raises:
        SpecError: a setting is out of range; the message names the setting and its owner, `who`.
    """
    if not 0 < clip < math.inf:
        raise SpecError(f"Expected clip={clip} of {who} to be positive and finite: the L2 bound on one gradient.")
    if not 0 <= momentum < 1:
        raise SpecError(f"Expected momentum={momentum} of {who} in [0, 1).")
    if rate is not None and not 0 < rate * clip <= MAX_TRAVEL_PER_STEP:
        raise SpecError(
            f"Expected learning_rate={rate} of {who} to be positive and at most {MAX_TRAVEL_PER_STEP / clip:g}."
        )


def pace(
    way: float, *, steps: int | None, sample_rate: float = 1.0, momentum: float = 0.0, clip: float = 1.0,
    who: str = "a linear head",
) -> dict[str, Any]:  # fmt: skip
    """Return steps and a learning rate with which gradients of norm `clip` move the head by the distance `way`.

    Unless `steps` is given, there is one pass over the data for every 3 units of `way`, but at least 30 and at most 100
    passes (`STEP_LIMITS`). A pass takes 1 / `sample_rate` steps.

    Raises:
        SpecError: the clip or the momentum is out of range; the message names the setting and its owner, `who`.
    """
    check_training_settings(momentum, clip, who=who)
    least, most = STEP_LIMITS
    share = sample_rate if 0 < sample_rate <= 1 else 1.0  # any other rate is refused where the plan is read
    steps = steps or round(min(max(way / TRAVEL_PER_STEP, least), most) / share)
    return {"steps": steps, "learning_rate": float(f"{way * (1 - momentum) / (steps * clip):.3g}")}
