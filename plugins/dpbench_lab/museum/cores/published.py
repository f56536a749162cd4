"""Broken cores that the museum exhibits. Each function receives the honest function, then that function's arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpbench.privacy.core.exact.sums import IntegerSum
from dpbench.privacy.core.forms.contributions import RankOne
from dpbench.privacy.mechanisms.choice.parts import PartLosses
from dpbench_lab.museum.cores.broken_core import AuditCase, CoreExhibit, show
from dpbench_lab.museum.exhibits.elections import (
    CommitteeLearner,
    NearestExampleLearner,
    PrototypeLearner,
    StumpLearner,
)
from dpbench_lab.museum.exhibits.honest_learners import HonestLearner, PoissonLearner, TwoBlockLearner
from dpbench_lab.museum.exhibits.patients import LARGEST, MOST_LABELS, PatientDigits

Honest = Callable[..., Any]
PANCAKE_THICKNESS = 0.05  # standard deviation of a layer, in distances between layers


def half_the_noise(honest: Honest, draws: object, shape: Sequence[int], std: Any) -> np.ndarray:
    """Adds noise with half the standard deviation.

    Source: an implementation of backpropagation clipping whose sensitivity was wrong by a factor of the batch size: it
    claimed 0.21, and an audit found more than 2.79 (Tramèr et al. 2022, 2202.12219).
    """
    noise: np.ndarray = honest(draws, shape, np.asarray(std) / 2)
    return noise


def noise_five_percent_short(honest: Honest, draws: object, shape: Sequence[int], std: Any) -> np.ndarray:
    """Adds noise with 0.95 of its standard deviation, which no attack detects.

    Source: made for the museum. Opacus' `gdp` accountant returns sigmas up to 7% too small.
    """
    noise: np.ndarray = honest(draws, shape, np.asarray(std) * 0.95)
    return noise


def missing_root_of_two(honest: Honest, draws: object, shape: Sequence[int], std: Any) -> np.ndarray:
    """Adds to each of two blocks the noise for a single block, although together they move by sqrt(2) clips.

    Source: per-layer clipping, where the noise must account for the number of layers (Opacus, issue 202); the joint
    release of GEP's embedding and residual (Yu et al. 2021).
    """
    noise: np.ndarray = honest(draws, shape, np.asarray(std) / math.sqrt(2))
    return noise


def gaussian_pancake(honest: Honest, draws: Any, shape: Sequence[int], std: Any) -> np.ndarray:
    """Adds noise that is normal except along one secret direction, where it lies on thin layers: a Gaussian pancake.

    Source: the backdoor of "Gaussian pancakes" (2509.23834). No efficient test tells this noise from normal noise if
    finding its direction is as hard as is believed (continuous learning with errors), and whoever knows the direction
    reads a row's contribution between the layers. The audit passes it, and so would any other.
    """
    noise: np.ndarray = honest(draws, shape, std) / np.asarray(std)
    secret = np.random.default_rng(20_260).standard_normal(noise.size)
    secret /= np.linalg.norm(secret)
    layers = 2 * math.sqrt(noise.size)  # in a standard deviation
    along = float(noise.ravel() @ secret)
    thickness = PANCAKE_THICKNESS * draws._normals.standard_normal()
    noise += ((np.rint(along * layers) + thickness) / layers - along) * secret.reshape(noise.shape)
    layered: np.ndarray = np.rint(noise * std).astype(np.int64)
    return layered


def one_noise_for_all_classes(honest: Honest, draws: object, shape: Sequence[int], std: Any) -> np.ndarray:
    """Adds the same noise vector to the sum of every class, so the difference of two classes has no noise.

    Source: the reference code of DP-FC (Mehta et al. 2023, 2211.13403), which maps over classes with one key.
    """
    noise: np.ndarray = honest(draws, shape, std)
    return np.broadcast_to(noise[:1], tuple(shape)).copy()


def generator_reseeded_every_epoch(
    honest: Honest, draws: object, key: tuple[str, ...], shared: tuple[str, ...]
) -> None:
    """Restarts the noise generator every fourth step.

    Source: a generator seeded inside the loop over epochs, or copied into each worker of a data loader.
    """
    *fit, release, step = key
    honest(draws, (*fit, release, str(int(step) % 4)), shared)


def noise_reused_between_runs(honest: Honest, draws: object, key: tuple[str, ...], shared: tuple[str, ...]) -> None:
    """Reuses the noise of an earlier run: the difference of the two models has no noise.

    Source: the code of Tramèr and Boneh (2021) caches noisy batch statistics on disk under a name without the seed.
    """
    honest(draws, ("noise of an earlier run", *key[-2:]), shared)


def fixed_size_batches(honest: Honest, size: int, rate: float, generator: np.random.Generator) -> np.ndarray:
    """Takes batches of a fixed size and accounts for Poisson samples.

    Source: a data loader with `shuffle=True` under an accountant for Poisson samples (private-transformers, issue 7;
    Opacus, issue 80). Over several epochs this can leak substantially more (Chua et al. 2024, 2403.17673).
    """
    return np.sort(generator.permutation(size)[: round(size * rate)])


def unequal_sample_rates(honest: Honest, draws: object, size: int, rate: float) -> np.ndarray:
    """Samples every other example at 1.6 times the rate and the rest at 0.4 times: the same on average.

    Source: class-weighted samplers under an accountant for a single rate (Opacus, issues 600 and 813).
    """
    often: np.ndarray = honest(draws, size, min(1.0, 1.6 * rate))
    seldom: np.ndarray = honest(draws, size, 0.4 * rate)
    return np.sort(np.concatenate([often[often % 2 == 0], seldom[seldom % 2 == 1]]))


def missing_clip(honest: Honest, norms: Tensor, bounds: Tensor | float, *limits: Any, **shares: Any) -> Tensor:
    """Sums rows without clipping them.

    Source: parameters without per-example gradients are not clipped if a library is told to continue (`strict=False`);
    requested in Opacus, issue 177.
    """
    weights: Tensor = honest(norms, norms.clamp(max=1e6), *limits, **shares)
    return weights


def unchecked_nan_rows(honest: Honest, norms: Tensor, bounds: Tensor | float, *limits: Any, **shares: Any) -> Tensor:
    """Multiplies a row of NaN by its weight: the sum is NaN and reveals that this row is there.

    Source: one such record makes all weights of a model NaN in Opacus 1.6; jax_privacy counts it as zero.
    """
    return (bounds / norms).clamp(0, 1).nan_to_num(1.0)


def clip_after_summation(honest: Honest, rows: RankOne, clip: float, *shares: Any) -> IntegerSum:
    """Clips the summed gradient of the batch, so neighbouring datasets differ by up to two clips.

    Source: clipping after aggregation, as in a generator's DP-SGD (AiDotNet, review of pull request 1318).
    """
    kept = rows.take(rows.norms().isfinite().nonzero().squeeze(1))
    total = kept.dense().double().sum(0)
    total *= min(1.0, clip / max(1e-30, float(total.norm())))
    grid = torch.tensor(clip * 2.0**-24, dtype=torch.float64)
    return IntegerSum((total / grid).round().to(torch.int64), grid)


def pairs_averaged_before_clipping(honest: Honest, rows: RankOne, clip: float, *shares: Any) -> IntegerSum:
    """Clips the mean of two examples and adds noise for a sum of such means, so one example moves two clips.

    Source: `num_microbatches` of TensorFlow Privacy (issue 81), and the code of AdaDPS (Li et al. 2022).
    """
    kept = rows.take(rows.norms().isfinite().nonzero().squeeze(1)).dense().double()
    means = torch.stack([pair.mean(0) for pair in torch.split(kept, 2)]) if len(kept) else kept
    norms = means.flatten(1).norm(dim=1).clamp(min=1e-30)
    total = (means * (clip / norms).clamp(max=1).reshape(-1, 1, 1)).sum(0)
    grid = torch.tensor(clip * 2.0**-24, dtype=torch.float64)
    return IntegerSum((total / grid).round().to(torch.int64), grid)


def float32_sums(honest: Honest, *factors: Any) -> IntegerSum:
    """Sums rows in float32: each is rounded depending on the sum so far, so removing one changes the rest.

    Source: every library that sums gradients in floating point (Casacuberta, Shoemate, Vadhan and Wagaman 2022).
    """
    found = honest(*factors)
    return IntegerSum(found.total.float().to(torch.int64), found.grid)


def first_rows_counted_twice(honest: Honest, rows: Any, sample: np.ndarray, *given: Any) -> Iterator[Any]:
    """Fills the last batch with the first rows, which then count twice.

    Source: dp_transfer (Mehta et al. 2023) sums its Gram matrix over 49 batches of 1,024, for 50,000 rows.
    """
    chunks = honest(rows, np.concatenate([sample, sample[: -len(sample) % 1024]]), *given)
    yield from chunks


def unbounded_losses(honest: Honest, numbers: Tensor) -> Tensor:
    """Sums losses of any size, so one row decides a choice.

    Source: made for the museum. The harness must clamp losses itself, as it clips gradients itself.
    """
    return numbers.nan_to_num(0.0).mul_(2.0**20).round_()


def two_sided_scores(honest: Honest, numbers: Tensor) -> Tensor:
    """Scores each row from -1 to 1 with the eps0 of losses in [0, 1]: a row raises some scores and lowers others.

    Source: textbooks have exp(eps0 score / 2) (McSherry and Talwar 2007). The factor 1/2 can be omitted if adding a row
    moves all scores in the same direction, as losses do, but not if a row is replaced.
    """
    steps: Tensor = honest(numbers)
    return 2 * steps - 2.0**20


def losses_in_every_class(honest: Honest, rows: PartLosses, *given: Any) -> IntegerSum:
    """Adds the losses of a row to every class, and states the eps0 of one choice for all ten.

    Source: made for the museum. Prototypes that are chosen class by class cost one choice (Wahdany et al. 2024,
    2406.08039), since an image counts for the one class of its label; an X-ray with several findings counts for each.
    """
    found = honest(rows, *given)
    total = found.total.reshape(rows.parts, -1).sum(0)
    return IntegerSum(total.repeat(rows.parts), found.grid)


def patient_bounded_in_each_class(honest: Honest, rows: Any, *given: Any) -> Any:
    """Bounds what a patient adds to each class, and states the eps0 of one choice for all classes together.

    Source: made for the museum: parallel composition over classes, which holds of images that have one label each, for
    a patient with images of several labels.
    """
    places, shares = honest(rows, *given)
    if shares is None:
        return places, None
    labels = rows.y.numpy()[places]
    _, group, sizes = np.unique(
        rows.units.of[places] * (labels.max() + 1) + labels, return_inverse=True, return_counts=True
    )
    return places, torch.from_numpy(1 / sizes)[torch.from_numpy(group)]


def choice_at_twice_eps0(honest: Honest, totals: np.ndarray, scale: float, draws: object) -> np.ndarray:
    """Draws Gumbel noise with half the scale.

    Source: made for the museum: exp(eps0 score) where exp(eps0 score / 2) was accounted.
    """
    chosen: np.ndarray = honest(totals, scale / 2, draws)
    return chosen


def shards_by_position(honest: Honest, rows: Any, shards: int, salt: int) -> Any:
    """Assigns example i to shard i mod t, so removing one moves all later examples to another teacher.

    Source: made for the museum, after `range(0, n, t)` in PATE tutorials. PATE's proof needs disjoint shards that stay
    the same (Papernot et al. 2017, section 3.3).
    """
    dealt = honest(rows, shards, salt)
    return replace(dealt, shard=np.arange(len(rows)) % shards)


def image_epsilon_stated_for_a_patient(honest: Honest, rows: Any, *given: Any) -> Any:
    """Clips each image separately and states epsilon for a patient, who has up to eight images.

    Source: X-rays: 5,206 images of 3,669 patients, one of whom has 30. At epsilon 1 for an image, that patient has
    65.8. Libraries for DP-SGD state epsilon for a row, whatever the unit of the data (fast-differential-privacy, issue
    27).
    """
    places, _ = honest(rows, *given)
    return places, None


def mean_over_drawn_images(honest: Honest, rows: Any, sample: np.ndarray, device: torch.device) -> Any:
    """Averages over all drawn images, times the number of patients: those with many images weigh more.

    Source: made for the museum: the mean of a batch of patients whose images are in one tensor.
    """
    places, shares = honest(rows, sample, device)
    weight = len(sample) / max(1, len(places))
    return places, None if shares is None else torch.full_like(shares, weight)


WHOLE, SAMPLED = "dp-sgd:steps=12", "dp-sgd:steps=12,sample_rate=0.3"
NOISE, KEY = "core.randomness:_SeededDraws.noise", "core.randomness:_SeededDraws.__init__"
SAMPLE = "core.randomness:_SeededDraws.sample"
INTEGERS, WEIGHTS = "core.forms.contributions:RankOne.clipped_sum", "core.exact.sums:weights_within"
UNITS, STEPS = "core.rows:PrivateRows.expand_units", "mechanisms.choice.steps:_steps"
CURATOR, CORE, MECHANISMS = "privacy/test_curator.py::test_", "privacy/core/test_", "privacy/mechanisms/test_"
ANY_LOSS = MECHANISMS + "choice.py::test_a_row_moves_every_total_by_0_to_1_whatever_it_says"
SUMMED = AuditCase(WHOLE, "sensitivity")

PUBLISHED = (
    show(CoreExhibit(half_the_noise, NOISE, HonestLearner, noise=1 / 2), AuditCase(WHOLE)),
    show(CoreExhibit(noise_five_percent_short, NOISE, HonestLearner, noise=0.95), AuditCase(WHOLE)),
    show(CoreExhibit(gaussian_pancake, NOISE, HonestLearner, sigma=2 * PANCAKE_THICKNESS),
         *(AuditCase(learner, None) for learner in (WHOLE, "pillar", "thrift"))),
    show(CoreExhibit(missing_root_of_two, NOISE, TwoBlockLearner, noise=0.5**0.5), AuditCase("gep:steps=6,k=20")),
    show(CoreExhibit(one_noise_for_all_classes, NOISE, HonestLearner, noise=0), AuditCase(WHOLE),
         tests=(CURATOR + "noise_is_independent_across_classes_steps_and_releases",)),
    show(CoreExhibit(generator_reseeded_every_epoch, KEY, HonestLearner, noise=0), AuditCase(WHOLE)),
    show(CoreExhibit(noise_reused_between_runs, KEY, HonestLearner, noise=0), AuditCase(WHOLE)),
    show(CoreExhibit(fixed_size_batches, "core.randomness:draw_poisson_sample", PoissonLearner), AuditCase(SAMPLED),
         tests=(CORE + "mechanisms.py::test_batch_sizes_are_binomial",
                CORE + "randomness.py::test_a_sample_by_gaps_is_one_by_single_draws")),
    show(CoreExhibit(unequal_sample_rates, SAMPLE, PoissonLearner, rate=1.6)),
    show(CoreExhibit(missing_clip, WEIGHTS, HonestLearner, noise=0), SUMMED,
         tests=(CORE + "sums.py::test_one_row_moves_the_integers_by_at_most_the_clip",)),
    show(CoreExhibit(unchecked_nan_rows, WEIGHTS, HonestLearner, noise=0)),
    show(CoreExhibit(clip_after_summation, INTEGERS, HonestLearner, noise=1 / 2), SUMMED),
    show(CoreExhibit(pairs_averaged_before_clipping, INTEGERS, HonestLearner, noise=1 / 2), SUMMED),
    show(CoreExhibit(float32_sums, "core.exact.sums:rounded_outer_sum", HonestLearner), SUMMED),
    show(CoreExhibit(first_rows_counted_twice, "core.rows:PrivateRows.chunks", HonestLearner, noise=1 / 2)),
    show(CoreExhibit(image_epsilon_stated_for_a_patient, UNITS, HonestLearner, patients=PatientDigits, images=LARGEST)),
    show(CoreExhibit(mean_over_drawn_images, UNITS, HonestLearner, patients=PatientDigits)),
    show(CoreExhibit(unbounded_losses, STEPS, StumpLearner, noise=0), tests=(ANY_LOSS,)),
    show(CoreExhibit(two_sided_scores, STEPS, StumpLearner), tests=(ANY_LOSS,)),
    show(CoreExhibit(losses_in_every_class, "mechanisms.choice.parts:PartLosses.clipped_sum", NearestExampleLearner,
                     noise=1 / 10),
         tests=(MECHANISMS + "part_losses.py::test_a_row_moves_its_own_part_by_0_to_1_whatever_it_says",)),
    show(CoreExhibit(patient_bounded_in_each_class, UNITS, NearestExampleLearner, noise=1 / MOST_LABELS,
                     patients=PatientDigits)),
    show(CoreExhibit(choice_at_twice_eps0, "mechanisms.choice.question:draw_candidates", PrototypeLearner, noise=1 / 2),
         tests=(MECHANISMS + "choice.py::test_three_candidates_are_chosen_with_the_chances_of_the_law",)),
    show(CoreExhibit(shards_by_position, "mechanisms.votes:assign_shards", CommitteeLearner),
         tests=(MECHANISMS + "votes.py::test_an_example_stays_in_its_shard_whoever_else_is_there",)),
)  # fmt: skip
