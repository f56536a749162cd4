"""What a person at a shell sees: several at once, files that say what flags say, work that is kept, words that fit."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from dpbench import Budget, Curator, Learner, Predict, PublicData, Release, SpecError, Task, cli
from dpbench.analysis import draw
from dpbench.data.survey import survey_dataset
from dpbench.harness import run as running
from dpbench.harness.fit import SeedFit, fit_seed
from dpbench.harness.prepare import PreparedRun
from dpbench.records.packed import list_records
from dpbench.records.result import Result
from dpbench.records.tuning import Tuning
from dpbench.registry import load
from dpbench.support import progress
from dpbench.support.plugin_calls import DEBUG
from dpbench.testing.checking import check_laws
from tests.helpers.commands import call

Output = pytest.CaptureFixture[str]
LEADERBOARD = Path(__file__).parents[2] / "leaderboard"
QUICK = ("--learner", "class-means:k=5", "--seeds", "1")


def result_in(folder: Path) -> Result:
    (file,) = folder.glob("*.json")
    return Result.read(file)


# 1. Several at once


@pytest.mark.long
def test_several_learners_run_on_a_board_in_one_command(tmp_path: Path, capsys: Output) -> None:
    assert call("run", "--board", "digits-eps1", "--learner", "class-means,dp-sgd", "--out", tmp_path) == 0
    shown = capsys.readouterr().out
    assert "2 cells run, 0 done before, 0 failed" in shown and "class-means" in shown and "dp-sgd" in shown
    assert {Result.read(file).spec.epsilon for file in tmp_path.glob("*.json")} == {1.0}


def test_several_values_of_what_a_board_fixes_are_refused(tmp_path: Path, capsys: Output) -> None:
    assert call("run", "--board", "digits-eps1", "--learner", "jl,gep", "--epsilon", "1,2", "--out", tmp_path) == 1
    assert "Expected no epsilon in the flags of dpbench run: board 'digits-eps1' fixes them" in capsys.readouterr().err


def test_one_learner_with_several_values_cannot_leave_the_boards_protocol(tmp_path: Path, capsys: Output) -> None:
    of_board = ("run", "--board", "digits-eps1", "--learner", "class-means", "--out", tmp_path)
    assert call(*of_board, "--epsilon", "0.5,1", "--delta", "1e-3") == 1
    assert "board 'digits-eps1' fixes them" in capsys.readouterr().err
    assert not [*tmp_path.glob("*.json")]


# 2. Headings and rows say what differs


@pytest.mark.slow
def test_a_table_is_headed_by_the_options_that_are_not_at_their_default(tmp_path: Path, capsys: Output) -> None:
    call("run", *QUICK, "--extractor", "pixels:mode=L", "--out", tmp_path)
    call("run", *QUICK[2:], "--learner", "class-means", "--extractor", "pixels:mode=L", "--out", tmp_path)
    capsys.readouterr()
    assert call("results", tmp_path) == 0
    shown = capsys.readouterr().out
    assert "digits, pixels:mode=L: accuracy" in shown and "None" not in shown


# 4. Files say what flags say


@pytest.mark.slow
def test_a_spec_file_takes_what_flags_take(tmp_path: Path, capsys: Output) -> None:
    file = tmp_path / "spec.toml"
    file.write_text(
        f"""
        learner = "class-means"
        epsilon = [1, 2]
        seeds = 1
        device = "cpu"
        out = "{tmp_path / "there"}"
        """,
        encoding="utf-8",
    )
    assert call("run", "--spec", file, "--epsilon", "4") == 0  # a flag overrides the file
    assert result_in(tmp_path / "there").spec.epsilon == 4
    file.write_text(
        'learner = "class-means"\ntune = true\nspace = {k = [3, 5]}\ntries = 1\nseeds = 1', encoding="utf-8"
    )
    assert call("run", "--spec", file, "--out", tmp_path / "tuned") == 0
    tuned = result_in(tmp_path / "tuned")
    assert tuned.search and tuned.search.tried == 1 and tuned.search.possible == 2
    file.write_text('learner = "class-means"\nboard = "digits-eps1"', encoding="utf-8")
    assert call("run", "--spec", file, "--out", tmp_path / "board") == 0
    assert result_in(tmp_path / "board").spec.seeds == (0, 1, 2, 3, 4)
    capsys.readouterr()


def test_a_spec_and_a_sweep_that_are_taken_for_each_other_say_so(tmp_path: Path, capsys: Output) -> None:
    spec, sweep = tmp_path / "spec.toml", tmp_path / "sweep.toml"
    spec.write_text('learner = "jl"\nepsilon = 2', encoding="utf-8")
    sweep.write_text('name = "a"\n[grid]\nlearner = ["jl", "gep"]', encoding="utf-8")
    assert call("run", "--spec", sweep) == 1
    assert f"Run it with: dpbench sweep {sweep}" in capsys.readouterr().err
    assert call("sweep", spec) == 1
    assert f"Run it with: dpbench run --spec {spec}" in capsys.readouterr().err


# 5. An interrupted run keeps its seeds


@pytest.mark.slow
def test_an_interrupted_run_goes_on_with_the_seeds_that_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    fits: list[int] = []

    def interrupted(prepared: PreparedRun, seed: int) -> SeedFit:
        if len(fits) == 2:
            fits.append(-1)
            raise KeyboardInterrupt
        fits.append(seed)
        return fit_seed(prepared, seed)

    monkeypatch.setattr(running, "fit_seed", interrupted)
    command = ("run", "--learner", "class-means:k=5", "--seeds", "4", "--out", tmp_path / "there")
    assert call(*command) == 130
    assert "finished seeds are kept; repeat the command" in capsys.readouterr().err
    assert call(*command) == 0
    assert fits == [0, 1, -1, 2, 3]
    found = result_in(tmp_path / "there")
    assert [seed.seed for seed in found.seeds] == [0, 1, 2, 3] and found.provenance["seeds_of_an_earlier_call"] == 2
    assert sorted(file.name for file in (tmp_path / "there").iterdir()) == [found.file_name]
    monkeypatch.undo()
    assert call(*command[:-1], tmp_path / "whole") == 0
    assert result_in(tmp_path / "whole").seeds == found.seeds


def test_any_command_that_is_interrupted_says_so(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dpbench.cli.components.load", interrupted)
    assert call("list") == 130
    assert capsys.readouterr().err == "dpbench: Interrupted. Nothing more is written; finished work is kept.\n"


def test_a_pool_that_waits_for_dead_workers_does_not_outlive_an_interruption() -> None:
    code = """
