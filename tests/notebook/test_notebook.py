"""dpbench at a notebook: run, compare, load, own arrays, own classes, figures; and the names that are stable."""

from __future__ import annotations

import inspect
import math
import stat
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import matplotlib as mpl
import numpy as np
import pytest
import torch

import dpbench
from dpbench import Budget, Chunk, Curator, Learner, Predict, PublicData, RankOne, Release, Task
from dpbench.errors import DataError, DpbenchError, DuplicateName, PluginError, SpecError
from dpbench.registry import load
from tests.helpers.trees import lay_out, planted

mpl.use("agg")

SIGNATURES = {
    "run": "learner dataset extractor epsilon delta accountant public_fraction public_dataset public_labels "
    "train_fraction imbalance unit metric split_seed allow_overlap seeds secure_rng search out device keep_models",
    "check": "component",
    "compare": "first second metric",
    "results": "paths",
    "load": "paths",
    "dataset": "x y x_test y_test classes name licence processing groups",
    "figure": "sweep results",
    "load_model": "file device",
}
METHODS = {
    "Results": "accuracy failed file filed frame model models plot plugins record records",
    "Model": "card classes_ content decision_function device digest from_fit lines load "
    "plugins predict predict_proba save score",
    "Comparison": "difference differs half p said",
}


def test_the_names_for_a_notebook_are_these() -> None:
    assert set(dpbench.NOTEBOOK) == SIGNATURES.keys() | METHODS.keys() <= set(dir(dpbench))
    for name, parameters in SIGNATURES.items():
        function = getattr(dpbench, name)
        assert " ".join(inspect.signature(function).parameters) == parameters, name
        assert function.__doc__ and set(function.__annotations__) == {*parameters.split(), "return"}
    for name, wanted in METHODS.items():
        cls = getattr(dpbench, name)
        fields = getattr(cls, "__dataclass_fields__", {})
        public = {name for name in {*vars(cls), *fields} if not name.startswith("_")}
        assert " ".join(sorted(public)) == wanted, name
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = dpbench.nothing


@pytest.mark.slow
def test_a_class_is_held_to_the_laws_as_one_that_is_installed() -> None:
    @dataclass(frozen=True)
    class Planless(Sums):
        name: ClassVar[str] = "planless"

        def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
            return [Release("sums", steps=0)]

    found = dpbench.check(Planless)
    told = [said for said in found.values() if said and "Expected steps=0 to be a whole number" in said]
    assert len(told) > 9
    assert found["learner planless: choices follow their law"] is None
    with pytest.raises(SpecError, match="Did you mean 'pillar'"):
        dpbench.check("pilar")
    for wrong, got in ((int, "<class 'int'>"), (3, "3"), (None, "None")):
        with pytest.raises(SpecError, match=rf"Expected a component by name, or a class or an instance .* got {got}"):
            dpbench.check(wrong)  # type: ignore[arg-type]


@pytest.mark.slow
def test_an_instance_is_held_to_the_laws_with_its_settings() -> None:
    @dataclass(frozen=True)
    class Stepping(Sums):
        name: ClassVar[str] = "stepping"
        steps: int = 1

        def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
            return [Release("sums", steps=self.steps)]

    def broken(found: dict[str, str | None]) -> int:
        return sum("Expected steps=0 to be a whole number" in (said or "") for said in found.values())

    assert broken(dpbench.check(Stepping(steps=0))) > 9
    assert broken(dpbench.check(Stepping())) == broken(dpbench.check(Stepping)) == 0


def test_importing_dpbench_brings_no_torch_and_asking_for_run_does() -> None:
    code = "import dpbench, sys; assert 'torch' not in sys.modules; dpbench.run; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_one_run_is_a_result_that_shows_as_a_table(tmp_path: Path) -> None:
    found = dpbench.run(learner="class-means:k=5", dataset="digits", epsilon=1, seeds=2, out=tmp_path)
    assert len(found) == 1 and found.file.parent == tmp_path and 0.3 < found.accuracy < 1
    assert "class-means (set by hand)</td>" in found._repr_html_() and "| ε 1 |" in repr(found)
    assert found.record.spec.seeds == (0, 1) and found[0].record == found.record


@pytest.mark.slow
def test_lists_are_a_sweep_and_what_is_done_is_not_run_again(tmp_path: Path) -> None:
    ask = {"learner": ["class-means:k=5", "non-private"], "epsilon": [0.5, 2], "seeds": 1, "out": tmp_path}
    found = dpbench.run(**ask)  # type: ignore[arg-type]
    names = [(results.record.spec.learner.name, results.record.spec.epsilon) for results in found]
    assert names == [("class-means", 0.5), ("class-means", 2), ("non-private", math.inf)]
    before = {results.file: results.file.stat().st_mtime_ns for results in found}
    again = dpbench.run(**ask)  # type: ignore[arg-type]
    assert {results.file: results.file.stat().st_mtime_ns for results in again} == before
    with pytest.raises(SpecError, match="Expected one result, got 3: take one of them, like results"):
        _ = found.record
    assert "non-private (no privacy)" in found._repr_html_()


