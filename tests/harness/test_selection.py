"""How settings were chosen, end to end: what a search may touch, what goes on record, what epsilon is stated for."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from dpbench_plugins.datasets.sklearn import Digits
from dpbench_plugins.learners.dp_sgd import DPSGD
from torch import Tensor

from dpbench import Budget, Curator, Predict, PublicData, Release, Split, Splits, Task
from dpbench.board.verify.declarations import check_settings_selection
from dpbench.data.duplicates import compute_hashes
from dpbench.errors import ComponentFailed, DataError, DpbenchError, SpecError
from dpbench.harness import split_images
from dpbench.harness.splits import load_features
from dpbench.harness.tuning import private
from dpbench.harness.tuning.transfer import read_settings
from dpbench.privacy.core.accounting import accountant, private_search
from dpbench.privacy.core.accounting.private_search import RunCountDistribution
from dpbench.privacy.core.randomness import make_selection_generator
from dpbench.records.board import Board
from dpbench.records.result import Result
from dpbench.records.search import UNRANKED, SelectionRule, choose_least_clean_rule
from dpbench.records.spec import Spec, make_spec
from dpbench.records.tuning import Tuning
from dpbench.registry import Registration, Registry, load
from dpbench.registry.boards import make_entry_spec
from dpbench.registry.components import find_selection_rule, resolve
from dpbench.support.files import canonical_digest
from tests.cli.test_cli import refusal
from tests.helpers import boards
from tests.helpers.commands import Output, call
from tests.helpers.sessions import session

pytestmark = pytest.mark.usefixtures("telling")
SPACE = {"learning_rate": (1e-5, 0.5), "clip": (0.5, 1.0)}
SCORED = {
    "accuracy", "balanced_accuracy", "worst_class_accuracy", "macro_f1", "auroc", "class_accuracy", "correct",
    "predictions", "class_gap", "ece", "nll", "brier", "confusion", "calibration",
}  # fmt: skip
EVENTS: list[str] = []
SCORES: list[float] = []


@dataclass(frozen=True)
class Fitted(DPSGD):
    """DP-SGD that notes its fits, fails at one learning rate and cannot plan 13 steps; nothing is fitted together."""

    name: ClassVar[str] = "fitted"

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        EVENTS.append("fit")
        if self.learning_rate == 1e-5:
            raise ZeroDivisionError("no luck")
        if self.learning_rate == 1e-6:
            curator.noisy_sum(lambda chunk: chunk.x / (1 // 0), release="gradient", clip=1.0)
        predict = super().fit(curator, public, generator)
        SCORES.append(float(predict(torch.ones(1, 64))[0, 0]))
        return predict

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        return super().plan(task, budget) if self.steps != 13 else [Release("gradient", 1 // 0)]

    @property
    def shared(self) -> object:
        return self


class Parity(Digits):
    """Whether a digit is odd."""

    name: ClassVar[str] = "parity"
    classes: ClassVar[tuple[str, ...]] = ("even", "odd")

    def load(self) -> Splits:
        train, test = (Split(split.images, split.labels % 2) for split in (super().load().train, super().load().test))
        return Splits(train, test, "parity")


class Sealed(Digits):
    """Digits under another name, with a test split that nobody can read."""

    name: ClassVar[str] = "sealed"

    def load(self) -> Splits:
        unreadable: Any = object()
        return Splits(super().load().train, Split(unreadable, unreadable), "sealed")


def plugins() -> Registry:
    components: Any = {kind: dict(known) for kind, known in load().components.items()}
    for kind, cls in (("learner", Fitted), ("dataset", Parity), ("dataset", Sealed)):
        components[kind][cls.name] = Registration(cls, "tiny-plugin", "tiny-wheel", "0.1")
    return Registry(components)


def spec(rule: str | None = None, **values: Any) -> Spec:
    """Return a quick spec; details of the search by the names that only it has. `dp-sgd` alone searches its steps."""
    details = {key: values.pop(key) for key in ("space", "repeats", "shape", "seed") if key in values}
    values = {"learner": "dp-sgd:steps=3", "epsilon": 8, "accountant": "rdp", "seeds": 2, **values}
    if rule:
        steps = {"steps": (3, 4)} if values["learner"] == "dp-sgd" else {}
        values["search"] = {"rule": rule, "space": {**SPACE, **steps}, **details}
    return make_spec(values, "the test")


def ran(rule: str | None = None, settings: Path | None = None, **values: Any) -> Result:
    return session(plugins()).run(spec(rule, **values), settings=settings)


def tuned(folder: Path, **values: Any) -> Path:
    return _tuning(**values).write(folder)


@functools.cache
def _tuning(**values: Any) -> Tuning:
    return session(plugins()).tune(spec("public-validation", **values))


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["public-validation", "private-unaccounted"])
def test_a_search_is_on_record_and_its_winner_is_what_is_scored(rule: SelectionRule, tmp_path: Path) -> None:
    found = ran(rule)
    record = found.search
    assert record is not None
    assert record.chosen is not None
    assert found.selection == record.rule == choose_least_clean_rule(rule, "by-hand")  # steps are set beside the search
    assert record.private_touched == (rule == "private-unaccounted")
    assert (record.public_labels, record.possible, record.tried, record.draw) == (144, 4, 4, "grid")
    assert record.space == SPACE
    assert max(record.trials, key=lambda trial: trial.accuracy or 0).setting == record.chosen
    options = ",".join(f"{key}={value}" for key, value in record.chosen.items())
    assert ran(learner=f"dp-sgd:steps=3,{options}").seeds == found.seeds
    assert Result.read(found.write(tmp_path)) == found


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["public-validation", "private-accounted"])
def test_the_spec_of_a_result_run_again_chooses_the_same(rule: str) -> None:
    first = ran(rule)
    again = session(plugins()).run(Spec.model_validate_json(first.spec.model_dump_json()))
    assert (again.digest, again.search, again.seeds) == (first.digest, first.search, first.seeds)


@pytest.mark.parametrize(
    ("learner", "space", "rule"),
    [
        ("dp-sgd", {"clip": (0.5, 1.0)}, "public-validation"),
        ("dp-sgd:steps=3", {"clip": (0.5, 1.0)}, "by-hand"),
        ("dp-sgd", {"clip": (0.5, 1.0), "steps": (3,)}, "by-hand"),
        ("dp-sgd", {"clip": (0.5, 1.0), "steps": ("auto",)}, "public-validation"),
        ("public-prior", {"ridge": (0.1, 1.0)}, "public-validation"),
        ("public-prior", {"ridge": (0.1, 1.0), "prior": ("", "head.safetensors")}, "by-hand"),
    ],
)
def test_settings_beside_a_search_and_files_in_it_are_chosen_by_hand(
    learner: str, space: dict[str, Any], rule: str
) -> None:
    resolved = resolve(spec("public-validation", learner=learner, space=space), load())
    assert resolved.search is not None
    own = find_selection_rule(resolved.parts.learner, resolved.search.space)
    assert choose_least_clean_rule("public-validation", own) == rule
    assert choose_least_clean_rule("private-unaccounted", own) == "private-unaccounted"


def test_what_was_chosen_on_private_data_without_account_or_on_test_data_is_never_ranked() -> None:
    assert set(UNRANKED) == {"private-unaccounted", "oracle"}


@pytest.mark.slow
def test_a_tuning_survives_json_with_infinity(tmp_path: Path) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    given = spec("public-validation", epsilon=math.inf, space={"learning_rate": (math.inf, 0.5)})
    made = session().tune(given)
    file = made.write(tmp_path)
    json.loads(file.read_text(), parse_constant=refuse)
    found = Tuning.read(file)
    assert (found.spec.epsilon, found.digest, found.spec.digest) == (math.inf, made.digest, made.digest)
    assert found.write(tmp_path / "again").read_bytes() == file.read_bytes()
    assert session().tune(found.spec).selection == made.selection


def test_tuning_never_reads_the_test_split(tmp_path: Path) -> None:
    assert Tuning.read(tuned(tmp_path, dataset="sealed")).selection.chosen is not None
    with pytest.raises((TypeError, AttributeError)):
        ran("public-validation", dataset="sealed")


def test_settings_are_chosen_before_the_test_split_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def noted(splits: Splits, name: Any, *arguments: Any) -> Tensor:
        EVENTS.append(name)
        return load_features(splits, name, *arguments)

    monkeypatch.setattr(split_images, "load_features", noted)
    EVENTS.clear()
    ran("public-validation", learner="fitted:steps=3")
    assert EVENTS == ["fit"] * 4 * 5 + ["test"] + ["fit"] * 2  # four settings, five folds; two seeds


def test_private_search_states_the_epsilon_of_the_whole_search() -> None:
    privacy = ran("private-accounted", repeats=6, shape=0.5, epsilon=2).privacy
    assert privacy.repeats is not None
    plan = [Release(use.name, use.steps, use.as_planned.sample_rate, use.relative_noise) for use in privacy.plan]
    count = RunCountDistribution(privacy.repeats.mean, privacy.repeats.shape)
    assert (count, privacy.accountant) == (RunCountDistribution(6, 0.5), "rdp")
    assert privacy.epsilon == private_search.epsilon(plan, privacy.sigma, privacy.delta, count)
    assert 0.99 * 2 < privacy.epsilon <= 2
    assert privacy.independent.lower <= privacy.epsilon <= privacy.independent.upper < 2 * 1.02
    assert privacy.sigma > 1.2 * accountant.calibrate(plan, Budget(2, privacy.delta), "rdp")


@pytest.mark.slow
def test_private_search_records_each_seeds_setting_and_nothing_that_tells_how_many_runs_there_were() -> None:
    found = ran("private-accounted", seeds=6, repeats=5)
    record = found.search
    assert record is not None
    assert (record.tried, record.trials, record.chosen, record.private_touched) == (None, (), None, True)
    assert (record.public_labels, record.possible) == (144, 4)
    settings = [seed.setting for seed in found.seeds]
    assert all(setting is not None and setting["clip"] in SPACE["clip"] for setting in settings)
    assert len({json.dumps(setting) for setting in settings}) > 1
    assert [seed.spent for seed in found.seeds] == [{"gradient": 3}] * 6
    assert ran("private-accounted", seeds=[4], repeats=5).seeds == found.seeds[4:5]


def test_the_best_of_a_random_number_of_runs_wins_and_a_run_that_fails_counts_as_one() -> None:
    rates, runs, seeds = (1e-5, 1e-7, 0.5), 0, [4, 5, 8, 9]
    learner, space = "fitted:steps=3,init=uniform", {"learning_rate": rates}
    asked = spec("private-accounted", learner=learner, seeds=seeds, repeats=8, space=space)
    identity = session(plugins()).prepare(asked).identity
    EVENTS.clear()
    found = session(plugins()).run(asked)
    for seed, won in zip(seeds, found.seeds, strict=True):
        chance = make_selection_generator("research", seed, identity)
        tried = [
            rates[chance.randrange(3)] for _ in range(private_search.draw_run_count(RunCountDistribution(8), chance))
        ]
        runs += len(tried)
        assert won.setting == {"learning_rate": 0.5 if 0.5 in tried else 1e-7}  # 1e-5 fails, 1e-7 learns nothing
    assert EVENTS.count("fit") == runs


def test_where_all_runs_behind_a_seed_fail_the_outcome_knows_nothing() -> None:
    found = ran("private-accounted", learner="fitted:steps=3,init=uniform", space={"learning_rate": (1e-5,)})
    assert all(seed.setting == {} and seed.accuracy < 0.2 for seed in found.seeds)


def test_a_search_ends_where_a_run_fails_on_rows_for_that_is_not_noisy() -> None:
    with pytest.raises(ComponentFailed, match="ZeroDivisionError"):
        ran("private-accounted", learner="fitted:steps=3", space={"learning_rate": (1e-6,)})


def _with_runs(monkeypatch: pytest.MonkeyPatch, count: int) -> Result:
    """Return a private search that made so many runs a seed, all with one setting."""
    monkeypatch.setattr(private, "draw_run_count", lambda *_: count)
    return ran("private-accounted", learner="fitted:steps=3", space={"clip": (1.0,)})


def test_nothing_that_is_published_tells_how_many_runs_there_were(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two searches that differ in the number of runs alone differ in scores alone, and say the same."""
    single, many = (json.loads(_with_runs(monkeypatch, count).model_dump_json()) for count in (1, 6))
    assert capfd.readouterr() == ("", "")
    for told in (single, many):
        for cost in ("seconds", "cpu_seconds", "peak_bytes"):
            assert set(told[cost]) == {"load", "calibrate"}  # which come before the first run
            del told[cost]
        del told["evidence_digest"]
        told["seeds"] = [{name: seed[name] for name in seed.keys() - SCORED} for seed in told["seeds"]]
    assert single == many
    assert set(single["seeds"][0]) == {"seed", "spent", "setting"}