import signal, time
from dpbench.cli import output
output.POOL_TIMEOUT = 0.1
with output.stop_on_interrupt():
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        time.sleep(60)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode == 130 and done.stderr.startswith("dpbench: Interrupted. Unfinished workers were stopped")


def test_seeds_of_another_code_and_lines_that_were_cut_off_are_not_taken(tmp_path: Path) -> None:
    from dpbench.records.journal import RunJournalFolder

    assert call("run", *QUICK, "--out", tmp_path) == 0
    seed, journal = result_in(tmp_path).seeds[0], RunJournalFolder(tmp_path)
    journal.open_run("a.json", "this").keep(seed)
    journal.open_run("a.json", "other").keep(seed.model_copy(update={"seed": 1}))
    file = tmp_path / "unfinished" / "a.jsonl"
    file.write_text(file.read_text(encoding="utf-8") + '{"identity": "this", "se', encoding="utf-8")
    assert journal.open_run("a.json", "this").seeds() == {0: seed}
    journal.delete("a.json")
    assert not file.parent.exists() and journal.open_run("a.json", "this").seeds() == {}


# 6. Long work speaks; errors come first


def test_an_option_that_does_not_fit_is_said_before_torch_is_loaded() -> None:
    code = (
        "import sys; from dpbench.cli import main\ntry: main(sys.argv[1:])\nfinally: assert 'torch' not in sys.modules"
    )
    for options in (["--learner", "pillar:k=0"], ["--learner", "jl", "--extractor", "pixels:size=0"]):
        done = subprocess.run(
            [sys.executable, "-c", code, "run", *options], capture_output=True, text=True, check=False
        )
        assert done.returncode == 1 and done.stderr.startswith("dpbench: Expected"), done.stderr