@pytest.mark.slow
def test_what_was_run_on_data_that_have_changed_is_run_again(tmp_path: Path) -> None:
    folders = [f"{split}/{kind}" for split in ("train", "test") for kind in "abc"]
    photos, learners = (
        lay_out(tmp_path / "photos", planted(folders[:2] + folders[3:5], 12)),
        ["thrift", "dp-sgd:steps=3"],
    )

    def private() -> list[int]:
        found = dpbench.run(
            learners, f"imagefolder:{photos}", "pixels:size=8", delta=1e-3, seeds=1, out=tmp_path / "out"
        )
        return [results.record.task.private for results in found]

    assert private() == [22, 22]  # nine tenths of 24
    lay_out(photos, planted([folders[2], folders[5]], 12))
    assert private() == [32, 32]


@pytest.mark.slow
def test_results_are_a_frame_a_figure_and_a_comparison(tmp_path: Path) -> None:
    found = dpbench.run(["class-means:k=5", "dp-sgd:steps=3"], epsilon=[0.5, 2], seeds=2, out=tmp_path)
    frame = dpbench.load(tmp_path)
    assert len(frame) == 4 and {"learner", "accuracy", "epsilon", "file"} <= set(frame.columns)
    axes = found.plot()
    assert [line.get_label() for line in axes.get_legend_handles_labels()[0]] and axes.get_xlabel() == "ε"
    assert len(axes.get_legend_handles_labels()[1]) == 2
    other = dpbench.compare(found[0], found[2].file)
    assert other.difference == pytest.approx(found[0].accuracy - found[2].accuracy)
    assert "A - B" in str(other) and "<p>" in other._repr_html_()
    with pytest.raises(SpecError, match=r"Unknown metric 'acuracy'\. Did you mean 'accuracy'"):
        found.plot("acuracy")  # type: ignore[arg-type]


def test_damaged_files_are_left_out_with_a_warning(tmp_path: Path) -> None:
    dpbench.run(learner="class-means:k=5", seeds=1, out=tmp_path)
    (tmp_path / "half.json").write_text('{"spec":', encoding="utf-8")
    with pytest.warns(UserWarning, match=r"half\.json is not JSON.* Skipped\."):
        assert len(dpbench.results(tmp_path)) == 1


SWEEP = """
name = "k"
fixed = {learner = "class-means", seeds = 1}
grid = {"learner.k" = [3, 5]}
plot = {x = "learner.k"}
"""


def test_a_sweep_is_a_figure_with_axes(tmp_path: Path) -> None:
    file = tmp_path / "k.toml"
    file.write_text(SWEEP, encoding="utf-8")
    dpbench.run(["class-means:k=3", "class-means:k=5"], seeds=1, out=tmp_path)
    (axes,) = dpbench.figure(file, tmp_path).axes
    assert np.size(axes.lines[0].get_xdata()) == 2


def _arrays(size: int = 300) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    y = draw.integers(0, 3, size)
    x = np.clip(draw.normal(100, 30, (size, 6, 6)) + 40 * y[:, None, None], 0, 255).astype(np.uint8)
    return x[:200], y[:200], x[200:], y[200:]


@pytest.mark.slow
def test_own_images_need_no_plugin(tmp_path: Path) -> None:
    x, y, x_test, y_test = _arrays()
    with pytest.raises(DataError, match="every class of y_test in y, but 99 is missing"):
        dpbench.dataset(x, y, x_test, np.where(y_test == y_test[0], 99, y_test))
    mine = dpbench.dataset(x, y, x_test, y_test, name="mine")
    found = dpbench.run("class-means:k=5", mine, epsilon=8, seeds=1, out=tmp_path)
    assert found.record.spec.dataset.name == "mine" and found.record.task.classes == ("0", "1", "2")
    model = found.model()
    assert model.score(x_test, y_test) == model.score(x_test, y_test.astype(float)) == pytest.approx(found.accuracy)
    with pytest.raises(DataError, match=r"Expected labels among the classes 0, 1, .*, got '"):
        model.score(x_test, y_test.astype(str))
    with pytest.raises(DataError, match=r"Expected one label per image, got \d+ images and labels of \(3,\)"):
        model.score(x_test, y_test[:3])
    named = dpbench.dataset(x, np.array(["a", "b", "c"])[y], x_test, np.array(["a", "b", "c"])[y_test])
    assert dpbench.run("class-means:k=5", named, epsilon=8, seeds=1, out=tmp_path).model().classes_.tolist() == [*"abc"]
    colour = np.stack([x] * 3, -1), np.stack([x_test] * 3, -1)
    assert dpbench.run("jl", dpbench.dataset(colour[0], y, colour[1], y_test), seeds=1, out=tmp_path).accuracy > 0


