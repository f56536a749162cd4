"""Contrastive pre-training: its losses, its views, its files, and that stopping changes nothing."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from dpbench_plugins.extractors.random_images.draws import ImageRandomState
from dpbench_plugins.extractors.randp import pretraining
from dpbench_plugins.extractors.randp.augment import augment_images
from dpbench_plugins.extractors.randp.checkpoints import digest_tensors, unfinished_state_path
from dpbench_plugins.extractors.randp.encoder import KEPT, Encoder
from dpbench_plugins.extractors.randp.losses import TEMPERATURE, alignment_loss, info_nce_loss, uniformity_loss
from dpbench_plugins.extractors.randp.pretraining import Pretrainer
from dpbench_plugins.extractors.randp.probe import AccuracyProbe
from dpbench_plugins.extractors.randp.recipe import PretrainingRecipe
from dpbench_plugins.networks.models import build_network, draw_parameters
from dpbench_plugins.networks.network_checkpoint import Checkpoint
from torch import Tensor
from torch.nn.functional import normalize

from dpbench import DataError, DataMissing, DpbenchError, SpecError
from tests.helpers.randp import CPU, Tiny, Told, recipe, tensors, trained

both_losses = pytest.mark.parametrize("loss", ["align-uniform", "moco"])


def units(count: int, seed: int) -> Tensor:
    return normalize(torch.randn(count, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64), dim=1)


def equal(tensors: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return tensors.keys() == other.keys() and all(torch.equal(tensors[name], other[name]) for name in tensors)


def test_uniformity_is_the_log_of_the_mean_potential_over_pairs() -> None:
    x = units(7, 0)
    expected = torch.pdist(x).square().mul(-2).exp().mean().log()
    torch.testing.assert_close(uniformity_loss(x), expected, rtol=1e-10, atol=0)


def test_alignment_is_the_mean_power_of_the_distances() -> None:
    x, y = units(7, 0), units(7, 1)
    expected = torch.stack([(row - other).square().sum() for row, other in zip(x, y, strict=True)]).mean()
    torch.testing.assert_close(alignment_loss(x, y), expected, rtol=1e-10, atol=0)


def test_info_nce_is_the_surprise_of_the_own_key() -> None:
    queries, keys, queue = units(3, 0), units(3, 1), units(11, 2)
    total = 0.0
    for query, key in zip(queries, keys, strict=True):
        scores = [math.exp(float(query @ other) / TEMPERATURE) for other in (key, *queue)]
        total -= math.log(scores[0] / sum(scores))
    assert float(info_nce_loss(queries, keys, queue)) == pytest.approx(total / 3)


def test_views_are_of_the_size_and_range_that_was_asked_for() -> None:
    images = torch.rand(6, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    view = augment_images(images, ImageRandomState(0, torch.arange(6), 1), 16)
    assert view.shape == (6, 3, 16, 16)
    assert 0 <= float(view.min()) < float(view.max()) <= 1


def test_views_of_an_image_differ_and_depend_on_its_number_alone() -> None:
    images = torch.rand(6, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    numbers = torch.arange(6)
    together = augment_images(images, ImageRandomState(0, numbers, 1), 16)
    assert bool(
        ((together - augment_images(images, ImageRandomState(0, numbers, 2), 16)).abs().mean((1, 2, 3)) > 0.01).all()
    )
    alone = torch.cat([augment_images(images[[row]], ImageRandomState(0, numbers[[row]], 1), 16) for row in range(6)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)


def test_a_fifth_of_the_views_is_grey() -> None:
    images = torch.rand(400, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    view = augment_images(images, ImageRandomState(0, torch.arange(400), 1), 8)
    assert float(((view - view.mean(1, keepdim=True)).abs().amax((1, 2, 3)) < 1e-4).float().mean()) == pytest.approx(
        0.2, abs=0.06
    )


def test_the_learning_rate_is_in_proportion_to_the_batch_and_falls_three_times() -> None:
    long = PretrainingRecipe(steps=200, batch=512)
    rates = [long.rate(step) for step in (0, 154, 155, 170, 185, 199)]
    assert rates == pytest.approx([0.24, 0.24, 0.024, 0.0024, 0.00024, 0.00024])
    assert PretrainingRecipe(loss="moco", batch=256).rate(0) == pytest.approx(0.03)


@pytest.mark.slow
@both_losses
def test_the_loss_falls(tmp_path: Path, loss: str) -> None:
    told: Told = []
    trained(
        tmp_path / "w.safetensors", report=lambda *call: told.append(call), loss=loss, steps=30, batch=24, queue=48,
        learning_rate=0.02,
    )  # fmt: skip
    losses = [value for name, value in told if name == "loss"]
    assert len(losses) == 30
    # MoCo's queue holds random keys at first, which are easier to tell apart than the network's own.
    early = losses[:5] if loss == "align-uniform" else losses[3:8]
    assert sum(losses[-5:]) / 5 < sum(early) / 5 - 0.1


@pytest.mark.quick(1)
@both_losses
def test_rounded_products_lead_to_about_the_same_weights(tmp_path: Path, loss: str) -> None:
    exact, rounded = trained(tmp_path / "a.safetensors", loss=loss), tmp_path / "b.safetensors"
    trained(rounded, loss=loss, precision="bfloat16")
    for name, tensor in tensors(exact).items():
        torch.testing.assert_close(tensors(rounded)[name].float(), tensor.float(), rtol=0, atol=0.05)


@pytest.mark.quick(1)
@both_losses
def test_what_was_interrupted_goes_on_to_the_same_weights(
    tmp_path: Path, loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretraining, "SAVE_AFTER", 0.0)

    def interrupt(name: str, value: float) -> None:
        if (name, value) == ("step", 5):
            raise KeyboardInterrupt

    whole, broken = tmp_path / "whole.safetensors", tmp_path / "broken.safetensors"
    trained(whole, loss=loss)
    with pytest.raises(KeyboardInterrupt):
        trained(broken, report=interrupt, loss=loss)
    assert not broken.exists()
    told: Told = []
    trained(broken, resume=True, report=lambda *progress: told.append(progress), loss=loss)
    assert [value for name, value in told if name == "step"] == [4, 5, 6]
    assert equal(tensors(whole), tensors(broken))


def test_nothing_unfinished_is_left_behind(tmp_path: Path) -> None:
    out = trained(tmp_path / "folder" / "w.safetensors")
    assert list(out.parent.iterdir()) == [out]


def test_each_step_has_new_images() -> None:
    training = Pretrainer(Tiny.network, Tiny.size, recipe(), CPU)
    seen = torch.cat([training.views(step)[0] for step in range(3)]).flatten(1)
    assert float((torch.cdist(seen, seen) + 100 * torch.eye(len(seen))).min()) > 0.1


CHOICES = [
    {"seed": 1}, {"generator": "dead-leaves"}, {"loss": "moco"}, {"batch": 4}, {"view": 8}, {"precision": "bfloat16"},
    {"embed": True}, {"generator": "stylegan-sparse"}, {"generator": "stylegan-high-freq"},
]  # fmt: skip


@pytest.mark.quick(2)
@pytest.mark.parametrize("changes", CHOICES)
def test_every_choice_of_the_recipe_shows_in_the_weights(tmp_path: Path, changes: dict[str, Any]) -> None:
    weights, other = trained(tmp_path / "one.safetensors"), trained(tmp_path / "other.safetensors", **changes)
    assert not equal(tensors(weights), tensors(other))


def test_the_probe_is_told_and_chooses_nothing(tmp_path: Path) -> None:
    told: Told = []
    watched = trained(tmp_path / "w.safetensors", report=lambda *call: told.append(call), probe="digits", probe_every=2)
    assert [value for name, value in told if name == "probe"] == [0.5] * 4
    assert equal(tensors(watched), tensors(trained(tmp_path / "x.safetensors")))
    assert Checkpoint.load(watched).about["probe"] == "digits: watched alone, nothing was chosen by it"


def test_a_probe_scores_features_on_images_that_it_did_not_fit() -> None:
    probe = AccuracyProbe("digits", Tiny().prepare)
    assert probe(lambda images: images.mean(1).flatten(1)) > 0.8
    assert probe(lambda images: torch.zeros(len(images), 2)) < 0.2


def test_a_probe_without_its_data_is_said_before_anything_is_written(
    tmp_path: Path, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    with pytest.raises(DataMissing, match="cifar10"):
        Tiny.pretrain(recipe(probe="cifar10"), tmp_path / "w.safetensors", CPU, lambda _, __: None, resume=False)
    assert not list(tmp_path.glob("*.safetensors"))


def test_the_checkpoint_says_how_it_was_made_and_holds_no_projection(tmp_path: Path) -> None:
    out = trained(tmp_path / "w.safetensors", generator="dead-leaves", seed=7)
    checkpoint = Checkpoint.load(out)
    about = checkpoint.about
    assert (checkpoint.network, about["generator"], about["seed"], about["steps"]) == ("tiny", "dead-leaves", "7", "6")
    assert about["data"] == "none: images from a random process"
    assert about["digest"] == digest_tensors(checkpoint.state)
    assert json.loads(about["recipe"])["batch"] == 8
    assert all(name.startswith(KEPT) and tensor.dtype == torch.float16 for name, tensor in checkpoint.state.items())


def test_a_learner_of_whole_networks_starts_from_the_checkpoint(tmp_path: Path) -> None:
    checkpoint = Checkpoint.load(trained(tmp_path / "w.safetensors"))
    start = draw_parameters(build_network("tiny", (3, 16, 16), 10), torch.Generator().manual_seed(0))
    replaced = checkpoint.apply_to_parameters(start, "tiny")
    changed = {name for name in start if not torch.equal(start[name], replaced[name])}
    assert {name for name in start if name.startswith("trunk.") and name.endswith("weight")} <= changed
    assert not any(name.startswith("head.") for name in changed)


def test_a_wrn_16_4_in_half_precision_is_below_8_megabytes() -> None:
    kept = [parameter for name, parameter in Encoder("wrn-16-4", 32).named_parameters() if name.startswith(KEPT)]
    assert 2e6 < sum(weight.numel() for weight in kept) < 8e6 / 2


def test_a_finished_checkpoint_is_not_overwritten(tmp_path: Path) -> None:
    out = trained(tmp_path / "w.safetensors")
    with pytest.raises(SpecError, match="already exists"):
        trained(out)


def interrupted(out: Path) -> Path:
    """Leave an unfinished pre-training of `out` behind and return its file."""

    def interrupt(name: str, value: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(out, report=interrupt)
    return unfinished_state_path(out)


def test_an_unfinished_pretraining_is_not_overwritten(tmp_path: Path) -> None:
    interrupted(tmp_path / "w.safetensors")
    with pytest.raises(SpecError, match="Continue with --resume"):
        trained(tmp_path / "w.safetensors")


def test_nothing_to_resume_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match=r"w\.unfinished\.safetensors to resume"):
        trained(tmp_path / "w.safetensors", resume=True)


def test_another_recipe_is_not_resumed(tmp_path: Path) -> None:
    interrupted(tmp_path / "w.safetensors")
    with pytest.raises(SpecError, match="was started with seed=0, not 3"):
        trained(tmp_path / "w.safetensors", resume=True, seed=3)


def test_an_embedding_is_not_resumed_without_and_reads_one_size(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"Expected view=8 to be 16 with embed=true"):
        trained(tmp_path / "small.safetensors", embed=True, view=8)
    training = Pretrainer(Tiny.network, Tiny.size, recipe(embed=True), CPU)
    training.state().save(unfinished_state_path(tmp_path / "a.safetensors"))
    with pytest.raises(SpecError, match="was started with embed=True, not False"):
        trained(tmp_path / "a.safetensors", resume=True)


def test_another_probe_is_no_other_recipe(tmp_path: Path) -> None:
    interrupted(tmp_path / "w.safetensors")
    out = trained(tmp_path / "w.safetensors", resume=True, probe="digits", probe_every=3)
    assert Checkpoint.load(out).about["probe"].startswith("digits")


def test_a_damaged_state_is_named(tmp_path: Path) -> None:
    interrupted(tmp_path / "w.safetensors").write_bytes(b"\x00" * 40)
    with pytest.raises(DataError, match="cannot be read"):
        trained(tmp_path / "w.safetensors", resume=True)


def test_a_finished_checkpoint_is_no_state(tmp_path: Path) -> None:
    out = trained(tmp_path / "x.safetensors")
    out.rename(tmp_path / "w.unfinished.safetensors")
    with pytest.raises(DataError, match="Expected format=dpbench-pretraining-1"):
        trained(tmp_path / "w.safetensors", resume=True)


def test_a_place_that_cannot_be_written_is_said_before_the_first_step(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(SpecError, match="Cannot write"):
        trained(tmp_path / "file" / "w.safetensors", report=lambda _, __: pytest.fail("it began"))


def test_a_loss_that_is_not_finite_ends_the_training(tmp_path: Path) -> None:
    with pytest.raises(DpbenchError, match="Set a smaller learning_rate"):
        trained(tmp_path / "w.safetensors", learning_rate=1e30)


def test_too_little_memory_suggests_a_smaller_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def step(training: Pretrainer) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(Pretrainer, "step", step)
    with pytest.raises(DpbenchError, match=r"A batch of 8 images does not fit in memory\. Set a smaller batch"):
        trained(tmp_path / "w.safetensors")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 0),
        ("batch", 1),
        ("learning_rate", 0.0),
        ("canvas", 24),
        ("canvas", 4),
        ("queue", 0),
        ("seed", -1),
        ("view", 7),
    ],
)
def test_a_recipe_that_cannot_train_is_refused(name: str, value: float) -> None:
    with pytest.raises(SpecError, match=f"Expected {name}={value}"):
        recipe(**{name: value})
