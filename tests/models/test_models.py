"""Models: a seed's predictor saved without pickle, asked again, and saying what privacy it has."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import dpbench
from dpbench import Budget, Chunk, Curator, Learner, Predict, PublicData, Release, Task
from dpbench.cli.predict import _format_table_cell
from dpbench.errors import DataError, NotReproducible, SpecError
from dpbench.models import Model
from dpbench.models.model_file import build_model_file
from dpbench.registry import load
from tests.helpers.commands import Refusal, call
from tests.helpers.models import make_card, make_graph, model_folder


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    """The test split."""
    test = load().build("dataset", "digits", {}).load().test
    return np.stack([np.asarray(test.images[place]) for place in range(len(test.images))]), test.labels


LEARNERS = (
    "adadps", "class-means", "dp-raft", "dp-sgd", "gep", "jl", "least-squares", "non-private", "pillar", "public-only",
    "prototypes", "public-prior", "public-origin", "dp-newton", "thrift", "whitened:distil=true",
)  # fmt: skip


@pytest.mark.quick("class-means")
@pytest.mark.parametrize("learner", LEARNERS)
def test_a_saved_model_gives_the_labels_of_the_runs_own_predictor(
    learner: str, digits: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    needs = learner in {"adadps", "public-only", "public-prior", "public-origin"}
    found = dpbench.run(learner, seeds=1, epsilon=2, public_labels=needs, out=tmp_path)
    fresh = found.model(0)
    model = dpbench.load_model(fresh.save(tmp_path / "model.onnx"))
    assert model.digest == fresh.digest and model.digest in repr(model)
    assert model.score(*digits) == pytest.approx(found.accuracy)
    assert model.card.test.predictions == found.record.seeds[0].predictions
    assert model.decision_function(digits[0][:3]).shape == (3, 10)


@pytest.mark.slow
def test_a_network_is_saved_too(tmp_path: Path) -> None:
    pytest.importorskip("dpbench_plugins.learners.networks.training")  # and what else its fit imports
    import dpbench_plugins.learners.networks.gradients
    import dpbench_plugins.networks.network_checkpoint
    import dpbench_plugins.networks.views

    assert (
        dpbench_plugins.learners.networks.gradients
        and dpbench_plugins.networks.views
        and dpbench_plugins.networks.network_checkpoint
    )
    found = dpbench.run("dp-sgd-net:network=tiny,steps=2", extractor="pixels:flat=false", seeds=1, out=tmp_path)
    assert dpbench.load_model(found.model().save(tmp_path / "net.onnx")).card.logits


@pytest.mark.slow
def test_classes_are_numbers_where_their_names_are_and_shares_add_up(
    digits: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    model = dpbench.run("pillar:k=5,steps=5", seeds=1, out=tmp_path).model()
    assert model.classes_.tolist() == list(range(10)) and model.classes_.dtype == np.int64
    assert np.allclose(model.predict_proba(digits[0][:5]).sum(1), 1)
    assert (model.predict(digits[0][:5]) == model.decision_function(digits[0][:5]).argmax(1)).all()
    votes = dpbench.run("pate:queries=20", seeds=1, out=tmp_path).model()
    with pytest.raises(SpecError, match="not logits, so they give no probabilities"):
        votes.predict_proba(digits[0][:5])


@pytest.mark.slow
def test_a_model_that_is_fitted_again_names_its_result(tmp_path: Path) -> None:
    found = dpbench.run("class-means:k=5", seeds=2, out=tmp_path)
    assert dict(found.model(1).card.lines())["result"] == found.record.digest


@pytest.mark.slow
def test_a_card_says_what_may_be_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    research = dpbench.run("class-means:k=5", seeds=1, out=tmp_path).model().card
    assert not research.is_private and "anyone who knows seed 0 can subtract its noise" in research.privacy_statement
    ceiling = dpbench.run("non-private", seeds=1, out=tmp_path).model().card
    assert not ceiling.is_private and "fitted without noise" in ceiling.privacy_statement
    public = dpbench.run("public-only", seeds=1, public_labels=True, out=tmp_path).model().card
    assert public.is_private and public.privacy_statement == "ε 0: its plan asks for no private example."
    said = dict(research.lines())
    assert said["result"] == research.spec.digest and "digits" in said["data"]
    secure = research.model_copy(update={"privacy": research.privacy.model_copy(update={"rng": "secure"})})
    assert secure.is_private and "δ 1e-05)-differentially private for one image (add-or" in secure.privacy_statement
    assert said["private data"] == "1,294 images" and said["guarantee"].startswith("ε 1 for one image by pld")
    searched = secure.model_copy(update={"selection": "private-unaccounted"})
    assert not searched.is_private and "outside ε" in searched.privacy_statement


@pytest.mark.slow
def test_a_secure_run_keeps_its_models_and_nothing_else_can_give_them(tmp_path: Path) -> None:
    pytest.importorskip("opendp")
    found = dpbench.run("class-means:k=5", seeds=1, secure_rng=True, out=tmp_path)
    assert found.model().card.is_private
    with pytest.raises(NotReproducible, match="another fit would spend ε again"):
        dpbench.results(found.file).model()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a model."""
    return model_folder(tmp_path_factory) / "model.onnx"


