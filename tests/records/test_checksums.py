"""The seal of a result: every slip in a file is named."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from dpbench.records.checksums import broken_fields
from dpbench.records.result import Result
from tests.records.test_result import result


@pytest.fixture
def content() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result().seal_result().model_dump_json())
    return found


def test_a_sealed_result_survives_json_whole(content: dict[str, Any]) -> None:
    assert broken_fields(content) == []
    assert broken_fields(json.loads(Result.model_validate(content).model_dump_json())) == []


@pytest.mark.parametrize(
    ("path", "field"),
    [
        (("privacy", "sigma"), "privacy.sigma"),
        (("privacy", "epsilon"), "privacy.epsilon"),
        (("components", "learner", "version"), "components.learner"),
        (("seeds", 1, "accuracy"), "seeds.1"),
        (("metrics", "accuracy", "mean"), "metrics.accuracy"),
        (("digest",), "digest"),
        (("task", "licence"), "task.licence"),
    ],
)
def test_a_changed_value_is_named_and_nothing_else(
    content: dict[str, Any], path: tuple[str | int, ...], field: str
) -> None:
    changed: Any = copy.deepcopy(content)
    place = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = "changed"
    assert broken_fields(changed) == [field]


def test_a_field_that_was_added_or_dropped_is_named(content: dict[str, Any]) -> None:
    more = {**content, "seconds": {**content["seconds"], "tune": 1.0}}
    assert broken_fields(more) == ["seconds", "seconds.tune"]
    assert broken_fields({**content, "seeds": content["seeds"][:1]}) == ["seeds", "seeds.1"]


def test_the_status_is_the_boards_to_change(content: dict[str, Any]) -> None:
    assert broken_fields({**content, "status": "verified"}) == []


def test_a_result_without_a_seal_is_broken_everywhere(content: dict[str, Any]) -> None:
    assert "privacy.sigma" in broken_fields({**content, "seal": {}})
