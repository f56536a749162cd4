"""A seed of a result run again, and what came out beside what is stated.

Plan and sigma are those of the result, so that another version of an accountant changes nothing; settings that a search
chose, or that followed from the budget, are taken from its record instead of being chosen again. Research randomness
repeats to the last bit on the same libraries and processor. Elsewhere features, public statistics and scores are
rounded otherwise, which may tip single examples: a stated share of test examples must be right or wrong alike. Secure
randomness cannot be repeated: there the new accuracy must lie within the noise of the stated seeds.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from dpbench.analysis.paired import correct_bits
from dpbench.board.folder import ResultFile, content_of, validate_content
from dpbench.errors import Complaint, DataMissing, MalformedFile, NotReproducible, SpecError
from dpbench.harness.rerun import prepare_rerun
from dpbench.records.metrics import METRICS
from dpbench.records.provenance import current_day
from dpbench.records.result import Result, SeedResult
from dpbench.records.tolerance import CLOSE, close
from dpbench.registry import Registry
from dpbench.support.files import canonical_digest, write_json

AGREEMENT = 0.98  # share of test examples that must be right or wrong alike
DIFFERENCE = 0.01  # what accuracy may differ by
OTHERS = 0.05  # what the other scores may
SCORES = METRICS[1:]  # beside accuracy

Outcome = Literal["same predictions", "same within tolerance", "differs"]


class Rerun(BaseModel):
    """What came out when a seed was run again."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    digest: str  # of the result's spec
    content: str  # digest of the result's seal: a result that changed was not run again
    seed: int
    outcome: Outcome
    accuracy: float
    predictions: str
    agreement: float | None  # share of test examples right or wrong alike; None where noise cannot be repeated
    scores: dict[str, float | None]  # the other scores
    tolerance: str
    provenance: dict[str, Any]

    @property
    def agrees(self) -> bool:
        """Whether the result was reproduced."""
        return self.outcome != "differs"


def record_of(stored: ResultFile, root: Path) -> Path:
    """Return the file of a result's record."""
    return root / "reruns" / stored.path.parent.name / stored.path.name


def find_record(stored: ResultFile, result: Result, root: Path) -> Rerun | None:
    """Return the record of a result as it is now, if there is one.

    Raises:
        MalformedFile: the record cannot be read.
    """
    file = record_of(stored, root)
    if not os.path.lexists(file):
        return None
    record = validate_content(Rerun, content_of(file))
    return record if (record.digest, record.content) == (result.digest, _content(result)) else None


def check_records(stored: ResultFile, result: Result, root: Path) -> list[Complaint]:
    """Return what is wrong with the record of a result: unreadable, or it says that the result was not reproduced."""
    file = record_of(stored, root)
    name = file.relative_to(root).as_posix()
    try:
        record = find_record(stored, result, root)
    except MalformedFile as error:
        return [Complaint(name, error.field, error.said)]
    if record is None:
        return []
    if record.seed not in result.spec.seeds or record.outcome != _outcome(record, result):
        return [Complaint(name, "outcome", "it does not follow from the numbers beside it: run the seed again")]
    if record.agrees or result.status in {"disputed", "withdrawn"}:
        return []
    return [Complaint(name, "outcome", f"seed {record.seed} was not reproduced: dispute the result, or run it again")]


def rerun(result: Result, seed: int | None, plugins: Registry, device: str = "auto") -> Rerun:
    """Run one seed again and compare: the last unless another is named.

    What a learner kept from earlier fits of its process shows in the last seed, which runs here on its own.

    Raises:
        NotReproducible: the data, a plugin or its version is not on this machine.
        DpbenchError: the run fails here, or its plan or data are not those of the result.
    """
    from dpbench.harness.fit import fit

    stated = _stated(result, seed)
    prepared = prepare_rerun(result, stated.seed, plugins, device)
    try:
        again = fit(prepared, stated.seed)
    except DataMissing as error:
        raise NotReproducible(str(error)) from error
    except ImportError as error:
        raise NotReproducible(f"A package is missing: {error}.") from error
    made = prepared.provenance
    return _compared(result, stated, again, {**made, "date": current_day()})


