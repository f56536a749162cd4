"""The steps that one row adds to the totals of a choice: 0 to 2^20 steps of 2^-20, whatever the other rows are."""

from __future__ import annotations

import torch
from torch import Tensor

from dpbench.privacy.core.exact.sums import IntegerSum

BITS = 20  # losses are whole steps of 2^-20
FEWER_BITS = 10  # of a loss that is multiplied by counts in steps of 2^-20: eight million units fit into 53 bits
MOST_LOSSES_HELD = 2**24  # losses of a chunk that are held at once


def loss_steps(losses: Tensor, shares: Tensor | None = None) -> Tensor:
    """Return losses (c, N) in whole steps of 2^-20: 0 to 2^20 or, with `shares`, a share of these, rounded down."""
    steps = _steps(losses)
    if shares is not None:  # down, so that those of a unit add up to 2^20 at most
        steps = steps.double().mul_(shares.unsqueeze(1)).floor_()
    return steps


def project_cells_to_losses(cells: IntegerSum, matrix: Tensor) -> IntegerSum:
    """Return the total losses (N,), given the number of rows in each cell and a checked matrix of each cell's losses.

    Sensitivity: as in `question.sum_losses`, because a row adds the steps of its cell. Products and sums are whole
    numbers below 2^53. If rows have units, counts are in steps of 2^-20 themselves, and losses keep fewer bits, so that
    the products fit too.
    """
    bits = BITS if float(cells.grid) == 1 else FEWER_BITS
    total = torch.zeros(matrix.shape[1], dtype=torch.float64, device=cells.total.device)
    held = max(1, MOST_LOSSES_HELD // matrix.shape[1])  # cells at once
    for some, part in zip(torch.split(cells.total, held), torch.split(matrix, held), strict=True):
        total += some.double() @ _steps(part.to(total.device).double(), bits)
    return IntegerSum(total.to(torch.int64), cells.grid * 2.0**-bits)


def _steps(numbers: Tensor, bits: int = BITS) -> Tensor:
    return numbers.nan_to_num(0.0).clamp_(0, 1).mul_(2.0**bits).round_()


def loss_step_size(tensor: Tensor) -> Tensor:
    """Return the size of a loss step, 2^-20, on the device of this tensor."""
    return torch.tensor(2.0**-BITS, dtype=torch.float64, device=tensor.device)
