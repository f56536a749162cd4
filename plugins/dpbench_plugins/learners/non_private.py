"""Non-private: the accuracy that a learner without privacy reaches on the private split."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpbench import (
    Blocks,
    Budget,
    Chunk,
    Curator,
    Learner,
    Predict,
    PublicData,
    RankOne,
    Release,
    SpecError,
    Standardise,
    Task,
    aimed,
    hookimpl,
    residuals,
    setting,
)

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor

LARGEST = 1e9  # clip that a curator takes
LOSS = 128.0  # a row's loss is clipped there: only heads that a line search gives up have larger ones
EXPONENTS = 56  # norms are told apart by their powers of two, from 2^-28 to 2^27
QUESTIONS, LINE_SEARCH = 2000, 20  # of one optimisation, and of one line search at most
NEVER = -1e4  # the logit of a class without a private example
FOLDS = 5
STRENGTHS = tuple(4.0**power for power in range(10))  # weaker and weaker, until two in a row are no better
SQUARE = 4096  # features of which second moments are asked for


@dataclass(frozen=True)
class NonPrivate(Learner):
    """Logistic regression on the private rows, without any guarantee: a reference that runs at epsilon = inf only.

    The learner asks the curator like every other learner; at epsilon = inf the curator adds no noise to its answers. It
    standardises features by the rows it learns from and runs L-BFGS to convergence, minimising mean cross-entropy +
    |weights|^2 / (2 regularisation). The bias is not penalised. Two classes share one weight vector, as in
    scikit-learn. A board shows this learner as a line, not as an entry.

    If you do not set `regularisation`, five-fold cross-validation on the private rows chooses it by accuracy: it tries
    1, 4, 16 and so on until two values in a row bring no improvement. The fold of a row is computed from its own
    features and the seed, so identical rows are in the same fold.
    """

    name = "non-private"
    public = "none"
    rule_origin = "no constants: cross-validation on the private rows"
    logits = True
    reference = True
    search_space = {"regularisation": (1.0, 5.0, 15.0, 50.0, 150.0)}

    regularisation: float | None = setting(None, gt=0, says="inverse strength C of the penalty")

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        """Plan as many questions as an optimiser may ask; raise SpecError for a finite epsilon."""
        if budget.epsilon < math.inf:
            raise SpecError(
                f"Learner 'non-private' has no guarantee; it runs at epsilon=inf, not at {budget.epsilon:g}. "
                "Add --epsilon inf."
            )
        asked = [Release("moments", steps=6), Release("loss", steps=QUESTIONS)]
        if self.regularisation is None:
            asked += [Release("folds", steps=len(STRENGTHS) * QUESTIONS), Release("held-out", steps=len(STRENGTHS) + 1)]
        return asked

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Fit on all private rows; a class without a private example is never predicted."""
        import torch

        standardise, counts = _compute_moments(curator)
        mask = torch.where(counts > 0.5, 0.0, NEVER)  # (k,)
        factor = 2 if int((counts > 0.5).sum()) == 2 else 1
        problem = _RegressionProblem(curator, standardise, mask, generator)
        strength, heads = (self.regularisation, None) if self.regularisation else problem.cross_validate(factor)
        head = problem.fit_heads("loss", factor / strength, 1e-5, heads)[0]
        predict = lambda x: torch.addmm(head[:, -1] + mask, standardise(x), head[:, :-1].T)
        return aimed(predict, curator.task, public, counts)


