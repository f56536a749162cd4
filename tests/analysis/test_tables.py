"""Results as tables: who is best, who ties, what is a reference, and in which form."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import os
from pathlib import Path
from typing import cast

import pytest
from rich.console import Console

from dpbench import cli
from dpbench.analysis import description, formats
from dpbench.analysis.confusion import write_confusion
from dpbench.analysis.reader import StoredResult, read_results
from dpbench.analysis.risk import membership_risk
from dpbench.analysis.tables import Row, Table, arrange
from dpbench.cli.results import show_tables
from dpbench.errors import DataError, SpecError
from dpbench.records.packed import find_records, read_record
from dpbench.records.protocol import Component
from dpbench.records.result import Result
from dpbench.records.stated_plan import PlannedRepeats
from tests.helpers.stated import with_accuracies

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "leaderboard" / "results"
LOW, HIGH = RESULTS / "pneumonia-lite0-eps0.1", RESULTS / "pneumonia-lite0-eps0.7"
COUNT = len(find_records(LOW))
DIGITS = RESULTS / "digits-eps1"


def table(*places: Path) -> Table:
    found, damaged = read_results(places)
    (only,) = arrange(found)
    assert damaged == []
    return only


def extract(file: Path, folder: Path) -> None:
    """Put a committed result into a folder as a file."""
    (folder / file.name).write_bytes(read_record(file))


def one(folder: Path, learner: str) -> StoredResult:
    (found,) = (filed for filed in read_results([folder])[0] if filed.result.spec.learner.name == learner
                and filed.result.selection == "default")  # fmt: skip
    return found


def by_label(table: Table) -> dict[str, Row]:
    return {row.label: row for row in table.rows}


def test_budgets_stand_side_by_side_and_learners_below_each_other_best_first() -> None:
    found = table(HIGH, LOW)
    assert found.columns == ("ε 0.1", "ε 0.7")
    rows = by_label(found)
    pillar = [cell.score.mean for cell in rows["pillar"].cells if cell]
    assert pillar == [one(folder, "pillar").result.metrics["accuracy"].mean for folder in (LOW, HIGH)]
    entries = [row for row in found.rows if not row.reference]
    best = [max(cell.score.mean for row in entries if (cell := row.cells[at])) for at in range(2)]
    gaps = [[best[at] - cell.score.mean for at, cell in enumerate(row.cells) if cell] for row in entries]
    behind = [sum(of_row) / len(of_row) for of_row in gaps]
    assert behind == sorted(behind)


def test_what_reads_no_private_row_or_has_no_privacy_is_a_reference_below_and_never_best() -> None:
    found = table(DIGITS)
    beside = [row.label for row in found.rows if row.reference]
    assert beside == [row.label for row in found.rows[-len(beside) :]]
    assert {label.split(" ")[0] for label in beside} == {"public-only", "non-private"}
    assert not any(cell.best for row in found.rows if row.reference for cell in row.cells if cell)


def test_all_that_the_paired_test_cannot_tell_from_the_best_are_best() -> None:
    found = read_results([HIGH])[0]
    entries = [row for row in arrange(found)[0].rows if not row.reference]
    leader = max(entries, key=lambda row: row.cells[0].score.mean if row.cells[0] else 0).cells[0]
    assert leader
    for row in entries:
        cell = row.cells[0]
        assert cell and cell.best == (
            cell is leader or not description.compare_results(leader.filed, cell.filed).differs
        )
    assert 1 < sum(bool(row.cells[0] and row.cells[0].best) for row in entries) < len(entries)


def test_other_data_are_another_table() -> None:
    titles = [found.title for found in arrange(read_results([LOW, DIGITS])[0])]
    assert len(titles) == 2
    assert titles[0].startswith("digits, pixels")
    assert titles[1].startswith("pneumonia, efficientnet-lite0")


def test_options_in_another_order_are_the_same_protocol() -> None:
    filed = one(DIGITS, "pillar")
    pixels = filed.result.spec.extractor
    turned = pixels.model_copy(update={"options": dict(reversed(pixels.options.items()))})
    assert str(turned) != str(pixels)
    spec = filed.result.spec.model_copy(update={"extractor": turned})
    other = dataclasses.replace(filed, result=filed.result.model_copy(update={"spec": spec}))
    assert len(arrange([filed, other])) == 1


def test_two_settings_of_a_learner_are_told_apart_by_what_differs(tmp_path: Path) -> None:
    original = one(DIGITS, "pillar")
    extract(original.file, tmp_path)
    spec = original.result.spec
    learner = spec.learner.model_copy(update={"options": {**spec.learner.options, "k": 7}})
    changed = original.result.model_copy(
        update={"spec": spec.model_copy(update={"learner": learner}), "selection": "by-hand"}
    )
    changed.with_evidence_digest().write(tmp_path)
    assert {row.label for row in table(tmp_path).rows} == {"pillar", "pillar (set by hand)"}


def test_no_result_is_lost_behind_another_of_equal_settings(tmp_path: Path) -> None:
    original = one(DIGITS, "pillar").result
    options = original.spec.learner.options
    same = []
    for k, seeds, secure in (
        (7, (0,), False), (7, (1,), False), (8, (0,), False), (8, (0,), True), (9, (0, 1), False), (9, (0, 1, 2), False)
    ):  # fmt: skip
        learner = original.spec.learner.model_copy(update={"options": {**options, "k": k}})
        spec = original.spec.model_copy(update={"learner": learner, "seeds": seeds, "secure_rng": secure})
        original.model_copy(update={"spec": spec}).with_evidence_digest().write(tmp_path)
        same += [spec.digest[:8]] * (k == 8)
    assert {row.label for row in table(tmp_path).rows} == {
        "pillar:k=7, seed 0", "pillar:k=7, seed 1", f"pillar:k=8, {same[0]}", f"pillar:k=8, {same[1]}",
        "pillar:k=9, 2 seeds", "pillar:k=9, 3 seeds",
    }  # fmt: skip


def test_no_star_where_no_rival_has_the_same_seeds() -> None:
    pillar, other = one(DIGITS, "pillar"), one(DIGITS, "dp-sgd")
    assert any(cell and cell.best for row in arrange([pillar, other])[0].rows for cell in row.cells)
    spec = other.result.spec.model_copy(update={"seeds": other.result.spec.seeds[:2]})
    other = dataclasses.replace(other, result=other.result.model_copy(update={"spec": spec}))
    assert not any(cell and cell.best for row in arrange([pillar, other])[0].rows for cell in row.cells)


def test_results_of_data_that_have_changed_are_never_in_one_table() -> None:
    pillar, other = one(DIGITS, "pillar"), one(DIGITS, "dp-sgd")
    task = other.result.task.model_copy(
        update={"private": 108, "digests": dict.fromkeys(("private", "public"), "ab" * 32)}
    )
    other = dataclasses.replace(other, result=other.result.model_copy(update={"task": task}))
    found = arrange([pillar, other])
    assert sorted(row.label for table in found for row in table.rows) == ["dp-sgd", "pillar"]
    assert sorted(table.title.partition(", data ")[2] for table in found) == [
        f"{pillar.result.task.digests['private'][:8]} (1,294 private, 10 classes)", "abababab (108 private, 10 classes)"
    ]  # fmt: skip
    assert not any(cell and cell.best for table in found for row in table.rows for cell in row.cells)


def test_a_table_that_is_wider_than_the_terminal_is_stacked_and_cuts_nothing() -> None:
    whole = table(*(RESULTS / f"digits-eps{epsilon}" for epsilon in ("0.03", "0.1", "0.3", "1", "3", "8")))
    shown = Console(width=80, file=io.StringIO())
    show_tables([whole], shown)
    text = cast("io.StringIO", shown.file).getvalue()
    assert "…" not in text
    assert all(len(line.rstrip()) <= 80 for line in text.splitlines()[1:-1])
    parts = formats.render_terminal(whole, 80)
    assert len(parts) > 1 and len(formats.render_terminal(whole, 1000)) == 1
    cells = [formats.percent(cell.score) + " *" * cell.best for row in whole.rows for cell in row.cells if cell]
    assert all(cell in text for cell in cells)
    assert all(text.count(f"\n {row.label.split()[0]} ") >= len(parts) for row in whole.rows)


def test_of_several_results_of_one_spec_the_newest_counts(tmp_path: Path) -> None:
    original = one(DIGITS, "pillar")
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    extract(original.file, tmp_path / "old")
    os.utime(tmp_path / "old" / original.file.name, (0, 0))
    with_accuracies(original.result, 0.25).with_evidence_digest().write(tmp_path / "new")
    (cell,) = table(tmp_path).rows[0].cells
    assert cell and cell.score.mean == 0.25


def test_a_result_that_was_changed_is_named_and_left_out(tmp_path: Path) -> None:
    original = one(DIGITS, "pillar")
    extract(original.file, tmp_path)
    text = read_record(original.file).decode()
    (tmp_path / "changed.json").write_text(text.replace('"epsilon": 1.0', '"epsilon": 0.1', 1), encoding="utf-8")
    found, damaged = read_results([tmp_path])
    assert [filed.file.name for filed in found] == [original.file.name]
    assert len(damaged) == 1 and "changed.json does not fit the schema at " in damaged[0]


def test_damaged_files_are_named_and_other_files_passed_over(tmp_path: Path) -> None:
    extract(one(DIGITS, "pillar").file, tmp_path)
    (tmp_path / "half.json").write_text('{"spec":', encoding="utf-8")
    (tmp_path / "settings.json").write_text('{"other": 1}', encoding="utf-8")
    found, damaged = read_results([tmp_path])
    assert len(found) == 1
    assert len(damaged) == 1 and "half.json is not JSON" in damaged[0]


def test_nothing_to_show_says_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"found none\. dpbench run and dpbench sweep write them"):
        read_results([tmp_path])
    with pytest.raises(DataError, match="does not exist"):
        read_results([tmp_path / "nowhere"])


def test_every_form_has_every_cell() -> None:
    found = table(LOW, HIGH)
    cells = [formats.percent(cell.score) for row in found.rows for cell in row.cells if cell]
    for text in (formats.render_markdown([found]), formats.render_html([found])):
        assert all(cell in text for cell in cells)
    assert all(cell.replace("±", r"$\pm$") in formats.render_latex([found]) for cell in cells)
    rows = list(csv.DictReader(io.StringIO(formats.render_csv(read_results([LOW, HIGH])[0]))))
    assert len(rows) == len({file.name for folder in (LOW, HIGH) for file in find_records(folder)})
    assert {row["target_epsilon"] for row in rows} == {"0.1", "0.7", "inf"}


def test_html_of_a_strangers_names_runs_nothing() -> None:
    row = Row("<script>x</script>", (None,), reference=False)
    text = formats.render_html([Table("<img src=x>", "accuracy", (1.0,), (row,))])
    assert "<script" not in text and "<img" not in text


def test_the_difference_of_two_results_has_its_interval_and_a_verdict() -> None:
    said = "\n".join(description.describe_difference(one(LOW, "pillar"), one(LOW, "dp-raft")))
    assert "A: pillar, ε 0.1: 81.79" in said
    assert "A - B: +10.64 ±" in said
    assert said.endswith("The difference is significant at 5%.")


def test_results_on_other_data_or_seeds_are_not_compared() -> None:
    with pytest.raises(SpecError, match=r"624 examples of pneumonia.*359 examples of digits"):
        description.compare_results(one(LOW, "pillar"), one(DIGITS, "pillar"))


def test_one_result_is_told_whole() -> None:
    filed = one(LOW, "pillar")
    told = dict(description.describe_result(filed))
    assert told["privacy"].startswith("ε 0.0999976 by pld, 0.09799 to 0.102 by prv-accountant")
    assert told["release gradient"] == "30 steps, each example with chance 1, σ 168.4"
    assert "k=27" in told["settings"]
    assert told["membership test"] == (
        "of one private image, by someone who knows all the others: true positives at most 0.12% at 0.1% false "
        "positives and 1.10% at 1.0% false positives"
    )
    assert filed.result.digest == told["digest"]


def test_odds_of_a_private_search_are_those_of_its_epsilon_and_delta_and_there_are_none_without_noise() -> None:
    privacy = one(LOW, "pillar").result.privacy
    searched = privacy.model_copy(update={"repeats": PlannedRepeats(mean=10, shape=1), "epsilon": 1.0, "delta": 1e-5})
    most = membership_risk(searched)
    assert most == {rate: pytest.approx(math.e * rate + 1e-5) for rate in (0.001, 0.01)}
    assert all(membership_risk(privacy)[rate] < bound for rate, bound in most.items())
    assert membership_risk(privacy.model_copy(update={"sigma": 0.0})) == {}


def test_settings_are_told_as_they_ran_and_by_whom_they_were_chosen() -> None:
    filed = one(LOW, "pillar")
    options = {**filed.result.spec.learner.options, "steps": None}
    spec = filed.result.spec.model_copy(update={"learner": Component(name="pillar", options=options)})
    result = filed.result.model_copy(update={"spec": spec, "settled": {"steps": 37}, "selection": "by-hand"})
    told = dict(description.describe_result(StoredResult(filed.file, result)))["settings"]
    assert "steps=37" in told and told.endswith("(set by hand; steps from n, ε and δ)")
    (row,) = csv.DictReader(io.StringIO(formats.render_csv([StoredResult(filed.file, result)])))
    assert "steps=37" in row["settings"]
    assert dict(description.describe_result(filed))["settings"].endswith(
        "(the defaults; k, learning_rate, steps from n, ε and δ)"
    )


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        cli.main(["results", *arguments])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_the_command_shows_a_table_and_filters_it(capsys: pytest.CaptureFixture[str]) -> None:
    shown = said(capsys, str(LOW), "--learner", "pillar,jl", "--markdown")
    assert "`jl`" in shown and "`pillar (tuned)`" in shown and "dp-sgd" not in shown
    assert "pneumonia" in said(capsys, str(LOW))
    assert "jl" in said(capsys, "show", str(one(LOW, "jl").file))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--csv", "--metric", "ece"], "Expected --csv without --metric"),
        (["--csv", "--latex"], "at most one of --csv, --markdown and --latex"),
        (["--epsilon", "small"], "as numbers like 0.1,1,inf, got 'small'"),
        (["--learner", "nobody"], f"No result of learner nobody among the {COUNT} found"),
    ],
)
def test_bad_requests_are_one_sentence(arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["results", str(LOW), *arguments])
    assert ended.value.code == 1
    assert expected in capsys.readouterr().err


def test_files_to_compare_are_named_with_learner_and_epsilon_where_there_are_not_two(
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = [str(one(LOW, learner).file) for learner in ("jl", "pillar", "dp-sgd")]
    with pytest.raises(SystemExit) as ended:
        cli.main(["compare", *files])
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert "Expected two result files to compare, got 3: " in said
    assert f"{files[0]} (jl, ε " in said


def with_loss(learner: str, loss: float) -> StoredResult:
    """Return a stored result as if its seeds had kept this log loss, give or take a little."""
    filed = one(LOW, learner)
    seeds = []
    for place, seed in enumerate(filed.result.seeds):
        assert seed.calibration is not None
        total = filed.result.task.test * (loss + 1e-3 * place)
        kept = seed.calibration.model_copy(update={"log_loss": total})
        seeds.append(seed.model_copy(update={"calibration": kept}))
    return dataclasses.replace(filed, result=filed.result.model_copy(update={"seeds": tuple(seeds)}))


def test_a_table_of_losses_has_the_smallest_first_as_a_number_and_says_that_lower_is_better() -> None:
    (found,) = arrange([with_loss("pillar", 1.5), with_loss("whitened", 0.75), with_loss("dp-raft", 2.0)], "nll")
    assert [row.label for row in found.rows] == ["whitened", "pillar", "dp-raft"]
    assert [row.cells[0].best for row in found.rows if row.cells[0]] == [True, False, False]
    text = formats.render_markdown([found])
    assert "**0.752 ± 0.002**" in text
    assert "Lower is better" in text
    assert "ercent" not in text


def test_the_difference_of_two_losses_is_no_percentage() -> None:
    pair = with_loss("pillar", 1.5), with_loss("whitened", 0.75)
    said = "\n".join(description.describe_difference(*pair, "nll"))
    assert "A - B: +0.750" in said
    assert "%:" not in said.replace("at 5%", "")


def confused(matrix: tuple[str, ...], classes: tuple[str, ...]) -> Result:
    result = one(LOW, "pillar").result
    seeds = tuple(seed.model_copy(update={"confusion": matrix}) for seed in result.seeds)
    task = result.task.model_copy(update={"classes": classes})
    return result.model_copy(update={"seeds": seeds, "task": task})


def test_the_confusion_matrix_is_shown_in_percent_of_the_true_class() -> None:
    _, *rows = write_confusion(confused(("3 1", "0 0"), ("cat", "dog")))
    assert [row.split() for row in rows] == [["cat", "75.0", "25.0"], ["dog", "-", "-"]]


def test_of_many_classes_the_most_frequent_errors_are_shown() -> None:
    names = tuple(f"class {number}" for number in range(30))
    matrix = tuple(" ".join("8" if a == b else "2" if (a, b) == (3, 7) else "0" for b in range(30)) for a in range(30))
    assert list(write_confusion(confused(matrix, names)))[1:] == ["  class 3 taken for class 7: 20.0"]


def test_of_a_result_from_before_it_was_kept_no_matrix_is_shown_and_probabilities_are_said_to_be_missing() -> None:
    filed = one(LOW, "pillar")
    before = with_accuracies(filed.result, 0.5, 0.6)
    assert list(write_confusion(before)) == []
    told = dict(description.describe_result(dataclasses.replace(filed, result=before)))
    assert "did not record them" in told["probabilities"]