def test_every_run_behind_a_seed_has_noise_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    SCORES.clear()
    _with_runs(monkeypatch, 6)
    ran(learner="fitted:steps=3")
    assert len(SCORES) == len(set(SCORES)) == 2 * 6 + 2


BOARD = {
    "name": "tiny", "title": "Tiny", "dataset": "digits", "extractor": "pixels", "epsilon": 8.0, "delta": 1e-5,
    "accountant": "rdp", "adjacency": "add-or-remove-one", "public_fraction": 0.1, "public_labels": False,
    "train_fraction": 1.0, "split_seed": 0, "seeds": 2, "metric": "accuracy",
}  # fmt: skip
PRIVATE = "--selection private-accounted --accountant rdp"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--selection private-accounted", "Expected accountant='rdp' with selection private-accounted, got 'pld'"),
        (
            f"{PRIVATE} --learner dp-sgd --space steps=3,4",
            "needs one plan for all settings of learner 'dp-sgd', got 2 different ones",
        ),
        (f"{PRIVATE} --repeats 1", "repeats"),
        (f"{PRIVATE} --public-fraction 0", "at least 10 labelled public examples to choose settings with, got 0"),
        ("--tune --public-fraction 0", "at least 10 labelled public examples to choose settings with, got 0"),
        ("--tune --selection public-validation", "--tune means --selection public-validation: use only one of them"),
        ("--space clip=1,2", "Use --space with --tune or --selection"),
        ("--tries 3 --repeats 4", "Use --tries, --repeats with --tune or --selection"),
        ("--selection default --tries 3", "Use --tries with --tune or --selection"),
        ("--selection oracle", "Settings are never chosen on the test split"),
        ("--selection transfer", "For settings found elsewhere, use --settings FILE"),
        ("--selection best", "Expected --selection best to be one of default, public-validation"),
        ("--tune --space clip", "expected own, paper or setting=value,value, once per setting; got 'clip'"),
        ("--tune --space clip=1 --space clip=2", "once per setting; got 'clip=2'"),
        ("--tune --space clop=1", "Unknown option 'clop' of learner 'dp-sgd', in the search space. Did you mean"),
        ("--tune --space clip=much", "Expected clip=much in learner 'dp-sgd', in the search space to be a number"),
        ("--tune --space init=odd", "Expected init=odd"),
        ("--tune --learner dp-sgd:steps=3,learning_rate=1", "its space 'own' is empty"),
        ("--settings absent.json", "Expected a tuning or a result of dpbench in absent.json"),
    ],
)  # fmt: skip
def test_a_search_that_does_not_fit_is_refused_in_one_sentence(
    capsys: Output, tmp_path: Path, flags: str, said: str
) -> None:
    flags = flags if "--learner" in flags else f"--learner dp-sgd:steps=3 {flags}"
    assert said in refusal(capsys, "run", "--out", str(tmp_path), "--device", "cpu", "--seeds", "1", *flags.split())


