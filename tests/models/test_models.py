"""Models: a seed's predictor saved without pickle, asked again, and saying what privacy it has."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

import dpbench
from dpbench import Budget, Chunk, Curator, Learner, Predict, PublicData, Release, Task
from dpbench.errors import DataError, NotReproducible, SpecError
from dpbench.models import Model
from dpbench.models.program import BATCH, Program, record_predictor
from dpbench.privacy.core.exact.quantised import exact_linear
from dpbench.registry import load
from dpbench.support.device import find_device
from tests.helpers.commands import Refusal, call

CPU = find_device("cpu")


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    """The test split."""
    test = load().build("dataset", "digits", {}).load().test
    return np.stack([np.asarray(test.images[place]) for place in range(len(test.images))]), test.labels


LEARNERS = (
    "adadps", "class-means", "dp-raft", "dp-sgd", "gep", "jl", "least-squares", "non-private", "pillar", "public-only",
    "prototypes", "public-prior", "thrift", "whitened:distil=true",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("learner", LEARNERS)
def test_a_saved_model_gives_the_labels_of_the_runs_own_predictor(
    learner: str, digits: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    needs = learner in {"adadps", "public-only", "public-prior"}
    found = dpbench.run(learner, seeds=1, epsilon=2, public_labels=needs, out=tmp_path)
    fresh = found.model(0)
    model = dpbench.load_model(fresh.save(tmp_path / "model.safetensors"))
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
    assert dpbench.load_model(found.model().save(tmp_path / "net.safetensors")).card.logits


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


def test_a_card_says_what_may_be_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    research = dpbench.run("class-means:k=5", seeds=1, out=tmp_path).model().card
    assert not research.private and "anyone who knows seed 0 can subtract its noise" in research.statement
    ceiling = dpbench.run("non-private", seeds=1, out=tmp_path).model().card
    assert not ceiling.private and "fitted without noise" in ceiling.statement
    public = dpbench.run("public-only", seeds=1, public_labels=True, out=tmp_path).model().card
    assert public.private and public.statement == "ε 0: its plan asks for no private example."
    said = dict(research.lines())
    assert said["result"] == research.spec.digest and "digits" in said["data"]
    secure = research.model_copy(update={"privacy": research.privacy.model_copy(update={"rng": "secure"})})
    assert secure.private and "δ 1e-05)-differentially private for one image (add-or" in secure.statement
    assert said["private data"] == "1,294 images" and said["guarantee"].startswith("ε 1 for one image by pld")
    searched = secure.model_copy(update={"selection": "private-unaccounted"})
    assert not searched.private and "outside ε" in searched.statement


@pytest.mark.slow
def test_a_secure_run_keeps_its_models_and_nothing_else_can_give_them(tmp_path: Path) -> None:
    pytest.importorskip("opendp")
    found = dpbench.run("class-means:k=5", seeds=1, secure_rng=True, out=tmp_path)
    assert found.model().card.private
    with pytest.raises(NotReproducible, match="another fit would spend ε again"):
        dpbench.results(found.file).model()


def saved(folder: Path) -> Path:
    return dpbench.run("class-means:k=5", seeds=1, out=folder).model().save(folder / "m.safetensors")


def _parts(file: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    with safe_open(file, "pt") as opened:
        names = opened.keys()
        return opened.metadata(), {name: opened.get_tensor(name) for name in names}


def test_a_damaged_or_foreign_file_is_refused_in_one_sentence(tmp_path: Path) -> None:
    file = saved(tmp_path)
    content = file.read_bytes()
    bad = tmp_path / "bad.safetensors"
    for damaged in (b"", b"PK\x03\x04", content[:-1], content[: len(content) // 2], content[:-9] + b"123456789"):
        bad.write_bytes(damaged)
        with pytest.raises(DataError, match=r"no model of|is damaged"):
            Model.load(bad)
    save_file({"weight": torch.ones(2)}, bad)
    with pytest.raises(DataError, match="This version of dpbench cannot read"):
        Model.load(bad)
    for missing in (tmp_path / "none.safetensors", tmp_path):
        with pytest.raises(DataError, match="Expected a model, got"):
            Model.load(missing)


@pytest.mark.quick(1)
@pytest.mark.parametrize("what", ["card", "program", "tensor"])
def test_a_model_that_was_changed_is_refused(what: str, tmp_path: Path) -> None:
    file = saved(tmp_path)
    texts, tensors = _parts(file)
    if what == "tensor":
        tensors["t0"] = tensors["t0"] + 1
    else:
        texts[what] = texts[what].replace("1", "2", 1)
    save_file(tensors, file, texts)
    with pytest.raises(DataError, match="damaged or was changed"):
        Model.load(file)


OPERATION, NONE = "it has an operation", "It holds no program"
LARGE = "numbers of 64 rows|do not fit together|operations"
TENTH = ["aten.repeat.default", [{"value": 0}, [2**10, 2**10]], {}]
PROGRAMS: list[tuple[list[Any], str]] = [
    *(([[operation, [], {}]], OPERATION) for operation in (  # of torch, and none that draws or opens anything
        "aten.from_file.default", "aten.normal_.default", "os.system", "aten.rand.default", "aten.save.default",
        "aten._sparse_coo_tensor_unsafe.default", "aten.set_.source_Tensor", "aten.chr.default", "aten._print.default",
        "aten.ljust.default", "aten.add.str", "aten.empty.memory_format", "aten.sym_size.int", "aten.warn.default",
    )),
    ([["aten.alias.default", [{"tensor": "t0"}], {}], ["aten.copy_.default", [{"value": 1}, {"value": 0}], {}]],
     "remembers"),
    ([["aten.atan2.out", [{"value": 0}, {"value": 0}], {"out": {"tensor": "t0"}}]], "remembers"),
    ([["aten.relu.default", 5, {}]], NONE),
    ([["aten.relu.default", [], 5]], NONE),
    ([5], NONE),
    ([["aten.full.default", [[2**33], 0.0], {}]], LARGE),  # before it fills the memory
    ([["aten.repeat.default", [{"value": 0}, [2**20, 2**20]], {}]], LARGE),
    ([TENTH] * 3 + [["aten.cat.default", [[{"value": 1}, {"value": 2}, {"value": 3}]], {}]], LARGE),
    ([["aten.add.Scalar", [{"value": 0}, 10**40], {}]], LARGE),
    ([["aten.nonzero.default", [{"value": 0}], {}]], LARGE),  # as many numbers as values say
    ([["aten.relu.default", [{"value": 0}], {}]] * 10_001, LARGE),
]  # fmt: skip


@pytest.mark.parametrize(("steps", "said"), PROGRAMS, ids=range(len(PROGRAMS)))
def test_a_program_that_no_predictor_makes_is_refused(steps: list[Any], said: str, refusal: Refusal) -> None:
    program = {"batch": BATCH, "shape": [4], "steps": steps}
    assert re.search(said, refusal(lambda: Program.of(program, {"t0": torch.zeros(4)}), DataError))


@pytest.mark.slow
def test_operations_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    model = Model.load(saved(tmp_path))
    images = np.zeros((1, 8, 8), np.uint8)
    steps: list[list[Any]] = [
        ["aten.mm.default", [{"value": 7}, {"value": 0}], {}], ["aten.mm.default", [{"value": 0}, {"value": 0}], {}],
        ["aten.mm.default", [{"tensor": "t99"}], {}], ["aten.relu.default", [{"value": 0}], {}],
        ["aten.sum.default", ["text"], {}], ["aten.sum.default", [{"value": 0, "more": 1}], {}],
    ]  # fmt: skip
    for step in steps:
        with pytest.raises(DataError, match=r"do not fit together|gives scores of shape|may not have|cannot be read"):
            program = type(model.program).of({"batch": BATCH, "shape": [64], "steps": [step]}, {})
            Model(model.card, program).predict(images)


def _recorded(predict: Predict, width: int = 4) -> None:
    rows = torch.randn(150, width)
    program = record_predictor(predict, (width,), CPU)
    assert torch.allclose(program(rows), predict(rows.clone()), atol=1e-5)
    again = type(program).of(json.loads(json.dumps(program.to_json())), program.tensors)
    assert torch.equal(again(rows), program(rows)) and program(rows[:0]).shape == (0, predict(rows).shape[1])


def test_what_predictors_do_is_recorded() -> None:
    weight, mean = torch.randn(3, 4), torch.randn(4)
    scaled = torch.randn(4).exp()

    def in_place(x: Tensor) -> Tensor:
        scores = torch.full((len(x), 3), -torch.inf)
        scores[:, :2] = (x.sub_(mean).div_(scaled) @ weight.T)[:, :2]
        return scores.clamp_(min=-5)

    _recorded(in_place)
    _recorded(lambda x: exact_linear(x, weight, torch.ones(3)))
    _recorded(lambda x: torch.nn.functional.gelu(x, approximate="tanh") @ weight.T)
    _recorded(lambda x: torch.cdist(x, weight).neg().topk(2, 1).values)


def test_a_predictor_that_decides_by_values_or_leaves_torch_is_refused() -> None:
    with pytest.raises(SpecError, match="more than tensor operations"):
        record_predictor(lambda x: x if x.sum() > 0 else -x, (4,), CPU)
    seen = torch.zeros(2)
    with pytest.raises(SpecError, match="do not depend on the rows"):
        record_predictor(lambda x: seen, (4,), CPU)
    with pytest.raises((SpecError, DataError), match=r"remembers|more than tensor operations"):
        record_predictor(lambda x: x[:, :2] + seen.copy_(x[0, :2]), (4,), CPU)
    with pytest.raises((SpecError, DataError), match="draws"):
        record_predictor(lambda x: x + torch.rand_like(x), (4,), CPU)


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


@pytest.mark.slow
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
    assert [file.name[-18:] for file in models] == ["seed-0.safetensors", "seed-1.safetensors"]
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


def test_an_extractor_of_another_version_is_refused(tmp_path: Path) -> None:
    model = dpbench.run("class-means:k=5", seeds=1, out=tmp_path).model()
    facts = model.card.extractors[0].model_copy(update={"version": "0"})
    other = Model(model.card.model_copy(update={"extractors": (facts,)}), model.program)
    with pytest.raises(SpecError, match="another version here than the model learned with"):
        other.predict(np.zeros((1, 8, 8), np.uint8))
