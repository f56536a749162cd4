"""Results as tables: who is best, who ties, what is a reference, and in which form."""

from __future__ import annotations

import csv
import dataclasses
import io
import os
from pathlib import Path
from typing import cast

import pytest
from rich.console import Console

from dpbench.analysis.columns import FILE_COLUMNS
from dpbench.analysis.comparison import compare_results
from dpbench.analysis.formats import format_percent_score
from dpbench.analysis.grid import LearnerLine, ResultGrid
from dpbench.analysis.palette import DARK, assign_learner_styles
from dpbench.analysis.reader import StoredResult, read_results
from dpbench.analysis.rows import ResultRow, make_result_row
from dpbench.analysis.spreadsheet import render_csv
from dpbench.analysis.tables import make_grids
from dpbench.analysis.text_tables import make_text_tables, render_html, render_latex, render_markdown, render_terminal
from dpbench.cli.results import print_result_tables
from dpbench.errors import DataError
from dpbench.records.packed import list_records, read_record
from tests.helpers.commands import call
from tests.helpers.stated import with_accuracies

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "leaderboard" / "results"
LOW, HIGH = RESULTS / "pneumonia-lite0-eps0.1", RESULTS / "pneumonia-lite0-eps0.7"
COUNT = len(list_records(LOW))
DIGITS = RESULTS / "digits-eps1"


def table(*places: Path) -> ResultGrid[ResultRow]:
    found, damaged = read_results(places)
    (only,) = make_grids(found)
    assert damaged == []
    return only


def extract(file: Path, folder: Path) -> None:
    """Put a committed result into a folder as a file."""
    (folder / file.name).write_bytes(read_record(file))


def find_result(folder: Path, learner: str) -> StoredResult:
    (found,) = (filed for filed in read_results([folder])[0] if filed.result.spec.learner.name == learner
                and filed.result.selection == "default")  # fmt: skip
    return found


def by_label(table: ResultGrid[ResultRow]) -> dict[str, LearnerLine[ResultRow]]:
    return {line.label: line for line in table.lines}


def best(row: ResultRow | None) -> bool:
    return row is not None and row.standing is not None and row.standing.tied


def test_budgets_stand_side_by_side_and_learners_below_each_other_best_first() -> None:
    found = table(HIGH, LOW)
    assert found.columns == ("ε 0.1", "ε 0.7")
    rows = by_label(found)
    pillar = [found.score(row).mean for row in rows["pillar"].present_rows]
    assert pillar == [find_result(folder, "pillar").result.metrics["accuracy"].mean for folder in (LOW, HIGH)]
    entries = [line for line in found.lines if not line.reference]
    most = [max(found.score(row).mean for line, row in found.column(at) if not line.reference) for at in range(2)]
    gaps = [[most[at] - found.score(row).mean for at, row in enumerate(line.rows) if row] for line in entries]
    assert gaps == [[row.standing.behind for row in line.present_rows if row.standing] for line in entries]
    behind = [sum(each) / len(each) for each in gaps]
    assert behind == sorted(behind)


def test_what_reads_no_private_row_or_has_no_privacy_is_a_reference_below_and_never_best() -> None:
    found = table(DIGITS)
    beside = [line.label for line in found.lines if line.reference]
    assert beside == [line.label for line in found.lines[-len(beside) :]]
    assert {label.split(" ")[0] for label in beside} == {"public-only", "non-private"}
    assert not any(best(row) for line in found.lines if line.reference for row in line.rows)


def test_all_that_the_paired_test_cannot_tell_from_the_best_are_best() -> None:
    found = read_results([HIGH])[0]
    filed = {str(stored.file): stored for stored in found}
    grid = make_grids(found)[0]
    entries = [row for line, row in grid.column(0) if not line.reference]
    leader = max(entries, key=lambda row: grid.score(row).mean)
    for row in entries:
        assert best(row) == (row is leader or not compare_results(filed[leader.file], filed[row.file]).is_significant)
    assert 1 < sum(map(best, entries)) < len(entries)


def test_other_data_are_another_table() -> None:
    titles = [found.title for found in make_grids(read_results([LOW, DIGITS])[0])]
    assert len(titles) == 2
    assert titles[0].startswith("digits, pixels")
    assert titles[1].startswith("pneumonia, efficientnet-lite0")


def test_options_in_another_order_are_the_same_protocol() -> None:
    filed = find_result(DIGITS, "pillar")
    pixels = filed.result.spec.extractor
    turned = pixels.model_copy(update={"options": dict(reversed(pixels.options.items()))})
    assert str(turned) != str(pixels)
    spec = filed.result.spec.model_copy(update={"extractor": turned})
    other = dataclasses.replace(filed, result=filed.result.model_copy(update={"spec": spec}))
    assert len(make_grids([filed, other])) == 1