def test_private_search_is_refused_where_nothing_is_run(capsys: Output, tmp_path: Path) -> None:
    asked = ("tune", "--learner", "dp-sgd", *PRIVATE.split(), "--out", str(tmp_path))
    assert "dpbench run --selection private-accounted" in refusal(capsys, *asked)


@pytest.mark.slow
def test_the_command_line_tunes_and_takes_settings_from_the_file(capsys: Output, tmp_path: Path) -> None:
    quick = "--learner dp-sgd --epsilon 8 --accountant rdp --device cpu"
    common = [*quick.split(), "--out", str(tmp_path)]
    assert call("tune", *common, "--space", "clip=0.5,1", "--space", "learning_rate=0.00001,0.5", "--tries", "3") == 0
    (file,) = tmp_path.glob("tuning-dp-sgd-digits-*.json")
    said = capsys.readouterr().out
    assert "Tried 3 of 4 settings (random); 144 public labels read, private data not touched" in said
    assert call("run", *common, "--seeds", "1", "--settings", str(file), "--json") == 0
    found = Result.model_validate_json(capsys.readouterr().out)
    record, tuning = found.search, Tuning.read(file)
    assert record is not None
    assert record.source is not None
    assert (found.selection, record.tried, record.source.digest) == ("public-validation", 3, tuning.digest)
    assert {**(record.chosen or {}), **(tuning.selection.chosen or {})} == record.chosen
    assert call("run", *common, "--seeds", "1", "--settings", str(file), "--tune") == 1
    assert "from a file or from a search, but not both" in capsys.readouterr().err