def test_own_vectors_are_their_own_features(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    x = draw.normal(size=(900, 3))
    y = x[:, 0] > 0
    own = dpbench.dataset(x[:600], y[:600], x[600:], y[600:], classes=[False, True])
    found = dpbench.run("dp-sgd", own, epsilon=8, seeds=1, out=tmp_path)
    assert found.record.task.example_shape == (3,) and found.accuracy > 0.8
    assert found.record.task.overlap and found.record.task.overlap["test in private"].near == 0
    model = found.model()
    assert model.score(x[600:], y[600:].astype(str)) == pytest.approx(found.accuracy)
    with pytest.raises(DataError, match="learned from vectors"):
        model.predict(["image.png"])


def test_arrays_that_change_afterwards_change_no_dataset() -> None:
    x, y, x_test, y_test = np.eye(6, dtype=np.float32), np.arange(6) % 2, np.eye(6, dtype=np.float32), np.arange(6) % 2
    mine, images = dpbench.dataset(x, y, x_test, y_test), np.zeros((6, 4, 4), np.uint8)
    drawn = dpbench.dataset(images, y, images, y_test)
    for array in (x, y, x_test, y_test, images):
        array[:] = 7
    for splits in (mine.load(), drawn.load()):
        for split in (splits.train, splits.test):
            assert np.asarray(split.images[0]).max() < 7
            assert split.labels.tolist() == [0, 1, 0, 1, 0, 1]


@pytest.mark.slow
def test_other_arrays_of_one_name_are_other_data(tmp_path: Path) -> None:
    x, y, x_test, y_test = _arrays()
    ask = {"epsilon": [1, 2], "seeds": 1, "out": tmp_path}
    outcome = dpbench.run("class-means:k=5", dpbench.dataset(x, y, x_test, y_test), **ask)  # type: ignore[arg-type]
    two = dpbench.run("class-means:k=5", dpbench.dataset(x, (y + 1) % 3, x_test, y_test), **ask)  # type: ignore[arg-type]
    assert len({each.file for each in [*outcome, *two]}) == 4


@pytest.mark.parametrize("name", ["learner", "dataset", "extractor", "epsilon", "train_fraction"])
def test_an_empty_list_is_no_default(name: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=f"Expected at least one value for '{name}', got \\[\\]"):
        dpbench.run(**{"learner": "class-means", "out": tmp_path, name: []})  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"x": np.zeros((200, 6, 6))}, "In x and y: Expected images as arrays of whole numbers"),
        ({"x": np.full((200, 6, 6), 300)}, "from 300 to 300"),
        ({"x": np.zeros((200, 2, 6, 6), np.uint8)}, "or vectors"),
        ({"x": np.full((200, 6), np.nan)}, "finite"),
        ({"x": np.zeros((200, 6))}, "rows of one shape"),
        ({"x": np.zeros((200, 6, 5), np.uint8)}, r"got shapes \(200, 6, 5\) and"),
        ({"y": np.full(200, 0.5)}, "Expected a class for each row in x and y, .* got 0.5"),
        ({"y": np.zeros(5, int)}, "one label a row in x and y, got 200 rows"),
        ({"y": np.zeros(200, int), "y_test": np.zeros(100, int)}, "two classes or more"),
        ({"classes": [0, 1]}, "Expected labels among the classes"),
        ({"x": [[1, 2], [3]]}, "rows that differ in shape"),
        ({"y": [None] * 200}, "of Python objects"),
        ({"x_test": np.zeros((0, 6, 6), np.uint8), "y_test": np.zeros(0, int)}, "one label a row in x_test"),
    ],
)
def test_arrays_that_are_no_dataset_are_refused(change: dict[str, np.ndarray], said: str) -> None:
    x, y, x_test, y_test = _arrays()
    with pytest.raises(DataError, match=said):
        dpbench.dataset(**{"x": x, "y": y, "x_test": x_test, "y_test": y_test, **change})  # type: ignore[arg-type]


