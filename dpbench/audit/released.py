"""Attack released models: fit shadow models on random halves of the private data, and test membership in each."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dpbench.audit.released_scores import count_true_positives_at_rates, lira_scores, rmia_scores
from dpbench.errors import SpecError
from dpbench.harness.fitting import fit_once, predict_isolated
from dpbench.harness.loaded import get_component_origins
from dpbench.harness.prepare import PreparedRun, prepare_seed
from dpbench.privacy.core.accounting.membership import FALSE_POSITIVE_RATES, true_positive_rate
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.core.rows import ChunkBuffers, PrivacyUnits, PrivateRows
from dpbench.records.provenance import current_date
from dpbench.records.released import FEWEST_SHADOWS, SHADOWS, MembershipTest, ReleasedModelAttack, Targets
from dpbench.records.spec import Spec
from dpbench.registry.components import make_component_record
from dpbench.support.files import canonical_digest
from dpbench.support.progress import show_progress_bar
from dpbench.support.threads import limit_threads

PLANTED, PLANTED_SHARE = 32, 0.02  # outliers, and the largest share of the private records that they may be
OUTLIER_LENGTH = 10.0  # of a planted row in the data, in lengths of the longest private row: beyond any clip
POPULATION = 2_000  # test records at most


@dataclass(frozen=True)
class ShadowData:
    """The records from which shadow models get their data: all private rows, then the planted outliers."""

    rows: PrivateRows
    observed: Tensor  # (n, *example_shape), what models are asked about the rows
    owner: np.ndarray  # (n,) int64, whose each row is, from 0 without a gap; the planted come last
    planted: int

    @property
    def records(self) -> int:
        """The number of records: units or images, plus planted outliers. A shadow has all rows of a record or none."""
        return int(self.owner[-1]) + 1

    def select(self, member: np.ndarray) -> PrivateRows:
        """Return the rows of one shadow's data; `member` (r,) bool states which records are in it."""
        kept = member[self.owner]
        places = torch.from_numpy(np.flatnonzero(kept))
        units = None
        if self.rows.units is not None:
            units = PrivacyUnits(np.unique(self.owner[kept], return_inverse=True)[1].astype(np.int64))
        return PrivateRows(self.rows.held, self.rows.y[places], places, units, ChunkBuffers())

    def average(self, values: np.ndarray) -> np.ndarray:
        """Average the rows' values (n,) within each record; return (r,)."""
        return np.bincount(self.owner, values) / np.bincount(self.owner)


@dataclass(frozen=True)
class ShadowConfidences:
    """Each shadow's confidence in the true labels, as logits, and the records that were in the shadow's data."""

    member: np.ndarray  # (S, r) bool
    records: np.ndarray  # (S, r)
    population: np.ndarray  # (S, z)
    accuracy: float


def attack_released_models(
    prepared: PreparedRun, shadows: int = SHADOWS, *, spec: Spec | None = None, content: str | None = None,
    model: str | None = None,
) -> ReleasedModelAttack:  # fmt: skip
    """Fit shadow models on random halves of a run's private data, and test membership in each.

    Each private record (or unit) is in the data of each shadow with chance 1/2. Plan, sigma, settings, public data and
    the size that the learner is told are the run's, and the noise is fresh, so each shadow has the run's guarantee.

    Not covered by the guarantee: the returned counts of members found, and the mean accuracy, which have no noise.

    Args:
        prepared: the run.
        shadows: the number of fits, at least `FEWEST_SHADOWS`.
        spec: the spec of the result or model that the run repeats; by default the run's spec.
        content: digest of the result's evidence, if a result is attacked.
        model: SHA-256 of the model's file, if a model is attacked.

    Raises:
        SpecError: the run reads nothing private, each of its seeds is a private search, or there are too few shadows.
        DpbenchError: a fit is refused.
    """
    _check_attackable(prepared, shadows)
    begin = time.perf_counter()
    prepared = prepare_seed(prepared, prepared.spec.seeds[0])
    generator = _make_generator(prepared.identity)
    data = add_planted_outliers(prepared, generator)
    found = observe_shadow_models(prepared, data, shadows, generator)
    return ReleasedModelAttack(
        content=content, model=model, spec=spec or prepared.spec,
        settings=make_component_record(prepared.learner).options, privacy=prepared.privacy, shadows=shadows,
        population=found.population.shape[1], accuracy=found.accuracy,
        tests=tuple(_test_membership(found, data, prepared)), seconds=time.perf_counter() - begin,
        components=get_component_origins(prepared.parts),
        provenance={**prepared.loaded.provenance, "date": current_date()},
    )  # fmt: skip