def elsewhere(file: Path, **changes: Any) -> Path:
    """Write a copy of a tuning as if it had been made under another spec."""
    content = json.loads(file.read_text())
    content["spec"].update(changes)
    content["digests"] = {"private": "other", "public": "other"}
    copy = file.with_name("elsewhere.json")
    copy.write_text(json.dumps(boards.resealed(content) if "seeds" in content else content))
    return copy


@pytest.mark.slow
def test_settings_say_where_they_come_from(tmp_path: Path) -> None:
    file = tuned(tmp_path, learner="dp-sgd")
    none: dict[str, Any] = {}
    for settings, values, rule in (
        (file, none, "public-validation"),
        (file, {"epsilon": 7}, "by-hand"),
        (elsewhere(file, dataset={"name": "letters"}), {"epsilon": 7}, "transfer"),
        (tuned(tmp_path / "by-hand"), none, "by-hand"),
        (ran("private-unaccounted").write(tmp_path), none, "private-unaccounted"),
        (ran().write(tmp_path), none, "by-hand"),
        (ran(learner="dp-sgd").write(tmp_path), none, "default"),
    ):
        found = ran(settings=settings, seeds=1, learner="dp-sgd", **values)
        assert found.search is not None
        assert found.search.source is not None
        assert found.selection == found.search.rule == rule
        assert found.search.source.dataset == ("letters" if rule == "transfer" else "digits")


