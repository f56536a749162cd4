"""Every exhibit, in the order of a visit: from what cannot be written to what only a board can tell."""

from __future__ import annotations

from dpbench.api import Release
from dpbench.errors import UnknownName
from dpbench.museum import accounts, cores, protocols
from dpbench.museum.accounts import BrokenAccount, Calibration
from dpbench.museum.cores import BrokenCore
from dpbench.museum.exhibit import Exhibit
from dpbench.museum.exhibits import doors, elections, forms, honest, memory, neighbours, precision
from dpbench.museum.protocols import Submission
from dpbench.museum.strangers import ContractViolation, HarmlessBug, ImpossibleRequest
from dpbench.support.messages import unknown_name

_NOISE, _KEY = "core.randomness:_SeededDraws.noise", "core.randomness:_SeededDraws.__init__"
_WHOLE, _SAMPLED = honest.HonestLearner, honest.SampledLearner

EXHIBITS: tuple[Exhibit, ...] = (
    ImpossibleRequest(doors.ShufflesItsBatches),
    ImpossibleRequest(doors.WeighsItsSampler),
    ImpossibleRequest(doors.SeedsItsNoise),
    ImpossibleRequest(doors.PrintsTheVotes),
    ImpossibleRequest(doors.KeepsTheBestEpochByTestAccuracy),
    ImpossibleRequest(doors.ReadsTheRows),
    HarmlessBug(precision.TrainsUnderAutocast, _WHOLE),
    ContractViolation(memory.ClipsAtAPrivateQuantile, leaks=True),
    ContractViolation(memory.StandardisesByPrivateMoments, leaks=True),
    ContractViolation(memory.CountsInMap, leaks=True),
    ContractViolation(memory.ProjectsOnPrivateComponents, leaks=True),
    ContractViolation(memory.PreconditionsByPrivateMoments, leaks=True),
    ContractViolation(memory.BalancesByPrivateCounts, leaks=True),
    ContractViolation(memory.FollowsThePrivateLoss, leaks=True),
    ContractViolation(memory.NormalisesByTheBatchInTraining, leaks=True),
    ContractViolation(neighbours.AveragesMicroBatches),
    ContractViolation(neighbours.DividesByTheDrawnSize),
    ContractViolation(neighbours.LeaksATenThousandth),
    ContractViolation(neighbours.CentresFromTheThirdStep),
    ContractViolation(neighbours.CentresFromTheSecondChunk),
    ContractViolation(forms.TakesTurns),
    ContractViolation(forms.TrainsUntilItIsGood, leaks=True),
    ContractViolation(forms.CountsViewsAsExamples),
    ContractViolation(forms.ProjectsOnASkewBasis),
    ContractViolation(forms.SaysItsOwnNorm, leaks=True),
    ContractViolation(forms.TellsALabelInItsError, leaks=True),
    ContractViolation(memory.ClipsThroughTheEnvironment, leaks=True),
    BrokenCore(cores.halves_the_noise, _NOISE, _WHOLE, noise=1 / 2),
    BrokenCore(cores.adds_noise_five_percent_short, _NOISE, _WHOLE, noise=0.95),
    BrokenCore(cores.forgets_the_root_of_two, _NOISE, honest.TwoBlockLearner, noise=0.5**0.5),
    BrokenCore(cores.draws_one_noise_for_all_classes, _NOISE, _WHOLE, noise=0),
    BrokenCore(cores.seeds_the_generator_every_epoch, _KEY, _WHOLE, noise=0),
    BrokenCore(cores.keeps_noise_between_runs, _KEY, _WHOLE, noise=0),
    BrokenCore(cores.shuffles_batches, "core.randomness:poisson_sample", _SAMPLED),
    BrokenCore(cores.samples_some_examples_more_often, "core.randomness:_SeededDraws.sample", _SAMPLED, rate=1.6),
    BrokenCore(cores.clips_nothing, "core.exact.sums:weights_within", _WHOLE, noise=0),
    BrokenCore(cores.trusts_every_number, "core.exact.sums:weights_within", _WHOLE, noise=0),
    BrokenCore(cores.clips_the_sum, "core.forms.contributions:RankOne.integers", _WHOLE, noise=1 / 2),
    BrokenCore(cores.averages_pairs_before_clipping, "core.forms.contributions:RankOne.integers", _WHOLE, noise=1 / 2),
    BrokenCore(cores.adds_up_in_float32, "core.exact.sums:rounded_outer_sum", _WHOLE),
    BrokenCore(cores.reads_the_first_rows_twice, "core.rows:PrivateRows.chunks", _WHOLE, noise=1 / 2),
    BrokenCore(cores.trusts_every_loss, "mechanisms.choice.question:_steps", elections.Stumps, noise=0),
    BrokenCore(cores.scores_rows_both_ways, "mechanisms.choice.question:_steps", elections.Stumps),
    BrokenCore(cores.chooses_at_twice_eps0, "core.randomness:_SeededDraws.least", elections.Prototypes, noise=1 / 2),
    BrokenCore(cores.deals_by_position, "mechanisms.votes:deal", elections.Committee),
    BrokenAccount(accounts.asks_the_central_limit, (Release("gradient", 500, 512 / 45_000),), 1.1621),
    BrokenAccount(accounts.doubles_the_divergence, (Release("gradient", 500, 0.02),), 0.802, noise=0.5**0.5),
    BrokenAccount(
        accounts.counts_micro_batches_as_examples, (Release("gradient", 12_512, 64 / 25_000),), 1.0, 1 / 25_000,
        noise=1 / 2,
    ),
    BrokenAccount(accounts.trusts_the_textbook, (Release("gradient"),), 0.2422),
    Calibration(accounts.bisects_to_the_unsafe_side, (Release("gradient"),), 30.0),
    BrokenAccount(accounts.reports_one_run_of_many, (Release("gradient", 48_000, 1024 / 45_000),), 2.8256),
    BrokenAccount(accounts.states_what_it_likes, (Release("gradient", 12),), 4.0),
    Submission(protocols.tests_on_training_images, _WHOLE),
    Submission(protocols.tunes_outside_epsilon, _WHOLE),
)  # fmt: skip


def find(name: str) -> Exhibit:
    """Return the exhibit of this name.

    Raises:
        UnknownName: there is none; lists those there are.
    """
    named = {one.name: one for one in EXHIBITS}
    if name not in named:
        raise UnknownName(unknown_name("exhibit", name, named))
    return named[name]
