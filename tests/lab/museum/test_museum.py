"""Every exhibit is stopped, by whom the record says and for the reason that it should be."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dpbench.api import Learner
from dpbench.errors import UnknownName
from dpbench.testing import LearnerLaws
from dpbench.testing.curators import RecordingProxy
from dpbench_lab.museum import matrix
from dpbench_lab.museum.cores.broken_core import CoreExhibit
from dpbench_lab.museum.exhibit import Exhibit
from dpbench_lab.museum.exhibits.elections import (
    CommitteeLearner,
    NearestExampleLearner,
    PrototypeLearner,
    StumpLearner,
)
from dpbench_lab.museum.exhibits.honest_learners import HonestLearner, PoissonLearner, TwoBlockLearner
from dpbench_lab.museum.exhibits.precision import TrainingUnderAutocast
from dpbench_lab.museum.record import read_museum_record
from dpbench_lab.museum.strangers import run_learner
from dpbench_lab.museum.tour import EXHIBITS, find_exhibit
from tests.helpers.commands import Output, call

RECORDS = {exhibit.name: exhibit for exhibit in read_museum_record()}
SAID = {
    "shuffled-batches": "unexpected keyword argument 'sampler'",
    "weighted-sampler": "Expected sample_rate to be one number",
    "self-seeded-noise": "unexpected keyword argument 'generator'",
    "noiseless-sums": "unexpected keyword argument 'sigma'",
    "best-epoch-by-test-accuracy": "'Task' object has no attribute 'test'",
    "direct-access-to-rows": "'Curator' object has no attribute 'rows'",
    "training-under-autocast": "those of the honest learner",
    "clip-at-private-quantile": "closure variable `norms`",
    "standardisation-by-private-moments": "map changed what it reaches: closure variable `seen`",
    "row-counter-in-map": "item 0 of attribute `calls`",
    "projection-on-private-components": "closure variable `moment` of `rows` (Tensor (64, 64)",
    "preconditioning-by-private-moments": "`square` of closure variable `state`",
    "class-weights-by-private-counts": "closure variable `counts`",
    "learning-rate-by-private-loss": "closure variable `loss`",
    "tail-taught-by-private-answers": "map changed what it reaches: closure variable `lessons`",
    "batch-norm-in-training": "of attribute `_buffers` of closure variable `norm`",
    "micro-batch-averages": "beside other rows",
    "division-by-the-drawn-size": "among fewer rows",
    "batch-norm-in-a-tuned-tail": "beside other rows",
    "leak-below-tolerance": "beside other rows",
    "centring-from-the-third-step": "beside other rows",
    "centring-from-the-second-chunk": "closure variable `chunks`",
    "alternating-rows": "rows",
    "more-steps-than-planned": "All 12 planned steps of release 'gradient' are spent",
    "views-counted-as-examples": "contributed 600 row(s) for a chunk of 300",
    "skew-basis": "Expected an orthonormal basis",
    "self-reported-norms": "returned a Short",
    "label-in-error-message": "may tell private values",
    "private-images-as-public-data": "Public in private: expected at most 10% of the 1,438 private images",
    "running-maximum-in-prepare": "changed what it reaches while it worked: attribute `seen`",
    "test-time-adaptation": "change with the other images that it sees",
    "division-by-the-brightest-image": "to hold options only, got a float.",
    "running-mean-in-the-loader": "to hold options only, got a float",
    "balancing-to-the-smallest-class": "2 images are gone: which are kept follows from others",
    "removal-of-lookalikes": "image 7 or its label is another one",
    "labels-cut-at-the-median": "its label is another one",
    "clip-from-the-environment": "set a variable of the environment (os.putenv)",
    "printed-private-loss": "Nothing of what it said was shown",
    "warning-with-private-norm": "Nothing of what it said was shown",
    "log-file-of-private-losses": "opened a file (open)",
    "saved-hardest-examples": "saved a file (torch.save)",
    "norm-behind-ctypes": "`largest` of `rows` is a c_double_Array_1, whose state cannot be compared",
    "mean-on-a-library-module": "attribute `museum_mean` of module `torch`",
    "dataset-loaded-in-fit": "opened a file of the private dataset during the fit",
    "uninitialised-output-buffer": "changed when it was evaluated",
    "mixup-within-the-chunk": "beside other rows",
    "half-the-noise": "size of the noise in answers",
    "noise-five-percent-short": "size of the noise in answers",
    "missing-root-of-two": "size of the noise in answers",
    "one-noise-for-all-classes": "classes",
    "generator-reseeded-every-epoch": "pairs of steps",
    "noise-reused-between-runs": "another seed",
    "classes-from-private-labels": "the classes are others: they follow from private labels",
    "absolute-value-of-a-bound": "and 0 holds; dpbench's bounds are at most 0",
    "best-number-of-guesses": "and 0.1 holds; dpbench's bounds are at most 0",
    "canaries-assumed-independent": "and 4.38 holds",
    "gaussian-pancake": "",
    "split-that-cuts-patients": "to be of a unit that is in both splits",
    "image-epsilon-stated-for-a-patient": "a row moved a sum by",
    "mean-over-drawn-images": "clips more or less than its own contribution",
    "fixed-size-batches": "sizes of the samples",
    "unequal-sample-rates": "in the samples of 'gradient'",
    "missing-clip": "clips",
    "unchecked-nan-rows": "a row moved a sum by",
    "clip-after-summation": "clips",
    "pairs-averaged-before-clipping": "clips",
    "float32-sums": "a sum is not that of its rows' integers",
    "first-rows-counted-twice": "a row moved a sum by 2 clips",
    "unbounded-losses": "the law of neighbours differs by more than eps0",
    "two-sided-scores": "a row moves totals both ways",
    "choice-at-twice-eps0": "law of 'classes', part by part",
    "losses-in-every-class": "the law of neighbours differs by more than eps0",
    "patient-bounded-in-each-class": "the law of neighbours differs by more than eps0",
    "shards-by-position": "an example moved more than one vote of a query",
    "evaluation-on-training-images": "Test in private: expected at most 1%",
    "oversampling-of-a-rare-class": "private images to be copies of another, got 1,016, of one image 8.",
    "settings-laundered-by-resizing": "recorded as private-unaccounted, which no board ranks",
    "unaccounted-tuning": "its search is outside epsilon",
}
UNCAUGHT = {"gaussian-pancake"}  # by any audit, as the page on audits says


@pytest.mark.long
@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda exhibit: exhibit.name)
def test_an_exhibit_is_stopped_as_recorded_and_for_its_own_reason(exhibit: Exhibit) -> None:
    findings = exhibit.visit()
    found, known = matrix.make_exhibit_record(exhibit, findings), RECORDS[exhibit.name]
    assert bool(found.stopped) == (exhibit.name not in UNCAUGHT)
    assert found.model_copy(update={"claimed": known.claimed, "true": known.true}) == known
    for number, other in ((found.claimed, known.claimed), (found.true, known.true)):
        assert number is other is None or number == pytest.approx(other, rel=0.02)
    said = " ".join(filter(None, findings.values()))
    assert SAID.get(exhibit.name, "The run is refused; please report the plan") in said


def test_the_record_is_of_every_exhibit_in_order_and_the_page_is_made_of_it() -> None:
    assert [*RECORDS] == [exhibit.name for exhibit in EXHIBITS]
    assert matrix.PAGE.read_text(encoding="utf-8") == matrix.format_matrix_page(read_museum_record())


LEARNERS = (
    HonestLearner, PoissonLearner, TwoBlockLearner, PrototypeLearner, StumpLearner, NearestExampleLearner,
    CommitteeLearner,
)  # fmt: skip


@pytest.mark.quick(1)
@pytest.mark.parametrize("learner", LEARNERS)
def test_what_exhibits_change_is_honest_itself(learner: type[Learner]) -> None:
    assert run_learner(learner).metrics["accuracy"].mean > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("learner", LEARNERS)
def test_an_honest_core_passes_the_audit_that_broken_ones_fail(learner: type[Learner]) -> None:
    honest = CoreExhibit(lambda core, *given: core(*given), "core.randomness:_SeededDraws.noise", learner)
    assert set(honest.visit().values()) == {None}


def test_autocast_around_a_fit_changes_no_answer() -> None:
    answers: list[list[Tensor]] = []
    for learner in (HonestLearner, TrainingUnderAutocast):
        suite = type("Suite", (LearnerLaws,), {"learner": learner()})()
        world = suite._make_task_data(0)
        told = RecordingProxy(suite._curator(world, suite.ample_epsilon))
        learner().fit(told.handle(), world.public, torch.Generator())
        answers.append(told.answers)
    assert len(answers[0]) == 12
    assert all(map(torch.equal, *answers))


def test_an_exhibit_tells_what_it_does_where_it_was_found_and_its_code() -> None:
    for exhibit in EXHIBITS:
        assert exhibit.summary.endswith(".")
        assert len(exhibit.source) > 10
        assert '"""' not in exhibit.code.partition("\n\n")[0]
        assert len(exhibit.code.splitlines()) < 30
    with pytest.raises(UnknownName, match="half-the-noise"):
        find_exhibit("halves-noise")


def test_the_command_lists_all_and_runs_one(capsys: Output) -> None:
    assert call("museum") == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in RECORDS)
    assert call("museum", "textbook-gaussian") == 0
    shown = capsys.readouterr().out
    for said in ("issue 30114", "math.sqrt(2 * math.log(1.25 / delta))", "20 → 25.4", "second accountant: caught it."):
        assert said in shown