@dataclass(frozen=True)
class Sums(Learner):
    """One noisy sum of centred labels by features."""

    name: ClassVar[str] = "sums"

    clip: float = 1.0

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        return [Release("sums")]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        classes = curator.task.classes

        def rows(chunk: Chunk) -> RankOne:
            return RankOne(torch.nn.functional.one_hot(chunk.y, classes) - 1 / classes, chunk.x)

        sums = curator.noisy_sum(rows, release="sums", clip=self.clip)
        return lambda x: x @ sums.T


@pytest.mark.slow
def test_a_learner_of_a_notebook_runs_beside_installed_ones_and_always_again(tmp_path: Path) -> None:
    found = dpbench.run([Sums, "class-means:k=5"], seeds=1, out=tmp_path)
    assert (
        found.record
        if len(found) == 1
        else [results.record.spec.learner.name for results in found] == ["sums", "class-means"]
    )
    brought = found[0].record.components["learner"]
    assert (brought.distribution, brought.version) == ("none", "unpublished")
    times = [results.file.stat().st_mtime_ns for results in found]
    again = [
        results.file.stat().st_mtime_ns for results in dpbench.run([Sums, "class-means:k=5"], seeds=1, out=tmp_path)
    ]
    assert again[0] != times[0] and again[1] == times[1]
    result = dpbench.run(Sums(clip=2.0), seeds=1, out=tmp_path)
    assert result.record.spec.learner.options == {"clip": 2.0} and result.model().card.settings == {"clip": 2.0}


def test_what_cannot_be_run_is_one_sentence(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Taken(Sums):
        name: ClassVar[str] = "pillar"

    for ask, error, said in (
        ({"learner": "pilar"}, SpecError, "Did you mean 'pillar'"),
        ({"learner": "pillar", "epsilon": -1}, SpecError, "epsilon"),
        (
            {"learner": Taken},
            DuplicateName,
            "There is a learner 'pillar' already, of distribution 'dpbench-vision': give this one",
        ),
        ({"learner": int}, PluginError, "Expected the learner as a name or as a dpbench.Learner, got int"),
        ({"learner": []}, SpecError, "learner"),
        (
            {"learner": "pillar:k=7", "search": {"space": {"k": [3, 4]}}},
            SpecError,
            "Expected k=7 for the learner or values of k in the search space, got both in cell",
        ),
        ({"learner": ["pillar:k=9999", "pillar:k=9998"]}, SpecError, "All 2 runs failed. The first:"),
    ):
        with pytest.raises(error, match=said):
            dpbench.run(**ask, seeds=1, out=tmp_path)
    assert list(tmp_path.glob("*.json")) == []


@pytest.mark.slow
def test_of_an_instance_what_nobody_set_is_searched(tmp_path: Path) -> None:
    pillar = load().find("learner", "pillar").cls
    found = dpbench.run(
        pillar(k=7), search={"space": {"steps": [2, 3]}}, public_labels=True, seeds=1, out=tmp_path
    ).record  # fmt: skip
    assert found.search is not None and found.spec.learner.options["k"] == 7
    assert found.search.trials and {trial.setting["steps"] for trial in found.search.trials} == {2, 3}
    with pytest.raises(SpecError, match="Expected k=7 for the learner or values of k"):
        dpbench.run(pillar(k=7), search={"space": {"k": [3, 4]}}, public_labels=True, seeds=1, out=tmp_path)


def test_of_several_runs_those_that_ended_are_kept(tmp_path: Path) -> None:
    found = dpbench.run(["class-means:k=5", "pillar:k=9999"], seeds=1, out=tmp_path)
    assert len(found) == 1 and "k=9999" in repr(found) and "Failed" in found._repr_html_()
    with pytest.raises(DpbenchError):
        dpbench.run("pillar:k=9999", seeds=1, out=tmp_path)


def test_the_name_of_own_arrays_cannot_be_guessed_without_the_key_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A digest that anybody can compute would tell one row to whoever knows all others."""
    given = (np.zeros((4, 3)), [0, 1, 0, 1], np.zeros((2, 3)), [0, 1])
    monkeypatch.setenv("DPBENCH_CACHE", str(tmp_path / "here"))
    here, again = (str(vars(dpbench.dataset(*given))["digest"]) for _ in range(2))
    assert stat.S_IMODE((tmp_path / "here" / "arrays.key").stat().st_mode) == 0o600
    monkeypatch.setenv("DPBENCH_CACHE", str(tmp_path / "elsewhere"))
    assert here == again != str(vars(dpbench.dataset(*given))["digest"])
    (tmp_path / "elsewhere" / "arrays.key").write_bytes(b"short")
    with pytest.raises(DpbenchError, match=r"Expected 32 bytes in .*got 5"):
        dpbench.dataset(*given)