@pytest.mark.slow
def test_defaults_of_an_earlier_version_are_somebodys_choice(tmp_path: Path) -> None:
    content = json.loads(ran(learner="dp-sgd").write(tmp_path).read_text())
    content["spec"]["learner"]["options"] |= {"steps": 3, "learning_rate": 0.1}  # before defaults followed epsilon
    (tmp_path / "older.json").write_text(json.dumps(boards.resealed(content)))
    found = ran(settings=tmp_path / "older.json", learner="dp-sgd", seeds=1)
    assert found.search is not None and found.search.source is not None
    assert (found.selection, found.search.source.selection) == ("transfer", "default")
    assert found.privacy.plan[0].steps == 3
    assert list(check_settings_selection(found)) == []


def _renamed(file: Path, name: str) -> Path:
    """Write a copy of a tuning or result as if its data, the same images, had another name and other files."""
    content = json.loads(file.read_text())
    content["spec"]["dataset"] = {"name": name, "options": {}}
    content.get("task", content)["digests"] = {"private": "other", "public": "other"}
    copy = file.with_name(f"{name}.json")
    copy.write_text(json.dumps(boards.resealed(content) if "seeds" in content else content))
    return copy


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["private-unaccounted", "public-validation"])
def test_a_setting_is_never_cleaner_than_what_it_was_found_by(rule: str, tmp_path: Path) -> None:
    """Through any number of transfers, and data of any name."""
    file = ran(rule, learner="dp-sgd").write(tmp_path)
    for name in ("first", "second", "third"):
        found = ran(settings=_renamed(file, name), learner="dp-sgd", seeds=1, epsilon=7)
        assert found.search is not None and found.search.source is not None
        assert found.selection == ("transfer" if rule == "public-validation" else rule)
        assert found.search.private_touched == (rule != "public-validation")
        assert (found.selection in UNRANKED) == (rule != "public-validation")
        file = found.write(tmp_path)