def test_a_damaged_or_foreign_file_is_refused_in_one_sentence(saved: Path, tmp_path: Path) -> None:
    content, bad = saved.read_bytes(), tmp_path / "bad.onnx"
    card = content.index(b"schema_version")
    for damaged in (
        b"", b"PK\x03\x04", content[:-1], content[: len(content) // 2], content[:-9] + b"123456789",
        content[:card] + b"S" + content[card + 1 :], content[:500] + b"\x00" + content[501:],
    ):  # fmt: skip
        bad.write_bytes(damaged)
        with pytest.raises(DataError, match="not a dpbench model, or is damaged or was changed"):
            Model.load(bad)
    for missing in (tmp_path / "none.onnx", tmp_path):
        with pytest.raises(DataError, match="Expected a model, got"):
            Model.load(missing)


def test_a_card_that_does_not_fit_the_graph_is_refused(tmp_path: Path, refusal: Refusal) -> None:
    file, graph = tmp_path / "model.onnx", make_graph().SerializeToString()
    file.write_bytes(build_model_file(graph, make_card((64,))))
    assert "its graph takes examples of shape (16,) and gives 10 scores, but its card states (64,) and" in refusal(
        lambda: Model.load(file), DataError
    )
    file.write_bytes(build_model_file(graph, make_card().model_copy(update={"classes": ("a", "b")})))
    assert "its card states (16,) and 2 classes" in refusal(lambda: Model.load(file), DataError)


SERVE = re.search(
    "```python\n(import numpy.*?)```",
    (Path(dpbench.__file__).parent / "docs/how-to/predict.md").read_text("utf-8"),
    re.DOTALL,
)


def test_a_plain_runtime_serves_a_model_as_the_documentation_shows(
    digits: tuple[np.ndarray, np.ndarray], saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = dpbench.load_model(saved)
    monkeypatch.chdir(saved.parent)
    images = [Image.fromarray(digit) for digit in digits[0][:20]]
    features = torch.stack([model._built_extractors[0].prepare(image) for image in images]).numpy()
    np.save("features.npy", features.reshape(20, 64))
    assert SERVE is not None and SERVE[1].count("\n") <= 6
    given: dict[str, Any] = {}
    exec(SERVE[1], given)
    assert [str(label) for label in given["labels"]] == [str(label) for label in model.predict(images)]


@dataclass(frozen=True)
class ByHand(Learner):
    """Its predictor goes through numpy, where no recording follows."""

    name: ClassVar[str] = "by-hand"
    public: ClassVar[Literal["none", "unlabelled", "labelled"]] = "none"

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        return [Release("one")]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        def rows(chunk: Chunk) -> Tensor:
            return torch.nn.functional.one_hot(chunk.y, curator.task.classes).float()

        sums = curator.noisy_sum(rows, release="one", clip=1.0)

        def predict(x: Tensor) -> Tensor:
            values = torch.from_numpy(np.sort(x.numpy(), axis=1))
            scores: Tensor = values[:, :10] + 0 * sums
            return scores

        return predict


def test_a_learner_whose_predictor_cannot_be_kept_says_so_and_keeps_its_result(tmp_path: Path) -> None:
    found = dpbench.run(ByHand, seeds=1, out=tmp_path, keep_models=True)
    assert found.file.exists() and "cannot be kept" in repr(found)
    with pytest.raises(SpecError, match=r"^The model of learner 'by-hand' cannot be kept: its "):
        found.model()
    several = dpbench.run(ByHand, epsilon=[1, 2], seeds=2, out=tmp_path, keep_models=True)
    assert len(several.failed) == 4 and "model of seed 1 of learner=by-hand, epsilon=2" in several.failed


@pytest.mark.slow
def test_images_of_another_size_mode_or_kind_are_converted_or_refused(
    digits: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    model = dpbench.run("class-means:k=5", seeds=1, out=tmp_path).model()
    colour = [Image.fromarray(digit).convert("RGB") for digit in digits[0][:20]]
    assert (model.predict(colour) == model.predict(digits[0][:20])).all()
    wrong: list[tuple[Any, str]] = [
        (np.zeros((2, 9, 9), np.uint8), "images of another size"),
        (np.zeros((2, 8, 8)), "whole numbers 0 to 255"),
        (np.zeros((2, 8, 8, 3), np.uint8), "Expected L images"),
        (np.zeros((2, 64)), "Expected images, as the model learned from"),
        ([], "one image or more"), ([3], "got a int at index 0"), (tmp_path / "none.png", "Cannot read image"),
    ]  # fmt: skip
    for images, said in wrong:
        with pytest.raises(DataError, match=said):
            model.predict(images)


@pytest.mark.slow
def test_run_models_and_predict_in_the_shell(
    digits: tuple[np.ndarray, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["run", "--learner", "class-means:k=5", "--seeds", "2", "--models", "--out", str(tmp_path)]
    assert call(*run) == 0
    models = sorted((tmp_path / "models").iterdir())
    assert [file.name[-11:] for file in models] == ["seed-0.onnx", "seed-1.onnx"]
    folder = tmp_path / "images"
    folder.mkdir()
    for place in range(12):
        Image.fromarray(digits[0][place]).save(folder / f"{place:02}.png")
    capsys.readouterr()
    assert call("predict", str(models[1]), str(folder)) == 0
    lines = capsys.readouterr().out.splitlines()
    expected = dpbench.results(tmp_path).model(1).predict(digits[0][:12])
    assert [int(line.partition("\t")[2]) for line in lines] == expected.tolist()
    assert call("predict", str(models[0])) == 0
    assert "Not to be published as private" in " ".join(capsys.readouterr().out.split())
    assert call("predict", str(models[0]), str(folder / "00.png"), "--json") == 0
    assert sum(json.loads(capsys.readouterr().out)[0]["scores"].keys() == {str(k) for k in range(10)} for _ in "1") == 1
    Image.fromarray(digits[0][0]).save(odd := tmp_path / "\x1b[2J\n.png")
    assert call("predict", str(models[1]), str(odd)) == 0
    assert capsys.readouterr().out == f"{tmp_path}/?[2J?.png\t{expected[0]}\n"
    (folder / "broken.png").write_bytes(b"not an image")
    assert call("predict", str(models[1]), str(folder)) == 1
    told = capsys.readouterr()
    assert "Cannot read image" in told.err and told.out.splitlines() == lines
    assert call("predict", str(models[0]), str(folder / "broken.png")) == 1
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_an_extractor_of_another_version_is_refused(tmp_path: Path) -> None:
    model = dpbench.run("class-means:k=5", seeds=1, out=tmp_path).model()
    facts = model.card.extractors[0].model_copy(update={"version": "0"})
    other = Model(model.card.model_copy(update={"extractors": (facts,)}), model.content)
    with pytest.raises(SpecError, match="another version here than the model learned with"):
        other.predict(np.zeros((1, 8, 8), np.uint8))


def test_classes_are_names_where_a_number_has_more_than_64_bits() -> None:
    for name in ("9" * 19, "1" * 5000):
        assert Model(make_card().model_copy(update={"classes": ("1", name)}), b"").classes_.tolist() == ["1", name]


def test_a_card_without_a_number_of_private_images_is_shown() -> None:
    assert "guarantee" in dict(make_card().model_copy(update={"private_size": None}).lines())


def test_no_class_adds_a_line_to_what_predict_prints() -> None:
    assert _format_table_cell("cat\nother.png\tdog\x1b[2J") == "cat?other.png?dog?[2J"


def test_what_is_no_model_file_is_refused_in_a_sentence(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe.onnx")
    for file, said in ((pipe, "is no file"), (tmp_path, "is no file"), (tmp_path / ("x" * 300), "too long")):
        with pytest.raises(DataError, match=said):
            Model.load(file)