def test_the_help_of_the_program_fits_40_lines(capsys: Output) -> None:
    assert call("--help") == 0
    assert len(capsys.readouterr().out.splitlines()) <= 40


def test_a_plan_of_a_billion_steps_is_refused_with_what_it_would_take(tmp_path: Path, capsys: Output) -> None:
    assert call("run", "--learner", "dp-sgd:steps=1000000000", "--out", tmp_path) == 1
    assert "at a millisecond each that is 11 d 13 h for one seed" in capsys.readouterr().err
    assert call("budget", "--release", "steps=1000000000,sample_rate=0.1", "--epsilon", "1") == 1
    assert "at most 1,000,000 steps" in capsys.readouterr().err


def test_no_accountant_shows_less_than_nothing(capsys: Output) -> None:
    assert call("budget", "--release", "steps=10", "--sigma", "2", "--delta", "0.9", "--json") == 0
    assert {row["epsilon"] for row in json.loads(capsys.readouterr().out)} == {0.0}


def test_the_metric_of_a_run_is_in_its_table(tmp_path: Path, capsys: Output) -> None:
    asked = ("--learner", "class-means", "--metric", "balanced_accuracy", "--seeds", "1", "--out", tmp_path)
    assert call("run", *asked) == 0
    told = capsys.readouterr().out
    (file,) = tmp_path.glob("*.json")
    mean = Result.read(file).metrics["balanced_accuracy"].mean
    assert "balanced accuracy" in told and f"{100 * mean:.2f}%" in told


def test_progress_in_a_pipe_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    clock = iter([0.0, 10.0, 31.0, 40.0])
    monkeypatch.setattr(progress, "monotonic", lambda: next(clock))
    with progress.show_progress_bar("Fitting jl", 10) as advance:
        for _ in range(3):
            advance(1)
    assert capsys.readouterr().err == "dpbench: Fitting jl: 2 of 10, 2 min 4 s left.\n"


def test_quiet_says_nothing_and_verbose_every_stage(tmp_path: Path, capsys: Output) -> None:
    assert call("run", *QUICK, "--out", tmp_path, "-q") == 0
    assert capsys.readouterr().err == ""
    assert call("-v", "run", *QUICK, "--out", tmp_path) == 0
    assert "dpbench: Calibrating sigma.\ndpbench: Fitting class-means: 1." in capsys.readouterr().err


# 7. Right or refused


@pytest.mark.slow
def test_two_seeds_get_a_word_of_caution(tmp_path: Path, capsys: Output) -> None:
    assert call("run", "--learner", "class-means:k=5", "--seeds", "2", "--out", tmp_path) == 0
    assert "warning Two seeds are too few for a reliable interval" in " ".join(capsys.readouterr().out.split())
    assert call("run", "--learner", "class-means:k=5", "--epsilon", "1,2", "--seeds", "2", "--out", tmp_path) == 0
    assert "Warning: Two seeds are too few for a reliable interval" in capsys.readouterr().out
    assert call("run", "--learner", "class-means:k=5", "--seeds", "3", "--out", tmp_path) == 0
    assert "warning" not in capsys.readouterr().out


def test_a_run_without_privacy_prints_no_delta_and_no_second_epsilon(tmp_path: Path, capsys: Output) -> None:
    assert call("run", *QUICK, "--epsilon", "inf", "--out", tmp_path) == 0
    shown = capsys.readouterr().out
    assert "none: no noise was added" in shown and "δ" not in shown and "(none)" not in shown


def test_public_images_that_a_learner_does_not_read_are_counted(tmp_path: Path, capsys: Output) -> None:
    assert call("run", "--learner", "dp-raft:steps=2", "--seeds", "1", "--out", tmp_path) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "144 public (not used by the learner)" in shown and "0 public" not in shown