def add_planted_outliers(prepared: PreparedRun, generator: np.random.Generator) -> ShadowData:
    """Append outliers to the private rows: random directions, ten times the longest row's length, random labels.

    Models are queried with outliers shortened to the longest private row; at full length, confidences would be 0 or 1.
    """
    private = prepared.roles.private
    x = private.x[private.index]
    longest = float(x.flatten(1).norm(dim=1).max())
    many = max(1, min(PLANTED, int(PLANTED_SHARE * private.count)))
    drawn = torch.from_numpy(generator.normal(size=(many, *private.example_shape))).float()
    length = drawn.flatten(1).norm(dim=1).view(-1, *[1] * len(private.example_shape))
    outliers = max(longest, 1.0) * drawn / length
    labels = torch.from_numpy(generator.integers(prepared.roles.task.classes, size=many))
    rows = torch.cat([x, OUTLIER_LENGTH * outliers])
    held = PrivateRows(rows, torch.cat([private.y, labels]), torch.arange(len(rows)), private.units)
    owner = np.arange(len(x)) if private.units is None else private.units.of
    return ShadowData(held, torch.cat([x, outliers]), np.concatenate([owner, private.count + np.arange(many)]), many)


def observe_shadow_models(
    prepared: PreparedRun, data: ShadowData, shadows: int, generator: np.random.Generator
) -> ShadowConfidences:
    """Fit shadow models, and observe each model's confidence in every record and in the population (test records).

    Raises:
        DpbenchError: a fit is refused.
    """
    test, labels = prepared.test.x, prepared.test.scorer.y
    chosen = np.sort(generator.permutation(len(labels))[:POPULATION])
    x = torch.cat([data.observed, test[torch.from_numpy(chosen)].float()])
    y = np.concatenate([data.rows.y.numpy(), labels[chosen]])
    member = generator.random((shadows, data.records)) < 0.5
    rows, accuracy = len(data.rows), []
    records, population = np.empty(member.shape), np.empty((shadows, len(chosen)))
    with show_progress_bar(f"Fitting shadows of {prepared.learner.name}", shadows) as advance:
        for shadow, scores in enumerate(_fit_shadow_models(prepared, data, member, x)):
            logits = confidence_logits(scores, y, logits=prepared.learner.logits)
            records[shadow], population[shadow] = data.average(logits[:rows]), logits[rows:]
            accuracy.append(float((scores[rows:].argmax(1) == y[rows:]).mean()))
            advance(1)
    return ShadowConfidences(member, records, population, float(np.mean(accuracy)))


def confidence_logits(scores: np.ndarray, labels: np.ndarray, *, logits: bool) -> np.ndarray:
    """Return log(p / (1 - p)), (n,), for the confidence p in each label; if scores are not logits, return margins."""
    from scipy.special import logsumexp

    rows = np.arange(len(labels))
    others = scores.copy()
    others[rows, labels] = -np.inf
    found: np.ndarray = scores[rows, labels] - (logsumexp(others, axis=1) if logits else others.max(1))
    return found


def _fit_shadow_models(prepared: PreparedRun, data: ShadowData, member: np.ndarray, x: Tensor) -> Iterator[np.ndarray]:
    """Fit a shadow on the records in each row of `member`, and yield its scores of `x`.

    Each shadow has fresh samples and noise. Initialisation is public, so all shadows share that of the run's first
    seed, and the random maps that a learner draws from it.
    """
    identity = canonical_digest(["shadows of", prepared.identity])
    for number, chosen in enumerate(member):
        given = prepared.make_fit_input(prepared.spec.seeds[0])
        fresh = Randomness.research(number, identity)
        fresh = dataclasses.replace(fresh, initialisation=given.randomness.initialisation)
        with limit_threads(prepared.loaded.threads):
            yield predict_isolated(fit_once(dataclasses.replace(given, rows=data.select(chosen), randomness=fresh)), x)


def _test_membership(
    observations: ShadowConfidences, data: ShadowData, prepared: PreparedRun
) -> Iterator[MembershipTest]:
    privacy = prepared.privacy
    bounds = {rate: true_positive_rate(privacy.releases, privacy.sigma, rate) for rate in FALSE_POSITIVE_RATES}
    first = data.records - data.planted
    parts: dict[Targets, slice] = {"average": slice(first), "planted": slice(first, None)}
    for targets, part in parts.items():
        records, member = observations.records[:, part], observations.member[:, part]
        yield count_true_positives_at_rates("lira", targets, lira_scores(records, member), member, bounds)
        yield count_true_positives_at_rates(
            "rmia", targets, rmia_scores(records, member, observations.population), member, bounds
        )


def _check_attackable(prepared: PreparedRun, shadows: int) -> None:
    name = prepared.learner.name
    if not prepared.privacy.plan:
        raise SpecError(
            f"Learner {name!r} asks nothing of the private data: its epsilon is 0, and there is nothing to attack."
        )
    if prepared.privacy.repeats:
        raise SpecError(
            f"Each seed of learner {name!r} is the best of a private search: its shadows would be searches too. Attack "
            "a run with one setting."
        )
    if shadows < FEWEST_SHADOWS:
        raise SpecError(f"Expected at least {FEWEST_SHADOWS} shadows, got {shadows}.")


def _make_generator(identity: str) -> np.random.Generator:
    """Return the generator that draws members and outliers; it is independent of the randomness of every fit."""
    digest = hashlib.sha256(f"released {identity}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16]))
