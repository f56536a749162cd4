"""Groups of the test split: checked, kept from training, counted in results, verified, and shown with their worst."""

from __future__ import annotations

import html
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from dpbench_plugins.datasets.sklearn import Digits
from pydantic import ValidationError
from rich.console import Console

import dpbench
from dpbench import Features, Split, Splits
from dpbench.analysis.describe import describe_result
from dpbench.analysis.paired import decode_correct_predictions
from dpbench.analysis.reader import read_results
from dpbench.analysis.word import list_unchecked_claims
from dpbench.board.build import verify_leaderboard
from dpbench.board.index import Index
from dpbench.board.verify.expectations import ReviewContext
from dpbench.board.verify.verdict import NON_ACCURACY_METRICS, judge_seeds
from dpbench.cli.run import _print_result
from dpbench.data.groups import check_group_columns, keep_only_test_groups
from dpbench.data.survey import survey_dataset
from dpbench.errors import DataError, LawBroken
from dpbench.records.board import find_board
from dpbench.records.group_counts import parse_counts_by_class, sum_counts_by_class
from dpbench.records.groups import (
    compute_accuracy_by_group,
    compute_accuracy_from_counts,
    compute_price_by_group,
    find_non_private_counterpart,
    format_group_accuracies,
)
from dpbench.records.journal import RunJournalFolder
from dpbench.records.rerun import Rerun, SeedRerun
from dpbench.records.result import Result
from dpbench.records.spec import make_spec
from dpbench.registry import load
from dpbench.site import build_site
from dpbench.site.report import render_report
from dpbench.testing import DatasetLaws
from tests.helpers import boards
from tests.helpers.commands import Output, call
from tests.helpers.sessions import session
from tests.helpers.strangers import extend_registry
from tests.site.test_site import filed

FEW = 12  # images of the small group


def groups_of(labels: np.ndarray) -> dict[str, np.ndarray]:
    """Return groups of as many images, one of them small and some unknown."""
    places = np.arange(len(labels))
    return {
        "sex": np.array(["female", "male", ""])[places % 3],
        "age band": np.where(places < FEW, "80 and over", "below 80"),
        "digit": np.array([f"digit {label}" for label in labels]),
    }


@dataclass(frozen=True)
class Grouped(Digits):
    """The digits, with groups of the test images."""

    name: ClassVar[str] = "grouped"
    known: bool = True

    def load(self) -> Splits:
        splits = super().load()
        groups = groups_of(splits.test.labels) if self.known else None
        return replace(splits, test=replace(splits.test, groups=groups))


def ran(*, known: bool = True, journal: RunJournalFolder | None = None, **values: Any) -> Result:
    asked = {"dataset": {"name": "grouped", "options": {"known": known}}, "learner": "class-means", "seeds": 2}
    spec = make_spec({**asked, **values}, "the test")
    return session(extend_registry(Grouped)).run(spec, journal=journal)


@pytest.fixture(scope="module")
def result() -> Result:
    return ran()


@pytest.fixture(scope="module")
def ceiling() -> Result:
    return ran(epsilon=math.inf)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, result: Result, ceiling: Result) -> Path:
    place: Path = tmp_path_factory.mktemp("results")
    for scored in (result, ceiling):
        scored.write(place)
    return place


def content_of(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.model_dump_json())
    return found


