"""Audit another library's training loop, as part of that library's own tests.

>>> from dpbench.audit.foreign import Claim, audit_loop
>>> def test_the_engine(): assert audit_loop(answers, Claim(sigma=1.0, steps=10, sample_rate=0.1)).passed

The loop trains a linear softmax layer of two classes without bias, from zero weights, on examples that the audit makes,
and returns the numbers that each step released. An engine's clipping, noise and sampling do not depend on the model,
and for this model the effect of each example is known: column j of the gradient is 0 for examples whose feature j is 0.

The audit has three parts, as for dpbench's own runs. Sensitivity compares the first answers on two datasets that differ
in one sampled example, with the same randomness; it also measures what each of many examples contributes to every
step, in a column that only this example uses. Noise is tested in columns that no example uses; samples are read from
columns that one example uses. The attack reads the columns of the canaries, one each.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from dpbench.api import Release
from dpbench.audit.attack import CanaryScores, draw_canary_membership
from dpbench.audit.figures import compute_figures
from dpbench.audit.foreign_samples import ContributionMeter, RowContributions, add_sample_statistics
from dpbench.audit.noise_log import LAST_BIT, NoiseLog, StandardisedNoise
from dpbench.errors import SpecError
from dpbench.privacy.core.accounting import accountant
from dpbench.privacy.core.plan import check_plan
from dpbench.records.audit import Audit, MeasuredSensitivity
from dpbench.records.stated_plan import make_plan_records
from dpbench.support.files import canonical_digest

Answers = Callable[[Tensor, Tensor, int], Sequence[Tensor]]
"""(x (n, d) float32, y (n,) in {0, 1}, seed) -> for each step, the noisy sum of clipped gradients (2, d).

