"""The verdict on re-run seeds: the same predictions, the same within a tolerance, or different.

On another processor, single predictions change from right to wrong or from wrong to right. So a minimum share of
the test examples must be right in both runs or wrong in both, and changes must not favour the result more often than
chance explains. In that test an example counts once, however many seeds it changed in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dpbench.analysis.paired import decode_bits
from dpbench.records.group_counts import bound_differing_predictions
from dpbench.records.metrics import METRICS
from dpbench.records.rerun import Outcome, Rerun, SeedRerun
from dpbench.records.result import Result, SeedResult
from dpbench.records.tolerance import RELATIVE_TOLERANCE, is_close

MIN_AGREEMENT = 0.98  # share of test examples that must be right or wrong alike
ENGINE_AGREEMENT = 0.995  # the same if only the engine of the features differs; see `find_min_agreement`
MAX_ACCURACY_DIFFERENCE = 0.01  # what accuracy may differ by
MAX_SCORE_DIFFERENCE = 0.05  # what the other scores may
MAX_LUCK = 3.3  # standard deviations by which examples may tip in favour of a result: once in 2,000 times
NON_ACCURACY_METRICS = METRICS[1:]  # beside accuracy
PROBABILITY_METRICS = {"auroc", "ece", "nll", "brier"}  # rest on scores, which predictions do not fix


def judge_seeds(record: Rerun, result: Result) -> Rerun:
    """Return the record with the outcome of each seed, computed from the seed's numbers and those of the result."""
    least = find_min_agreement(result, record.provenance)
    seeds = tuple(seed.model_copy(update={"outcome": _judge_seed(seed, result, least)}) for seed in record.seeds)
    if result.privacy.rng == "research" and _is_result_too_lucky(seeds, result):
        seeds = tuple(
            seed if seed.outcome == "same predictions" else seed.model_copy(update={"outcome": "differs"})
            for seed in seeds
        )
    return record.model_copy(update={"seeds": seeds})


def is_reproduced(record: Rerun, result: Result) -> bool:
    """Return whether all seeds were re-run by the same code and agree, with no false claim; False for secure noise."""
    seeds, code = {seed.seed for seed in record.seeds}, [claim for claim in record.claims if claim.is_about_code]
    known = all(seed.correct is not None or seed.outcome == "same predictions" for seed in record.seeds)
    whole = seeds == {*result.spec.seeds} and known
    same = bool(code) and all(check.verdict == "same" for check in code)
    return record.agrees and whole and same and result.privacy.rng == "research"


def compute_agreement(stated: SeedResult, correct: str | None, result: Result) -> float | None:
    """Return the share of test examples that are right in both runs or wrong in both.

    Returns None if the noise is secure, so that runs differ, or if `correct` is None.
    """
    if result.privacy.rng == "secure" or correct is None:
        return None
    return float(np.mean(decode_bits(stated.correct, result.task.test) == decode_bits(correct, result.task.test)))


def find_min_agreement(result: Result, provenance: Mapping[str, Any]) -> float:
    """Return the share of test examples that must be right in both runs or wrong in both.

    If processor and torch are the same and another engine computed the features, the features differ by less than 1e-4
    standard deviations. This difference changed none of 44,304 predictions (71 fits on five boards of chest X-rays), so
    the tolerance is smaller than for another processor: three of 624 test images.
    """
    machines = [
        (made.get("processor"), _read_provenance_table(made, "packages").get("torch"))
        for made in (result.provenance, provenance)
    ]
    other_engine = find_engines(result.provenance) != find_engines(provenance)
    return ENGINE_AGREEMENT if machines[0] == machines[1] and other_engine else MIN_AGREEMENT


def find_engines(provenance: Mapping[str, Any]) -> str:
    """Return the libraries that computed features; torch if the provenance names none, as before version 0.3.

    >>> find_engines({"engines": {"train": "onnxruntime 1.32.0", "test": "torch 2.15.0"}})
    'onnxruntime and torch'
    """
    names = {str(engine).partition(" ")[0] for engine in _read_provenance_table(provenance, "engines").values()}
    return " and ".join(sorted(names)) or "torch"


