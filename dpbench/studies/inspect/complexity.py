"""How many private labelled examples a halfspace needs, by method: PILLAR's table 3, corrected, as a page.

The page is `dpbench/docs/theory/table-3.md`: `python -m dpbench.studies.inspect.complexity` prints it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """What the bounds depend on."""

    d: int = 1280
    k: int = 40
    gamma: float = 0.1
    xi: float = 0.1
    alpha: float = 0.05
    epsilon: float = 0.1


@dataclass(frozen=True)
class Bound:
    """One row of the table."""

    method: str
    public: str
    assumption: str
    formula: str
    needed: Callable[[Case], float]
    differs: str = ""  # from the table as printed, and why


BOUNDS = (
    Bound(
        "Semi-private exponential mechanism (Alon et al. 2019)", "unlabelled", "none", "d / (α ε)",
        lambda case: case.d / (case.alpha * case.epsilon),
        "the paper prints √d / (α ε γ). A net of halfspaces has exp(Θ(d)) members, and the mechanism costs their "
        "logarithm. Section 3.3 of PILLAR, and Hu et al., state d / (α ε).",
    ),
    Bound(
        "DP-SGD (Li et al. 2022)", "none", "restricted Lipschitz coefficients, sum of squares at most c₂",
        "√k / (α ε γ) + √(c₂ d / k)",
        lambda case: math.sqrt(case.k) / (case.alpha * case.epsilon * case.gamma) + math.sqrt(case.d / case.k),
    ),
    Bound(
        "Noisy SGD, no assumption (Bassily et al. 2014)", "none", "none", "√d / (α ε γ)",
        lambda case: math.sqrt(case.d) / (case.alpha * case.epsilon * case.gamma),
        "the paper does not print it in its table. We derive it from the first row of that table.",
    ),
    Bound(
        "Johnson-Lindenstrauss (Nguyen et al. 2020)", "none", "none", "1 / (α ε γ²)",
        lambda case: 1 / (case.alpha * case.epsilon * case.gamma**2),
        "the bound is correct. It follows from log(1 / β) / γ² dimensions, √(1 / γ²) / (α ε γ), and not from the "
        "O(1 / γ) in the paper's text.",
    ),
    Bound(
        "Random projection of gradients (Kasiviswanathan 2021)", "none", "a parameter space of Gaussian width ω",
        "min(ω / β, √d) / (α ε γ)",
        lambda case: math.sqrt(case.d) / (case.alpha * case.epsilon * case.gamma),
    ),
    Bound(
        "GEP (Yu et al. 2021)", "unlabelled", "gradients of low rank, residual at most c₁", "1 / (α ε γ) + √k + c₁ √d",
        lambda case: 1 / (case.alpha * case.epsilon * case.gamma) + math.sqrt(case.k) + math.sqrt(case.d),
    ),
    Bound(
        "PILLAR (Pinto et al. 2023)", "unlabelled", "definition 3: margin γ, ξ of the separator outside k directions",
        "max( √k / (α ε γ (1 - ξ - γ/10)), k / α )",
        lambda case: max(
            math.sqrt(case.k) / (case.alpha * case.epsilon * case.gamma * (1 - case.xi - 0.1 * case.gamma)),
            case.k / case.alpha,
        ),
        "the paper prints no k / α, which its proof uses to go from the sample to the distribution. The remaining "
        "margin γ (1 - ξ - γ/10) does not follow for ξ > 0 ([errata](errata.md)); γ - √(ξ (2 - ξ)) does.",
    ),
)  # fmt: skip


def page(case: Case | None = None) -> str:
    """Return the page: the table, a case worked out, and what differs from print."""
    one = case or Case()
    rows = [
        f"| {bound.method} | {bound.public} | {bound.assumption} | {bound.formula} | {bound.needed(one):,.0f} |"
        for bound in BOUNDS
    ]
    notes = [f"- **{bound.method}**: {bound.differs}" for bound in BOUNDS if bound.differs]
    return "\n".join([
        "# How many private examples a halfspace needs",
        "",
        "<!-- Made by python -m dpbench.studies.inspect.complexity: change that, not this page. -->",
        "",
        "This page is a corrected version of Table 3 of PILLAR (Pinto, Hu, Yang, Sanyal 2023).",
        "",
        "*The number n of private examples that is enough for an error of α at ε, up to constants and logarithms, for",
        "rows of norm 1 with margin γ in d dimensions. The last column evaluates the formula with all constants 1, for",
        f"d = {one.d:,}, k = {one.k}, γ = {one.gamma:g}, ξ = {one.xi:g}, α = {one.alpha:g}, ε = {one.epsilon:g}.",
        "Use it to compare rows, not to plan.*",
        "",
        "| method | public data | assumption | n, up to logarithms | example |",
        "|---|---|---|---|---:|",
        *rows,
        "",
        "## Corrections",
        "",
        *notes,
        "",
        "## What the table does not say",
        "",
        "These are upper bounds: √d against √k is a gap between bounds, not between algorithms. Noise N(0, s² I) in",
        "the head w changes the score of a row of norm 1 by N(0, s²), for every d. At a fixed margin, noisy gradient",
        "descent in all dimensions does not cost √d: from d = 100 on, [its error](figures.md) is flat or falls.",
        "",
        "Projection reduces the noise of a score from s to s √(1 - τ), where τ is the share of a row's energy outside",
        "the k directions, and the margin from γ to about γ (1 - ξ). The gain in examples is (1 - ξ) / √(1 - τ).",
    ]) + "\n"  # fmt: skip


if __name__ == "__main__":
    print(page(), end="")
