"""Contrastive losses on unit vectors."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

ALPHA, T = 2.0, 2.0  # exponent of alignment, sharpness of uniformity
TEMPERATURE = 0.07


def alignment_loss(x: Tensor, y: Tensor, alpha: float = ALPHA) -> Tensor:
    """Return the mean of ||x_i - y_i||^alpha over pairs of views (n, d). Source: Wang and Isola 2020, section 4.1."""
    distances: Tensor = torch.linalg.vector_norm(x - y, dim=1)
    return distances.pow(alpha).mean()


def uniformity_loss(x: Tensor, t: float = T) -> Tensor:
    """Return the log of the mean of exp(-t ||x_i - x_j||^2) over i < j, for unit vectors x (n, d).

    Source: Wang and Isola 2020, section 4.1. Computed from inner products: for unit vectors ||x - y||^2 = 2 - 2 <x, y>.
    """
    exponents = 2 * t * (x @ x.T) - 2 * t
    itself = torch.eye(len(x), dtype=torch.bool, device=x.device)
    total = exponents.masked_fill(itself, -math.inf).flatten().logsumexp(0)
    return total - math.log(len(x) * (len(x) - 1))


def align_uniform_loss(x: Tensor, y: Tensor) -> Tensor:
    """Return alignment plus the mean uniformity of the two views, both with weight 1, as in Baradad et al. 2021."""
    return alignment_loss(x, y) + (uniformity_loss(x) + uniformity_loss(y)) / 2


def info_nce_loss(queries: Tensor, keys: Tensor, queue: Tensor) -> Tensor:
    """Return the InfoNCE loss of queries, keys (n, d) and a queue (k, d). Source: He et al. 2020 (MoCo), eq. 1."""
    own = (queries * keys).sum(1, keepdim=True)
    logits = torch.cat([own, queries @ queue.T], 1) / TEMPERATURE
    return cross_entropy(logits, torch.zeros(len(logits), dtype=torch.int64, device=logits.device))