def test_settings_in_a_file_that_the_learner_itself_refuses_are_told_with_the_file(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Picky(DPSGD):
        def __post_init__(self) -> None:
            if self.steps == 3:
                raise ValueError("three is a crowd")

    file = ran(seeds=1).write(tmp_path)
    with pytest.raises(ComponentFailed, match=rf"^Building learner 'dp-sgd' from {file} failed: ValueError: three is"):
        read_settings(file, Picky())


@pytest.mark.slow
def test_settings_that_an_older_file_calls_transferred_count_as_what_they_were_found_by(tmp_path: Path) -> None:
    found = ran(settings=_renamed(ran("private-unaccounted").write(tmp_path), "copy"), learner="dp-sgd", seeds=1)
    content = json.loads(found.write(tmp_path).read_text())
    content["selection"] = content["search"]["rule"] = "transfer"
    content["search"]["private_touched"] = False
    (tmp_path / "older.json").write_text(json.dumps(boards.resealed(content)))
    again = ran(settings=_renamed(tmp_path / "older.json", "anew"), learner="dp-sgd", seeds=1)
    assert again.selection == "private-unaccounted"
    assert again.search is not None and again.search.private_touched


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("there", "rule"),
    [
        ({}, "transfer"),
        ({"split_seed": 1}, "private-unaccounted"),
        ({"public_fraction": 0.5}, "private-unaccounted"),
        ({"imbalance": 4}, "private-unaccounted"),
    ],
)
def test_the_same_images_under_another_name_are_the_same_data(tmp_path: Path, there: dict[str, Any], rule: str) -> None:
    """Labels that were public there are private here, which the sketch of the public images shows."""
    found = ran(settings=_renamed(tuned(tmp_path, learner="dp-sgd", **there), "copy"), learner="dp-sgd", seeds=1)
    assert found.selection == rule
    assert found.search is not None and found.search.private_touched == (rule != "transfer")


@pytest.mark.slow
def test_settings_found_on_the_same_images_at_another_size_are_no_transfer(tmp_path: Path) -> None:
    """Digits of 16 x 16 were laundered so: 128 of their 144 public images were private here."""
    file = _renamed(tuned(tmp_path, split_seed=1), "larger")
    content = json.loads(file.read_text())
    train = Digits().load().train
    resized = [train.images[place].resize((16, 16)) for place in range(len(train.labels))]
    public = compute_hashes(Split(resized, train.labels), "larger", "train").take(np.arange(0, 1438, 10))
    file.write_text(json.dumps(content | {"sketch": public.sketch, "looks": public.looks}))
    found = ran(settings=file, learner="dp-sgd", seeds=1)
    assert found.selection == "private-unaccounted"


def test_settings_found_by_labels_of_the_test_split_are_an_oracles(tmp_path: Path) -> None:
    file = _renamed(tuned(tmp_path), "copy")
    opened = session(plugins()).prepare(spec())
    content = json.loads(file.read_text()) | {"sketch": opened.images.hash_split("test").sketch}
    file.write_text(json.dumps(content))
    assert ran(settings=file, learner="dp-sgd", seeds=1).selection == "oracle"


def test_a_sketch_that_is_none_is_refused_in_one_sentence(tmp_path: Path) -> None:
    file = _renamed(tuned(tmp_path), "copy")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"sketch": "no sketch"}))
    with pytest.raises(DataError, match="Expected a sketch"):
        ran(settings=file, learner="dp-sgd", seeds=1)


