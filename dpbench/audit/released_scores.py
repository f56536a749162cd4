"""Membership tests of released models: LiRA and RMIA scores from shadow models' confidences, and true-positive rates.

Every shadow is the target once, and the others are its references (leave-one-out), so S fits give S targets. An
observation is the logit of a model's confidence in a record's own label, log(p / (1 - p)), which is close to normal
over fits.

================ ======================================================================================================
`lira_scores`    log-likelihood ratio of two normal distributions for each record, fitted to the reference models that
                 had the record and to those that had not (Carlini et al. 2022, 2112.03570, the online attack)
`rmia_scores`    share of a population whose likelihood ratio is smaller than the record's by a factor (Zarifzadeh, Liu
                 and Shokri 2024, 2312.03262, with references that had the record and references that had not)
`count_true_positives_at_rates`    true positives at fixed false-positive rates, over all pairs of a target and a record
================ ======================================================================================================

Array axes: S shadow models, r records, z records of the population.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dpbench.records.released import AttackName, MembershipTest, RocPoint, Targets

RMIA_FACTOR = 2.0  # gamma of the paper: how much larger the ratio of a record has to be
CONFIDENCE = 0.95  # of the intervals that are shown
FALSE_ALARM_RATE = 1e-4  # of each end of the two intervals that contradict a bound; pairs of one fit share its noise
LEAST_VARIANCE = 1e-12


def lira_scores(observations: np.ndarray, member: np.ndarray) -> np.ndarray:
    """Return the log-likelihood ratio of each observation (S, r); `member` (S, r): whether the shadow had the record.

    The two normal distributions of a record share one pooled variance: most of it is noise, which has the same
    variance with and without the record, and separate variances from few shadows each would be too imprecise.
    """
    inside, outside = _leave_one_out_statistics(observations, member), _leave_one_out_statistics(observations, ~member)
    count = len(observations) - 1 - 2
    squares = inside.squares + outside.squares
    variance = np.maximum(squares / count, LEAST_VARIANCE)
    ratio: np.ndarray = ((observations - outside.mean) ** 2 - (observations - inside.mean) ** 2) / (2 * variance)
    return ratio


def rmia_scores(observations: np.ndarray, member: np.ndarray, population: np.ndarray) -> np.ndarray:
    """Return for each observation (S, r) the share of the population (S, z) that its ratio beats by `RMIA_FACTOR`.

    A record's ratio is the target's probability of its label divided by the mean over references; references that had
    the record and references that had not weigh the same. No reference had a population record. Ratios break ties.
    """
    mine, theirs = np.exp(-np.logaddexp(0, -observations)), np.exp(-np.logaddexp(0, -population))  # probabilities
    inside, outside = _leave_one_out_statistics(mine, member), _leave_one_out_statistics(mine, ~member)
    own = 2 * mine / np.maximum(inside.mean + outside.mean, LEAST_VARIANCE)
    rest = (theirs.sum(0) - theirs) / (len(theirs) - 1)
    other = np.sort(theirs / np.maximum(rest, LEAST_VARIANCE), axis=1)
    beaten = [np.searchsorted(row, ratios / RMIA_FACTOR, "right") for row, ratios in zip(other, own, strict=True)]
    order = 1e-6 * own / (1 + own)  # of records that beat equally many
    scores: np.ndarray = np.stack(beaten) / population.shape[1] + order
    return scores


def count_true_positives_at_rates(
    attack: AttackName, targets: Targets, scores: np.ndarray, member: np.ndarray, bounds: Mapping[float, float]
) -> MembershipTest:
    """Count true positives over all pairs (S, r) at each false-positive rate in `bounds`, and compare with its bound.

    The threshold of a rate is the lowest at which the share of false positives does not exceed the rate.
    """
    inside, outside = np.sort(scores[member]), np.sort(scores[~member])
    below = np.searchsorted(outside, inside, "left") + np.searchsorted(outside, inside, "right")
    return MembershipTest(
        attack=attack, targets=targets, records=scores.shape[1], members=len(inside), others=len(outside),
        auc=float(below.sum() / 2 / len(inside) / len(outside)),
        rates=tuple(_count_roc_point(inside, outside, rate, bound) for rate, bound in bounds.items()),
    )  # fmt: skip


def _count_roc_point(member_scores: np.ndarray, other_scores: np.ndarray, rate: float, bound: float) -> RocPoint:
    """Count members and others above the threshold of `rate`; both arrays of scores are sorted."""
    threshold = other_scores[len(other_scores) - 1 - math.floor(rate * len(other_scores))]
    positives, false = (
        int(len(part) - np.searchsorted(part, threshold, "right")) for part in (member_scores, other_scores)
    )
    return make_roc_point(rate, positives, len(member_scores), false, len(other_scores), bound)


def make_roc_point(
    false_positive_rate: float, true_positives: int, members: int, false_positives: int, non_members: int, bound: float
) -> RocPoint:
    """Return a true-positive rate with its interval, and whether it exceeds the bound at this false-positive rate.

    It exceeds the bound if its lower limit (at `FALSE_ALARM_RATE`) is above bound * max(1, m / rate), where m is the
    upper limit of the false-positive rate, because a trade-off curve is concave and passes through 0.
    """
    low, high = clopper_pearson_interval(true_positives, members, 1 - CONFIDENCE)
    least, _ = clopper_pearson_interval(true_positives, members, 2 * FALSE_ALARM_RATE)
    _, most = clopper_pearson_interval(false_positives, non_members, 2 * FALSE_ALARM_RATE)
    exceeded = least > bound * max(1.0, most / false_positive_rate)
    return RocPoint(
        rate=false_positive_rate,
        positives=true_positives,
        false=false_positives,
        low=low,
        high=high,
        bound=bound,
        exceeded=exceeded,
    )


def clopper_pearson_interval(successes: int, trials: int, significance: float) -> tuple[float, float]:
    """Return the exact two-sided confidence interval of a share, for independent cases.

    >>> [round(end, 4) for end in clopper_pearson_interval(0, 10, 0.05)]
    [0.0, 0.3085]
    """
    from scipy.special import betaincinv

    low = float(betaincinv(successes, trials - successes + 1, significance / 2)) if successes else 0.0
    high = float(betaincinv(successes + 1, trials - successes, 1 - significance / 2)) if successes < trials else 1.0
    return low, high


@dataclass(frozen=True)
class _ReferenceStatistics:
    """Mean and sum of squared deviations, (S, r) each, of what reference models observe about each record.

    The references of a target are all other shadows that had the record, or all that had not.
    """

    mean: np.ndarray
    squares: np.ndarray


def _leave_one_out_statistics(observations: np.ndarray, chosen: np.ndarray) -> _ReferenceStatistics:
    """Return, for each shadow as the target, the statistics of the chosen observations by all other shadows."""
    centre = observations.mean(0)  # before squares are subtracted from each other
    values = (observations - centre) * chosen
    count = np.maximum(chosen.sum(0) - chosen, 1)
    mean = (values.sum(0) - values) / count
    squares = (values**2).sum(0) - values**2 - count * mean**2
    return _ReferenceStatistics(centre + mean, np.maximum(squares, 0.0))
