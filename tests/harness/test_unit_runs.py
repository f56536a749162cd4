"""Runs whose epsilon is a patient's, and those whose epsilon is an image's on data that know the patients."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from dpbench_plugins.datasets.sklearn import Digits

from dpbench import Splits
from dpbench.analysis.describe import describe_result
from dpbench.board.verify.declarations import check_task_facts
from dpbench.cli.tune import format_run_command
from dpbench.errors import SpecError
from dpbench.harness.fit import fit_seed
from dpbench.models.model import Model
from dpbench.records.board import find_board
from dpbench.records.result import Result
from dpbench.records.spec import make_spec
from dpbench.registry import Registration, Registry, load
from dpbench.registry.boards import make_entry_spec
from dpbench.registry.components import resolve
from dpbench.sweep.grid import read_grid
from tests.cli.test_bad_data import QUICK, photos
from tests.helpers.commands import Output, call
from tests.helpers.sessions import session


@dataclass(frozen=True)
class Wards(Digits):
    """Digits of patients, of whom the first has 30, some three and others one."""

    name: ClassVar[str] = "wards"

    def default_unit(self) -> str:
        return "patient"

    def load(self) -> Splits:
        splits = super().load()
        size = len(splits.train.labels)
        of = np.concatenate([np.zeros(30), 1 + np.arange(300) // 3, 101 + np.arange(size - 330)]).astype(np.int64)
        mixed = np.random.default_rng(0).permutation(size)
        units = np.empty(size, np.int64)
        units[mixed] = of
        return replace(splits, train=replace(splits.train, units=units), unit="patient")


def with_wards() -> Registry:
    components = {kind: dict(items) for kind, items in load().components.items()}
    components["dataset"]["wards"] = Registration(Wards, "tests", "tests", "1")
    return Registry(components)


def ran(learner: str, **values: Any) -> Result:
    spec = make_spec({"learner": learner, "dataset": "wards", "seeds": 1, **values}, "a test")
    return session(with_wards()).run(spec)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("unit", "whose", "private"),
    [
        ("patient", "for one patient", "1,088 patients (1,303 images)"),
        ("image", "for one image", "1,303 images. ε is stated"),
    ],
)
def test_a_model_says_whose_epsilon_it_has_and_what_it_is_for_a_patient(unit: str, whose: str, private: str) -> None:
    spec = make_spec({"learner": "class-means:k=5", "dataset": "wards", "seeds": 1, "unit": unit}, "a test")
    prepared = session(with_wards()).prepare(spec)
    card = Model.from_fit(prepared, fit_seed(prepared, 0)).card
    said = dict(card.lines())
    assert whose in said["guarantee"] and said["private data"].startswith(private)
    assert ("Add --unit patient" in said["private data"]) is (unit == "image")


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "learner",
    ["class-means", "thrift", "dp-sgd:steps=20,sample_rate=0.2", "gep:steps=5,k=10",
     "pate:shards=20", "whitened:k=10,steps=10"],
)  # fmt: skip
def test_epsilon_is_a_patients_and_the_size_counts_patients(learner: str) -> None:
    found = ran(learner, unit="patient", epsilon=4.0)
    units = found.task.units
    assert units is not None
    assert (units.word, units.count) == ("patient", found.task.private)
    assert found.task.private < found.task.images
    assert (units.largest_epsilon, units.median_epsilon) == (None, None)
    assert found.privacy.epsilon <= 4.0
    assert not list(check_task_facts(found))
    assert found.spec.unit == "patient"


def test_the_run_of_an_image_says_what_it_costs_a_patient() -> None:
    found = ran("class-means", unit="image")
    units, stated = found.task.units, found.privacy.epsilon
    assert units is not None and units.largest_epsilon is not None and units.median_epsilon is not None
    assert (units.largest, units.median, units.images) == (30, 1, found.task.private)
    assert units.largest_epsilon > 20 * stated
    assert math.isclose(units.median_epsilon, stated)
    assert any("with the most images (30)" in remark for remark in found.remarks)
    assert not list(check_task_facts(found))
    forged = found.task.units.model_copy(update={"largest_epsilon": stated}) if found.task.units else None
    lying = found.model_copy(update={"task": found.task.model_copy(update={"units": forged})})
    assert [place for place, _ in check_task_facts(lying)] == ["task.units.largest_epsilon"]
    small = units.model_copy(update={"largest": 1, "largest_epsilon": stated})
    lying = found.model_copy(update={"task": found.task.model_copy(update={"units": small})})
    assert [place for place, _ in check_task_facts(lying)] == ["task.units"]


def test_a_result_says_whose_epsilon_it_is(tmp_path: Any) -> None:
    found = ran("class-means")
    file = found.write(tmp_path)
    lines = dict(describe_result(Result.read(file)).pairs)
    assert "for one patient" in lines["guarantee"]
    assert lines["membership test"].startswith("of one private patient, ")
    assert f"{found.task.private:,} private patients ({found.task.images:,} images)" in lines["split"]


def test_without_a_word_epsilon_is_that_of_the_datasets_unit_and_a_board_says_its_own() -> None:
    plugins = with_wards()
    asked = make_spec({"learner": "class-means", "dataset": "wards"}, "a test")
    assert resolve(asked, plugins).spec.unit == "patient"
    assert resolve(make_spec({"learner": "class-means"}, "a test"), plugins).spec.unit is None
    assert resolve(make_spec({**dict(asked), "unit": "image"}, "a test"), plugins).spec.unit is None
    board = find_board("digits-eps1").model_copy(update={"dataset": asked.dataset})
    assert resolve(make_entry_spec(board, {"learner": "class-means"}, plugins, "a test"), plugins).spec.unit is None
    grid = read_grid({"name": "two", "fixed": {"dataset": "wards"}, "grid": {"learner": ["jl", "gep"]}}, plugins)
    assert {resolve(cell.spec, plugins).spec.unit for cell in grid.cells} == {"patient"}


def test_the_command_of_a_tuning_names_a_unit_that_is_not_the_datasets_own() -> None:
    asked = make_spec({"learner": "pillar", "dataset": "wards"}, "a test")
    by_image = make_spec({**asked.user_values, "unit": "image"}, "a test")
    assert "--unit image" in format_run_command(by_image, Path("tuning.json"))
    assert "--unit" not in format_run_command(asked, Path("tuning.json"))


def test_a_run_says_whose_epsilon_it_is(tmp_path: Path, capsys: Output) -> None:
    data = f"imagefolder:{photos(tmp_path / 'mine', range(40))},units=([0-9])[.]png,unit=patient"
    assert call(*QUICK, "--dataset", data, "--unit", "patient", "--risk", "--out", str(tmp_path / "out")) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "private patients (" in shown
    assert re.search(r"guarantee ε [\d.]+ for one patient by pld, .* δ 1e-05 ", shown)
    assert "membership test of one private patient, by someone who knows all the others:" in shown


def test_patients_as_images_give_another_digest_and_data_without_units_keep_theirs() -> None:
    plain = resolve(make_spec({"learner": "class-means", "dataset": "digits"}, "a test"), load()).spec
    assert "unit" not in plain.model_dump_json()
    assert make_spec({**dict(plain), "unit": "image"}, "a test").digest == plain.digest
    assert make_spec({**dict(plain), "unit": "patient"}, "a test").digest != plain.digest


@pytest.mark.parametrize(
    ("dataset", "unit", "said"),
    [
        ("wards", "lesion", "but it knows patients. Use --unit patient."),
        ("digits", "patient", "but it does not say whose its images are. Use --unit image."),
    ],
)
def test_a_unit_that_the_data_do_not_know_is_refused(dataset: str, unit: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        ran("class-means", dataset=dataset, unit=unit)


@pytest.mark.slow
def test_a_search_in_public_is_over_patients_too() -> None:
    space = {"learning_rate": (0.1, 1.0), "k": (5, 10)}
    search = {"rule": "public-validation", "space": space, "folds": 3}
    found = ran("pillar:steps=10", unit="patient", search=search, public_fraction=0.4, public_labels=True)
    assert found.search is not None and found.search.tried == 4
    assert not list(check_task_facts(found))
