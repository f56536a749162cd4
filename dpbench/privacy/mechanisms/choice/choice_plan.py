"""A choice in a plan, and its cost: the privacy of the exponential mechanism. Imports no torch.

The total loss L_j of candidate j is a whole number of steps. Adding or removing a row moves each total by the row's
loss in [0, 1], all in one direction (`choice.question`). Candidate j is chosen with chance P(j) = exp(-eps0 L_j) / Z,
with Z the sum over all candidates, which are public.

Privacy (add or remove one). Let P' be the distribution with one more row, whose losses are l_j.

- eps0-DP. (Replacing a row costs a factor of 2, because some totals may rise while others fall.) The log-ratio
  f(j) = log P'(j) / P(j) is log(Z / Z') - eps0 l_j, where 1 <= Z / Z' <= exp(eps0) as 0 <= l_j <= 1, so |f| <= eps0.
- eps0^2 / 8 zero-concentrated DP: all values of f lie in one interval of length eps0. Let K(s) be log E_P[exp(s f)].
  K(0) = K(1) = 0, and K'' is the variance, under a tilted law, of a number in that interval: at most eps0^2 / 4. So
  eps0^2 / 8 * s (s - 1) - K(s) is convex with zeros at 0 and 1, and not negative for s > 1, where K(s) / (s - 1) is the
  Renyi divergence of order s of P' from P. Replacing f by -f gives the divergence of P from P' (Cesar and Rogers 2021,
  lemma 3.4).

`compute_eps0` matches the zCDP of a Gaussian of noise multiplier sigma: eps0 = 2 / sigma, eps0^2 / 8 = 1 / (2 sigma^2).

Composition. f lies in an interval [t - eps0, t] with 0 <= t <= eps0: the choice has bounded range. In both directions,
and whatever earlier answers were, its hockey-stick divergence at e is then at most

    h(e) = (1 - exp((e - eps0) / 2))^2 / (1 - exp(-eps0)),  -eps0 <= e <= eps0.

For fixed t, among all laws with E_Q[exp f] = 1, E_Q[(exp f - exp e)+], convex in exp f, is largest if f takes only the
ends of its interval: Q(f = t) = (exp(-t) - exp(-eps0)) / (1 - exp(-eps0)). That gives
(1 + exp(e - eps0) - exp(t - eps0) - exp(e - t)) / (1 - exp(-eps0)), which is largest at t = (e + eps0) / 2, where it is
h(e) (Dong, Durfee and Rogers 2020 have these steps). And h is itself the divergence of a pair. Its loss L has density
exp((e - eps0) / 2) / (2 (1 - exp(-eps0))) on [-eps0, eps0], because P(L > e) = h(e) - h'(e). So this pair dominates all
choices, and dominating pairs compose, even if choices depend on earlier answers (Zhu, Dong and Wang 2022, theorem
10). For a single choice among other mechanisms the pair is exact. Copies of it would overstate epsilon by 2% for five
choices, 13% for twenty and 15% for fifty, as no strategy has the worst t at every e; `bounded_range` composes several
choices exactly.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dpbench.errors import PlanError
from dpbench.privacy.core.plan import Planned, PureDpCost
from dpbench.privacy.mechanisms.choice import bounded_range

if TYPE_CHECKING:
    import numpy as np

MOST_CANDIDATES = 2**22  # of a choice, over all parts


def compute_eps0(sigma: float) -> float:
    """Return the eps0 of a choice whose zCDP, eps0^2 / 8, equals that of a Gaussian with this noise multiplier."""
    return 2 / sigma


@dataclass(frozen=True)
class Choice(Planned):
    """One planned use of the private data: the exponential mechanism, asked `steps` times over all examples.

    A candidate j is chosen with chance proportional to exp(-eps0 L_j). L_j is the sum of the examples' losses for
    candidate j, each in [0, 1], and eps0 = 2 / (base sigma * relative_noise). A choice satisfies the same
    zero-concentrated DP as a `Release` of that noise. A plan of a single choice is pure: eps0 is the whole epsilon, and
    delta is 0. `parts` choices, each among `candidates`, together cost as much as one, because each example
    counts in only one part.
    """

    numbers: ClassVar[tuple[str, ...]] = ("candidates", "parts", "steps", "relative_noise")
    word: ClassVar[str] = "noisy_choice"
    sample_rate: ClassVar[float] = 1.0  # every example is in every question

    name: str
    candidates: int = dataclasses.field(metadata={"ge": 2})  # at most: how many there are may follow from public data
    parts: int = dataclasses.field(default=1, metadata={"ge": 1})
    steps: int = 1
    relative_noise: float = 1.0

    def describe(self, noise: float) -> str:
        """Return the number of candidates and parts, and eps0, as text."""
        parts = f" in each of {self.parts:,} parts" if self.parts > 1 else ""
        return f"of up to {self.candidates:,} candidates{parts}, ε₀ {compute_eps0(noise):.4g}"

    @property
    def pure(self) -> PureDpCost | None:
        """The cost of a choice that is asked once: eps0, with delta 0; None if it is asked several times."""
        return PureChoice(self) if self.steps == 1 else None

    def check(self, where: str) -> None:
        """Refuse fewer than 2 candidates, fewer than 1 part, and more candidates in total than fit into memory."""
        for field, count, least in (("candidates", self.candidates, 2), ("parts", self.parts, 1)):
            if not (count >= least and count % 1 == 0):
                raise PlanError(f"Expected {field}={count} to be a whole number >= {least} {where}.")
        if self.candidates * self.parts > MOST_CANDIDATES:
            raise PlanError(
                f"Expected at most {MOST_CANDIDATES:,} candidates over all parts {where}, got "
                f"{self.candidates * self.parts:,}. dpbench keeps a total for each in memory. Cover the class with "
                "fewer candidates."
            )

    def event(self, noise: float) -> Any:
        """Return the event of one step, which states only the choice's zCDP."""
        import dp_accounting as dp

        return dp.ZCDpEvent(compute_eps0(noise) ** 2 / 8)

    @property
    def step(self) -> Choice:
        """One step; its cost does not depend on the number of candidates and parts."""
        return Choice("", 2, relative_noise=self.relative_noise)

    def loss_distribution(self, noise: float, interval: float) -> Any:
        """Return the loss distribution of the pair that dominates all steps, on a grid."""
        return loss_distribution(compute_eps0(noise), self.steps, interval)

    def loss_variables(self, noise: float) -> tuple[Any, int]:
        """Return the loss variable of the pair that dominates a block of steps, and the number of blocks."""
        size, copies = bounded_range.split_steps_into_blocks(self.steps)
        eps0 = compute_eps0(noise)
        return choice_loss_variable(eps0) if size == 1 else curve_loss_variable(
            bounded_range.lower_divergence_curve(eps0, size)
        ), copies

    def renyi(self, noise: float, orders: Sequence[float]) -> np.ndarray:
        """Return the Renyi divergence of all steps at every order, computed from the choice's zCDP."""
        import numpy as np

        curve: np.ndarray = self.steps * compute_eps0(noise) ** 2 / 8 * np.array(orders)
        return curve