def keep(record: Rerun, stored: ResultFile, root: Path) -> Path:
    """Write a record into the leaderboard and return the file.

    Raises:
        OutputError: it cannot be written.
    """
    file = record_of(stored, root)
    write_json(file, record.model_dump(mode="json"))
    return file


def _stated(result: Result, seed: int | None) -> SeedResult:
    for one in reversed(result.seeds):
        if seed is None or one.seed == seed:
            return one
    raise SpecError(f"Expected a seed of {result.file_name}, {', '.join(map(str, result.spec.seeds))}, got {seed}.")


def _compared(result: Result, stated: SeedResult, found: SeedResult, provenance: dict[str, Any]) -> Rerun:
    agreement = None
    if result.privacy.rng == "research":
        bits = [correct_bits(one, result.task.test) for one in (stated, found)]
        agreement = float(np.mean(bits[0] == bits[1]))
    record = Rerun(
        digest=result.digest, content=_content(result), seed=stated.seed, outcome="differs", accuracy=found.accuracy,
        predictions=found.predictions, agreement=agreement, scores={name: getattr(found, name) for name in SCORES},
        tolerance=_tolerance(result)[0], provenance=provenance,
    )  # fmt: skip
    return record.model_copy(update={"outcome": _outcome(record, result)})


def _outcome(record: Rerun, result: Result) -> Outcome:
    """Return what follows from the numbers of a record beside those of its result."""
    stated, (_, most) = _stated(result, record.seed), _tolerance(result)
    if result.privacy.rng == "secure":
        mean = math.fsum(seed.accuracy for seed in result.seeds) / len(result.seeds)
        return "same within tolerance" if abs(record.accuracy - mean) <= most else "differs"
    if record.predictions == stated.predictions:  # then all that is counted from them is the same too
        same = record.agreement == 1.0 and close(record.accuracy, stated.accuracy)
        same = same and _scores_within(record, stated, CLOSE)
        return "same predictions" if same else "differs"
    near = (record.agreement or 0.0) >= AGREEMENT and abs(record.accuracy - stated.accuracy) <= most
    return "same within tolerance" if near and _scores_within(record, stated, OTHERS) else "differs"


def _scores_within(record: Rerun, stated: SeedResult, most: float) -> bool:
    """Return whether the other scores differ by no more; AUROC rests on scores that predictions do not fix."""
    for name in SCORES:
        found, other = record.scores.get(name), getattr(stated, name)
        bound = OTHERS if name == "auroc" else most
        if (found is None) != (other is None) or (found is not None and abs(found - other) > bound):
            return False
    return True


def _tolerance(result: Result) -> tuple[str, float]:
    """Return the tolerance in words, and what of it accuracy may differ by."""
    if result.privacy.rng == "research":
        words = f"{AGREEMENT:.0%} of test examples right or wrong alike, accuracy within {DIFFERENCE}, other scores "
        words += f"within {OTHERS}"
        return words, DIFFERENCE
    most = _noise([seed.accuracy for seed in result.seeds], result.task.test)
    return f"accuracy within {most:.4g} of the mean: a new seed falls there 99 times in 100", most


def _noise(accuracies: list[float], test: int) -> float:
    """Return how far from the mean of these one more accuracy falls once in a hundred times, at least one example."""
    from scipy.stats import t

    seeds, mean = len(accuracies), math.fsum(accuracies) / len(accuracies)
    if seeds == 1:  # nothing is known of the noise but that of as many coins
        return 1 / test + 2.58 * math.sqrt(2 * mean * (1 - mean) / test)
    deviation = float(np.std(accuracies, ddof=1))
    return 1 / test + float(t.ppf(0.995, seeds - 1)) * deviation * math.sqrt(1 + 1 / seeds)


def _content(result: Result) -> str:
    return canonical_digest(result.seal)