def _read_provenance_table(provenance: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a table of a provenance; an empty table if it is missing or malformed."""
    found = provenance.get(name)
    return found if isinstance(found, dict) else {}


def describe_tolerance(result: Result, provenance: Mapping[str, Any]) -> str:
    """Describe in words the tolerance of a result's re-run, given the provenance of the re-run."""
    if result.privacy.rng == "secure":
        return (
            f"accuracy within {_prediction_interval_half_width(result):.4g} of the mean: "
            "all new seeds fall there 99 times in 100"
        )
    there, here = find_engines(result.provenance), find_engines(provenance)
    return (
        f"{f'features by {here}, not {there}: ' if here != there else ''}"
        f"{100 * find_min_agreement(result, provenance):.4g}% of test examples right or wrong alike, accuracy within "
        f"{MAX_ACCURACY_DIFFERENCE}, other scores within {MAX_SCORE_DIFFERENCE}; examples do not tip in favour of the "
        f"result by more than {MAX_LUCK} deviations"
    )


def _judge_seed(rerun: SeedRerun, result: Result, min_agreement: float) -> Outcome:
    if result.privacy.rng == "secure":
        mean = math.fsum(seed.accuracy for seed in result.seeds) / len(result.seeds)
        return (
            "same within tolerance"
            if abs(rerun.accuracy - mean) <= _prediction_interval_half_width(result)
            else "differs"
        )
    stated = next(seed for seed in result.seeds if seed.seed == rerun.seed)
    if not _follows_from_correct_answers(rerun, stated, result) or not _group_counts_agree(rerun, stated, result):
        return "differs"
    if rerun.predictions == stated.predictions:  # then all that is counted from them is the same too
        same = rerun.agreement == 1.0 and is_close(rerun.accuracy, stated.accuracy)
        return "same predictions" if same and _scores_agree(rerun, stated, RELATIVE_TOLERANCE) else "differs"
    near = (rerun.agreement or 0.0) >= min_agreement and abs(
        rerun.accuracy - stated.accuracy
    ) <= MAX_ACCURACY_DIFFERENCE
    return "same within tolerance" if near and _scores_agree(rerun, stated, MAX_SCORE_DIFFERENCE) else "differs"


def _follows_from_correct_answers(rerun: SeedRerun, stated: SeedResult, result: Result) -> bool:
    """Return whether a re-run seed's accuracy and agreement follow from its record of which predictions are correct.

    Returns True if that record was not kept, and False if it cannot be decoded.
    """
    if rerun.correct is None:
        return True
    try:
        hits = float(np.mean(decode_bits(rerun.correct, result.task.test)))
        agreement = compute_agreement(stated, rerun.correct, result)
    except ValueError:
        return False
    return is_close(rerun.accuracy, hits) and is_close(rerun.agreement, agreement)


def _group_counts_agree(rerun: SeedRerun, stated: SeedResult, result: Result) -> bool:
    """Return whether correct predictions by group differ by at most the number of predictions that changed.

    A prediction changed if it is correct in one run only. Returns True if the result has no groups, or the re-run seed
    has no record of which predictions are correct.
    """
    if stated.group_correct is None or rerun.correct is None:
        return True
    tipped = decode_bits(stated.correct, result.task.test) != decode_bits(rerun.correct, result.task.test)
    return bound_differing_predictions(stated.group_correct, rerun.group_correct or {}) <= int(tipped.sum())


def _is_result_too_lucky(seeds: tuple[SeedRerun, ...], result: Result) -> bool:
    """Return whether changes over all seeds favour the result more often than chance explains."""
    stated, test = {seed.seed: seed for seed in result.seeds}, result.task.test
    gains = np.zeros(test)  # (n,) how many seeds of the result have an example right, less those of the re-run
    for seed in seeds:
        if seed.correct is not None and seed.outcome != "differs":
            gains += decode_bits(stated[seed.seed].correct, test).astype(int) - decode_bits(seed.correct, test)
    return bool(gains.sum() > MAX_LUCK * math.sqrt(float((gains**2).sum())))


def list_compared_scores(stated: SeedResult) -> list[str]:
    """Return the names of the scores besides accuracy that a re-run compares: AUROC, and every score of the seed."""
    return [name for name in NON_ACCURACY_METRICS if name == "auroc" or stated.metrics[name] is not None]


def _scores_agree(rerun: SeedRerun, stated: SeedResult, max_difference: float) -> bool:
    """Return whether all scores besides accuracy agree within a limit; a score that only one run has does not agree.

    The limit is `max_difference`, or `MAX_SCORE_DIFFERENCE` for a score that is computed from probabilities. For a
    score above 1, such as log loss, the limit is relative.
    """
    for name in list_compared_scores(stated):
        here, there = rerun.scores.get(name), stated.metrics[name]
        bound = MAX_SCORE_DIFFERENCE if name in PROBABILITY_METRICS else max_difference
        if here is None or there is None:
            if here is not there:
                return False
        elif abs(here - there) > bound * max(1.0, there):
            return False
    return True


def _prediction_interval_half_width(result: Result) -> float:
    """Return half the 99% prediction interval for the accuracies of all re-run seeds, plus one test example."""
    from scipy.stats import t

    accuracies, test = [seed.accuracy for seed in result.seeds], result.task.test
    seeds, mean = len(accuracies), math.fsum(accuracies) / len(accuracies)
    if seeds == 1:  # nothing is known of the noise but that of as many coins
        return 1 / test + 2.58 * math.sqrt(2 * mean * (1 - mean) / test)
    deviation = float(np.std(accuracies, ddof=1))
    return 1 / test + float(t.ppf(1 - 0.005 / seeds, seeds - 1)) * deviation * math.sqrt(1 + 1 / seeds)
