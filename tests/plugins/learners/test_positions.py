"""What a row of a linear learner contributes has the same bits wherever the row stands, on one thread and on two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from dpbench_plugins.extractors.scatternet import ScatterNetLinear
from dpbench_plugins.learners.adadps import AdaDPS
from dpbench_plugins.learners.class_means import ClassMeans
from dpbench_plugins.learners.dp_raft import DPRAFT
from dpbench_plugins.learners.dp_sgd import DPSGD
from dpbench_plugins.learners.gep import GEP
from dpbench_plugins.learners.jl import JL
from dpbench_plugins.learners.least_squares import LeastSquares
from dpbench_plugins.learners.pillar import Pillar
from dpbench_plugins.learners.prototypes import Prototypes
from dpbench_plugins.learners.public_prior import PublicPrior
from dpbench_plugins.learners.thrift import Thrift
from dpbench_plugins.learners.whitened import WhitenedProbe
from torch import Tensor

from dpbench import Budget, Chunk, Learner, PublicData, Task, quantise
from dpbench.privacy.core.forms.blocks import wrap_blocks
from dpbench.privacy.core.ledger_curator import LedgerCurator, Question
from dpbench.privacy.core.map import MapQuestion
from dpbench.privacy.core.plan import check_plan
from dpbench.privacy.core.sum import Sum
from dpbench.testing.curators import CuratorProxy
from tests.helpers.worlds import curator_over, private_rows
from tests.privacy.core.test_exact import threads

LENGTHS = (1, 2, 3, 16, 17, 33, 100, 1000)
N, D, CLASSES = 200, 81 * 4, 11

LEARNERS: list[Learner] = [
    DPSGD(steps=2, clip=0.3, init="uniform"),
    DPSGD(steps=2, scaling="norm"),
    Pillar(k=7, steps=2),
    JL(k=7, steps=2),
    WhitenedProbe(k=7, steps=2, distil=False),
    AdaDPS(steps=2, refresh=1),
    Thrift(k=7, graph=0.5, steps=2, learning_rate=1.0),
    Prototypes(k=7, groups=2),
    PublicPrior(k=7, graph=0.5, steps=2, learning_rate=1.0),
    DPRAFT(steps=2, private_mean=True),
    ClassMeans(k=7),
    LeastSquares(k=7, rounds=2, moment=0.3),
    ScatterNetLinear(steps=2),
    GEP(k=5, anchors=9, steps=2, refresh=1),
    GEP(k=5, anchors=60, steps=2, refresh=1, residual=False),
]


class Moving(CuratorProxy):
    """Asks a real curator, and evaluates what it is given on chunks in which one row stands here and there."""

    asked = 0

    def answer(self, question: Question) -> Any:
        if not isinstance(question, Sum):
            asked = question.row_function
            assert asked is not None
            self._same(lambda chunk: [*wrap_blocks(asked(chunk))], lambda block, _: (block.dense(),))
            return self.curator.answer(question)
        clips = question.clips
        self._same(
            lambda chunk: [*wrap_blocks(question.rows(chunk))],
            lambda block, at: (block.clipped_sum(clips[at]).total,),
        )
        return self.curator.answer(question)

    def wrap_mapped_curator(self, mapped: LedgerCurator) -> Moving:
        return Moving(mapped)

    def _map_rows(self, question: MapQuestion) -> Moving:
        self._same(lambda chunk: [quantise(question.transform(chunk.x))], lambda kept, _: (kept.q, kept.scale))
        return self.wrap_mapped_curator(self.curator.answer(question))

    def _same(self, made: Callable[[Chunk], list[Any]], read: Callable[[Any, int], tuple[Tensor, ...]]) -> None:
        self.asked += 1
        private = self.curator.rows
        draw = torch.Generator().manual_seed(self.asked)
        row, first = 17, None
        for length in LENGTHS:
            for place in {0, length // 2, length - 1}:
                rows = torch.randint(len(private), (length,), generator=draw)
                rows[place] = row
                for count in (1, 2):
                    chunk = Chunk(private.held[rows], private.y[rows], rows)
                    with threads(count):
                        blocks = made(chunk)
                        picked = [
                            block.take(torch.tensor([place]))
                            if hasattr(block, "take")
                            else block[torch.tensor([place])]
                            for block in blocks
                        ]
                        found = [part for at, block in enumerate(picked) for part in read(block, at)]
                    first = first or found
                    assert all(torch.equal(part, other) for part, other in zip(found, first, strict=True)), (
                        length,
                        place,
                        count,
                    )


@pytest.mark.quick(2)
@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: learner.name)
def test_contributions_have_the_same_bits_wherever_a_row_stands(learner: Learner) -> None:
    rows, public = private_rows(N, D, CLASSES), private_rows(150, D, CLASSES, seed=1)
    task = Task((D,), CLASSES, N, torch.device("cpu"), public=len(public))
    learner = learner.settle(task, Budget(1.0, 1e-5))
    plan = check_plan(learner.plan(task, Budget(1.0, 1e-5)), learner.name)
    moving = Moving(curator_over(rows, plan, 2.0, CLASSES).curator)
    seen = PublicData(public.x, public.y if learner.public == "labelled" else None)
    learner.fit(moving.handle(), seen, torch.Generator().manual_seed(0))
    assert moving.asked
