"""Calibrate logits with a temperature (from public labels, the known noise or a private choice) and a class prior.

Public labels, the noise and the prior cost no privacy: they only post-process a private head. The private choice is a
planned question. A temperature changes no predicted class.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from dpbench.api import Choice, Chunk, Curator, Predict, PublicData, Task
from dpbench.learning.linear import residuals
from dpbench.privacy.core.exact.elementwise import folded
from dpbench.privacy.core.exact.quantised import exact_linear

if TYPE_CHECKING:
    from torch import Tensor

MIN_TEMPERATURE, MAX_TEMPERATURE = 0.02, 50.0
TEMPERATURES: tuple[float, ...] = tuple(2.0 ** (power / 2) for power in range(-5, 6))  # that private rows choose from
BUDGET_SHARE = 0.03  # of the budget that the choice takes
BALANCED_ACCURACY = "balanced_accuracy"
MAX_PUBLIC_ROWS = 5_000  # public examples that a temperature or a prior is estimated from
MIN_CLASS_SHARE = 0.1  # of an even share: a class that public predictions never name may still exist


def calibrated(predict: Predict, public: PublicData, noise: Callable[[Tensor], float] | None = None) -> Predict:
    """Return the predictor with its logits divided by a temperature.

    With public labels, the temperature minimises the log loss on these labels (Guo et al. 2017). Without labels, it is
    computed from the noise in the logits (`noise_temperature`). The logits do not change if the noise is unknown too,
    if there are no public examples, or if logits are not finite because training diverged.

    Args:
        predict: a predictor of logits (c, classes) whose head was not trained on the public labels.
        public: the public data, which may be empty.
        noise: maps public examples to the variance that noise adds to one logit, averaged over the examples.
    """
    import torch

    some = public.x[:MAX_PUBLIC_ROWS]
    if not len(some):
        return predict
    with torch.no_grad():
        logits = predict(some).double().cpu()
    if not bool(logits.isfinite().all()):
        return predict  # training diverged: the harness says so
    if public.y is not None:
        temperature = label_temperature(logits, public.y[:MAX_PUBLIC_ROWS].cpu())
    else:
        temperature = noise_temperature(logits, noise(some)) if noise else 1.0
    return lambda x: predict(x) / temperature


def label_temperature(logits: Tensor, y: Tensor) -> float:
    """Return the temperature between 0.02 and 50 that gives logits (m, k) the lowest log loss on labels (m,).

    A prior around temperature 1, with a deviation of a factor of e, counts as much as a single label, so a few labels
    change the temperature little.
    """
    from scipy.optimize import minimize_scalar
    from torch.nn.functional import cross_entropy

    def compute_penalised_loss(log: float) -> float:
        return float(cross_entropy(logits / math.exp(log), y, reduction="sum")) + log**2 / 2

    found = minimize_scalar(
        compute_penalised_loss, bounds=(math.log(MIN_TEMPERATURE), math.log(MAX_TEMPERATURE)), method="bounded"
    )
    return math.exp(float(found.x))


def plan_temperature(steps: float, name: str = "temperature") -> Choice:
    """Return the planned choice of a temperature.

    The choice costs as much as 3% of `steps` noisy sums over all rows, where cost is measured in 1 / sigma^2.
    """
    return Choice(name, len(TEMPERATURES), relative_noise=float(f"{(BUDGET_SHARE * steps) ** -0.5:.3g}"))


def choose_temperature(curator: Curator, head: Tensor, name: str = "temperature") -> float:
    """Choose the temperature with the lowest Brier score on private rows, with the exponential mechanism.

    The loss of a row for a temperature is half the squared distance between its probabilities and its one-hot label,
    from 0 to 1. Every bit of the loss depends only on that row and public values.

    Args:
        curator: the curator over features (c, d), as `Curator.map` returns it.
        head: (k, d + 1) with the bias as its last column, or (k, d) without bias.
        name: the name of the planned choice.
    """
    import torch

    (features,) = curator.task.example_shape
    weight = head[:, :features].contiguous()
    bias = head[:, -1].contiguous() if head.shape[1] > features else None

    def losses(chunk: Chunk) -> Tensor:
        logits = exact_linear(chunk.x, weight, bias)
        parts = [
            folded(residuals(logits / temperature, chunk.y).double().square(), 1) / 2 for temperature in TEMPERATURES
        ]
        return torch.stack(parts, 1).clamp(max=1)  # (c, candidates)

    return TEMPERATURES[int(curator.noisy_choice(losses, release=name))]


def noise_temperature(logits: Tensor, noise: float) -> float:
    """Return the temperature at which the softmax of noisy logits (m, k) estimates that of the noiseless logits.

    Across classes, the logits have variance v, of which u = `noise` is noise. With a normal prior, the posterior mean
    of the noiseless logits is r times the noisy ones, r = 1 - u / v, and each has a posterior variance of r u. The mean
    softmax of a normal vector is about the softmax of its mean divided by sqrt(1 + pi/8 w), where w = 2 r u is the
    variance of a difference of two entries (MacKay 1992).
    """
    centred = logits - logits.mean(1, keepdim=True)
    variance = float(centred.square().sum() / (len(logits) * max(1, logits.shape[1] - 1)))
    signal = min(max(1 - noise / variance, MIN_TEMPERATURE), 1.0) if variance > 0 else 1.0
    return min(math.sqrt(1 + math.pi / 4 * signal * noise) / signal, MAX_TEMPERATURE)


def aimed(predict: Predict, task: Task, public: PublicData, prior: Tensor | None = None) -> Predict:
    """Return the predictor adjusted to the task's metric if the metric weights all classes equally.

    For balanced accuracy, the logarithm of the class prior is subtracted from the logits (Menon et al. 2021, equation
    9, tau = 1). The predictor does not change for any other metric, or if there is neither a `prior` nor public data.

    Args:
        predict: a predictor of calibrated logits (c, classes).
        task: the task, with the metric.
        public: examples whose mean predicted probabilities are the prior, unless `prior` is given.
        prior: (classes,) share of each class among the private examples.
    """
    import torch

    if task.metric != BALANCED_ACCURACY or (prior is None and not len(public.x)):
        return predict
    if prior is None:
        with torch.no_grad():
            prior = predict(public.x[:MAX_PUBLIC_ROWS]).double().softmax(1).mean(0)
    shares = prior / prior.sum()
    shift = shares.clamp(min=MIN_CLASS_SHARE / task.classes).log()
    return lambda x: predict(x) - shift.to(x.device, torch.float32)
