"""Every exhibit, in the order of a visit: from what cannot be written to what only a board can tell."""

from __future__ import annotations

from dpbench.api import Release
from dpbench.errors import UnknownName
from dpbench.support.messages import unknown_name
from dpbench_lab.museum import accounts, cores, protocols
from dpbench_lab.museum.accounts import BrokenAccount, Calibration
from dpbench_lab.museum.cores import BrokenCore
from dpbench_lab.museum.exhibit import Exhibit
from dpbench_lab.museum.exhibits import (
    datasets,
    doors,
    elections,
    extractors,
    forms,
    honest_learners,
    memory,
    neighbours,
    outlets,
    patients,
    precision,
)
from dpbench_lab.museum.outlets import SpokenRow
from dpbench_lab.museum.preparations import DataBug, LaunderedSettings
from dpbench_lab.museum.protocols import Submission
from dpbench_lab.museum.strangers import ContractViolation, HarmlessBug, ImpossibleRequest

_NOISE, _KEY = "core.randomness:_SeededDraws.noise", "core.randomness:_SeededDraws.__init__"
_UNITS = "core.rows:PrivateRows.of_units"
_WHOLE, _SAMPLED = honest_learners.HonestLearner, honest_learners.SampledLearner

EXHIBITS: tuple[Exhibit, ...] = (
    ImpossibleRequest(doors.ShuffledBatches),
    ImpossibleRequest(doors.WeightedSampler),
    ImpossibleRequest(doors.SelfSeededNoise),
    ImpossibleRequest(doors.NoiselessSums),
    ImpossibleRequest(doors.BestEpochByTestAccuracy),
    ImpossibleRequest(doors.DirectAccessToRows),
    HarmlessBug(precision.TrainingUnderAutocast, _WHOLE),
    ContractViolation(memory.ClipAtPrivateQuantile, leaks=True),
    ContractViolation(memory.StandardisationByPrivateMoments, leaks=True),
    ContractViolation(memory.RowCounterInMap, leaks=True),
    ContractViolation(memory.ProjectionOnPrivateComponents, leaks=True),
    ContractViolation(memory.PreconditioningByPrivateMoments, leaks=True),
    ContractViolation(memory.ClassWeightsByPrivateCounts, leaks=True),
    ContractViolation(memory.LearningRateByPrivateLoss, leaks=True),
    ContractViolation(memory.BatchNormInTraining, leaks=True),
    ContractViolation(neighbours.MicroBatchAverages),
    ContractViolation(neighbours.DivisionByTheDrawnSize),
    ContractViolation(neighbours.BatchNormInATunedTail),
    ContractViolation(neighbours.LeakBelowTolerance),
    ContractViolation(neighbours.CentringFromTheThirdStep),
    ContractViolation(neighbours.CentringFromTheSecondChunk),
    ContractViolation(forms.AlternatingRows),
    ContractViolation(forms.MoreStepsThanPlanned, leaks=True),
    ContractViolation(forms.ViewsCountedAsExamples),
    ContractViolation(forms.SkewBasis),
    ContractViolation(forms.SelfReportedNorms, leaks=True),
    ContractViolation(forms.LabelInErrorMessage, leaks=True),
    ContractViolation(memory.ClipFromTheEnvironment, leaks=True),
    DataBug(datasets.PrivateImagesAsPublicData, _WHOLE, "public_dataset"),
    DataBug(extractors.RunningMaximumInPrepare, _WHOLE, "extractor"),
    DataBug(extractors.TestTimeAdaptation, _WHOLE, "extractor"),
    DataBug(datasets.DivisionByTheBrightestImage, _WHOLE),
    DataBug(datasets.RunningMeanInTheLoader, _WHOLE),
    DataBug(datasets.BalancingToTheSmallestClass, _WHOLE, photos=True),
    DataBug(datasets.RemovalOfLookalikes, _WHOLE, photos=True),
    DataBug(patients.SplitThatCutsPatients, _WHOLE),
    SpokenRow(outlets.PrintedPrivateLoss, leaks=True, says="private loss"),
    SpokenRow(outlets.WarningWithPrivateNorm, leaks=True, says="private norm"),
    ContractViolation(outlets.LogFileOfPrivateLosses, leaks=True),
    ContractViolation(outlets.SavedHardestExamples, leaks=True),
    ContractViolation(outlets.NormBehindCtypes, leaks=True),
    ContractViolation(outlets.MeanOnALibraryModule, leaks=True),
    ContractViolation(outlets.DatasetLoadedInFit, leaks=True),
    ContractViolation(outlets.UninitialisedOutputBuffer, leaks=True),
    ContractViolation(outlets.MixupWithinTheChunk),
    BrokenCore(cores.half_the_noise, _NOISE, _WHOLE, noise=1 / 2),
    BrokenCore(cores.noise_five_percent_short, _NOISE, _WHOLE, noise=0.95),
    BrokenCore(cores.missing_root_of_two, _NOISE, honest_learners.TwoBlockLearner, noise=0.5**0.5),
    BrokenCore(cores.one_noise_for_all_classes, _NOISE, _WHOLE, noise=0),
    BrokenCore(cores.generator_reseeded_every_epoch, _KEY, _WHOLE, noise=0),
    BrokenCore(cores.noise_reused_between_runs, _KEY, _WHOLE, noise=0),
    BrokenCore(cores.fixed_size_batches, "core.randomness:poisson_sample", _SAMPLED),
    BrokenCore(cores.unequal_sample_rates, "core.randomness:_SeededDraws.sample", _SAMPLED, rate=1.6),
    BrokenCore(cores.missing_clip, "core.exact.sums:weights_within", _WHOLE, noise=0),
    BrokenCore(cores.unchecked_nan_rows, "core.exact.sums:weights_within", _WHOLE, noise=0),
    BrokenCore(cores.clip_after_summation, "core.forms.contributions:RankOne.integers", _WHOLE, noise=1 / 2),
    BrokenCore(cores.pairs_averaged_before_clipping, "core.forms.contributions:RankOne.integers", _WHOLE, noise=1 / 2),
    BrokenCore(cores.float32_sums, "core.exact.sums:rounded_outer_sum", _WHOLE),
    BrokenCore(cores.first_rows_counted_twice, "core.rows:PrivateRows.chunks", _WHOLE, noise=1 / 2),
    BrokenCore(
        cores.image_epsilon_stated_for_a_patient, _UNITS, _WHOLE,
        patients=patients.PatientDigits, images=patients.LARGEST,
    ),
    BrokenCore(cores.mean_over_drawn_images, _UNITS, _WHOLE, patients=patients.PatientDigits),
    BrokenCore(cores.unbounded_losses, "mechanisms.choice.steps:_steps", elections.Stumps, noise=0),
    BrokenCore(cores.two_sided_scores, "mechanisms.choice.steps:_steps", elections.Stumps),
    BrokenCore(
        cores.losses_in_every_class, "mechanisms.choice.parts:PartLosses.integers", elections.NearestExamples,
        noise=1 / 10,
    ),
    BrokenCore(
        cores.patient_bounded_in_each_class, _UNITS, elections.NearestExamples,
        patients=patients.PatientDigits, noise=1 / patients.MOST_LABELS,
    ),
    BrokenCore(cores.choice_at_twice_eps0, "mechanisms.choice.question:least", elections.Prototypes, noise=1 / 2),
    BrokenCore(cores.shards_by_position, "mechanisms.votes:deal", elections.Committee),
    BrokenAccount(accounts.central_limit_epsilon, (Release("gradient", 500, 512 / 45_000),), 1.1621),
    BrokenAccount(accounts.doubled_divergence, (Release("gradient", 500, 0.02),), 0.802, noise=0.5**0.5),
    BrokenAccount(
        accounts.micro_batches_counted_as_examples, (Release("gradient", 12_512, 64 / 25_000),), 1.0, 1 / 25_000,
        noise=1 / 2,
    ),
    BrokenAccount(accounts.textbook_gaussian, (Release("gradient"),), 0.2422),
    Calibration(accounts.bisection_to_the_unsafe_side, (Release("gradient"),), 30.0),
    BrokenAccount(accounts.best_run_reported_alone, (Release("gradient", 48_000, 1024 / 45_000),), 2.8256),
    BrokenAccount(accounts.understated_epsilon, (Release("gradient", 12),), 4.0),
    Submission(protocols.evaluation_on_training_images, _WHOLE),
    Submission(protocols.unaccounted_tuning, _WHOLE),
    DataBug(datasets.OversamplingOfARareClass, _WHOLE, copies=8),
    LaunderedSettings(datasets.SettingsLaunderedByResizing, _WHOLE),
)  # fmt: skip


def find(name: str) -> Exhibit:
    """Return the exhibit of this name.

    Raises:
        UnknownName: there is no such exhibit. The message lists those that exist.
    """
    named = {one.name: one for one in EXHIBITS}
    if name not in named:
        raise UnknownName(unknown_name("exhibit", name, named))
    return named[name]
