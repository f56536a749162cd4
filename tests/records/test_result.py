"""Results: whole files only, what survives JSON, what is refused, and the interval over seeds."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path
from typing import IO, Any

import pytest
from scipy import stats

from dpbench.api import Release
from dpbench.cli import main
from dpbench.errors import DataError, OutputError
from dpbench.privacy import MECHANISM
from dpbench.privacy.core.accounting.crosscheck import EpsilonInterval
from dpbench.records.metrics import METRIC_FACTS, METRICS, TITLES, StatedScores
from dpbench.records.result import ComponentOrigin, Result, SeedResult, TaskFacts, mean_interval, summarise_metrics
from dpbench.records.spec import make_spec
from dpbench.records.stated_plan import PrivacyGuarantee, make_plan_records
from dpbench.support.files import check_writable_folder, write_atomically


def seed_result(seed: int, accuracy: float, auroc: float | None = None) -> SeedResult:
    scores = StatedScores(
        accuracy=accuracy, balanced_accuracy=0.1 + 0.2, worst_class_accuracy=1 / 3, macro_f1=0.5,
        class_accuracy=(0.25, None),
    )  # fmt: skip
    return SeedResult(seed=seed, stated=scores, auroc=auroc, correct="", predictions="", spent={"gradient": 3})


def result(epsilon: float = 1.0) -> Result:
    spec = make_spec({"learner": "pillar:k=3", "epsilon": epsilon}, "the test")
    sigma = 0.0 if math.isinf(epsilon) else 7.5
    privacy = PrivacyGuarantee(
        epsilon=epsilon, delta=1e-5, accountant="pld", adjacency="add-or-remove-one", sigma=sigma,
        plan=make_plan_records([Release("gradient", steps=3, sample_rate=0.5)], sigma),
        independent=EpsilonInterval.exact("none", epsilon), rng="research",
        mechanism=MECHANISM,
    )  # fmt: skip
    seeds = (seed_result(0, 0.7), seed_result(1, 0.5))
    return Result(
        spec=spec, selection="by-hand", privacy=privacy, copies_epsilon=None, seeds=seeds,
        task=TaskFacts(
            example_shape=(64,), classes=("a", "b"), private=90, public=10, test=20, public_labels_seen=False,
            digests={"private": "d"}, licence="CC0", overlap={}, largest=0.5, sketch="",
            looks=None, copies=None, processing=None,
        ),
        seconds={"fit": 0.1}, cpu_seconds={}, settled={}, peak_bytes={"fit": 1}, provenance={"commit": None},
        components={"learner": ComponentOrigin(plugin="pillar", distribution="tiny", version="1.0")},
    )  # fmt: skip


def test_every_metric_has_a_title_and_all_but_auroc_are_counted() -> None:
    assert {*METRICS} == {*TITLES}
    assert [name for name in METRICS if METRIC_FACTS[name].compute is None] == ["auroc"]


def edited(file: Path, change: dict[str, Any]) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))


def test_a_result_on_data_as_published_has_no_word_for_its_edition() -> None:
    assert "editions" not in json.loads(result().model_dump_json())["task"]
    assert result().task.edition_names == ()


@pytest.mark.parametrize("epsilon", [1.0, 0.1 + 0.2, math.inf])
def test_a_result_survives_json(tmp_path: Path, epsilon: float) -> None:
    assert Result.read(result(epsilon).write(tmp_path)) == result(epsilon)


def test_pickle_keeps_a_result_without_its_cached_properties() -> None:
    read = result()
    assert read.metrics and "metrics" in vars(read)
    again = pickle.loads(pickle.dumps(read))
    assert again == read and "metrics" not in vars(again)


def test_the_digest_of_the_spec_survives_json(tmp_path: Path) -> None:
    read = Result.read(result(math.inf).write(tmp_path))
    assert read.spec.digest == read.digest


def test_a_result_of_infinite_epsilon_is_standard_json(tmp_path: Path) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    json.loads(result(math.inf).write(tmp_path).read_text(), parse_constant=refuse)


def test_the_file_and_the_printed_result_are_the_same_json(tmp_path: Path) -> None:
    printed = json.loads(result(math.inf).model_dump_json())
    assert json.loads(result(math.inf).write(tmp_path).read_text()) == printed


def test_a_file_is_named_by_learner_dataset_and_digest(tmp_path: Path) -> None:
    assert result().write(tmp_path).name == f"pillar-digits-eps1-{result().digest[:8]}.json"


def test_a_result_goes_into_a_folder_that_is_made_for_it(tmp_path: Path) -> None:
    assert result().write(tmp_path / "a" / "b").is_file()


def test_nothing_but_the_result_is_left_in_the_folder(tmp_path: Path) -> None:
    check_writable_folder(tmp_path)
    file = result().write(tmp_path)
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt(), RuntimeError("no")])
def test_a_failing_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, error: BaseException) -> None:
    def half(file: IO[bytes]) -> None:
        file.write(b"half")
        raise error

    old = tmp_path / "result.json"
    old.write_bytes(b"old")
    with pytest.raises((type(error), OutputError)):
        write_atomically(old, half)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("result.json", b"old")]


def test_a_reader_never_sees_a_part(tmp_path: Path) -> None:
    place = tmp_path / "result.json"
    place.write_bytes(b"old")

    def write(file: IO[bytes]) -> None:
        file.write(b"n")
        file.flush()
        assert place.read_bytes() == b"old"
        file.write(b"ew")

    write_atomically(place, write)
    assert place.read_bytes() == b"new"


def test_a_folder_that_cannot_be_written_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"Cannot write .*file/results.*Choose a writable folder"):
        result().write(tmp_path / "file" / "results")


def test_a_confusion_matrix_of_another_number_of_classes_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = result().write(tmp_path)
    content = json.loads(file.read_text())
    for seed in content["seeds"]:
        del seed["stated"]
        seed["confusion"] = ["3 1 0", "1 4 0", "0 1 5"]
    file.write_text(json.dumps(content))
    with pytest.raises(SystemExit):
        main(["results", "show", str(file)])
    out, err = capsys.readouterr()
    assert out == "" and len(err.splitlines()) == 1
    assert "seed 0: expected a line for each of 2 classes in the confusion matrix, got 3" in err


def test_an_unknown_field_is_refused_by_name(tmp_path: Path) -> None:
    file = result().write(tmp_path)
    edited(file, {"leader": True})
    with pytest.raises(DataError, match=rf"{file.name} does not fit the schema at leader"):
        Result.read(file)
    privacy = result().privacy.model_dump(mode="json")
    edited(
        result().write(tmp_path), {"privacy": {**privacy, "independent": {**privacy["independent"], "epsilon": 1.0}}}
    )
    with pytest.raises(DataError, match=rf"{file.name} does not fit the schema at privacy\.independent\.epsilon"):
        Result.read(file)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"schema_version": 3}, "schema_version"),
        ({"status": "best"}, "status"),
        ({"seeds": None}, "seeds"),
        ({"metrics": {"accuracy": {"mean": 0.9}}}, "metrics"),
    ],
)
def test_a_field_that_does_not_fit_is_refused_by_name(tmp_path: Path, change: dict[str, Any], field: str) -> None:
    file = result().write(tmp_path)
    edited(file, change)
    with pytest.raises(DataError, match=rf"at {field}:"):
        Result.read(file)


@pytest.mark.parametrize("accuracy", [-0.1, 1.1, math.nan])
def test_an_accuracy_is_a_share(accuracy: float) -> None:
    with pytest.raises(ValueError, match="accuracy"):
        seed_result(0, accuracy)


def test_half_a_file_is_refused_by_name(tmp_path: Path) -> None:
    file = result().write(tmp_path)
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(DataError, match=file.name):
        Result.read(file)


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Cannot read result .*absent\.json"):
        Result.read(tmp_path / "absent.json")


@pytest.mark.parametrize("values", [(0.5, 0.7), (0.91, 0.9, 0.89, 0.93, 0.88), (0.25, 0.25, 0.25)])
def test_the_interval_is_students(values: tuple[float, ...]) -> None:
    found = mean_interval(values)
    scale = stats.sem(values) or 1e-300
    expected = stats.t.interval(0.95, len(values) - 1, loc=sum(values) / len(values), scale=scale)
    assert (found.low, found.high) == pytest.approx(expected)


def test_a_single_seed_has_no_interval() -> None:
    assert mean_interval([0.5]).model_dump() == {"mean": 0.5, "low": None, "high": None}


def test_the_mean_is_over_seeds() -> None:
    assert summarise_metrics([seed_result(0, 0.7), seed_result(1, 0.5)])["accuracy"].mean == 0.6


def test_class_accuracies_are_those_of_each_class_in_the_seeds_that_have_it() -> None:
    first, second = seed_result(0, 0.7), seed_result(1, 0.5)
    assert second.stated is not None
    scores = second.stated.model_copy(update={"class_accuracy": (0.5, 0.75)})
    second = second.model_copy(update={"stated": scores})
    assert result().model_copy(update={"seeds": (first, second)}).class_accuracies == ((0.25, 0.5), (0.75,))
    assert result().class_accuracies == ((0.25, 0.25), ())


@pytest.mark.parametrize(("second", "summarised"), [(0.9, True), (None, False)])
def test_a_metric_is_summarised_where_every_seed_has_it(second: float | None, summarised: bool) -> None:
    assert ("auroc" in summarise_metrics([seed_result(0, 0.7, 0.8), seed_result(1, 0.5, second)])) == summarised
