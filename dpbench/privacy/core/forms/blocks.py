"""The return values of row functions: one contribution per row, or several blocks of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpbench.errors import PrivacyError
from dpbench.privacy.core.closed import is_defined_by_dpbench
from dpbench.privacy.core.exact.quantised import QuantisedRows, convert_to_float_rows
from dpbench.privacy.core.forms.contributions import Contribution, Rows

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Blocks:
    """Several contributions of each row, each clipped to its own bound: `noisy_sum(..., clip=(a, b))`.

    A row's b blocks, divided by their bounds, together have norm at most sqrt(b), so the noise std of a block is
    sigma * sqrt(b) times the block's bound. GEP's embedding and residual are two blocks of one sample.
    """

    parts: tuple[Contribution | Tensor | QuantisedRows, ...]


def wrap_blocks(contribution: Tensor | QuantisedRows | Contribution | Blocks) -> tuple[Contribution, ...]:
    """Convert a row function's return value to a tuple of blocks; bare tensors become `DenseRows`.

    Raises:
        PrivacyError: a block's class is not in the closed set; even a subclass is refused, as its norms may be wrong.
    """
    import torch

    parts = contribution.parts if isinstance(contribution, Blocks) else (contribution,)
    blocks: list[Contribution] = []
    for part in parts:
        if isinstance(part, torch.Tensor | QuantisedRows):
            blocks.append(Rows(convert_to_float_rows(part)))
        elif isinstance(part, Contribution) and is_defined_by_dpbench(type(part)):
            blocks.append(part)
        else:
            raise PrivacyError(
                f"A row function returned a {type(part).__name__}; expected a Tensor, Joined, RankOne, Scaled, "
                "Residual or Blocks of them. Subclasses are not accepted, because dpbench computes the norms itself."
            )
    return tuple(blocks)