If the loop releases averages, multiply them by the expected batch size that the loop states as public; the audit fails
if that number depends on n. Runs with the same seed and number of examples must have the same noise and samples. One
more example at the end should change neither the noise of the first step nor which other examples it samples: give the
sampler and the noise separate generators. Use a low learning rate, or the model fits the canaries and they contribute
less. Use no weight decay, which gives an example gradients where it has no features."""

FEWEST_CANARIES = 20
FEATURES = 8  # of the examples that are no canaries
STRONG_FEATURE = 100.0  # a canary's feature, in clips: its gradient is far above the clip
SEVERAL_FEATURE_STRENGTHS = (
    0.02,
    0.04,
    0.11,
    1.0,
)  # strengths of examples of several features: gradients of 1.4, 2.8, 7.8 and 71 clips
WEAK_FEATURE = 0.5  # a feature, in clips, whose gradient is below the clip
WEAK_SHARES = (
    0.1,
    0.5,
    0.9,
)  # of a sample that is below the clip, with one row more and one less: quantiles jump there
OUTLIER_STRENGTH = 1e4  # a strong row among others that are a ten-thousandth of it: statistics of norms move
SINGLE_FEATURE_STRENGTHS = (1e-30, 1e-8, 1.0, 1e8, 1e30, math.nan, math.inf, -math.inf)
PROBES = (
    *((strength, False) for strength in SINGLE_FEATURE_STRENGTHS),
    *((strength, True) for strength in SEVERAL_FEATURE_STRENGTHS),
)
"""The strength of each probe, and whether it has several features, which reveal norms other than L2."""
ROUNDING = 2.0**-18  # of answers in float32
LOOP = "a loop of another library"


@dataclass(frozen=True)
class Claim:
    """The claim of a loop: `steps` sums over Poisson samples, each with noise of standard deviation sigma * clip.

    `epsilon` is the epsilon that the loop claims at `delta`; by default, that of the tightest accountant.

    Raises:
        SpecError: a number is out of range.
    """

    sigma: float
    steps: int = 1
    sample_rate: float = 1.0
    clip: float = 1.0
    delta: float = 1e-5
    epsilon: float | None = None

    def __post_init__(self) -> None:
        """Check that the numbers are in range and form a valid plan."""
        wanted = {"sigma": self.sigma, "clip": self.clip, "epsilon": 1.0 if self.epsilon is None else self.epsilon}
        for name, value in wanted.items():
            if not 0 < value < math.inf:
                raise SpecError(f"Expected a positive number as {name} of a claim, got {value}.")
        if not 0 < self.delta < 1:
            raise SpecError(f"Expected a number between 0 and 1 as delta of a claim, got {self.delta}.")
        _ = self.plan  # which is checked

    @property
    def plan(self) -> tuple[Release, ...]:
        """The claim as a plan of one release."""
        return check_plan([Release("gradient", self.steps, self.sample_rate)], LOOP)

    @property
    def cost(self) -> float:
        """The epsilon of the claimed plan by the tightest accountant."""
        return min(accountant.epsilon(self.plan, self.sigma, self.delta, name) for name in ("pld", "rdp"))

    @property
    def stated_epsilon(self) -> float:
        """The claimed epsilon or, if the claim leaves it out, the epsilon of the tightest accountant."""
        return self.cost if self.epsilon is None else self.epsilon


def audit_loop(answers: Answers, claim: Claim, *, size: int = 1_000, canaries: int = 2_000, seed: int = 0) -> Audit:
    """Audit a training loop; see `Answers` for what it must return, and `Audit.passed` for the verdict.

    Args:
        answers: runs the loop on a dataset and returns the numbers that its steps released.
        claim: the loop's plan, noise and epsilon.
        size: examples beside the canaries. The audit also tries sizes close to it, because some bugs appear only at
            round numbers.
        canaries: examples that are planted or left out, each with chance 1/2.
        seed: the loop's seed; the audit also runs the next seed, whose noise must be different.

    Raises:
        SpecError: there are fewer than 20 canaries, or the loop's return value is invalid or differs between runs with
            the same seed.
    """
    if canaries < FEWEST_CANARIES:
        raise SpecError(f"Expected at least {FEWEST_CANARIES} canaries, got {canaries}: fewer show nothing.")
    begin, generator = time.perf_counter(), np.random.default_rng(seed)
    member = draw_canary_membership(canaries, generator)
    loop = _LoopRunner(answers, claim, len(member) + FEATURES)
    watch = ContributionMeter(loop, size + 1, STRONG_FEATURE * claim.clip, seed)
    contributed = watch.contributions(size + 1, seed)
    sensitivity = _measure_sensitivity(loop, watch, contributed.largest / claim.clip, generator)
    x, y, labels = _plant_canaries(size, member, generator, claim.clip)
    noise, scores = NoiseLog(claim.steps, member), CanaryScores(member)
    unit, nobody = claim.sigma * claim.clip, np.empty(0, np.int64)
    silent = FEATURES + np.flatnonzero(~member)
    for answer in loop(x, y, seed):
        released = np.abs(answer[:, silent]) / unit
        noise.add("gradient", [StandardisedNoise(answer[:, silent] / unit, LAST_BIT * released)], [], nobody)
        along = (1 - 2 * labels) * (answer[1, FEATURES:] - answer[0, FEATURES:]) / math.sqrt(2)
        scores.add([along / claim.clip], claim.sigma, claim.sample_rate)
    noise.independence.add_noise_of_other_seed("gradient", [loop(x, y, seed + 1)[0][:, silent] / unit])
    noted = noise.summarise()
    if claim.sample_rate < 1:
        noted = add_sample_statistics(noted, "gradient", claim.sample_rate, contributed.norms > 0)
    found = sensitivity, noted, scores.summarise()
    figures = compute_figures(claim.stated_epsilon, claim.delta, *found)
    if claim.stated_epsilon < 0.99 * claim.cost:  # where samples are drawn, no attack of this size would notice
        less = (
            f"statement: epsilon {claim.stated_epsilon:.4g} is less than the {claim.cost:.4g} that sigma and steps cost"
        )
        figures = figures.model_copy(update={"failed": (less, *figures.failed)})
    return Audit(
        digest=canonical_digest([LOOP, claim.plan[0].__dict__, claim.sigma, claim.clip, size, canaries]), content=None,
        spec=None, seed=seed, repeats=None, epsilon=claim.stated_epsilon, delta=claim.delta, sigma=claim.sigma,
        plan=make_plan_records(claim.plan, claim.sigma), mechanism=LOOP, sensitivity=found[0], noise=found[1],
        attack=found[2],
        figures=figures, left_out=_describe_unmeasured_steps(contributed),
        seconds={"audit": time.perf_counter() - begin},
    )  # fmt: skip


def _describe_unmeasured_steps(contributions: RowContributions) -> tuple[str, ...]:
    unclear, steps = int((~contributions.alone).sum()), len(contributions.alone)
    why = f"contributions to {unclear} of {steps} steps were not measured: columns without features moved as well"
    return (why,) if unclear else ()


@dataclass(frozen=True)
class _LoopRunner:
    """Runs a loop and checks the type, number and shape of its answers."""

    answers: Answers
    claim: Claim
    columns: int

    def __call__(self, x: Tensor, y: Tensor, seed: int) -> list[np.ndarray]:
        released = self.answers(x, y, seed)
        if not isinstance(released, Iterable):
            raise SpecError(f"Expected a list of tensors from the loop, one a step, got {type(released).__name__}.")
        released = [*released]
        for tensor in released:
            if not isinstance(tensor, Tensor):
                advice = ": use torch.from_numpy" if isinstance(tensor, np.ndarray) else ""
                raise SpecError(f"Expected tensors of torch from the loop, got {type(tensor).__name__}{advice}.")
        found = [np.asarray(tensor.detach().cpu().double()) for tensor in released]
        shape = 2, x.shape[1]
        if len(found) != self.claim.steps or {array.shape for array in found} != {shape}:
            shapes = sorted({array.shape for array in found})
            raise SpecError(
                f"Expected {self.claim.steps} answers of shape {shape} from the loop, one a step, got "
                f"{len(found)} of {', '.join(map(str, shapes)) or 'none'}."
            )
        return found


@dataclass
class _LargestAnswerChange:
    """Records the largest change of the first answer that one example causes, beyond rounding."""

    clip: float
    tried: int = 0
    largest: float = 0.0
    complaints: list[str] = field(default_factory=list)

    def add(self, before: np.ndarray, after: np.ndarray, strength: float) -> float:
        """Compare the first answers on two neighbouring datasets; return the change in clips, beyond rounding."""
        self.tried += 1
        if not np.isfinite(after).all():
            self.complaints.append(f"an example of {strength:g} made an answer that is not finite")
            return math.inf
        slack = ROUNDING * (float(np.linalg.norm(before)) + float(np.linalg.norm(after)))
        moved = (float(np.linalg.norm(after - before)) - slack) / self.clip
        self.largest = max(self.largest, moved)
        return moved


def _measure_sensitivity(
    loop: _LoopRunner, meter: ContributionMeter, largest: float, generator: np.random.Generator
) -> MeasuredSensitivity:
    """Run the loop on neighbouring datasets and measure how far the first answer moves, in clips, beyond rounding.

    `largest`, the largest contribution of a row to any step in clips, counts too. Later answers cannot be compared as a
    whole, because the model has learned from the row, which changes the gradients of all other rows; contributions are
    measured only in columns that no other example uses.

    The datasets differ in a row that the first sample contains, so that the test does not depend on luck. The row is
    added at the end; if one more row makes the loop draw another sample, the row replaces a row of zeros instead.
    One more row is also tried at round numbers of rows, whether it is sampled or not.
    """
    size, found, reached = meter.size - 1, _LargestAnswerChange(loop.claim.clip, largest=largest), 0.0
    drawn, seed = meter.find_sampled_row()
    for count in sorted({size - 1, size, drawn}):
        if (others := meter.measure_effect_on_other_rows(count, seed)) is not None:
            found.largest = max(found.largest, others / loop.claim.clip)
            continue
        x, y = _make_aligned_examples(count, loop, generator)
        first = loop(x, y, seed)
        before = first[0]
        if not np.array_equal(first, loop(x, y, seed)):
            raise SpecError(
                "Expected the loop to give the same answers for the same data and seed. Seed every random draw in it."
            )
        for strength, several in PROBES if count == drawn else ((1.0, False),):
            row, label = _make_probe_example(loop, strength, several, found.tried, generator)
            moved = found.add(before, loop(torch.cat([x, row]), torch.cat([y, label]), seed)[0], strength)
            reached = moved if count == drawn and (strength, several) == (1.0, False) else reached
    if reached <= 0:
        _compare_row_replacements(loop, found, meter, drawn, seed, generator)
    else:
        for x, y in _make_partly_clipped_datasets(loop, meter, drawn, seed, drawn):
            before = loop(x, y, seed)[0]
            for strength in (1.0, OUTLIER_STRENGTH):
                row, label = _make_probe_example(loop, strength, False, 0, generator)
                found.add(before, loop(torch.cat([x, row]), torch.cat([y, label]), seed)[0], strength)
    complaints = tuple(dict.fromkeys(found.complaints))
    return MeasuredSensitivity(questions=3, rows=found.tried, largest=found.largest, shift=0.0, complaints=complaints)


def _compare_row_replacements(
    loop: _LoopRunner,
    largest_change: _LargestAnswerChange,
    meter: ContributionMeter,
    row: int,
    seed: int,
    generator: np.random.Generator,
) -> None:
    """Compare answers on datasets that differ in one sampled row, which is zeros in one and a probe in the other."""
    mixed = _make_partly_clipped_datasets(loop, meter, meter.size, seed, row)
    plain = ((1.0, False), (OUTLIER_STRENGTH, False))
    crowds = (_make_aligned_examples(meter.size, loop, generator), PROBES), *((crowd, plain) for crowd in mixed)
    for (x, y), probes in crowds:
        x[row] = 0
        before = loop(x, y, seed)[0]
        for strength, several in probes:
            x[row], y[row] = _make_probe_example(loop, strength, several, largest_change.tried, generator)
            largest_change.add(before, loop(x, y, seed)[0], strength)


def _make_partly_clipped_datasets(
    loop: _LoopRunner, meter: ContributionMeter, size: int, seed: int, row: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield datasets of parallel rows: a share of the sampled rows is below the clip, all others (and `row`) above.

    These reveal a loop that sets its clip or an outlier threshold by gradient norms without noise: a single row can
    then change the answer by too much.
    """
    drawn = meter.skipped + np.flatnonzero(meter.contributions(size, seed).norms[0])
    drawn = drawn[drawn != row]
    for share in WEAK_SHARES:
        for more in (-1, 0, 1):
            x, y = torch.zeros(size, loop.columns), torch.zeros(size, dtype=torch.int64)
            x[:, 0] = STRONG_FEATURE * loop.claim.clip
            x[drawn[: max(0, round(share * len(drawn)) + more)], 0] = WEAK_FEATURE * loop.claim.clip
            yield x, y


