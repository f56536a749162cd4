"""Every exhibit, in the order of a visit: from what cannot be written to what only a board can tell."""

from __future__ import annotations

from dpbench.api import Release
from dpbench.errors import UnknownName
from dpbench.museum import accounts, cores, protocols
from dpbench.museum.accounts import Account, Calibration
from dpbench.museum.cores import Core
from dpbench.museum.exhibit import Exhibit
from dpbench.museum.exhibits import doors, elections, forms, honest, memory, neighbours, precision
from dpbench.museum.protocols import Submission
from dpbench.museum.strangers import Door, Harmless, Stranger
from dpbench.support.messages import unknown

_NOISE, _KEY = "core.randomness:_Seeded.noise", "core.randomness:_Seeded.__init__"
_WHOLE, _SAMPLED = honest.Honest, honest.OfSamples

EXHIBITS: tuple[Exhibit, ...] = (
    Door(doors.ShufflesItsBatches),
    Door(doors.WeighsItsSampler),
    Door(doors.SeedsItsNoise),
    Door(doors.PrintsTheVotes),
    Door(doors.KeepsTheBestEpochByTestAccuracy),
    Door(doors.ReadsTheRows),
    Harmless(precision.TrainsUnderAutocast, _WHOLE),
    Stranger(memory.ClipsAtAPrivateQuantile, leaks=True),
    Stranger(memory.StandardisesByPrivateMoments, leaks=True),
    Stranger(memory.CountsInMap, leaks=True),
    Stranger(memory.ProjectsOnPrivateComponents, leaks=True),
    Stranger(memory.PreconditionsByPrivateMoments, leaks=True),
    Stranger(memory.BalancesByPrivateCounts, leaks=True),
    Stranger(memory.FollowsThePrivateLoss, leaks=True),
    Stranger(memory.NormalisesByTheBatchInTraining, leaks=True),
    Stranger(neighbours.AveragesMicroBatches),
    Stranger(neighbours.DividesByTheDrawnSize),
    Stranger(neighbours.LeaksATenThousandth),
    Stranger(neighbours.CentresFromTheThirdStep),
    Stranger(neighbours.CentresFromTheSecondChunk),
    Stranger(forms.TakesTurns),
    Stranger(forms.TrainsUntilItIsGood, leaks=True),
    Stranger(forms.CountsViewsAsExamples),
    Stranger(forms.ProjectsOnASkewBasis),
    Stranger(forms.SaysItsOwnNorm, leaks=True),
    Stranger(forms.TellsALabelInItsError, leaks=True),
    Stranger(memory.ClipsThroughTheEnvironment, leaks=True),
    Core(cores.halves_the_noise, _NOISE, _WHOLE, noise=1 / 2),
    Core(cores.adds_noise_five_percent_short, _NOISE, _WHOLE, noise=0.95),
    Core(cores.forgets_the_root_of_two, _NOISE, honest.InTwoBlocks, noise=0.5**0.5),
    Core(cores.draws_one_noise_for_all_classes, _NOISE, _WHOLE, noise=0),
    Core(cores.seeds_the_generator_every_epoch, _KEY, _WHOLE, noise=0),
    Core(cores.keeps_noise_between_runs, _KEY, _WHOLE, noise=0),
    Core(cores.shuffles_batches, "core.randomness:poisson_sample", _SAMPLED),
    Core(cores.samples_some_examples_more_often, "core.randomness:_Seeded.sample", _SAMPLED, rate=1.6),
    Core(cores.clips_nothing, "core.exact.sums:weights_within", _WHOLE, noise=0),
    Core(cores.trusts_every_number, "core.exact.sums:weights_within", _WHOLE, noise=0),
    Core(cores.clips_the_sum, "core.forms.contributions:RankOne.integers", _WHOLE, noise=1 / 2),
    Core(cores.averages_pairs_before_clipping, "core.forms.contributions:RankOne.integers", _WHOLE, noise=1 / 2),
    Core(cores.adds_up_in_float32, "core.exact.sums:rounded_outer_sum", _WHOLE),
    Core(cores.reads_the_first_rows_twice, "core.rows:PrivateRows.chunks", _WHOLE, noise=1 / 2),
    Core(cores.trusts_every_loss, "mechanisms.choice:_steps", elections.Stumps, noise=0),
    Core(cores.scores_rows_both_ways, "mechanisms.choice:_steps", elections.Stumps),
    Core(cores.chooses_at_twice_eps0, "core.randomness:_Seeded.least", elections.Prototypes, noise=1 / 2),
    Core(cores.deals_by_position, "mechanisms.votes:deal", elections.Committee),
    Account(accounts.asks_the_central_limit, (Release("gradient", 500, 512 / 45_000),), 1.1621),
    Account(accounts.doubles_the_divergence, (Release("gradient", 500, 0.02),), 0.802, noise=0.5**0.5),
    Account(
        accounts.counts_micro_batches_as_examples, (Release("gradient", 12_512, 64 / 25_000),), 1.0, 1 / 25_000,
        noise=1 / 2,
    ),
    Account(accounts.trusts_the_textbook, (Release("gradient"),), 0.2422),
    Calibration(accounts.bisects_to_the_unsafe_side, (Release("gradient"),), 30.0),
    Account(accounts.reports_one_run_of_many, (Release("gradient", 48_000, 1024 / 45_000),), 2.8256),
    Account(accounts.states_what_it_likes, (Release("gradient", 12),), 4.0),
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
        raise UnknownName(unknown("exhibit", name, named))
    return named[name]