def test_a_board_takes_a_private_search_with_secure_randomness_alone() -> None:
    board = Board.model_validate({**BOARD, "selection": ("default", "private-accounted")})
    asked = {"learner": "dp-sgd:steps=3", "search": {"rule": "private-accounted", "space": SPACE}}
    with pytest.raises(SpecError, match=r"Add --secure-rng"):
        make_entry_spec(board, asked, plugins(), "the test")
    assert make_entry_spec(board, {**asked, "secure_rng": True}, plugins(), "the test").secure_rng


@pytest.mark.slow
def test_settings_that_cannot_be_taken_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"Expected settings of learner 'pillar' in .*, got those of 'dp-sgd'"):
        ran(settings=tuned(tmp_path), learner="pillar")
    with pytest.raises(SpecError, match="there is no one setting to take from it"):
        ran(settings=ran("private-accounted").write(tmp_path))
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(DataError, match=r"Expected a tuning or a result of dpbench in .*list\.json"):
        ran(settings=tmp_path / "list.json")


def test_specs_without_a_search_keep_the_digests_they_had() -> None:
    plain = make_spec({"learner": "pillar", "unit": "image"}, "the test")
    values = json.loads(plain.model_dump_json())
    assert values.pop("search") is None
    assert plain.digest == canonical_digest(values)
    assert plain.digest == "2fb132be6542787d35b5a9d8b2e3cec83e260338bd5661921f86080551a1d4d1"  # of version 0.1.0


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("public-validation", {"seed": 1}),
        ("public-validation", {"space": {"clip": (1.0,)}}),
        ("public-validation", {"rule": "private-unaccounted"}),
        ("private-accounted", {"repeats": 3}),
    ],
)
def test_every_detail_of_a_search_changes_the_digest(rule: str, change: dict[str, Any]) -> None:
    assert spec(**{"rule": rule, **change}).digest != spec(rule).digest != spec().digest


@pytest.mark.slow
def test_the_spec_of_a_run_with_settings_from_elsewhere_names_them(tmp_path: Path) -> None:
    file = tuned(tmp_path)
    with pytest.raises(SpecError, match=r"Expected steps=3, as in .*, or no steps at all, got steps=9"):
        ran(settings=file, learner="dp-sgd:steps=9")
    found = ran(settings=file, learner="dp-sgd")
    assert found.spec.learner.options["steps"] == found.privacy.plan[0].steps == 3
    assert found.digest != ran(learner="dp-sgd").digest


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "there",
    [{"split_seed": 1}, {"public_fraction": 0.9}, {"imbalance": 3}, {"dataset": "sealed", "public_dataset": "digits"}],
)
def test_settings_chosen_by_labels_that_are_private_here_touch_private_records(
    tmp_path: Path, there: dict[str, Any]
) -> None:
    try:
        search = ran(settings=tuned(tmp_path, **there)).search
    except DpbenchError:
        return  # a refusal is as good
    assert search is not None
    assert search.private_touched


@pytest.mark.slow
def test_tuning_searches_what_the_spec_file_asks_for(capsys: Output, tmp_path: Path) -> None:
    file = tmp_path / "spec.toml"
    file.write_text('learner = "dp-sgd:steps=3"\nepsilon = 8\nsearch = {space = {clip = [0.5, 1.0]}}')
    assert call("tune", "--spec", str(file), "--out", str(tmp_path), "--tries", "2", "--json") == 0
    assert Tuning.model_validate_json(capsys.readouterr().out).selection.space == {"clip": (0.5, 1.0)}


def test_a_plan_that_raises_in_a_private_search_is_refused_by_name() -> None:
    with pytest.raises(ComponentFailed, match="plan of 'fitted'"):
        ran("private-accounted", learner="fitted:steps=13", space={"clip": (0.5, 1.0)})


def test_a_public_dataset_of_other_classes_cannot_choose_settings(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"classes of public dataset 'parity' differ from those of 'digits'"):
        tuned(tmp_path, public_dataset="parity", allow_overlap=True)
