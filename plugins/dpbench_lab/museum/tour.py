"""All exhibits in the order of a visit: first bugs that cannot be written, last bugs that only a board can notice."""

from __future__ import annotations

from dpbench.api import Release
from dpbench.errors import UnknownName
from dpbench.support.messages import format_unknown_name_message
from dpbench_lab.museum import accounts, audits, protocols
from dpbench_lab.museum.accounts import UndersizedSigma, UnderstatedEpsilon
from dpbench_lab.museum.audits import InvalidAudit
from dpbench_lab.museum.cores import CORES
from dpbench_lab.museum.exhibit import Exhibit
from dpbench_lab.museum.exhibits import (
    datasets,
    doors,
    extractors,
    forms,
    honest_learners,
    memory,
    neighbours,
    outlets,
    patients,
    precision,
)
from dpbench_lab.museum.outlets import PrintingExhibit
from dpbench_lab.museum.preparations import DataBug, LaunderedSettings
from dpbench_lab.museum.protocols import RuleBreakingSubmission
from dpbench_lab.museum.strangers import ContractViolation, HarmlessBug, ImpossibleRequest

_WHOLE = honest_learners.HonestLearner

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
    ContractViolation(memory.TailTaughtByPrivateAnswers, leaks=True),
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
    DataBug(datasets.LabelsCutAtTheMedian, _WHOLE, photos=True),
    DataBug(datasets.ClassesFromPrivateLabels, _WHOLE, photos=True, alone=("zebras",), leaks=True),
    DataBug(patients.SplitThatCutsPatients, _WHOLE),
    PrintingExhibit(outlets.PrintedPrivateLoss, leaks=True, says="private loss"),
    PrintingExhibit(outlets.WarningWithPrivateNorm, leaks=True, says="private norm"),
    ContractViolation(outlets.LogFileOfPrivateLosses, leaks=True),
    ContractViolation(outlets.SavedHardestExamples, leaks=True),
    ContractViolation(outlets.NormBehindCtypes, leaks=True),
    ContractViolation(outlets.MeanOnALibraryModule, leaks=True),
    ContractViolation(outlets.DatasetLoadedInFit, leaks=True),
    ContractViolation(outlets.UninitialisedOutputBuffer, leaks=True),
    ContractViolation(outlets.MixupWithinTheChunk),
    *(core.exhibit for core in CORES if core.exhibit),
    UnderstatedEpsilon(accounts.central_limit_epsilon, (Release("gradient", 500, 512 / 45_000),), 1.1621),
    UnderstatedEpsilon(accounts.doubled_divergence, (Release("gradient", 500, 0.02),), 0.802, noise=0.5**0.5),
    UnderstatedEpsilon(
        accounts.micro_batches_counted_as_examples, (Release("gradient", 12_512, 64 / 25_000),), 1.0, 1 / 25_000,
        noise=1 / 2,
    ),
    UnderstatedEpsilon(accounts.textbook_gaussian, (Release("gradient"),), 0.2422),
    UndersizedSigma(accounts.bisection_to_the_unsafe_side, (Release("gradient"),), 30.0),
    UnderstatedEpsilon(accounts.best_run_reported_alone, (Release("gradient", 48_000, 1024 / 45_000),), 2.8256),
    UnderstatedEpsilon(accounts.replaced_row_counted_once, (Release("sum"),), 1.081, noise=1 / 2),
    UnderstatedEpsilon(accounts.adaptive_clip_half_accounted, (Release("gradient", 1000, 0.01),), 1.5),
    UnderstatedEpsilon(accounts.rate_of_a_micro_batch, (Release("gradient", 100, 0.08),), 1.0),
    UnderstatedEpsilon(accounts.understated_epsilon, (Release("gradient", 12),), 4.0),
    InvalidAudit(audits.absolute_value_of_a_bound, audits.draw_uninformative_scores, canaries=60),
    InvalidAudit(audits.best_number_of_guesses, audits.draw_gaussian_scores, canaries=10_000),
    InvalidAudit(audits.canaries_assumed_independent, audits.draw_randomised_responses, canaries=1_000),
    RuleBreakingSubmission(protocols.evaluation_on_training_images, _WHOLE),
    RuleBreakingSubmission(protocols.unaccounted_tuning, _WHOLE),
    DataBug(datasets.OversamplingOfARareClass, _WHOLE, copies=8),
    LaunderedSettings(datasets.SettingsLaunderedByResizing, _WHOLE),
)  # fmt: skip


def find_exhibit(name: str) -> Exhibit:
    """Return the exhibit of this name.

    Raises:
        UnknownName: there is no such exhibit. The message lists those that exist.
    """
    named = {exhibit.name: exhibit for exhibit in EXHIBITS}
    if name not in named:
        raise UnknownName(format_unknown_name_message("exhibit", name, named))
    return named[name]