def test_two_settings_of_a_learner_are_told_apart_by_what_differs(tmp_path: Path) -> None:
    original = find_result(DIGITS, "pillar")
    extract(original.file, tmp_path)
    spec = original.result.spec
    learner = spec.learner.model_copy(update={"options": {**spec.learner.options, "k": 7}})
    changed = original.result.model_copy(
        update={"spec": spec.model_copy(update={"learner": learner}), "selection": "by-hand"}
    )
    changed.with_evidence_digest().write(tmp_path)
    assert {line.label for line in table(tmp_path).lines} == {"pillar", "pillar (set by hand)"}


def test_no_result_is_lost_behind_another_of_equal_settings(tmp_path: Path) -> None:
    original = find_result(DIGITS, "pillar").result
    options = original.spec.learner.options
    same = []
    for k, seeds, secure in (
        (7, (0,), False), (7, (1,), False), (8, (0,), False), (8, (0,), True), (9, (0, 1), False), (9, (0, 1, 2), False)
    ):  # fmt: skip
        learner = original.spec.learner.model_copy(update={"options": {**options, "k": k}})
        spec = original.spec.model_copy(update={"learner": learner, "seeds": seeds, "secure_rng": secure})
        original.model_copy(update={"spec": spec}).with_evidence_digest().write(tmp_path)
        same += [spec.digest[:8]] * (k == 8)
    assert {line.label for line in table(tmp_path).lines} == {
        "pillar:k=7, seed 0", "pillar:k=7, seed 1", f"pillar:k=8, {same[0]}", f"pillar:k=8, {same[1]}",
        "pillar:k=9, 2 seeds", "pillar:k=9, 3 seeds",
    }  # fmt: skip


def test_no_star_where_no_rival_has_the_same_seeds() -> None:
    pillar, other = find_result(DIGITS, "pillar"), find_result(DIGITS, "dp-sgd")
    assert any(best(row) for line in make_grids([pillar, other])[0].lines for row in line.rows)
    spec = other.result.spec.model_copy(update={"seeds": other.result.spec.seeds[:2]})
    other = dataclasses.replace(other, result=other.result.model_copy(update={"spec": spec}))
    assert not any(best(row) for line in make_grids([pillar, other])[0].lines for row in line.rows)


def test_results_of_data_that_have_changed_are_never_in_one_table() -> None:
    pillar, other = find_result(DIGITS, "pillar"), find_result(DIGITS, "dp-sgd")
    task = other.result.task.model_copy(
        update={"private": 108, "digests": dict.fromkeys(("private", "public"), "ab" * 32)}
    )
    other = dataclasses.replace(other, result=other.result.model_copy(update={"task": task}))
    found = make_grids([pillar, other])
    assert sorted(line.label for grid in found for line in grid.lines) == ["dp-sgd", "pillar"]
    assert sorted(table.title.partition(", data ")[2] for table in found) == [
        f"{pillar.result.task.digests['private'][:8]} (1,294 private, 10 classes)", "abababab (108 private, 10 classes)"
    ]  # fmt: skip
    assert not any(best(row) for grid in found for line in grid.lines for row in line.rows)


@pytest.mark.slow
def test_a_table_that_is_wider_than_the_terminal_is_stacked_and_cuts_nothing() -> None:
    whole = table(*(RESULTS / f"digits-eps{epsilon}" for epsilon in ("0.03", "0.1", "0.3", "1", "3", "8")))
    shown = Console(width=80, file=io.StringIO())
    print_result_tables([whole], shown)
    text = cast("io.StringIO", shown.file).getvalue()
    assert "…" not in text
    assert all(len(line.rstrip()) <= 80 for line in text.splitlines()[1:-1])
    (written,) = make_text_tables([whole])
    parts = render_terminal(written, 80)
    assert len(parts) > 1 and len(render_terminal(written, 1000)) == 1
    cells = [
        format_percent_score(whole.score(row)) + " *" * best(row) for line in whole.lines for row in line.present_rows
    ]
    assert all(cell in text for cell in cells)
    assert all(text.count(f"\n {line.label.split()[0]} ") >= len(parts) for line in whole.lines)


def test_of_several_results_of_one_spec_the_newest_counts(tmp_path: Path) -> None:
    original = find_result(DIGITS, "pillar")
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    extract(original.file, tmp_path / "old")
    os.utime(tmp_path / "old" / original.file.name, (0, 0))
    with_accuracies(original.result, 0.25).with_evidence_digest().write(tmp_path / "new")
    (row,) = table(tmp_path).lines[0].present_rows
    assert row.score and row.score.mean == 0.25


def test_a_result_that_was_changed_is_named_and_left_out(tmp_path: Path) -> None:
    original = find_result(DIGITS, "pillar")
    extract(original.file, tmp_path)
    text = read_record(original.file).decode()
    (tmp_path / "changed.json").write_text(text.replace('"epsilon": 1.0', '"epsilon": 0.1', 1), encoding="utf-8")
    found, damaged = read_results([tmp_path])
    assert [filed.file.name for filed in found] == [original.file.name]
    assert len(damaged) == 1 and "changed.json does not fit the schema at " in damaged[0]


