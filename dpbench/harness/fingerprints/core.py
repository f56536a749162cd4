"""Fingerprint the core: its exact answers to fixed questions, and the guarantees of fixed plans."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from dpbench.api import Budget, Choice, Chunk, Release, Task
from dpbench.harness.cutting import cut_rows
from dpbench.privacy.binding import bind
from dpbench.privacy.core.accounting import group
from dpbench.privacy.core.accounting.accountant import ACCOUNTANTS, calibrate, epsilon
from dpbench.privacy.core.forms.blocks import Blocks
from dpbench.privacy.core.forms.contributions import Joined, RankOne
from dpbench.privacy.core.plan import check_plan
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.core.rows import PrivacyUnits, PrivateRows
from dpbench.privacy.curator import make_learner_curator
from dpbench.records.protocol import SplitRule

IDENTITY = "a fingerprint"  # what noise is derived from, beside the seed


def fingerprint_core() -> str:
    """Return a digest of the core's exact answers to fixed questions, its guarantees and its public splits.

    It covers sums, choices and votes over rows and over units, with their noise; epsilon of fixed plans by every
    accountant, to four digits; and the split of fixed rows into public and private. Rows are small multiples of 1/8,
    so that no machine rounds a number before it is clipped. Not covered: epsilon of a private search, which decides no
    fit and which `verify` computes from the plan again; code that only other plans and sizes reach; and code that only
    raises errors.
    """
    found = hashlib.sha256()
    for units in (None, PrivacyUnits(np.arange(64) // 3)):
        for answer in _compute_answers(units):
            found.update(answer.numpy().tobytes())
    found.update(" ".join(f"{value:.4g}" for value in compute_example_guarantees()).encode())
    for owners in (None, np.arange(90) // 4):
        for rows in cut_rows(np.arange(90), SplitRule(0.2, 0.8, None, 3), owners):
            found.update(np.asarray(rows, dtype=np.int64).tobytes())
    return found.hexdigest()[:16]


def compute_example_guarantees() -> Iterator[float]:
    """Yield guarantees of fixed plans: epsilon for one row and for three rows, and sigma."""
    plan = check_plan([Release("whole", 2), Release("sampled", 50, sample_rate=0.05)], IDENTITY)
    mixed = check_plan([*plan, Choice("choice", candidates=4)], IDENTITY)
    for accountant in ACCOUNTANTS:
        yield epsilon(plan, 3.0, 1e-5, accountant)
    yield epsilon(mixed, 3.0, 1e-5, "pld")
    yield group.epsilon(plan, 3.0, 1e-5, 3)
    yield calibrate(plan, Budget(2.0, 1e-5), "pld")


def _compute_answers(units: PrivacyUnits | None) -> Iterator[Tensor]:
    draw = np.random.default_rng(4)
    x = torch.from_numpy(draw.integers(-8, 9, (64, 12)) / 8).float()
    y = torch.from_numpy(draw.integers(4, size=64))
    plan = check_plan(
        [
            Release("whole", 2), Release("sampled", 3, sample_rate=0.3), Release("loud", relative_noise=2.5),
            Choice("choice", candidates=4), Choice("parts", candidates=3), Release("votes", 1),
        ],
        IDENTITY,
    )  # fmt: skip
    size = 64 if units is None else units.count
    task = Task((12,), 4, size, torch.device("cpu"))
    for sigma in (0.0, 1.5):
        rows = PrivateRows(x, y, torch.arange(64), units)
        curator = make_learner_curator(bind(rows, task, plan, sigma, Randomness.research(1, IDENTITY)))
        answers = [
            curator.noisy_sum(lambda chunk: chunk.x, release="whole", clip=1.25),
            curator.noisy_sum(lambda chunk: RankOne(chunk.x[:, :3], chunk.x), release="whole", clip=0.5),
            *(curator.noisy_sum(lambda chunk: chunk.x * 2, release="sampled", clip=100.0) for _ in range(2)),
            curator.noisy_sum(lambda chunk: Joined((chunk.x, chunk.x)), release="sampled", clip=1.0),
            *curator.noisy_sum(lambda chunk: Blocks((chunk.x, chunk.x[:, :2])), release="loud", clip=(1.0, 0.5)),
            torch.tensor(curator.noisy_choice(lambda chunk: chunk.x[:, :4].clamp(0, 1), release="choice")),
            curator.noisy_choices(lambda chunk: chunk.y * 3 + chunk.seeds.remainder(3), release="parts"),
            curator.noisy_votes(_vote_for_majority, x[:5], release="votes", shards=7),
        ]
        yield from answers


def _vote_for_majority(shard: Chunk, queries: Tensor) -> Tensor:
    """Label every query with the most frequent label of the shard."""
    return shard.y.mode().values.expand(len(queries))