@dataclass(frozen=True)
class PureChoice(PureDpCost):
    """The cost of a choice that is asked once."""

    choice: Choice

    def epsilon(self, noise: float) -> float:
        """Return eps0, the whole epsilon."""
        return compute_eps0(noise)

    def epsilon_lower_bound(self, noise: float) -> float:
        """Return a lower bound: the privacy loss of one row if there are two candidates with totals far apart."""
        import numpy as np

        eps0, far = compute_eps0(noise), 30.0  # eps0 times how much more; at its worst, rounding is worth 1e-12
        moved = np.logaddexp(0, far + eps0) - np.logaddexp(0, far)
        return float(moved * (1 - 1e-12))

    def base_sigma(self, epsilon: float) -> float:
        """Return the base sigma at which eps0 is this epsilon."""
        return 2 / (epsilon * self.choice.relative_noise)


def hockey_stick_divergence(eps0: float, e: np.ndarray) -> np.ndarray:
    """Return h(e), the largest hockey-stick divergence of one choice at each e."""
    import numpy as np

    inside = np.clip(e, -eps0, eps0)
    found = np.expm1((inside - eps0) / 2) ** 2 / -math.expm1(-eps0)
    below: np.ndarray = np.where(e < -eps0, -np.expm1(np.minimum(e, 0)), found)
    return below


def loss_distribution(eps0: float, steps: int, interval: float) -> Any:
    """Return dp-accounting's loss distribution of the pair that dominates all steps, rounded up to this grid."""
    import numpy as np
    from dp_accounting.pld.pld_pmf import create_pmf_pessimistic_connect_dots_fixed_gap
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    size, copies = bounded_range.split_steps_into_blocks(steps)
    curve = bounded_range.upper_divergence_curve(eps0, size) if size > 1 else None
    ends = math.ceil((curve.last * curve.step if curve else eps0) / interval)
    grid = np.arange(-ends, ends + 1) * interval
    deltas = curve.upper_bound(grid) if curve else hockey_stick_divergence(eps0, grid)
    pmf = create_pmf_pessimistic_connect_dots_fixed_gap(interval, -ends, ends, deltas)
    return PrivacyLossDistribution(pmf).self_compose(copies)


def curve_loss_variable(curve: bounded_range.DivergenceCurve) -> Any:
    """Return prv-accountant's loss variable of the pair with this curve, computed from the curve's slopes."""
    import numpy as np
    from prv_accountant import PrivacyRandomVariable
    from scipy.special import logsumexp

    edges = (np.arange(-curve.last, curve.last + 2) - 0.5) * curve.step
    below = np.concatenate([[0.0], 1 - curve.tail(), [1.0]])
    middles = edges[:-1] + curve.step / 2

    class CurveLossVariable(PrivacyRandomVariable):  # type: ignore[misc]  # a package without types
        def cdf(self, t: Any) -> Any:
            return np.interp(np.asarray(t, dtype=float), edges, below)

        def rdp(self, alpha: float) -> float:
            return float(logsumexp((alpha - 1) * middles, b=np.diff(below))) / (alpha - 1)

    return CurveLossVariable()


def choice_loss_variable(eps0: float) -> Any:
    """Return prv-accountant's loss variable of the pair that dominates one choice, from the density of its loss."""
    import numpy as np
    from prv_accountant import PrivacyRandomVariable

    class ChoiceLossVariable(PrivacyRandomVariable):  # type: ignore[misc]  # a package without types
        def cdf(self, t: Any) -> Any:
            return 1 - np.expm1((np.clip(t, -eps0, eps0) - eps0) / 2) / math.expm1(-eps0)

        def rdp(self, alpha: float) -> float:
            s = (alpha - 0.5) * eps0  # log of exp(-eps0 / 2) sinh(s) / ((alpha - 1/2) (1 - exp(-eps0))), for large s
            top = s - eps0 / 2 + math.log(-math.expm1(-2 * s) / 2)
            return (top - math.log((alpha - 0.5) * -math.expm1(-eps0))) / (alpha - 1)

    return ChoiceLossVariable()
