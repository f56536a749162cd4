"""Records that earlier versions wrote are read whole: one of each form that there ever was, and made-up results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from dpbench.errors import DataError, MalformedFile
from dpbench.models.card import Card
from dpbench.records import storage
from dpbench.records.audit import Audit
from dpbench.records.checksums import evidence_digest
from dpbench.records.journal import RunJournal
from dpbench.records.metrics import BIN_COUNT
from dpbench.records.rerun import Rerun
from dpbench.records.result import Result, SeedResult
from dpbench.records.schema1 import find_changed_value, upgrade_to_current_schema
from dpbench.records.stated_plan import LATER_LIMITS, list_guarantee_limits
from dpbench.records.tuning import Tuning
from dpbench.support.files import canonical_digest
from tests.helpers.old_results import COUNTED, SCORES, old_form, resealed
from tests.records.test_result import result

FOLDER = Path(__file__).parent / "old_records"
KINDS: dict[str, type[BaseModel]] = {"result": Result, "rerun": Rerun, "audit": Audit}
FILES = sorted(file.stem for file in FOLDER.glob("*.json"))
RESULTS = [name for name in FILES if name.startswith("result")]


def old(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_bytes())


def missing(kept: Any, read: Any, place: str = "") -> list[str]:
    """Return where what was read lacks what is kept, or says something else."""
    if isinstance(kept, dict) and isinstance(read, dict):
        return [lost for key, value in kept.items() for lost in missing(value, read.get(key), f"{place}.{key}")]
    if isinstance(kept, list) and isinstance(read, list) and len(kept) == len(read):
        return [lost for number, value in enumerate(kept) for lost in missing(value, read[number], f"{place}.{number}")]
    return [] if kept == read else [place]


@pytest.mark.parametrize("name", [name for name in FILES if not name.startswith("result")])
def test_a_record_of_each_old_form_is_read_whole(name: str) -> None:
    content = old(name)
    record = storage.read_validated_record(KINDS[name.partition("-")[0]], FOLDER / f"{name}.json")
    if name == "rerun-1":  # of one seed, whose fields stood beside the others
        (seed,) = record.model_dump()["seeds"]
        assert missing({key: content[key] for key in ("seed", "outcome", "accuracy", "predictions")}, seed) == []
        assert seed["correct"] is None
    else:
        assert missing(content, json.loads(record.model_dump_json())) == []


@pytest.mark.parametrize("name", RESULTS)
def test_an_old_result_has_its_numbers_to_the_last_digit(name: str) -> None:
    content, read = old(name), Result.read(FOLDER / f"{name}.json")
    assert {metric: interval.model_dump() for metric, interval in read.metrics.items()} == content["metrics"]
    for before, seed in zip(content["seeds"], read.seeds, strict=True):
        assert {metric: before.get(metric) for metric in seed.metrics} == seed.metrics
        assert list(seed.class_accuracy) == before["class_accuracy"]
        assert (seed.stated is None) == ("confusion" in before)
    assert [limit for limit in read.not_covered if limit not in LATER_LIMITS] == content["privacy"]["not_covered"]
    assert read.digest == content["digest"]
    assert find_changed_value(content, read) is None


@pytest.mark.parametrize("name", RESULTS)
def test_an_old_result_keeps_all_that_is_no_conclusion(name: str) -> None:
    content, read = old(name), json.loads(Result.read(FOLDER / f"{name}.json").model_dump_json())
    for gone in ("schema_version", "digest", "metrics", "seal"):
        del content[gone]
    del content["privacy"]["not_covered"]
    for before in content["seeds"]:
        for gone in (*SCORES, "class_accuracy", *COUNTED):
            before.pop(gone, None)
    assert missing(content, read) == []


@pytest.mark.parametrize("name", RESULTS)
def test_audits_and_reruns_find_an_old_result_by_the_digest_of_its_seal(name: str) -> None:
    read = Result.read(FOLDER / f"{name}.json")
    assert read.converted_from == canonical_digest(old(name)["seal"])
    written = json.loads(read.model_dump_json())
    assert written["evidence_digest"] == evidence_digest(written)
    assert upgrade_to_current_schema(written, Result) is written


def without(content: dict[str, Any], path: str) -> dict[str, Any]:
    """Return JSON without one field, sealed anew."""
    copy = json.loads(json.dumps(content))
    *steps, last = path.split(".")
    place: Any = copy
    for step in steps:
        place = place[int(step)] if isinstance(place, list) else place[step]
    del place[last]
    return resealed(copy)


@pytest.mark.parametrize(
    "field",
    ["spec", "task", "privacy", "seeds", "metrics", "digest", "task.test", "privacy.sigma", "seeds.0.accuracy",
     "seeds.1.class_accuracy", "seeds.0.correct", "components"],
)  # fmt: skip
def test_an_old_result_with_a_field_missing_is_refused_in_one_sentence(field: str, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_text(json.dumps(without(old_form(result()), field)), encoding="utf-8")
    with pytest.raises(DataError) as raised:
        Result.read(file)
    assert str(raised.value) == f"Result {file} does not fit the schema at {field}: field required."


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seconds": {"fit": 9.0}}, "seconds.fit: changed after the file was written: its seal does not fit"),
        ({"seconds": {"fit": 9.0}, "settled": {"k": 1}}, "its seal does not fit, as were 2 others"),
        ({"seal": "0" * 64}, "its seal does not fit"),
    ],
)
def test_an_old_result_that_was_changed_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(MalformedFile) as raised:
        upgrade_to_current_schema({**old_form(result()), **change}, Result)
    assert said in str(raised.value)


def test_the_status_of_an_old_result_is_the_boards_to_change() -> None:
    assert (
        Result.model_validate(upgrade_to_current_schema({**old_form(result()), "status": "disputed"}, Result)).status
        == "disputed"
    )


@pytest.mark.parametrize("version", [3, 17, "2", None])
def test_a_result_of_a_later_schema_is_refused_in_one_sentence(version: Any, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    content = json.loads(result().with_evidence_digest().model_dump_json())
    file.write_text(json.dumps({**content, "schema_version": version}), encoding="utf-8")
    with pytest.raises(DataError) as raised:
        Result.read(file)
    assert str(raised.value) == (
        f"Result {file} does not fit the schema at schema_version: expected 1 or 2, got {version!r}. Update dpbench."
    )


counts = st.integers(0, 60)


@st.composite
def seeds(draw: st.DrawFn, number: int, classes: int) -> SeedResult:
    """Return a seed that has any confusion matrix, and maybe bins, or states any scores."""
    seed = {"seed": number, "correct": "", "predictions": "", "spent": {"gradient": 3}, "auroc": None}
    if draw(st.booleans()):
        matrix = [[draw(counts) for _ in range(classes)] for _ in range(classes)]
        matrix[0][0] += 1
        share = st.floats(0, 100, allow_nan=False)
        calibration = {
            "count": [draw(counts) for _ in range(BIN_COUNT)], "right": [draw(counts) for _ in range(BIN_COUNT)],
            "confidence": [draw(share) for _ in range(BIN_COUNT)], "log_loss": draw(share), "brier": draw(share),
        }  # fmt: skip
        kept = {"calibration": calibration} if draw(st.booleans()) else {}
        return SeedResult.model_validate({**seed, **kept, "confusion": [" ".join(map(str, row)) for row in matrix]})
    scores = {name: draw(st.floats(0, 1)) for name in SCORES}
    by_class = [draw(st.none() | st.floats(0, 1)) for _ in range(classes)]
    return SeedResult.model_validate({**seed, "stated": {**scores, "class_accuracy": by_class}})


@given(st.data(), st.integers(2, 4))
def test_what_an_upgrade_counts_is_what_the_file_had_to_the_last_bit(data: st.DataObject, classes: int) -> None:
    drawn = tuple(data.draw(seeds(number, classes)) for number in range(3))
    task = result().task.model_copy(update={"classes": tuple("abcd"[:classes])})
    before = result().model_copy(update={"seeds": drawn, "task": task})
    content = old_form(before)
    read = Result.model_validate(upgrade_to_current_schema(content, Result))
    assert find_changed_value(content, read) is None
    assert read.metrics == before.metrics
    assert (read.seeds, read.class_accuracies, read.remarks) == (drawn, before.class_accuracies, before.remarks)


@pytest.mark.parametrize("field", ["metrics.accuracy.mean", "seeds.1.macro_f1", "seeds.0.class_accuracy.0"])
def test_a_number_that_would_change_is_named(field: str) -> None:
    content = old_form(result())
    read = Result.model_validate(upgrade_to_current_schema(content, Result))
    *steps, last = [int(step) if step.isdigit() else step for step in field.split(".")]
    place: Any = content
    for step in steps:
        place = place[step]
    place[last] += 2**-52
    loss = find_changed_value(content, read)
    assert loss is not None and field.startswith(loss)


def test_a_journal_of_an_earlier_version_is_taken_up(tmp_path: Path) -> None:
    (before, after) = result().seeds
    (line,) = old_form(result().model_copy(update={"seeds": (before,)}))["seeds"]
    journal = RunJournal(tmp_path / "run.jsonl", "code")
    journal.file.write_text(json.dumps({"identity": "code", "seed": line}) + "\n", encoding="utf-8")
    journal.keep(after)
    assert journal.seeds() == {0: before, 1: after}


def test_a_card_of_an_earlier_version_says_what_it_said() -> None:
    privacy = result().privacy
    stated = list_guarantee_limits(privacy, 1_234)
    content = {"schema_version": 1, "privacy": {**json.loads(privacy.model_dump_json()), "not_covered": list(stated)}}
    made = upgrade_to_current_schema(content, Card)
    assert (made["schema_version"], made["left_out"], made["private_size"]) == (2, 1_234, None)
    assert "not_covered" not in made["privacy"]


def test_a_tuning_of_an_earlier_version_has_what_nobody_looked_up_as_none() -> None:
    assert upgrade_to_current_schema({"digest": "a"}, Tuning) == {"digest": "a", "default": None, "looks": None}


@pytest.mark.parametrize("content", [None, 3, [], "text", {}, {"seeds": 1}, {"schema_version": 1, "seeds": [1]}])
@pytest.mark.parametrize("kind", [Result, SeedResult, Rerun, Audit, Tuning, Card])
def test_what_no_version_wrote_is_refused_and_never_a_traceback(content: Any, kind: type[BaseModel]) -> None:
    with pytest.raises(DataError):
        storage.validate_record(kind, content, "somewhere")