class _RegressionProblem:
    """Logistic regression that asks the curator for losses and gradients; fits one head (k, d + 1), or one per fold.

    Weights are scaled by the root of the curvature at zero, (1 - 1/k) / k times the second moments, so that few steps
    are enough for any spectrum.
    """

    def __init__(self, curator: Curator, standardise: Standardise, mask: Tensor, generator: torch.Generator) -> None:
        import torch

        salt = int(torch.randint(2**62, (1,), generator=generator)) | 1
        self._curator, self._mask, self._salt = curator.map(standardise), mask, salt
        self._features = len(standardise.scale)
        self._longest = _bound_row_norms(self._curator, lambda chunk: chunk.x)
        self._values, self._vectors = self._decompose_second_moments()

    def cross_validate(self, factor: float) -> tuple[float, Tensor]:
        """Return the `regularisation` with the best accuracy, and its heads (f, k, d + 1), one per held-out fold.

        The penalty of a fit is `factor` / `regularisation`.
        """
        best, right, heads, worse = STRENGTHS[0], -math.inf, None, 0
        found: Tensor | None = None
        for strength in STRENGTHS:
            heads = self.fit_heads("folds", factor / strength, 1e-3, heads, FOLDS)
            correct = self._count_held_out_correct(heads)
            worse = worse + 1 if correct <= right else 0
            if correct > right:
                best, right, found = strength, correct, heads
            if worse == 2:
                break
        assert found is not None
        return best, found

    def fit_heads(
        self, release: str, penalty: float, gradient_tolerance: float, start: Tensor | None, heads: int = 1
    ) -> Tensor:
        """Fit one head to all rows or, for cross-validation, one per fold to the rows outside it; return (f, k, d + 1).

        Args:
            release: the release that the questions are charged to.
            penalty: the factor of half the squared weights in the loss.
            gradient_tolerance: the largest entry of the gradient, in scaled weights, at which to stop.
            start: heads to start from, averaged if one head is fitted; None starts from zero.
            heads: the number of heads.
        """
        import torch
        from scipy.optimize import minimize

        scaling, most = self._scaling(penalty), math.hypot(self._longest, 1)  # of a row with its constant 1
        objective = _Objective(self._curator, self._mask, release, scaling, penalty, heads, self._salt, most)
        first = torch.zeros(heads, len(self._mask), self._features + 1) if start is None else start
        first = first.mean(0, keepdim=True) if heads == 1 else first
        options = {
            "maxfun": QUESTIONS - LINE_SEARCH,
            "maxiter": QUESTIONS,
            "maxls": LINE_SEARCH,
            "gtol": gradient_tolerance,
        }
        found = minimize(
            objective, objective.flatten(first), jac=True, method="L-BFGS-B", options={**options, "ftol": 0.0}
        )
        return objective.unflatten(found.x)

    def _decompose_second_moments(self) -> tuple[Tensor, Tensor]:
        """Return eigenvalues (d,) and eigenvectors (d, d) of the second moments; ones and no vectors if d > 4,096."""
        import torch

        if self._features > SQUARE:
            return torch.ones(self._features).double(), torch.ones(0)
        square, clip = lambda chunk: RankOne(chunk.x, chunk.rows), min(self._longest**2, LARGEST)
        moments = self._curator.noisy_sum(square, release="moments", clip=clip).double().cpu() / self._curator.task.size
        values, vectors = torch.linalg.eigh(moments)
        return values.clamp(min=0), vectors

    def _scaling(self, penalty: float) -> _Scaling:
        classes = len(self._mask)
        curvature = self._values * (1 - 1 / classes) / classes + penalty
        return _Scaling(self._vectors, curvature.rsqrt())

    def _count_held_out_correct(self, heads: Tensor) -> int:
        """Count the rows that are classified correctly by the head of their own fold, which was not fitted to them."""
        import torch

        def rows(chunk: Chunk) -> Tensor:
            logits = _logits(chunk.x, heads, self._mask)  # (c, f, k)
            own = logits[torch.arange(len(chunk), device=chunk.y.device), _assign_folds(chunk.x, self._salt)]  # (c, k)
            return (own.argmax(1) == chunk.y).double().unsqueeze(1)

        return round(float(self._curator.noisy_sum(rows, release="held-out", clip=2.0)))


@dataclass(frozen=True)
class _Scaling:
    """The symmetric linear map from scaled weights (..., d) to weights."""

    vectors: Tensor  # (d, d), or none for a scaling of every weight by itself
    roots: Tensor  # (d,)

    def __call__(self, weights: Tensor, inverse: bool = False) -> Tensor:
        """Convert scaled weights (..., d) to weights, or with `inverse` weights to scaled weights."""
        roots = 1 / self.roots if inverse else self.roots
        return weights * roots if self.vectors.ndim < 2 else (weights @ self.vectors * roots) @ self.vectors.T