def test_a_private_search_prints_the_setting_of_each_seed(tmp_path: Path, capsys: Output) -> None:
    search = ("--selection", "private-accounted", "--accountant", "rdp", "--repeats", "2", "--space", "k=3,5")
    assert call("run", "--learner", "class-means", "--seeds", "1", *search, "--out", tmp_path) == 0
    shown = capsys.readouterr().out
    setting = result_in(tmp_path).seeds[0].setting
    assert setting is not None and ("settings of seed 0" in shown) == bool(setting)


@pytest.mark.slow
def test_tune_says_why_settings_could_not_be_tried_and_what_the_defaults_score(tmp_path: Path, capsys: Output) -> None:
    protocol = ("--epsilon", "2", "--extractor", "pixels:mode=L", "--public-labels", "--out", tmp_path)
    assert call("tune", "--learner", "class-means", "--space", "k=1,9998,9999", *protocol) == 0
    shown = capsys.readouterr().out
    assert (
        "Tried 1 of 3 settings" in shown
        and "2 could not be tried" in shown
        and "Not tried (1): Expected k=9998" in shown
    )
    assert "The defaults score" in shown and "no setting beats them; keep the defaults" in shown
    command = shlex.split(shown.partition("use it with: dpbench ")[2])
    assert command[:7] == ["run", "--learner", "class-means", "--extractor", "pixels:mode=L", "--epsilon", "2"]
    assert call(*command, "--seeds", "1", "--out", tmp_path / "run") == 0
    found = result_in(tmp_path / "run")
    assert found.spec.learner.options["k"] == 1 and found.search is not None


@pytest.mark.slow
def test_tune_compares_settings_by_the_metric_that_it_chooses_by(tmp_path: Path, capsys: Output) -> None:
    """Means in one dimension tell some classes well and others not: accuracy and its mean over classes differ."""
    protocol = ("--epsilon", "2", "--metric", "balanced_accuracy", "--public-labels", "--out", tmp_path)
    assert call("tune", "--learner", "class-means", "--space", "k=1,2,9", *protocol) == 0
    shown = capsys.readouterr().out
    (file,) = tmp_path.glob("tuning-*.json")
    found = Tuning.read(file)
    assert found.default is not None and found.default.score not in {None, found.default.accuracy}
    scores = sorted((trial.score or 0 for trial in found.selection.trials), reverse=True)
    assert "balanced accuracy" in shown
    assert [line.split()[-1] for line in shown.splitlines()[1:4]] == [f"{100 * score:.2f}%" for score in scores]
    assert f"The defaults score {100 * (found.default.score or 0):.2f}%" in " ".join(shown.split())


def test_tune_refuses_a_rule_that_searches_nothing(tmp_path: Path, capsys: Output) -> None:
    assert call("tune", "--learner", "class-means", "--selection", "default", "--out", tmp_path) == 1
    assert "default settings need no search" in capsys.readouterr().err


def test_info_of_an_image_folder_says_where_it_is(tmp_path: Path) -> None:
    from PIL import Image

    for split in ("train", "test"):
        for kind in ("a", "b"):
            (tmp_path / split / kind).mkdir(parents=True)
            Image.new("RGB", (8, 8), "red" if kind == "a" else "blue").save(tmp_path / split / kind / "1.png")
    assert survey_dataset(load().build("dataset", "imagefolder", {"path": str(tmp_path)})).where == str(tmp_path)


# 8. For authors


@dataclass(frozen=True)
class Slips(Learner):
    """Cannot plan."""

    name: ClassVar[str] = "slips"

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        steps: Any = "many"
        return [Release("sum", steps=steps + 1)]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        raise NotImplementedError


@pytest.mark.long
def test_check_shows_the_line_of_the_plugin_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    plugins = load().with_component("learner", Slips)
    monkeypatch.delenv(DEBUG, raising=False)
    assert not any("Traceback" in (said or "") for _, said, _ in check_laws(plugins, "slips"))
    monkeypatch.setenv(DEBUG, "1")
    assert any("steps=steps + 1" in (said or "") for _, said, _ in check_laws(plugins, "slips"))