def test_damaged_files_are_named_and_other_files_passed_over(tmp_path: Path) -> None:
    extract(find_result(DIGITS, "pillar").file, tmp_path)
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
    cells, written = (
        [format_percent_score(found.score(row)) for line in found.lines for row in line.present_rows],
        make_text_tables([found]),
    )
    for text in (render_markdown(written), render_html(written)):
        assert all(cell in text for cell in cells)
    assert all(cell.replace("±", r"$\pm$") in render_latex(written) for cell in cells)
    rows = list(
        csv.DictReader(io.StringIO(render_csv(map(make_result_row, read_results([LOW, HIGH])[0]), FILE_COLUMNS)))
    )
    assert len(rows) == len({file.name for folder in (LOW, HIGH) for file in list_records(folder)})
    assert {row["target_epsilon"] for row in rows} == {"0.1", "0.7", "inf"}


def test_html_of_a_strangers_names_runs_nothing() -> None:
    line: LearnerLine[ResultRow] = LearnerLine("<script>x</script>", (None,))
    text = render_html(make_text_tables([ResultGrid("<img src=x>", "accuracy", ("ε 1",), (line,))]))
    assert "<script" not in text and "<img" not in text


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert call("results", *arguments) == 0
    return capsys.readouterr().out


def test_the_command_shows_a_table_and_filters_it(capsys: pytest.CaptureFixture[str]) -> None:
    shown = said(capsys, str(LOW), "--learner", "pillar,jl", "--markdown")
    assert "`jl`" in shown and "`pillar (tuned)`" in shown and "dp-sgd" not in shown
    assert "pneumonia" in said(capsys, str(LOW))
    assert "jl" in said(capsys, "show", str(find_result(LOW, "jl").file))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--csv", "--metric", "ece"], "Expected --csv without --metric: every metric is a column."),
        (["--columns", "learner,sigm"], "Unknown column 'sigm'. Did you mean 'sigma'? Available: "),
        (["--columns", "learner", "--metric", "ece"], "Expected --columns without --metric: every metric is a column."),
        (["--columns", "learner,rank"], "Unknown column 'rank'."),  # which a file alone does not have
        (["--csv", "--latex"], "at most one of --csv, --markdown and --latex"),
        (["--epsilon", "small"], "as numbers like 0.1,1,inf, got 'small'"),
        (["--learner", "nobody"], f"No result of learner nobody among the {COUNT} found"),
    ],
)
def test_bad_requests_are_one_sentence(arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("results", str(LOW), *arguments) == 1
    assert expected in capsys.readouterr().err


def test_files_to_compare_are_named_with_learner_and_epsilon_where_there_are_not_two(
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = [str(find_result(LOW, learner).file) for learner in ("jl", "pillar", "dp-sgd")]
    assert call("compare", *files) == 1
    said = capsys.readouterr().err
    assert "Expected two results or learners to compare, got 3: " in said
    assert f"{files[0]} (jl, ε " in said


def with_loss(learner: str, loss: float) -> StoredResult:
    """Return a stored result as if its seeds had kept this log loss, give or take a little."""
    filed = find_result(LOW, learner)
    seeds = []
    for place, seed in enumerate(filed.result.seeds):
        assert seed.calibration is not None
        total = filed.result.task.test * (loss + 1e-3 * place)
        kept = seed.calibration.model_copy(update={"log_loss": total})
        seeds.append(seed.model_copy(update={"calibration": kept}))
    return dataclasses.replace(filed, result=filed.result.model_copy(update={"seeds": tuple(seeds)}))


def test_a_table_of_losses_has_the_smallest_first_as_a_number_and_says_that_lower_is_better() -> None:
    (found,) = make_grids([with_loss("pillar", 1.5), with_loss("whitened", 0.75), with_loss("dp-raft", 2.0)], "nll")
    assert [line.label for line in found.lines] == ["whitened", "pillar", "dp-raft"]
    assert [best(line.rows[0]) for line in found.lines] == [True, False, False]
    text = render_markdown(make_text_tables([found]))
    assert "**0.752 ± 0.002**" in text
    assert "Lower is better" in text
    assert "ercent" not in text


def test_a_terminal_with_colours_shows_each_learners_mark_and_one_without_shows_names_alone() -> None:
    (written,) = make_text_tables([table(LOW)])
    for coloured in (False, True):
        shown = Console(width=120, file=io.StringIO(), color_system="truecolor", no_color=not coloured,
                        force_terminal=coloured)  # fmt: skip
        for part in render_terminal(written, 120, coloured=coloured):
            shown.print(part)
        text = cast("io.StringIO", shown.file).getvalue()
        style = assign_learner_styles(["pillar"])["pillar"]
        assert all(cell in text for line in written.lines for cell in line.cells)
        assert (f" {style.letter} " in text) is coloured
        red, green, blue = (int(DARK[style.colour or 0][at : at + 2], 16) for at in (1, 3, 5))
        assert (f"38;2;{red};{green};{blue};48;2;" in text) is coloured
    assert f'<span style="color:{style.hex}">{style.letter}</span> pillar</td>' in render_html([written])