def _make_aligned_examples(size: int, loop: _LoopRunner, generator: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Return examples whose sum is many clips long: a loop that divides by n then reveals an added example."""
    x, y = _make_random_examples(size, loop.columns, generator)
    x[: size // 2], y[: size // 2] = 0, 0
    x[: size // 2, 0] = STRONG_FEATURE * loop.claim.clip
    return x, y


def _make_probe_example(
    loop: _LoopRunner, strength: float, several_features: bool, index: int, generator: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Return an example (1, d) with one or several features, and its label 1.

    For an even `index`, a single feature is feature 0, like that of the aligned examples. These have label 0, so the
    gradients are opposed.
    """
    row = torch.zeros(1, loop.columns)
    size = strength * STRONG_FEATURE * loop.claim.clip
    if several_features:
        row[0, :FEATURES] = size / math.sqrt(FEATURES)
    else:
        row[0, index % 2 * int(generator.integers(loop.columns))] = size
    return row, torch.ones(1, dtype=torch.int64)


def _make_random_examples(size: int, columns: int, generator: np.random.Generator) -> tuple[Tensor, Tensor]:
    x = torch.zeros(size, columns)
    x[:, :FEATURES] = torch.from_numpy(generator.normal(size=(size, FEATURES)))
    return x, torch.from_numpy(generator.integers(2, size=size))


def _plant_canaries(
    size: int, member: np.ndarray, generator: np.random.Generator, clip: float
) -> tuple[Tensor, Tensor, np.ndarray]:
    """Return random examples followed by the canaries that are in the data, and the labels of all canaries."""
    x, y = _make_random_examples(size, FEATURES + len(member), generator)
    labels = generator.integers(2, size=len(member))
    places = np.flatnonzero(member)
    planted = torch.zeros(len(places), x.shape[1])
    planted[torch.arange(len(places)), torch.from_numpy(FEATURES + places)] = STRONG_FEATURE * clip
    return torch.cat([x, planted]), torch.cat([y, torch.from_numpy(labels[places])]), labels