def test_debug_is_in_the_help_and_stands_anywhere(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    monkeypatch.setenv(DEBUG, "")  # to be put back
    assert call("--help") == 0
    assert "--debug" in capsys.readouterr().out
    with pytest.raises(SpecError):
        cli.main(["run", "--learner", "pilar", "--debug"])


@pytest.mark.long
def test_a_learner_that_imports_its_own_modules_as_it_fits_runs_in_a_fresh_process(tmp_path: Path) -> None:
    learner = ("--learner", "dp-sgd-net:network=tiny,steps=1", "--extractor", "pixels:flat=false", "--seeds", "1")
    code = "import sys; from dpbench.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "run", *learner, "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# 9. Submitting works anywhere


def _committed() -> Path:
    return min(list_records(LEADERBOARD / "results" / "digits-eps1"))


def test_a_result_is_checked_without_a_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("leaderboard", "check", _committed()) == 0
    shown = capsys.readouterr().out
    assert f"ok {_committed()}" in shown and "that it can be submitted to board digits-eps1" in shown
    assert call("leaderboard", "verify", _committed()) == 0
    assert call("leaderboard", "add", _committed()) == 0
    assert "leaderboard did not exist, so this started a leaderboard of your own" in capsys.readouterr().err
    assert [*(tmp_path / "leaderboard" / "results" / "digits-eps1").glob("adadps-digits-eps1-*.json")]
    assert call("leaderboard", "build", "--no-site") == 0


def test_a_result_of_an_earlier_version_whose_code_is_unknown_is_not_filed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.chdir(tmp_path)
    found = next(made for made in map(Result.read, list_records(_committed().parent)) if is_of_version(made, "0.2.0"))
    other = {**found.provenance, "code": {**found.provenance["code"], "learner": "0" * 16}}
    file = found.model_copy(update={"provenance": other}).with_evidence_digest().write(tmp_path)
    assert call("leaderboard", "add", file) == 1
    assert "or a version whose code computes the same, got 0.2.0: It was made by" in capsys.readouterr().err


def is_of_version(result: Result, version: str) -> bool:
    return {origin.version for origin in result.components.values()} == {version}


def test_another_result_of_a_spec_is_filed_in_place_of_the_first_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("leaderboard", "add", _committed()) == 0
    found = Result.read(_committed())
    other = found.model_copy(update={"seconds": {**found.seconds, "fit": 1.25}}).with_evidence_digest().write(tmp_path)
    assert call("leaderboard", "add", other) == 1
    assert "Use --replace to overwrite it" in capsys.readouterr().err
    assert call("leaderboard", "add", "--replace", other) == 0
    assert "replaced another result" in capsys.readouterr().out
    assert Result.read(tmp_path / "leaderboard/results/digits-eps1" / other.name).seconds["fit"] == 1.25


def test_a_run_for_a_board_says_that_the_tree_has_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    from dpbench.records import provenance

    monkeypatch.setattr(provenance, "read_git_state", lambda root=None: ("0" * 40, True))
    assert call("run", "--board", "digits-eps1", "--learner", "class-means", "--out", tmp_path) == 0
    assert "dpbench's tree has uncommitted changes, so no board will accept the result" in capsys.readouterr().err


def _distribution(folder: Path, noted: dict[str, Any]) -> None:
    info = folder / "stranger-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n", encoding="utf-8")
    (info / "direct_url.json").write_text(json.dumps(noted), encoding="utf-8")
    (info / "RECORD").write_text(f"{info.name}/METADATA,,\n{info.name}/direct_url.json,,\n", encoding="utf-8")


