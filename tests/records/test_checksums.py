"""The digest of a result's evidence, and the seal of a record: no slip in a file stays unseen."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from dpbench.errors import DataError, MalformedFile
from dpbench.records.checksums import compute_seal, evidence_digest
from dpbench.records.result import Result
from tests.records.test_result import result


@pytest.fixture
def content() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result().with_evidence_digest().model_dump_json())
    return found


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value in JSON that holds no others."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [leaf for key, part in parts for leaf in leaves(part, (*path, key))] or [path]


def test_a_result_survives_json_whole(content: dict[str, Any]) -> None:
    assert content["evidence_digest"] == evidence_digest(content)
    assert Result.model_validate(content) == result().with_evidence_digest()


def test_every_value_but_status_and_digest_itself_is_evidence(content: dict[str, Any]) -> None:
    for path in leaves(content):
        changed: Any = copy.deepcopy(content)
        place = changed
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = "changed"
        outside = path in {("status",), ("evidence_digest",)}
        assert (evidence_digest(changed) == evidence_digest(content)) == outside, path


def test_a_file_that_was_changed_is_refused_in_one_sentence(content: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_text(json.dumps({**content, "seconds": {"fit": 0.2}}), encoding="utf-8")
    with pytest.raises(DataError) as raised:
        Result.read(file)
    assert str(raised.value) == (
        f"Result {file} does not fit the schema at evidence_digest: changed after the file was written."
    )


def test_a_field_that_was_added_or_dropped_is_refused(content: dict[str, Any]) -> None:
    for changed in ({**content, "seconds": {**content["seconds"], "tune": 1.0}}, {**content, "search": {}}):
        with pytest.raises(MalformedFile, match="evidence_digest"):
            Result.model_validate(changed)
    del content["provenance"]["commit"]
    with pytest.raises(MalformedFile, match="evidence_digest"):
        Result.model_validate(content)


def test_a_copy_with_other_evidence_computes_its_metrics_anew() -> None:
    whole = result()
    assert whole.metrics["accuracy"].mean == 0.6
    assert whole.model_copy(update={"seeds": whole.seeds[:1]}).metrics["accuracy"].mean == 0.7


def test_the_seal_of_a_record_covers_the_digest_of_what_it_saw() -> None:
    record = {"content": "a", "seed": 1}
    assert compute_seal({**record, "seal": "old"}) == compute_seal(record)
    assert compute_seal({**record, "content": "b"}) != compute_seal(record)
