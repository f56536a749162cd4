"""The command line: bad input is one sentence, good input is printed and written."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from dpbench_plugins.datasets import hub_files
from PIL import Image

from dpbench.cli import main
from dpbench.cli.given import CommandSettings, UserSettings
from dpbench.data import extraction
from dpbench.errors import PlanError, SpecError
from dpbench.harness import scoring as metrics
from dpbench.privacy.core.accounting import accountant
from dpbench.records.place import RunOptions
from dpbench.records.result import Result
from dpbench.records.search import Search
from dpbench.records.spec import Spec
from tests.helpers.commands import Output, Refusal, call
from tests.helpers.rechecks import compute_alone

Install = Callable[[str, str], None]
QUICK = "dp-sgd:steps=3"

LEAKY = """
from dataclasses import dataclass
from dpbench import Learner, Release, hookimpl

@dataclass(frozen=True)
class Leaky(Learner):
    '''Subtracts the mean of its neighbours.'''
    name = "leaky"
    def plan(self, task, budget):
        return [Release("sum")]
    def fit(self, curator, public, generator):
        total = curator.noisy_sum(lambda chunk: chunk.x - chunk.x.mean(0), release="sum", clip=1)
        return lambda x: x[:, :10] + total[:10]

@hookimpl
def dpbench_learners():
    return [Leaky]
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a distribution with one plugin on the path."""

    def installed(module: str, source: str) -> None:
        folder = tmp_path / "site"
        info = folder / f"{module}_wheel-1.0.dist-info"
        info.mkdir(parents=True)
        (folder / f"{module}.py").write_text(source)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}-wheel\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[dpbench]\n{module} = {module}\n")
        monkeypatch.syspath_prepend(folder)
        monkeypatch.setenv("COLUMNS", "200")

    return installed


def refusal(capsys: Output, *arguments: str) -> str:
    """Return the one sentence with which a command is refused."""
    return Refusal(capsys).command(*arguments)


def run_arguments(out: Path, *more: str) -> list[str]:
    usual = {"--device": "cpu", "--seeds": "1", "--out": str(out / "results")}
    return ["run", *(word for flag in usual.items() if flag[0] not in more for word in flag), *more]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--learner pilar", "Unknown learner 'pilar'. Did you mean 'pillar'?"),
        ("--learner dp-sgd --dataset digit", "Unknown dataset 'digit'. Did you mean 'digits'?"),
        ("--learner dp-sgd --extractor pixel", "Unknown extractor 'pixel'. Did you mean 'pixels'?"),
        ("--learner dp-sgd --public-dataset digit", "Unknown dataset 'digit'. Did you mean 'digits'?"),
        ("--learner dp-sgd:step=3", "Unknown option 'step' of learner 'dp-sgd'. Did you mean 'steps'?"),
        ("--learner dp-sgd:steps", "Expected key=value after learner 'dp-sgd'"),
        ("--learner dp-sgd:steps=0", "Expected steps=0"),
        (
            "--learner dp-sgd:sample_rate=64",
            "Expected sample_rate=64.0 in (0, 1] in learner 'dp-sgd': chance",
        ),
        ("--learner dp-sgd:clip=0", "Expected clip=0.0"),
        ("--learner dp-sgd --extractor pixels:size=0", "Expected size=0 in [1, 2048] in extractor 'pixels': side"),
        ("--learner dp-sgd --epsilon 0", "epsilon=0.0"),
        ("--learner dp-sgd --epsilon -1", "epsilon=-1.0"),
        ("--learner dp-sgd --epsilon 0,5", "Expected --epsilon above 0: 0,5 is two values, 0 and 5; write 0.5."),
        ("--learner dp-sgd --train-fraction 0,25", "0,25 is two values, 0 and 25; write 0.25."),
        ("--learner dp-sgd:steps=true", "Expected steps=true in learner 'dp-sgd' to be a whole number or auto."),
        ("--learner dp-sgd --epsilon nan", "epsilon=nan"),
        ("--learner dp-sgd --delta 0.01", "Expected delta=0.01 in (0, 1/n) with n=1294"),
        ("--learner dp-sgd --seeds 0", "at least one"),
        ("--learner dp-sgd --public-dataset digits --public-fraction 0.1", "not from both"),
        ("--learner dp-sgd --train-fraction 0.0001", "No private example is left"),
        ("--learner dp-sgd --imbalance 0.5", "imbalance=0.5"),
        ("--learner dp-sgd --imbalance nan", "imbalance=nan"),
        ("--learner dp-sgd --device abacus", "Device 'abacus' cannot be used"),
        ("--dataset digits", "Expected 'learner'"),
    ],
)
def test_a_bad_flag_of_run_is_refused_in_one_sentence(capsys: Output, tmp_path: Path, flags: str, said: str) -> None:
    assert said in refusal(capsys, *run_arguments(tmp_path, *flags.split()))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("list imagefolder:photos", "dpbench data info imagefolder:photos describes this dataset."),
        ("list pixels:size=8", "got 'pixels:size=8'. Did you mean 'pixels'?"),
        ("list dataset", "got 'dataset'. Did you mean 'datasets'?"),
        ("check pixel", "Unknown component 'pixel'. Did you mean 'pixels'?"),
        ("budget --release steps=1", "exactly one of --epsilon"),
        ("budget --release steps=1 --epsilon 0", "Expected --epsilon 0.0 to be positive"),
        ("budget --release steps=1 --sigma nan", "Expected --sigma nan to be positive"),
        ("budget --release steps=1 --epsilon 1 --delta 1", "Expected --delta 1 to be from 1e-12 to 1"),
        ("budget --release steps=1 --epsilon 1 --delta 1e-13", "Expected --delta 1e-13 to be from 1e-12 to 1"),
        ("budget --release foo --epsilon 1", "Expected --release as pairs like steps=100,sample_rate=0.05, got 'foo'."),
        ("budget --release steps=0 --epsilon 1", "Expected steps=0"),
        ("budget --release step=1 --epsilon 1", "Unknown option 'step' of release. Did you mean 'steps'?"),
    ],
)
def test_other_commands_refuse_in_one_sentence_too(capsys: Output, command: str, said: str) -> None:
    assert said in refusal(capsys, *command.split())


def test_a_missing_dataset_says_what_to_do_and_where_it_looked(
    capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPBENCH_DATA", str(tmp_path / "nowhere"))
    said = refusal(capsys, *run_arguments(tmp_path, "--learner", QUICK, "--dataset", "cifar10"))
    assert str(tmp_path / "nowhere" / "uoft-cs/cifar10") in said
    assert "DPBENCH_DATA" in said


@pytest.mark.parametrize("keep", [0, 1000, -20])
def test_a_damaged_mirror_names_its_files(
    capsys: Output, tmp_path: Path, cifar_mirror: Path, monkeypatch: pytest.MonkeyPatch, keep: int
) -> None:
    monkeypatch.setenv("DPBENCH_DATA", str(tmp_path))
    for file in cifar_mirror.rglob("*.parquet"):
        copy = tmp_path / file.relative_to(cifar_mirror)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes()[:keep])
    said = refusal(capsys, *run_arguments(tmp_path, "--learner", QUICK, "--dataset", "cifar10"))
    assert "plain_text/train-00000-of-00001.parquet" in said


def test_a_mirror_is_used_offline(
    capsys: Output, tmp_path: Path, cifar_mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPBENCH_DATA", str(cifar_mirror))
    assert (
        call(*run_arguments(tmp_path, "--learner", QUICK, "--dataset", "cifar10", "--extractor", "pixels", "--json"))
        == 0
    )
    task = Result.model_validate_json(capsys.readouterr().out).task
    assert (task.private, task.public, task.test, task.example_shape) == (900, 100, 200, (3072,))


def test_a_result_that_can_no_longer_be_written_is_printed_so_that_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    out = tmp_path / "out"
    scored = metrics.score_predictions

    def spoil(*arguments: Any) -> Any:
        shutil.rmtree(out, ignore_errors=True)
        out.write_text("in the way")
        return scored(*arguments)

    monkeypatch.setattr(metrics, "score_predictions", spoil)
    assert call("run", "--learner", QUICK, "--seeds", "1", "--out", str(out)) == 1
    captured = capsys.readouterr()
    assert len(Result.model_validate_json(captured.out).seeds) == 1
    assert captured.err.startswith(f"dpbench: Cannot write {out}")


def test_a_folder_that_cannot_be_written_is_refused_before_anything_else(capsys: Output) -> None:
    said = refusal(capsys, "run", "--learner", QUICK, "--out", "/dev/null/x", "--delta", "0.5")
    assert "Cannot write /dev/null/x" in said


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("learner = ", "Cannot read the spec"),
        ("learner = 'dp-sgd'\nepsilom = 1\n", "Unknown key 'epsilom'"),
        ("learner = 'dp-sgd'\nrisk = true\n", "train_fraction, tries, tune, unit."),
        (None, "Cannot read the spec"),
    ],
)
def test_a_bad_toml_file_is_refused_by_name(capsys: Output, tmp_path: Path, content: str | None, said: str) -> None:
    file = tmp_path / "spec.toml"
    if content is not None:
        file.write_text(content)
    message = refusal(capsys, *run_arguments(tmp_path, "--spec", str(file)))
    assert said in message
    assert str(file) in message


def test_flags_win_over_the_toml_file(capsys: Output, tmp_path: Path) -> None:
    file = tmp_path / "spec.toml"
    file.write_text(f"learner = '{QUICK}'\nepsilon = 3\ndelta = 1e-6\n")
    assert call(*run_arguments(tmp_path, "--spec", str(file), "--epsilon", "2", "--json")) == 0
    spec = Result.model_validate_json(capsys.readouterr().out).spec
    assert (spec.epsilon, spec.delta, spec.learner.options["steps"]) == (2, 1e-6, 3)


@pytest.mark.slow
def test_an_interrupted_run_exits_130_and_goes_on_from_its_shards(
    capsys: Output, tmp_path: Path, cifar_mirror: Path, fresh_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPBENCH_DATA", str(cifar_mirror))
    monkeypatch.setattr(extraction, "SHARD", 256)
    monkeypatch.setattr(extraction.LoadedExtractor, "features_beside", compute_alone)
    arguments = run_arguments(tmp_path, "--learner", QUICK, "--dataset", "cifar10", "--extractor", "pixels")
    # Of 1,000 images, all of which are compared first: public images with private ones. Two shards are finished.
    decoded, decode, kills = [], hub_files.ImageColumn.__getitem__, [1700]

    def interrupted(column: hub_files.ImageColumn, index: int, /) -> Image.Image:
        decoded.append(index)
        if len(decoded) in kills:
            raise KeyboardInterrupt
        return decode(column, index)

    monkeypatch.setattr(hub_files.ImageColumn, "__getitem__", interrupted)
    assert call(*arguments) == 130
    assert capsys.readouterr().err.startswith("dpbench: Interrupted.")
    shards = [shard.name for shard in fresh_cache.rglob("*.partial/shard-*.npy")]
    assert sorted(shards) == ["shard-000000000.npy", "shard-000000256.npy"]
    decoded.clear()
    kills.clear()
    assert call(*arguments) == 0
    assert sorted(decoded[:488]) == [*range(512, 1000)]  # several threads read
    assert sorted(decoded[488:688]) == [*range(200)]  # the test split is read last
    assert sorted(decoded[688:]) == [*range(200)]  # and compared with both


def test_a_run_writes_one_result_and_says_where(capsys: Output, tmp_path: Path) -> None:
    assert call(*run_arguments(tmp_path, "--learner", QUICK)) == 0
    (file,) = (tmp_path / "results").iterdir()
    assert str(file) in capsys.readouterr().out
    assert Result.read(file).spec.learner.name == "dp-sgd"


def test_json_prints_the_result_that_is_written(capsys: Output, tmp_path: Path) -> None:
    assert call(*run_arguments(tmp_path, "--learner", QUICK, "--json", "--epsilon", "inf")) == 0
    (file,) = (tmp_path / "results").iterdir()
    assert Result.model_validate_json(capsys.readouterr().out) == Result.read(file)


def test_debugging_shows_where_it_was_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPBENCH_DEBUG", "1")
    with pytest.raises(SpecError):
        main(run_arguments(tmp_path, "--learner", "pilar"))


def test_a_budget_that_no_accountant_answers_exits_1(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> float:
        raise PlanError("It cannot answer.")

    monkeypatch.setattr(accountant, "epsilon", refused)
    assert call("budget", "--release", "steps=1", "--sigma", "1", "--json") == 1
    assert {row["note"] for row in json.loads(capsys.readouterr().out)} == {"It cannot answer."}


@pytest.mark.parametrize("command", ["run", "tune"])
def test_a_setting_is_given_or_searched(capsys: Output, tmp_path: Path, command: str) -> None:
    asked = [command, "--learner", "pillar:k=7", "--space", "k=3,4", "--out", str(tmp_path)]
    assert refusal(capsys, *asked, *(["--tune"] if command == "run" else [])) == (
        "dpbench: Expected k=7 for the learner or values of k in the search space, got both in the flags of "
        f"dpbench {command}.\n"
    )


def test_a_file_may_list_the_space_as_flags_do(tmp_path: Path) -> None:
    file = tmp_path / "spec.toml"
    file.write_text('learner = "pillar"\ntune = true\nspace = ["k=3,4", "steps=5,10"]\n', encoding="utf-8")
    search = UserSettings("run", CommandSettings((Spec, Search, RunOptions)), {}, file).spec().search
    assert search is not None and search.space == {"k": ("3", "4"), "steps": ("5", "10")}


def test_budget_knows_replacing_one(capsys: Output) -> None:
    plan = ("budget", "--release", "steps=4,sample_rate=0.5", "--adjacency", "replace-one", "--json")
    assert call(*plan, "--epsilon", "1") == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["accountant"] == "pld"
    assert 0.999 < found["epsilon"] <= 1
    assert call(*plan, "--sigma", str(found["sigma"])) == 0
    assert json.loads(capsys.readouterr().out)[0]["epsilon"] == found["epsilon"]
    assert call("budget", "--release", "steps=1", "--sigma", "1", "--adjacency", "both") == 1
    assert "Expected --adjacency both to be add-or-remove-one or replace-one." in capsys.readouterr().err


def test_a_budget_as_json_has_numbers(capsys: Output) -> None:
    assert call("budget", "--release", "steps=1", "--sigma", "3", "--json") == 0
    for row in json.loads(capsys.readouterr().out):
        assert row["sigma"] == 3 and 1 < row["epsilon"] < 2


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_more_threads_than_a_process_can_have_are_refused(capsys: Output, tmp_path: Path, command: str) -> None:
    asked = run_arguments(tmp_path, "--learner", "pillar") if command == "run" else ["sweep", "pillar-figure-4"]
    assert call(*asked, "--threads", "100000") in {1, 2}
    assert re.search(r"threads\b.*1,?024", " ".join(capsys.readouterr().err.split()))


def test_list_names_every_kind_as_json(capsys: Output) -> None:
    assert call("list", "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert set(listed) == {"datasets", "extractors", "learners", "broken", "clashes"}
    assert {"name", "summary", "plugin", "distribution", "version"} == set(listed["learners"][0])


def test_list_shows_only_what_was_asked(capsys: Output) -> None:
    assert call("list", "learners") == 0
    shown = capsys.readouterr().out
    assert "pillar" in shown
    assert "digits" not in shown


def test_list_of_a_name_shows_each_setting_with_its_default_range_and_meaning(
    capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert call("list", "pillar") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "learner pillar, from dpbench-vision" in shown
    assert "k auto a whole number >= 1 or auto principal components kept" in shown
    assert call("list", "pillar", "--json") == 0
    (described,) = json.loads(capsys.readouterr().out)
    momentum = next(row for row in described["settings"] if row["name"] == "momentum")
    assert (momentum["default"], momentum["values"]) == ("0.9", "a number in [0, 1)")


def test_a_name_of_two_kinds_is_listed_as_both(capsys: Output) -> None:
    assert call("list", "scatternet") == 0
    shown = capsys.readouterr().out
    assert "extractor scatternet, from" in shown and "learner scatternet, from" in shown


def test_list_of_a_component_without_settings_says_so(capsys: Output) -> None:
    assert call("list", "digits") == 0
    shown = capsys.readouterr().out
    assert "It has no settings." in shown and "dpbench data info digits" in shown


def test_list_has_a_line_for_each_component_that_fits_the_terminal(
    capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert call("list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80 and len(lines) < 90
    (line,) = [line for line in lines if line.startswith("pixels ")]
    assert line.split()[:3] == ["pixels", "yes", "Pixels"]


def test_list_of_an_extractor_says_whether_it_is_here_its_licence_and_its_layers(capsys: Output) -> None:
    assert call("list", "randp-wrn16-4") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "here: yes; licence: Apache-2.0 features: 448 layers for dp-finetune (layer=NAME): blocks.0 64 x" in shown


def test_the_help_of_run_shows_ten_flags_first_and_the_rest_under_headings(
    capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert call("run", "--help") == 0
    first, *others = re.split(r"─ (The protocol|How settings are chosen|Files and machine) ─", capsys.readouterr().out)
    assert len(re.findall(r"^│ --", first, re.MULTILINE)) == 11  # with --help
    assert [len(re.findall(r"^│ --", part, re.MULTILINE)) > 4 for part in others[1::2]] == [True] * 3


def test_list_shows_a_broken_plugin(capsys: Output, install: Install) -> None:
    install("tiny_broken", "import a_missing_module\n")
    assert call("list") == 0
    shown = capsys.readouterr().out
    assert "Plugin 'tiny_broken' of distribution 'tiny_broken-wheel' is left out: ModuleNotFoundError" in shown
    assert "pillar" in shown


def test_check_exits_0_where_every_law_holds(capsys: Output) -> None:
    assert call("check", "pixels") == 0
    assert "broken" not in capsys.readouterr().out


def test_check_exits_1_and_names_the_broken_law(capsys: Output, install: Install) -> None:
    install("tiny_leaky", LEAKY)
    assert call("check", "leaky") == 1
    shown = capsys.readouterr().out
    assert "broken      learner leaky: rows ignore their neighbours" in shown
    assert "holds       learner leaky: the plan repeats" in shown


def budget(capsys: Output, *arguments: str) -> dict[str, dict[str, str]]:
    assert call("budget", "--release", "steps=512,sample_rate=0.1", "--delta", "1e-6", "--json", *arguments) == 0
    return {row["accountant"]: row for row in json.loads(capsys.readouterr().out)}


def test_budget_finds_epsilon_for_a_sigma(capsys: Output) -> None:
    rows = budget(capsys, "--sigma", "3")
    assert float(rows["pld"]["epsilon"]) == pytest.approx(3.7697, abs=5e-5)
    assert float(rows["pld"]["epsilon"]) < float(rows["prv"]["epsilon"]) < float(rows["rdp"]["epsilon"])


@pytest.mark.slow
def test_budget_finds_sigma_for_an_epsilon(capsys: Output) -> None:
    rows = budget(capsys, "--epsilon", "3.7697")
    assert float(rows["pld"]["sigma"]) == pytest.approx(3, rel=2e-3)
    assert all(0.99 * 3.7697 < float(row["epsilon"]) <= 3.7697 for row in rows.values())


def test_garbage_is_collected_once_a_command_runs() -> None:
    code = """
