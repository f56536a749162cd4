"""What research noise is derived from stays what it was when a committed result was made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dpbench.records.identity import compute_fit_identity
from dpbench.records.packed import read_record
from dpbench.records.result import Result

IDENTITIES = json.loads((Path(__file__).parent / "identities.json").read_text(encoding="utf-8"))
"""Of one committed result of most boards: its file, the networks of its extractor, and its identity as computed by the
code that made it (7c502a81)."""
RESULTS = Path(__file__).parents[2] / "leaderboard" / "results"


@pytest.mark.parametrize("board", IDENTITIES)
def test_the_noise_of_a_committed_result_stays_as_it_was(board: str) -> None:
    kept = IDENTITIES[board]
    result = Result.model_validate_json(read_record(RESULTS / board / kept["result"]))
    chosen = (result.search.chosen or {}) if result.search else {}
    options = {**result.spec.learner.options, **chosen, **result.settled}
    learner = result.spec.learner.model_copy(update={"options": options})
    search = result.spec.search if result.privacy.repeats else None
    spec = result.spec.model_copy(update={"learner": learner, "search": search})
    found = compute_fit_identity(spec, result.privacy.plan, result.task.digests, result.components, kept["networks"])
    assert found == kept["identity"]