WRONG: dict[str, tuple[Any, str]] = {
    "5,000 values": (
        {"patient": np.arange(5_000).astype(str)},
        "at most 50 values in group column 'patient' of the test split of dataset 'x', got 5,000",
    ),
    "numbers": ({"age": np.zeros(5_000)}, "5000 texts .* got float64"),
    "a list": ({"sex": ["f"] * 5_000}, "5000 texts .* got a list"),
    "too few": ({"sex": np.array(["f"] * 4)}, r"5000 texts .* got <U1 \(4,\)"),
    "a column's name": ({"Sex/Gender": np.array([""] * 5_000)}, "names of group columns .* got 'Sex/Gender'"),
    "long text": ({"note": np.array(["x" * 61] * 5_000)}, "at most 60 printable characters"),
    "a control character": ({"sex": np.array(["\x1b[2J"] * 5_000)}, "printable characters .*x1b"),
    "blanks": ({"sex": np.array([" f"] * 5_000)}, "without blanks at the ends, got ' f'"),
    "no mapping": ([("sex", np.array(["f"] * 5_000))], "a mapping .* got a list"),
    "many columns": ({f"c{place}": np.array([""] * 5_000) for place in range(21)}, "at most 20 group columns .* 21"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_groups_that_do_not_fit_are_refused_in_a_sentence(wrong: str) -> None:
    groups, said = WRONG[wrong]
    split = Split(Features(np.zeros((5_000, 2), np.float32)), np.zeros(5_000, np.int64), groups=groups)
    with pytest.raises(DataError, match=said) as caught:
        check_group_columns(split, "test split of dataset 'x'")
    assert "\n" not in str(caught.value)


class Untouchable(Mapping[str, np.ndarray]):
    """Groups that nobody may read."""

    def __getitem__(self, key: str) -> np.ndarray:
        raise AssertionError

    def __iter__(self) -> Iterator[str]:
        raise AssertionError

    def __len__(self) -> int:
        raise AssertionError


def test_groups_of_training_and_public_images_are_dropped_unread() -> None:
    splits = Grouped().load()
    given = replace(splits.train, groups=Untouchable())
    kept = keep_only_test_groups(replace(splits, train=given, public=given), "it")
    assert kept.public is not None
    assert (kept.train.groups, kept.public.groups) == (None, None)
    assert kept.test.groups is splits.test.groups


def test_groups_change_no_prediction_and_no_noise(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32), np.arange(300) % 3
    sex = np.array(["f", "m"])[np.arange(100) % 2]
    made = [
        dpbench.dataset(x[:200], y[:200], x[200:], y[200:], processing="drawn", groups=groups)
        for groups in (None, {"sex": sex})
    ]
    plain, grouped = [
        dpbench.run("class-means", dataset, seeds=2, public_labels=True, out=tmp_path).record for dataset in made
    ]
    assert [seed.predictions for seed in plain.seeds] == [seed.predictions for seed in grouped.seeds]
    assert plain.digest == grouped.digest
    assert plain.task.groups is None and grouped.task.groups is not None


def test_a_result_without_groups_says_nothing_of_them() -> None:
    text = ran(known=False).model_dump_json()
    assert '"groups"' not in text and '"group_correct"' not in text


def test_counts_are_of_the_very_images_that_were_classified_correctly(result: Result) -> None:
    labels = Digits().load().test.labels
    for column, values in groups_of(labels).items():
        for value in np.unique(values):
            assert result.task.groups is not None
            line = result.task.groups[column][value]
            assert parse_counts_by_class(line) == tuple(np.bincount(labels[values == value], minlength=10))
            for seed in result.seeds:
                right = decode_correct_predictions(seed, len(labels)) & (values == value)
                assert seed.group_correct is not None
                assert parse_counts_by_class(seed.group_correct[column][value]) == tuple(
                    np.bincount(labels[right], minlength=10)
                )


def test_values_and_unknown_images_add_up_to_the_confusion_matrix(result: Result) -> None:
    for seed in result.seeds:
        assert seed.evidence is not None and seed.group_correct is not None and result.task.groups is not None
        for column in ("sex", "age band", "digit"):
            assert sum_counts_by_class(result.task.groups[column]) == seed.evidence.class_sizes
            assert sum_counts_by_class(seed.group_correct[column]) == seed.evidence.correct_counts


def test_groups_follow_a_test_split_that_imbalance_cuts() -> None:
    found = ran(imbalance=10.0).task
    assert found.groups is not None and found.test < 359
    kept = sum_counts_by_class(found.groups["sex"])
    for label, count in enumerate(kept):
        assert parse_counts_by_class(found.groups["digit"][f"digit {label}"])[label] == count
    assert sum(sum_counts_by_class(found.groups["digit"])) == found.test


@pytest.mark.slow
def test_seeds_of_an_interrupted_run_count_only_with_the_groups_that_the_test_split_has(tmp_path: Path) -> None:
    class Renamed(Grouped):
        def load(self) -> Splits:
            splits = super().load()
            values = np.char.replace(groups_of(splits.test.labels)["sex"], "female", "woman")
            return replace(splits, test=replace(splits.test, groups={"sex": values}))

    journal = RunJournalFolder(tmp_path)
    first = ran(journal=journal)
    assert "seeds_of_an_earlier_call" in ran(journal=journal).provenance
    spec = make_spec({"dataset": "grouped", "learner": "class-means", "seeds": 2}, "the test")
    plugins = extend_registry(Renamed)
    again = session(plugins).run(spec, journal=journal)
    assert first.digest == again.digest
    assert again.seeds[0].group_correct is not None and "woman" in again.seeds[0].group_correct["sex"]


COUNTS = {"sex": {"": "30 0", "female": "20 20", "male": "10 10", "other": "19 0"}}


def correct(unknown: int, female: int, male: int, other: int) -> dict[str, dict[str, str]]:
    return {"sex": {"": f"{unknown} 0", "female": f"{female} 0", "male": f"{male} 0", "other": f"{other} 0"}}


def test_accuracy_by_group_is_the_mean_over_seeds() -> None:
    (column,) = compute_accuracy_from_counts(COUNTS, [correct(0, 20, 10, 0), correct(0, 10, 10, 0)])
    assert {group.value: group.accuracy.mean for group in column.groups} == {
        "female": 15 / 40, "male": 0.5, "other": 0.0, "": 0.0,
    }  # fmt: skip
    assert column.groups[0].accuracy.low is not None


def test_neither_a_small_group_nor_unknown_images_are_called_worst() -> None:
    (column,) = compute_accuracy_from_counts(COUNTS, [correct(0, 20, 9, 0)])
    assert column.worst_group is not None and column.worst_group.value == "male"
    assert column.gap == pytest.approx(0.5 - 0.45)
    said = format_group_accuracies(column)
    assert "male 45.00% of 20 (worst)" in said and "other 0.00% of 19 (too few to compare)" in said
    assert "female 50.00% of 40 test images" in said and "not known 0.00% of 30" in said


def test_groups_that_are_equal_have_no_worst() -> None:
    (column,) = compute_accuracy_from_counts(COUNTS, [correct(0, 20, 10, 0)])
    assert column.worst_group is None and column.gap == 0


def test_of_many_groups_a_summary_names_the_worst_and_the_best() -> None:
    images = {"site": {f"hospital {place}": "20 0" for place in range(30)}}
    (column,) = compute_accuracy_from_counts(
        images, [{"site": {f"hospital {place}": f"{place % 20} 0" for place in range(30)}}]
    )
    assert format_group_accuracies(column, most=6) == (
        "hospital 0 0.00% of 20 test images (worst) to hospital 19 95.00% of 20, of 30 groups"
    )


def test_what_privacy_costs_a_group_is_held_against_what_it_costs_all(result: Result, ceiling: Result) -> None:
    sex = next(price for price in compute_price_by_group(result, ceiling) if price.column == "sex")
    by_value = [
        {group.value: group.accuracy.mean for group in compute_accuracy_by_group(it)[-1].groups}
        for it in (ceiling, result)
    ]
    assert sex.losses == {value: by_value[0][value] - by_value[1][value] for value in ("female", "male", "")}
    overall = ceiling.metrics["accuracy"].mean - result.metrics["accuracy"].mean
    assert sex.most is not None and sex.most.value == max(("female", "male"), key=lambda group: sex.losses[group])
    assert sex.added_loss == pytest.approx(sex.losses[sex.most.value] - overall)
    assert 120 * (sum(sex.losses.values())) - sex.losses[""] == pytest.approx(359 * overall)  # 120, 120 and 119 images


def test_only_a_result_of_the_same_learner_data_and_groups_shows_what_privacy_costs(
    result: Result, ceiling: Result
) -> None:
    other = ceiling.spec.model_copy(update={"learner": ceiling.spec.learner.model_copy(update={"name": "pillar"})})
    cut = ceiling.spec.model_copy(update={"train_fraction": 0.5})
    bare = ceiling.task.model_copy(update={"groups": None})
    others = [ceiling.model_copy(update=update) for update in ({"spec": other}, {"spec": cut}, {"task": bare})]
    assert find_non_private_counterpart(result, [result, *others]) is None
    assert find_non_private_counterpart(result, [result, *others, ceiling]) is ceiling
    assert find_non_private_counterpart(ceiling, [ceiling]) is None


BROKEN: dict[str, tuple[str, Any, str]] = {
    "more correct than there are": (
        "seeds.0.group_correct.sex.male",
        lambda line: " ".join(["999", *line.split()[1:]]),
        "at most as many correct predictions as test images in sex 'male'",
    ),
    "a group that the task lacks": (
        "seeds.1.group_correct.sex", lambda values: {**values, "other": values["male"]}, "the groups that the test",
    ),
    "a seed without": ("seeds.0.group_correct", None, "in each seed where the task has groups"),
    "another number of classes": ("task.groups.sex.male", "1 2 3", "a count for each of 10 classes"),
    "columns of other images": (
        "task.groups.sex.male",
        lambda line: " ".join(["999", *line.split()[1:]]),
        "every column to count the same test images",
    ),
    "no counts": ("task.groups.sex.male", "many", "pattern"),
}  # fmt: skip


@pytest.mark.parametrize("broken", BROKEN)
def test_a_result_whose_counts_contradict_each_other_is_not_read(result: Result, broken: str) -> None:
    field, change, said = BROKEN[broken]
    with pytest.raises(ValidationError, match=said):
        boards.result_of(boards.edited(content_of(result), field, change))


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ReviewContext]:
    """Return a leaderboard of three entries, with groups made up for their test images."""
    root = boards.world(tmp_path_factory)
    boards.file_of(root, "pillar").unlink()
    for learner in ("class-means", "public-only", "non-private"):
        made = json.loads(boards.file_of(root, learner).read_text(encoding="utf-8"))
        kept = [seed.evidence for seed in Result.model_validate(made).seeds if seed.evidence]
        made["task"]["groups"] = halves(kept[0].class_sizes)
        for seed, evidence in zip(made["seeds"], kept, strict=True):
            seed["group_correct"] = halves(evidence.correct_counts)
        file_result(root, made, learner)
    return root, ReviewContext.read(root, load())


def halves(counts: tuple[int, ...]) -> dict[str, dict[str, str]]:
    return {"sex": {name: " ".join(str((count + up) // 2) for count in counts) for name, up in (("f", 0), ("m", 1))}}


def file_result(root: Path, content: dict[str, Any], learner: str = "class-means") -> None:
    boards.file_of(root, learner).write_text(json.dumps(boards.resealed(content)), encoding="utf-8")


def test_a_result_with_honest_counts_passes_every_check(board: tuple[Path, ReviewContext]) -> None:
    assert list(verify_leaderboard(*board).complaints) == []


def less(line: str) -> str:
    first, _, rest = line.partition(" ")
    return f"{int(first) - 1} {rest}"


def more(line: str) -> str:
    first, _, rest = line.partition(" ")
    return f"{int(first) + 1} {rest}"


@pytest.mark.parametrize(("forged", "change"), [("task.groups.sex", more), ("seeds.1.group_correct.sex", less)])
def test_verify_refuses_forged_counts_whose_seal_fits(
    board: tuple[Path, ReviewContext], forged: str, change: Callable[[str], str]
) -> None:
    assert forged in complaints(board, lambda made: boards.edited(made, f"{forged}.m", change))


def test_verify_refuses_test_images_moved_to_another_group_than_other_results_of_the_board_have(
    board: tuple[Path, ReviewContext],
) -> None:
    def move(made: dict[str, Any]) -> dict[str, Any]:
        there = sum_counts_by_class(made["task"]["groups"]["sex"])
        right = [sum_counts_by_class(seed["group_correct"]["sex"]) for seed in made["seeds"]]
        label = next(place for place, count in enumerate(there) if all(row[place] <= count - 2 for row in right))
        f, m = (list(parse_counts_by_class(made["task"]["groups"]["sex"][name])) for name in "fm")
        f[label], m[label] = f[label] - 1, m[label] + 1
        return boards.edited(made, "task.groups.sex", {"f": " ".join(map(str, f)), "m": " ".join(map(str, m))})

    assert complaints(board, move) == ["task.groups"]


def complaints(board: tuple[Path, ReviewContext], forge: Callable[[dict[str, Any]], dict[str, Any]]) -> list[str]:
    """Return the fields that `verify` names in a forged result whose seal fits; the honest one is put back."""
    root, known = board
    file = boards.file_of(root, "class-means")
    honest = file.read_text(encoding="utf-8")
    file_result(root, forge(json.loads(honest)))
    try:
        return [complaint.field for complaint in verify_leaderboard(root, known).complaints]
    finally:
        file.write_text(honest, encoding="utf-8")


def rerun_of(result: Result) -> Rerun:
    seeds = tuple(
        SeedRerun(
            seed=seed.seed, outcome="differs", accuracy=seed.accuracy, predictions=seed.predictions,
            correct=seed.correct, agreement=1.0, scores={name: seed.metrics[name] for name in NON_ACCURACY_METRICS},
            group_correct=seed.group_correct,
        )
        for seed in result.seeds
    )  # fmt: skip
    return Rerun(digest="", content="", seeds=seeds, tolerance="", provenance={})


def test_a_rerun_finds_correct_predictions_moved_from_one_group_to_another(result: Result) -> None:
    assert judge_seeds(rerun_of(result), result).outcome == "same predictions"
    sex = dict((result.seeds[0].group_correct or {})["sex"])
    sex["female"], sex["male"] = less(sex["female"]), more(sex["male"])
    moved = {**(result.seeds[0].group_correct or {}), "sex": sex}
    seeds = (result.seeds[0].model_copy(update={"group_correct": moved}), *result.seeds[1:])
    assert judge_seeds(rerun_of(result), result.model_copy(update={"seeds": seeds})).outcome == "differs"


def test_which_image_is_in_which_group_is_the_authors_word_until_a_rerun_has_counted(result: Result) -> None:
    said = "which group each test image is in"
    assert said in list_unchecked_claims(result) and said not in list_unchecked_claims(result, {"task.groups"})


def test_show_says_accuracy_by_group_and_what_privacy_costs_where_the_folder_knows(
    folder: Path, result: Result, capsys: Output
) -> None:
    assert call("results", "show", str(folder / result.file_name)) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert re.search(r"accuracy by sex female [\d.]+%.* of 120 test images.*male .* of 120.*not known .* of 119", shown)
    assert "80 and over" in shown and "of 12 test images (too few to compare)" in shown
    assert "cost of privacy by sex" in shown and "points overall; most for" in shown


def test_show_says_nothing_of_the_cost_of_privacy_where_no_result_without_it_is_there(result: Result) -> None:
    headings = [heading for heading, _ in describe_result(result).pairs]
    assert "accuracy by sex" in headings and "cost of privacy by sex" not in headings


def test_a_run_ends_with_a_line_for_each_column(result: Result) -> None:
    shown = io.StringIO()
    _print_result(result, Path("file.json"), "", Console(file=shown, width=300))
    lines = shown.getvalue().splitlines()
    assert [line[:20].rstrip() for line in lines if line.startswith("accuracy by")] == [
        "accuracy by age band", "accuracy by digit", "accuracy by sex",
    ]  # fmt: skip
    (sex,) = [line for line in lines if line.startswith("accuracy by sex ")]
    assert "of 120 test images" in sex and sex.count("(worst)") == 1


def text_of(page: bytes) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page.decode())).split())


def test_the_report_has_tables_of_groups_and_of_what_privacy_costs_them(
    folder: Path, result: Result, ceiling: Result
) -> None:
    page = text_of(render_report(read_results([folder])[0], "accuracy", lambda _, part: part.name, "Title"))
    sex = compute_accuracy_by_group(result)[-1]
    assert sex.worst_group is not None
    assert re.search(
        rf"{sex.worst_group.name} 120 {100 * sex.worst_group.accuracy.mean:.2f}[^(]*(\([^w]*\))? \(worst\)", page
    )
    price = compute_price_by_group(result, ceiling)[-1]
    assert "Points lost to privacy by sex" in page
    assert f"female 120 {100 * price.losses['female']:.2f}" in page
    assert f"all test images 359 {100 * price.overall:.2f}" in page


def test_the_page_of_an_entry_shows_its_groups(tmp_path: Path, result: Result, ceiling: Result) -> None:
    standing = filed(tmp_path, find_board("digits-eps1"), [ceiling, result])
    build_site(Index(ranking="By the mean.", distances=(), standings=(standing,)), tmp_path, tmp_path / "site")
    file = tmp_path / "site" / "entries" / "digits-eps1" / result.file_name.replace(".json", ".html")
    page = text_of(file.read_bytes())
    assert "Accuracy by sex in percent" in page and "(worst)" in page
    assert "Points lost to privacy by sex" in page


@pytest.mark.slow
def test_a_models_card_has_accuracy_by_group_of_its_own_seed(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32), np.arange(300) % 3
    sex = np.array(["f", "m"])[np.arange(100) % 2]
    data = dpbench.dataset(x[:200], y[:200], x[200:], y[200:], processing="drawn", groups={"sex": sex})
    found = dpbench.run("class-means", data, seeds=2, public_labels=True, out=tmp_path, keep_models=True)
    model = dpbench.load_model(found.model(1).save(tmp_path / "model.onnx"))
    (column,) = compute_accuracy_from_counts(
        found.record.task.groups or {}, [found.record.seeds[1].group_correct or {}]
    )
    assert dict(model.lines())["test accuracy by sex"] == format_group_accuracies(column)


def test_groups_of_arrays_are_checked_when_the_dataset_is_made() -> None:
    x, y = np.zeros((4, 2)), [0, 1, 0, 1]
    with pytest.raises(DataError, match="4 texts in group column 'sex' of the groups of x_test"):
        dpbench.dataset(x, y, x, y, groups={"sex": ["f"]})


def test_data_info_counts_test_images_by_group() -> None:
    found = survey_dataset(Grouped())
    assert found.groups["sex"] == {"": 119, "female": 120, "male": 120}
    assert ("test images by sex", "not known 119, female 120, male 120") in found.lines()


class _Crowd(Grouped):
    def load(self) -> Splits:
        splits = super().load()
        groups = {"image": np.arange(len(splits.test.labels)).astype(str)}
        return replace(splits, test=replace(splits.test, groups=groups))


def test_a_dataset_with_a_group_for_each_image_is_refused_by_runs_surveys_and_laws() -> None:
    class Suite(DatasetLaws):
        dataset = _Crowd()

    spec = make_spec({"dataset": "grouped", "learner": "class-means", "seeds": 1}, "the test")
    refused: dict[Callable[[], object], type[Exception]] = {
        lambda: session(extend_registry(_Crowd)).run(spec): DataError,
        lambda: survey_dataset(_Crowd()): DataError,
        Suite().test_groups_fit_the_test_images: LawBroken,
    }
    for refuse, error in refused.items():
        with pytest.raises(error, match="at most 50 values in group column 'image'"):
            refuse()