import gc, sys
from dpbench import main
main.load_root_command = lambda: sys.exit(gc.isenabled())
try:
    main.main()
except SystemExit as ended:
    assert ended.code is False
main.load_root_command = lambda: lambda *words, **named: print(gc.isenabled(), gc.get_freeze_count() > 0)
main.main()
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "True True\n"


LIGHT = """
import sys
from dpbench.cli import main
for command in sys.argv[1:]:
    try:
        main(command.split())
    except SystemExit as ended:
        if ended.code or "torch" in sys.modules:
            sys.exit(f"{command} ends with {ended.code}, or imports torch")
"""


def test_light_commands_import_no_torch() -> None:
    process = [sys.executable, "-c", LIGHT, "--help", "list", "run --help", "pretrain --help"]
    done = subprocess.run(process, check=False, timeout=60, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Usage:") == 3
    assert "--resume" in done.stdout


@pytest.mark.parametrize(("what", "name"), [("boards", "digits-eps1"), ("figures", "pillar-figure-4")])
def test_boards_and_figures_are_listed_with_what_they_show(
    what: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("list", what, "--json") == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows[name]["shows"] and name in rows[name]["command"]
    assert call("list", what) == 0
    assert name in capsys.readouterr().out


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--version") == 0
    assert capsys.readouterr().out == f"dpbench {metadata.version('dpbench-vision')}\n"


def test_risk_says_what_epsilon_means_as_odds(capsys: Output, tmp_path: Path) -> None:
    assert call(*run_arguments(tmp_path, "--learner", "class-means", "--risk", "--epsilon", "1")) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "membership test of one private image, by someone who knows all the others: true positives at most" in shown
    assert re.search(r"0\.\d\d% at 0\.1% false positives and [1-2]\.\d\d% at 1\.0%", shown)


def test_without_noise_there_are_no_odds(capsys: Output, tmp_path: Path) -> None:
    assert call(*run_arguments(tmp_path, "--learner", "class-means", "--risk", "--epsilon", "inf")) == 0
    assert "membership test no bound: there is no guarantee" in " ".join(capsys.readouterr().out.split())
