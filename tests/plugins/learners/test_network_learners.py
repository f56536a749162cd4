"""Learners of whole networks: what they plan, what they train, what they refuse."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from dpbench_plugins.learners.networks import DPRandP, DPSGDNet, NetworkLearner
from dpbench_plugins.learners.networks.gradients import ParameterLayout, PerExampleGradients, Trains
from dpbench_plugins.learners.networks.optimisers import OptimiserName
from dpbench_plugins.learners.networks.randp import TABLE
from dpbench_plugins.learners.networks.training import NetworkTrainer, Phase
from dpbench_plugins.networks.models import build_network, draw_parameters
from dpbench_plugins.networks.network_checkpoint import FORMAT, Checkpoint, find_checkpoint
from dpbench_plugins.networks.views import Augmentation
from safetensors.torch import save_file
from torch import Tensor

import dpbench
from dpbench import (
    Budget,
    Curator,
    DataError,
    DataMissing,
    DpbenchError,
    Planned,
    PublicData,
    Release,
    RowFn,
    SpecError,
    Task,
    registry,
)
from dpbench.privacy.core.accounting.accountant import calibrate, epsilon
from dpbench.privacy.core.ledger_curator import Question
from dpbench.privacy.core.rows import PrivateRows
from dpbench.privacy.core.sum import Sum
from dpbench.records.protocol import Component
from dpbench.records.spec import make_spec
from tests.helpers import readme
from tests.helpers.sessions import session
from tests.helpers.worlds import Bound, curator_over

CPU = torch.device("cpu")
TASK = Task((1, 8, 8), 3, 60, CPU)
CIFAR = Task((3, 32, 32), 10, 50_000, CPU)
SMALL: dict[str, Any] = {"network": "tiny", "sample_rate": 0.5, "augmult": 0, "chunk_size": 64}
COLD: dict[str, Any] = {**SMALL, "weights": "random"}


class Scripted:
    """Gives answers from a list, whatever is asked, and remembers what was."""

    def __init__(self, answers: Callable[[int], Tensor], task: Task = TASK) -> None:
        self.answers, self.task, self.asked = answers, task, list[tuple[str, float, int | None]]()

    def handle(self) -> Curator:
        def answer(question: Question) -> Tensor:
            assert isinstance(question, Sum)
            assert isinstance(question.clip, float)
            self.asked.append((question.release, question.clip, question.chunk_size))
            return self.answers(len(self.asked))

        return Curator(self.task, {}, answer)


def _curator(plan: Sequence[Planned], sigma: float = 0.0) -> Bound:
    draw = torch.Generator().manual_seed(0)
    y = torch.randint(3, (60,), generator=draw)
    centres = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(9))
    x = (centres[y] + 0.1 * torch.randn(60, 1, 8, 8, generator=draw)).clamp(0, 1)
    return curator_over(PrivateRows(x, y, torch.arange(60)), plan, sigma)


def _fit(learner: NetworkLearner, sigma: float = 0.0) -> tuple[Callable[[Tensor], Tensor], Bound]:
    curator = _curator(learner.plan(TASK, Budget(1.0, 1e-5)), sigma)
    generator = torch.Generator().manual_seed(0)
    return learner.fit(curator.handle(), PublicData(torch.empty(0, 1, 8, 8), None), generator), curator


def _training(momentum: float = 0.0, ema: float = 0.9999, chunk_size: int | None = 7) -> tuple[NetworkTrainer, Tensor]:
    network = build_network("tiny", TASK.example_shape, TASK.classes)
    layout = ParameterLayout(network)
    theta = layout.flatten_parameters(draw_parameters(network, torch.Generator().manual_seed(0)))
    return NetworkTrainer(PerExampleGradients(layout, Augmentation(0)), momentum, 1.0, ema, chunk_size), theta


def _saved(folder: Path, **changed: Any) -> Path:
    network = build_network("tiny", TASK.example_shape, TASK.classes)
    state = draw_parameters(network, torch.Generator().manual_seed(5))
    trunk = {name: value for name, value in state.items() if name.startswith("trunk.")}
    state = {name: value for name, value in (trunk | changed).items() if value is not None}
    Checkpoint("tiny", state, {"generator": "noise", "steps": "12"}).save(folder / "phase1.safetensors")
    return folder / "phase1.safetensors"


@pytest.mark.quick(1)
@pytest.mark.parametrize("target", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("learner", [DPSGDNet(), DPRandP()], ids=lambda learner: learner.name)
def test_a_calibrated_plan_spends_the_budget_and_no_more(learner: NetworkLearner, target: float) -> None:
    budget = Budget(target, 1e-5)
    plan = learner.plan(CIFAR, budget)
    sigma = calibrate(plan, budget, "rdp")
    assert 0.99 * target < epsilon(plan, sigma, 1e-5, "rdp") <= target


@pytest.mark.parametrize(
    ("reached", "row"), [*((row[0], row) for row in TABLE), (1.9, TABLE[0]), (math.inf, TABLE[-1])]
)
def test_the_default_plan_is_that_of_table_13(reached: float, row: tuple[int, int, float]) -> None:
    plan = DPRandP().plan(CIFAR, Budget(reached, 1e-5))
    assert plan[0] == Release("phase2", 96, 4096 / 50_000)
    assert sum(release.steps for release in plan) == row[1]
    assert {(release.sample_rate, release.relative_noise) for release in plan} == {(4096 / 50_000, 1.0)}


def test_a_small_epsilon_goes_to_phase_2_alone() -> None:
    assert [release.name for release in DPRandP().plan(CIFAR, Budget(0.49, 1e-5))] == ["phase2"]
    assert len(DPRandP().plan(CIFAR, Budget(0.5, 1e-5))) == 2
    assert len(DPRandP(probe_below=3.0).plan(CIFAR, Budget(2.0, 1e-5))) == 1


def test_without_phase_2_phase_3_takes_all_steps() -> None:
    plan = DPRandP(phase2_steps=0).plan(CIFAR, Budget(1.0, 1e-5))
    assert [(release.name, release.steps) for release in plan] == [("phase3", 875)]
    assert len(DPRandP(phase2_steps=0).plan(CIFAR, Budget(0.1, 1e-5))) == 1  # there is nothing else to spend it on


def test_an_own_number_of_steps_does_not_depend_on_epsilon() -> None:
    for target in (0.1, 8.0):
        plan = DPRandP(phase2_steps=5, phase3_steps=7).plan(CIFAR, Budget(target, 1e-5))
        assert [release.steps for release in plan] == [5, 7]


@pytest.mark.parametrize(
    ("options", "trained", "spent"),
    [
        ({"phase2_steps": 2, "phase3_steps": 0}, ("norm.", "head."), {"phase2": 2}),
        ({"phase2_steps": 2, "phase3_steps": 0, "phase2_trains": "head"}, ("head.",), {"phase2": 2}),
        ({"phase2_steps": 0, "phase3_steps": 2}, ("trunk.", "norm.", "head."), {"phase3": 2}),
        ({"phase2_steps": 2, "phase3_steps": 3}, ("trunk.", "norm.", "head."), {"phase2": 2, "phase3": 3}),
    ],
    ids=["phase II", "the head of phase II", "phase III", "both"],
)
def test_each_phase_trains_its_part_and_spends_its_steps(
    options: dict[str, Any], trained: tuple[str, ...], spent: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[dict[str, Tensor]] = []
    monkeypatch.setattr(
        "dpbench_plugins.learners.networks.training.make_predictor", lambda network, named: ended.append(named)
    )
    _, curator = _fit(DPRandP(**COLD, **options), sigma=1.0)
    start = draw_parameters(build_network("tiny", TASK.example_shape, 3), torch.Generator().manual_seed(0))
    moved = {name for name, value in ended[0].items() if not torch.equal(value, start[name])}
    assert moved == {name for name in start if name.startswith(trained)}
    assert dict(curator.ledger.spent) == spent


def test_phase_3_of_several_instalments_is_trained_whole() -> None:
    learner = DPRandP(**COLD, phase2_steps=874)
    plan = learner.plan(TASK, Budget(2.0, 1e-5))
    assert [release.steps for release in plan] == [874, 1, 250]
    phases = learner._make_phases(2)
    assert [len(phase.releases) for phase in phases] == [1, 2]
    assert phases[1].learning_rate == TABLE[1][2]


def test_training_from_scratch_learns_separable_images() -> None:
    predict, curator = _fit(DPSGDNet(**SMALL, steps=25, ema=0.5))
    rows = curator.rows
    assert float((predict(rows.x).argmax(1) == rows.y).float().mean()) > 0.9


@pytest.mark.quick(1)
@pytest.mark.parametrize(("optimiser", "rate"), [("adam", 0.03), ("disk", 2.0)])
def test_other_optimisers_learn_them_too_and_spend_the_same(optimiser: OptimiserName, rate: float) -> None:
    learner = DPSGDNet(**SMALL, steps=25, ema=0.5, optimiser=optimiser, learning_rate=rate)
    predict, curator = _fit(learner, sigma=0.5)
    rows = curator.rows
    assert float((predict(rows.x).argmax(1) == rows.y).float().mean()) > 0.9
    assert dict(curator.ledger.spent) == {"gradient": 25}


def test_disk_filters_gradients_that_are_taken_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    points: list[Tensor] = []
    honest = PerExampleGradients.row_function

    def recorded(self: PerExampleGradients, theta: Tensor, trains: Trains) -> RowFn:
        points.append(theta.clone())
        return honest(self, theta, trains)

    monkeypatch.setattr(PerExampleGradients, "row_function", recorded)
    training, theta = _training(ema=0.0)
    training, start = dataclasses.replace(training, optimiser="disk"), theta.clone()
    answers = lambda step: torch.full((len(theta),), 30.0 * step)  # the gradients 1 and 2: of 0.5 * 60 expected rows
    found = training.run(Scripted(answers).handle(), theta, [Phase("all", 1.0, [Release("a", 2, 0.5)])])
    assert torch.equal(points[0], start)
    torch.testing.assert_close(start - points[1], torch.full_like(start, 1 + 0.3 / 0.7))
    torch.testing.assert_close(start - found, torch.full_like(start, 1 + (0.3 * 1 + 0.7 * 2)), rtol=1e-4, atol=1e-5)


def test_the_average_is_that_of_de_et_al_and_goes_on_through_phases() -> None:
    training, theta = _training()
    expected, now, layout = theta.double(), theta.double(), training.gradients.layout
    tail = len(theta) - layout.find_trained_start("norm+head")
    answers = lambda step: torch.full((tail if step <= 2 else len(theta),), float(step))
    phases = [
        Phase("norm+head", 2.0, [Release("a", 2, 0.5)]),
        Phase("all", 0.5, [Release("b", 1, 0.5), Release("c", 2, 0.5)]),
    ]
    curator = Scripted(answers)
    found = training.run(curator.handle(), theta, phases)
    for step in range(1, 6):
        part, rate = (slice(-tail, None), 2.0) if step <= 2 else (slice(None), 0.5)
        now = now.clone()
        now[part] -= rate * step / (0.5 * TASK.size)
        decay = min(0.9999, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * now
    assert torch.allclose(found.double(), expected, atol=1e-6)
    assert [name for name, _, _ in curator.asked] == ["a", "a", "b", "c", "c"]


def test_without_an_average_the_last_weights_predict() -> None:
    training, theta = _training(ema=0.0)
    found = training.run(
        Scripted(lambda step: torch.ones(len(theta))).handle(), theta, [Phase("all", 1.0, [Release("a", 3, 0.5)])]
    )
    assert torch.equal(found, theta)


def test_momentum_adds_up_velocity() -> None:
    training, theta = _training(momentum=0.5, ema=0.0)
    start = theta.clone()
    phases = [Phase("all", 1.0, [Release("a", 1, 0.5), Release("b", 1, 0.5)])]
    training.run(Scripted(lambda step: torch.full((len(theta),), 30.0)).handle(), theta, phases)
    assert torch.allclose(start - theta, torch.tensor(1 + 1.5), atol=1e-5)  # 30 of 0.5 * 60 expected rows


@pytest.mark.parametrize("ema", [0.0, 0.9999])
def test_the_average_costs_no_question(ema: float) -> None:
    training, theta = _training(ema=ema)
    curator = Scripted(lambda step: torch.zeros(len(theta)))
    training.run(curator.handle(), theta, [Phase("all", 1.0, [Release("a", 4, 0.5)])])
    assert curator.asked == [("a", 1.0, 7)] * 4


def test_a_chunk_is_always_bounded() -> None:
    training, theta = _training(chunk_size=None)
    curator = Scripted(lambda step: torch.zeros(len(theta)))
    training.run(curator.handle(), theta, [Phase("all", 1.0, [Release("a", 1, 0.5)])])
    assert curator.asked[0][2] == training.gradients.count_rows_per_chunk(TASK.example_shape, CPU)


@pytest.mark.parametrize(
    "error",
    [
        torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried to ..."
        ),
        MemoryError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_out_of_memory_suggests_a_smaller_chunk(error: Exception) -> None:
    def fails(_: int) -> Tensor:
        raise error

    phases = [Phase("all", 1.0, [Release("a", 1, 0.5)])]
    for size, suggested in ((64, "chunk_size=32"), (1, "smaller augmult or network")):
        training, theta = _training(chunk_size=size)
        with pytest.raises(DpbenchError, match=suggested):
            training.run(Scripted(fails).handle(), theta, phases)


def test_other_failures_are_not_called_memory() -> None:
    def fails(_: int) -> Tensor:
        raise RuntimeError("shapes do not match")

    training, theta = _training()
    with pytest.raises(RuntimeError, match="shapes do not match"):
        training.run(Scripted(fails).handle(), theta, [Phase("all", 1.0, [Release("a", 1, 0.5)])])


@pytest.mark.parametrize("learner", [DPSGDNet(), DPRandP()], ids=lambda learner: learner.name)
def test_flat_features_are_refused_with_the_flag_to_use(learner: NetworkLearner) -> None:
    task = Task((3072,), 10, 50_000, CPU)
    with pytest.raises(SpecError, match=f"{learner.name}.*Use --extractor pixels:flat=false"):
        learner.plan(task, Budget(1.0, 1e-5))
    assert Component.parse("pixels:flat=false").options == {"flat": "false"}


@pytest.mark.parametrize("learner", [DPSGDNet(), DPRandP()], ids=lambda learner: learner.name)
def test_images_too_small_are_refused_before_any_is_read(learner: NetworkLearner) -> None:
    with pytest.raises(SpecError, match="'wrn-16-4' needs images of 8x8"):
        learner.plan(Task((1, 6, 6), 10, 1000, CPU), Budget(1.0, 1e-5))


def test_crops_wider_than_the_image_are_refused() -> None:
    with pytest.raises(SpecError, match="padding=8 below the images' 8 pixels"):
        DPSGDNet(network="tiny", padding=8).plan(TASK, Budget(1.0, 1e-5))
    assert DPSGDNet(network="tiny", padding=8, augmult=0).plan(TASK, Budget(1.0, 1e-5))


@pytest.mark.parametrize(
    ("learner", "options", "said"),
    [
        (DPRandP, {"phase2_steps": 0, "phase3_steps": 0}, "got 0 in both"),
        (DPRandP, {"phase2_steps": 900}, "phase2_steps=900 below 875"),
    ],
)
def test_settings_that_cannot_train_are_refused(
    learner: type[NetworkLearner], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(SpecError, match=said):
        learner(**options)


def test_a_checkpoint_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    network = build_network("tiny", TASK.example_shape, 3)
    state = draw_parameters(network, torch.Generator().manual_seed(1))
    Checkpoint("tiny", state, {"generator": "noise"}).save(tmp_path / "a.safetensors")
    found = Checkpoint.load(tmp_path / "a.safetensors")
    assert (found.network, found.about["generator"], found.about["format"]) == ("tiny", "noise", FORMAT)
    assert all(torch.equal(found.state[name], value) for name, value in state.items())


def test_a_trunk_replaces_the_trunk_alone_in_the_networks_precision(tmp_path: Path) -> None:
    half = torch.full((16, 1, 3, 3), 0.5, dtype=torch.float16)
    start = draw_parameters(build_network("tiny", TASK.example_shape, 3), torch.Generator().manual_seed(0))
    found = Checkpoint.load(_saved(tmp_path, **{"trunk.0.weight": half})).apply_to_parameters(start, "tiny")
    assert torch.equal(found["trunk.0.weight"], half.float())
    assert found["head.weight"] is start["head.weight"] or torch.equal(found["head.weight"], start["head.weight"])
    assert list(found) == list(start)


def test_a_warm_start_begins_at_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[dict[str, Tensor]] = []
    monkeypatch.setattr(
        "dpbench_plugins.learners.networks.training.make_predictor", lambda network, named: ended.append(named)
    )
    file = _saved(tmp_path)
    _fit(DPRandP(**SMALL, phase2_steps=1, phase3_steps=0, weights=str(file)), sigma=1.0)
    assert torch.equal(ended[0]["trunk.3.weight"], Checkpoint.load(file).state["trunk.3.weight"])


def test_a_warm_start_leaves_out_the_layer_of_probes(tmp_path: Path) -> None:
    checkpoint = Checkpoint.load(_saved(tmp_path))
    start = {name: torch.zeros_like(tensor) for name, tensor in checkpoint.state.items()}
    state = {**checkpoint.state, "embedding.1.weight": torch.ones(2, 3)}
    assert Checkpoint("tiny", state, {}).apply_to_parameters(start, "tiny").keys() == start.keys()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"trunk.3.weight": torch.zeros(32, 8, 3, 3)},
            r"'trunk.3.weight' is \(32, 8, 3, 3\) in the checkpoint and \(32, 16",
        ),
        ({"trunk.3.weight": None}, r"'trunk.3.weight' is absent in the checkpoint and \(32, 16, 3, 3\)"),
        ({"fc.weight": torch.zeros(3, 2)}, r"'fc.weight' is \(3, 2\) in the checkpoint and absent in the network"),
        ({"head.weight": torch.zeros(10, 32)}, r"'head.weight' is \(10, 32\) in the checkpoint and \(3, 32\)"),
    ],
    ids=["shape", "missing", "left over", "head of other classes"],
)
def test_a_checkpoint_that_does_not_match_names_the_first_difference(
    changed: dict[str, Tensor | None], said: str, tmp_path: Path
) -> None:
    learner = DPRandP(**SMALL, phase2_steps=1, phase3_steps=0, weights=str(_saved(tmp_path, **changed)))
    with pytest.raises(SpecError, match=said):
        _fit(learner)


def test_a_checkpoint_of_another_network_is_refused(tmp_path: Path) -> None:
    learner = DPRandP(**{**SMALL, "network": "wrn-10-1"}, phase2_steps=1, weights=str(_saved(tmp_path)))
    with pytest.raises(SpecError, match="is for network 'tiny', not 'wrn-10-1'"):
        _fit(learner)


def test_grey_images_are_refused_by_the_checkpoint_that_comes_with_dpbench() -> None:
    task = Task((1, 8, 8), 10, 100, torch.device("cpu"))
    with pytest.raises(SpecError, match=r"which read 3 channels, got images of 1\. Use .*mode=RGB, or weights=random"):
        DPRandP().plan(task, Budget(1.0, 1e-5))
    assert DPRandP(weights="random").plan(task, Budget(1.0, 1e-5))


@pytest.mark.slow
def test_the_checkpoint_that_comes_with_dpbench_starts_a_run_on_coloured_digits() -> None:
    options = "network=wrn-16-4,augmult=0,sample_rate=0.02,phase2_steps=2,phase3_steps=1,ema=0"
    found = {}
    for weights in ("randp-wrn16-4", "random"):
        given = {
            "learner": f"dp-randp:{options},weights={weights}", "seeds": 1, "epsilon": math.inf,
            "extractor": "pixels:flat=false,mode=RGB",
        }  # fmt: skip
        result = session(registry.load()).run(make_spec(given, "the test"))
        found[weights] = result.metrics["accuracy"].mean
    assert found["randp-wrn16-4"] != found["random"]


def test_a_file_without_a_manifest_is_refused(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(1)}, tmp_path / "bare.safetensors")
    with pytest.raises(DataError, match=f"Expected metadata format={FORMAT}"):
        Checkpoint.load(tmp_path / "bare.safetensors")


def test_a_file_that_is_not_safetensors_is_refused(tmp_path: Path) -> None:
    (tmp_path / "junk.safetensors").write_bytes(b"not tensors at all")
    with pytest.raises(DataError, match="cannot be read as safetensors"):
        Checkpoint.load(tmp_path / "junk.safetensors")


def test_a_checkpoint_is_found_in_the_data_folders(data_folder: Path) -> None:
    file = _saved(data_folder)
    assert find_checkpoint("phase1.safetensors") == file
    with pytest.raises(DataMissing, match="no such file"):
        find_checkpoint("phase9.safetensors")


@pytest.mark.slow
def test_the_network_learner_of_the_how_to_page_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dpbench_small_network.py").write_text(readme.file_named("dpbench_small_network.py"), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    (learner,) = import_module("dpbench_small_network").dpbench_learners()
    found = dpbench.run(learner, extractor="pixels:flat=false", epsilon=8, seeds=1, device="cpu", out=tmp_path)
    assert found.accuracy > 0.6