class _Objective:
    """The sum of the heads' penalised mean losses, and its gradient with respect to flat scaled weights."""

    def __init__(
        self, curator: Curator, mask: Tensor, release: str, scaling: _Scaling, penalty: float, count: int, salt: int,
        longest: float,
    ) -> None:  # fmt: skip
        self._curator, self._mask, self._release = curator, mask, release
        self._scaling, self._penalty, self._count, self._salt = scaling, penalty, count, salt
        root = math.sqrt(count)
        self._clips = (root * math.sqrt(2) * longest, root * LOSS)  # the residuals of one head are at most sqrt(2) long
        self._size = curator.task.size * (1.0 if count == 1 else 1 - 1 / FOLDS)  # of what a head learns from
        self._level = 0.0  # of a single head the last mean loss: answers are float32, and what lies above it is small

    def flatten(self, heads: Tensor) -> np.ndarray:
        """Convert heads (f, k, d + 1) to a flat float64 vector of scaled weights."""
        import torch

        whole = heads.double().cpu()
        scaled = torch.cat([self._scaling(whole[..., :-1], inverse=True), whole[..., -1:]], -1)
        found: np.ndarray = scaled.flatten().numpy()
        return found

    def unflatten(self, flat: np.ndarray) -> Tensor:
        """Convert a flat vector of scaled weights to heads (f, k, d + 1)."""
        import torch

        scaled = torch.from_numpy(flat).reshape(self._count, len(self._mask), -1)
        whole = torch.cat([self._scaling(scaled[..., :-1]), scaled[..., -1:]], -1)
        return whole.float().to(self._mask.device)

    def __call__(self, flat: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the loss and its gradient, from one question to the curator."""
        import torch
        from torch.nn.functional import cross_entropy

        heads, mask, level, count = self.unflatten(flat), self._mask, self._level, self._count
        folds = torch.arange(count, device=mask.device)

        def rows(chunk: Chunk) -> Blocks:
            y = chunk.y.repeat_interleave(count)  # (c * f,)
            logits = _logits(chunk.x, heads, mask).flatten(0, 1)  # (c * f, k)
            losses = cross_entropy(logits.double(), y, reduction="none").reshape(-1, count) - level
            own = _assign_folds(chunk.x, self._salt).unsqueeze(1)
            seen = torch.ones_like(losses) if count == 1 else (own != folds).double()  # (c, f)
            gradients = residuals(logits, y).reshape(len(chunk), count, len(mask)) * seen.float().unsqueeze(2)
            return Blocks((RankOne(gradients.flatten(1), chunk.rows, bias=True), losses * seen))

        gradient, above = self._curator.noisy_sum(rows, release=self._release, clip=self._clips)
        if count == 1:
            self._level += float(above) / self._size
        weights = heads.double().cpu()
        weights[..., -1] = 0
        mean = self._level if count == 1 else float(above.sum()) / self._size
        total = gradient.double().cpu().reshape(heads.shape) / self._size + self._penalty * weights
        slope = torch.cat([self._scaling(total[..., :-1]), total[..., -1:]], -1)
        return mean + self._penalty / 2 * float(weights.square().sum()), slope.flatten().numpy()


def _logits(x: Tensor, heads: Tensor, mask: Tensor) -> Tensor:
    """Return the logits (c, f, k) of rows (c, d) under heads (f, k, d + 1), plus `mask` (k,)."""
    flat = heads.flatten(0, 1)  # (f * k, d + 1)
    return (x @ flat[:, :-1].T + flat[:, -1]).reshape(len(x), *heads.shape[:2]) + mask


def _assign_folds(x: Tensor, salt: int) -> Tensor:
    """Assign each row to a fold, (c,) int64, by a hash of its features, so that equal rows share a fold."""
    import torch

    bits = x.flatten(1).contiguous().view(torch.int32).sum(1)  # int64
    return ((bits * salt) >> 40).remainder(FOLDS)


def _bound_row_norms(curator: Curator, rows: Callable[[Chunk], Tensor]) -> float:
    """Return a power of two that is at least the norm of every finite row that the function `rows` returns."""
    import torch
    from torch.nn.functional import one_hot

    def one_hot_exponents(chunk: Chunk) -> Tensor:
        norms = rows(chunk).flatten(1).double().norm(dim=1)
        powers = norms.nan_to_num(1.0, posinf=1.0).clamp(min=2.0 ** -(EXPONENTS // 2)).log2().ceil().long()
        return one_hot((powers + EXPONENTS // 2).clamp(max=EXPONENTS - 1), EXPONENTS).double()

    counts = curator.noisy_sum(one_hot_exponents, release="moments", clip=2.0)
    return float(2.0 ** (int(torch.nonzero(counts > 0.5).max()) - EXPONENTS // 2))


def _compute_moments(curator: Curator) -> tuple[Standardise, Tensor]:
    """Return the map that standardises with private moments, and the number of private rows of each class (k,)."""
    import torch
    from torch.nn.functional import one_hot

    size, classes = curator.task.size, curator.task.classes

    def features_and_labels(chunk: Chunk) -> Blocks:
        return Blocks((chunk.x.flatten(1).double(), one_hot(chunk.y, classes).double()))

    longest = _bound_row_norms(curator, lambda chunk: chunk.x)
    sums, counts = curator.noisy_sum(
        features_and_labels, release="moments", clip=(2 * longest, 2.0)
    )  # twice: none is at its clip
    mean = sums / size
    second = lambda chunk: (chunk.x.flatten(1).double() - mean).square()
    clip = 2 * _bound_row_norms(curator, second)
    deviation = (curator.noisy_sum(second, release="moments", clip=clip) / size).clamp(min=0).sqrt()
    scale = torch.where(deviation > 1e-6 * deviation.max(), 1 / deviation, 1.0)
    return Standardise(-mean * scale, scale), counts


@hookimpl
def dpbench_learners() -> Sequence[type[Learner]]:
    """Register the learners of this module."""
    return [NonPrivate]
