"""What the core answers to fixed questions: sums, choices and their noise, to the last bit on every machine."""

from __future__ import annotations

import hashlib

import numpy as np
import torch

from dpbench.api import Choice, Release, Task
from dpbench.privacy.binding import bind
from dpbench.privacy.core.forms.blocks import Blocks
from dpbench.privacy.core.forms.contributions import Joined, RankOne
from dpbench.privacy.core.plan import check_plan
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.core.rows import PrivateRows
from dpbench.privacy.curator import handle_of

IDENTITY = "a fingerprint"  # what noise is derived from, beside the seed


def core_bits() -> str:
    """Return a digest of what the core answers to fixed questions: sums, choices and their noise, to the last bit.

    Rows are small multiples of 1/8, so that nothing that a machine computes is rounded before it is clipped.
    """
    draw = np.random.default_rng(4)
    x = torch.from_numpy(draw.integers(-8, 9, (64, 12)) / 8).float()
    y = torch.from_numpy(draw.integers(4, size=64))
    task = Task((12,), 4, 64, torch.device("cpu"))
    plan = check_plan(
        [
            Release("whole", 2), Release("sampled", 3, sample_rate=0.3), Release("loud", relative_noise=2.5),
            Choice("choice", candidates=4), Choice("parts", candidates=3), Release("votes", 1),
        ],
        "a fingerprint",
    )  # fmt: skip
    found = hashlib.sha256()
    for sigma in (0.0, 1.5):
        rows = PrivateRows(x, y, torch.arange(64))
        curator = handle_of(bind(rows, task, plan, sigma, Randomness.research(1, IDENTITY)))
        answers = [
            curator.noisy_sum(lambda chunk: chunk.x, release="whole", clip=1.25),
            curator.noisy_sum(lambda chunk: RankOne(chunk.x[:, :3], chunk.x), release="whole", clip=0.5),
            *(curator.noisy_sum(lambda chunk: chunk.x * 2, release="sampled", clip=100.0) for _ in range(2)),
            curator.noisy_sum(lambda chunk: Joined((chunk.x, chunk.x)), release="sampled", clip=1.0),
            *curator.noisy_sum(lambda chunk: Blocks((chunk.x, chunk.x[:, :2])), release="loud", clip=(1.0, 0.5)),
            torch.tensor(curator.noisy_choice(lambda chunk: chunk.x[:, :4].clamp(0, 1), release="choice")),
            curator.noisy_choices(lambda chunk: chunk.y * 3 + chunk.seeds.remainder(3), release="parts"),
        ]
        for answer in answers:
            found.update(answer.numpy().tobytes())
    return found.hexdigest()[:16]