def test_a_plugin_from_elsewhere_is_submitted_with_its_repository_and_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dpbench.board.verify.declarations import check_provenance
    from dpbench.board.verify.source_code import check_source_code
    from dpbench.records.provenance import find_git_source

    monkeypatch.syspath_prepend(tmp_path)
    url, commit = "https://example.org/stranger.git", "ab" * 20
    _distribution(tmp_path, {"url": url.replace("//", "//me:secret@"), "vcs_info": {"vcs": "git", "commit_id": commit}})
    noted = find_git_source("stranger")
    assert noted == {"repository": url, "commit": commit, "dirty": False} and find_git_source("nobody") is None
    result = Result.read(_committed())

    def complaints(source: object) -> list[str]:
        told = {**result.provenance, "sources": {"stranger": source}}
        stated = result.model_copy(update={"provenance": told})
        wrong = [*check_provenance(stated, {}), *check_source_code(stated)]
        return [field for field, _ in wrong if "sources" in field]

    assert complaints(noted) == []
    assert complaints({**noted, "dirty": True}) == ["provenance.sources.stranger.dirty"]
    assert complaints({"repository": "/home/me", "commit": "main", "dirty": False}) == [
        "provenance.sources.stranger.repository",
        "provenance.sources.stranger.commit",
    ]
    leaking = {**noted, "repository": "https://me:secret@example.org/stranger.git"}
    assert complaints(leaking) == ["provenance.sources.stranger.repository"]
    over_ssh = {**noted, "repository": "ssh://git:secret@example.org:22/stranger.git"}
    assert complaints(over_ssh) == ["provenance.sources.stranger.repository"]
    assert complaints({**over_ssh, "repository": "ssh://git@example.org:22/stranger.git"}) == []
    assert complaints("unknown") == ["provenance.sources"]


# 10. Names and files


def test_names_are_suggested_whatever_their_case_and_whichever_part_was_meant(capsys: Output) -> None:
    for flag, name, meant in (("learner", "PILLAR", "pillar"), ("dataset", "mnist", "fashion-mnist")):
        assert (
            call("run", "--learner", "jl", f"--{flag}", name) == 1
            if flag != "learner"
            else call("run", f"--{flag}", name) == 1
        )
        assert f"Did you mean '{meant}'?" in capsys.readouterr().err


def test_a_figure_is_written_as_pdf_the_same_bytes_each_time(tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    for name in ("a.pdf", "b.pdf"):
        draw.check_chart_file(tmp_path / name, "--out")
        draw.write_chart(tmp_path / name, Figure)
    assert (tmp_path / "a.pdf").read_bytes() == (tmp_path / "b.pdf").read_bytes() != b""


def test_the_parser_refuses_in_one_plain_sentence(capsys: Output) -> None:
    assert call("run", "--lerner", "jl") == 2
    said = capsys.readouterr().err
    assert (
        "?." not in said
        and said.startswith("dpbench: No such option")
        and said.count("\n") == 1
        and "dpbench run --help" in said
    )


def test_an_audit_of_an_edited_result_is_refused_by_name(tmp_path: Path, capsys: Output) -> None:
    assert call("run", *QUICK, "--out", tmp_path) == 0
    (file,) = tmp_path.glob("*.json")
    content = json.loads(file.read_bytes())
    content["privacy"]["epsilon"] /= 2
    file.write_text(json.dumps(content), encoding="utf-8")
    capsys.readouterr()
    assert call("audit", file, "--out", tmp_path) == 1
    said = f"Result {file} does not fit the schema at evidence_digest: changed after the file was written."
    assert said in capsys.readouterr().err


def test_an_audit_of_a_result_of_before_names_its_file(tmp_path: Path, capsys: Output) -> None:
    assert call("run", *QUICK, "--out", tmp_path) == 0
    (file,) = tmp_path.glob("*.json")
    found = Result.read(file)
    before = found.model_copy(update={"privacy": found.privacy.model_copy(update={"mechanism": "exact-sums-0"})})
    file = before.with_evidence_digest().write(tmp_path)
    capsys.readouterr()
    assert call("audit", file, "--out", tmp_path) == 1
    assert str(file) in capsys.readouterr().err
    for name in ("one", "two"):
        before.with_evidence_digest().write(tmp_path / "root" / "results" / "board").rename(
            tmp_path / "root" / "results" / "board" / f"{name}.json"
        )
    assert call("audit", "board", "--root", tmp_path / "root") == 1  # as nothing was audited
    assert capsys.readouterr().err.count("not audited: ") == 2
