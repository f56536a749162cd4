"""Sums in floating point, row by row: what the integer sums of `dpbench.privacy` are compared with."""

from __future__ import annotations

import torch
from torch import Tensor

from dpbench.privacy.core.exact.quantised import convert_to_float_rows
from dpbench.privacy.core.forms.contributions import Contribution, Joined, RankOne, Rows, Scaled


def dense(form: Contribution) -> Tensor:
    """Return the rows written out in float64, (c, ...)."""
    if isinstance(form, Rows):
        return form.rows.double()
    if isinstance(form, Joined):
        return torch.cat([part.double().flatten(1) for part in form.parts], 1)
    if isinstance(form, RankOne):
        right = torch.nn.functional.pad(convert_to_float_rows(form.right).double(), (0, int(form.bias)), value=1.0)
        return form.left.double().unsqueeze(2) * right.unsqueeze(1)
    if isinstance(form, Scaled):
        return dense(form.outer) / form.scale.double()
    return form.dense().double()


def clipped_sum(form: Contribution, clip: float) -> Tensor:
    """Return the float64 sum of the rows, each scaled down to the clip; rows that are not finite count as zero."""
    rows = dense(form)
    rows = rows[rows.flatten(1).isfinite().all(1)]
    return torch.einsum("n,n...->...", (clip / rows.flatten(1).norm(dim=1).clamp(min=1e-300)).clamp(max=1), rows)
