"""Every exhibit is refused: while it runs, or by a law where it uses a road that nobody watches."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dpbench.errors import LawBroken, NotPerExample, NotPure, PrivacyError
from dpbench.harness.run import run
from dpbench.records.result import Result
from dpbench.records.spec import make_spec
from dpbench.registry import Registered, Registry, load
from dpbench.testing import LearnerLaws
from dpbench.testing.curators import Asking
from tests.museum import memory, neighbours, precision
from tests.museum.honest import Honest

REFUSED: dict[type[Honest], tuple[type[PrivacyError], str]] = {
    memory.ClipsAtAPrivateQuantile: (NotPure, "closure variable `norms`"),
    memory.StandardisesByPrivateMoments: (NotPure, "map changed what it reaches: closure variable `seen`"),
    memory.CountsInMap: (NotPure, "item 0 of attribute `calls`"),
    memory.ProjectsOnPrivateComponents: (NotPure, r"closure variable `moment` of `rows` \(Tensor \(64, 64\)"),
    memory.PreconditionsByPrivateMoments: (NotPure, "`square` of closure variable `state`"),
    memory.BalancesByPrivateCounts: (NotPure, "closure variable `counts`"),
    memory.FollowsThePrivateLoss: (NotPure, "closure variable `loss`"),
    memory.NormalisesByTheBatchInTraining: (NotPure, "of attribute `_buffers` of closure variable `norm`"),
    neighbours.AveragesMicroBatches: (NotPerExample, "beside other rows"),
    neighbours.DividesByTheDrawnSize: (NotPerExample, "among fewer rows"),
    neighbours.LeaksATenThousandth: (NotPerExample, "beside other rows"),
    neighbours.CentresFromTheThirdStep: (NotPerExample, "beside other rows"),
    neighbours.CentresFromTheSecondChunk: (NotPure, "closure variable `chunks`"),
}
BY_LAW: dict[type[Honest], tuple[str, str]] = {
    memory.ClipsThroughTheEnvironment: ("questions_follow_answers_alone", "the clip follows private data"),
}


HARMLESS = (precision.TrainsUnderAutocast,)


def ran(learner: type[Honest]) -> Result:
    """Run a learner on digits as a person would."""
    installed = load().components
    brought = {**installed["learner"], learner.name: Registered(learner, "museum", "museum", "0.1")}
    spec = make_spec({"learner": learner.name, "seeds": 1, "epsilon": 4, "dataset": "digits"}, "the museum")
    return run(spec, device="cpu", plugins=Registry({**installed, "learner": brought}))


def test_the_honest_learner_runs() -> None:
    assert ran(Honest).metrics["accuracy"].mean > 0.5


@pytest.mark.parametrize("exhibit", REFUSED, ids=lambda exhibit: exhibit.__name__)
def test_an_exhibit_is_refused_while_it_runs(exhibit: type[Honest]) -> None:
    error, said = REFUSED[exhibit]
    with pytest.raises(error, match=said):
        ran(exhibit)


@pytest.mark.parametrize("exhibit", BY_LAW, ids=lambda exhibit: exhibit.__name__)
def test_an_exhibit_is_refused_by_a_law(exhibit: type[Honest]) -> None:
    law, said = BY_LAW[exhibit]
    suite: LearnerLaws = type("Suite", (LearnerLaws,), {"learner": exhibit()})()
    with pytest.raises(LawBroken, match=said):
        getattr(suite, f"test_{law}")()


@pytest.mark.parametrize("exhibit", HARMLESS, ids=lambda exhibit: exhibit.__name__)
def test_an_exhibit_changes_nothing(exhibit: type[Honest]) -> None:
    """Neither does it change what the learner is told: the same noise gives the same answers, to the last bit."""
    answers: list[list[Tensor]] = []
    for learner in (Honest, exhibit):
        suite = type("Suite", (LearnerLaws,), {"learner": learner()})()
        world = suite._world(0)
        told = Asking(suite._curator(world, suite.ample))
        learner().fit(told, world.public, torch.Generator())
        answers.append(told.answers)
    assert len(answers[0]) == 12
    assert all(map(torch.equal, *answers))


@pytest.mark.parametrize("exhibit", [*REFUSED, *BY_LAW, *HARMLESS], ids=lambda exhibit: exhibit.__name__)
def test_an_exhibit_names_its_source(exhibit: type[Honest]) -> None:
    assert "Source: " in (exhibit.__doc__ or "")
