"""Scattering coefficients: their number, what they are on images whose coefficients are known, and what is refused."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import numpy as np
import pytest
import scipy.special
import torch
from dpbench_plugins.extractors.scatternet import ScatterNet, ScatterNetLinear
from PIL import Image
from torch import Tensor

from dpbench import Budget, DataMissing, PublicData, SpecError, Task
from dpbench.privacy.core.rows import PrivateRows
from tests.helpers import weights
from tests.helpers.worlds import curator_over

CPU = torch.device("cpu")
needs_kymatio = pytest.mark.skipif(find_spec("kymatio") is None, reason="pip install 'dpbench-vision[scatter]'")


def features(extractor: ScatterNet, *images: Image.Image) -> Tensor:
    return extractor.open(CPU)(torch.stack([extractor.prepare(image) for image in images]))


@needs_kymatio
@pytest.mark.parametrize(
    ("extractor", "d"),
    [
        (ScatterNet(), 3 * 81 * 8 * 8),
        (ScatterNet(pool=8), 3 * 81),
        (ScatterNet(size=28, grey=True), 81 * 7 * 7),
    ],
)
def test_there_are_81_coefficients_a_channel_and_place(extractor: ScatterNet, d: int) -> None:
    assert features(extractor, weights.image(), weights.image("L")).shape == (2, d)


@needs_kymatio
def test_a_flat_image_has_its_level_and_nothing_else() -> None:
    found = features(ScatterNet(grey=True), Image.new("L", (32, 32), 51)).view(81, 64)
    assert torch.allclose(found[0], torch.tensor(0.2), atol=1e-4)
    assert float(found[1:].abs().max()) < 1e-4


@needs_kymatio
def test_pooling_is_the_mean_over_places() -> None:
    whole = features(ScatterNet(), weights.image()).view(3 * 81, 8, 8)
    pooled = features(ScatterNet(pool=4), weights.image()).view(3 * 81, 2, 2)
    assert torch.allclose(pooled[:, 1, 0], whole[:, 4:, :4].mean((1, 2)), atol=1e-6)


@needs_kymatio
def test_each_colour_is_scattered_by_itself() -> None:
    pixels = np.array(weights.image().resize((32, 32)))
    colour = features(ScatterNet(), Image.fromarray(pixels)).view(3, 81, 64)
    green = features(ScatterNet(grey=True), Image.fromarray(pixels[:, :, 1])).view(81, 64)
    # Wavelets have mean zero, so that the shift of the colour's mean shows in the first coefficient only.
    assert torch.allclose(colour[1, 1:] * 0.224, green[1:], atol=1e-4)
    assert torch.allclose(colour[1, 0] * 0.224 + 0.456, green[0], atol=1e-4)


@needs_kymatio
def test_scipy_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(vars(scipy.special))
    for module in [name for name in sys.modules if name.partition(".")[0] == "kymatio"]:
        monkeypatch.delitem(sys.modules, module)
    ScatterNet().open(CPU)
    assert set(vars(scipy.special)) == before


def test_without_kymatio_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kymatio.torch", None)
    with pytest.raises(DataMissing, match=r"pip install 'dpbench-vision\[scatter\]'"):
        ScatterNet().open(CPU)


@pytest.mark.parametrize(("size", "pool"), [(30, 1), (32, 3)])
def test_sizes_that_do_not_divide_are_refused(size: int, pool: int) -> None:
    with pytest.raises(SpecError, match=r"Expected (size|pool)="):
        ScatterNet(size=size, pool=pool)


def normalised(x: Tensor, groups: int) -> Tensor:
    task = Task(tuple(x.shape[1:]), 10, 100, CPU)
    found = ScatterNetLinear(groups=groups).features(task, PublicData(x[:0], None), torch.Generator())(x)
    assert isinstance(found, Tensor)
    return found


def test_groups_are_runs_of_whole_channels_and_an_examples_own() -> None:
    x = torch.rand(4, 6 * 25, generator=torch.Generator().manual_seed(0), dtype=torch.float64)  # 6 channels, 5x5 places
    expected = torch.nn.GroupNorm(3, 6, affine=False)(x.view(4, 6, 5, 5)).flatten(1)
    torch.testing.assert_close(normalised(x, 3), expected)
    torch.testing.assert_close(normalised(x[2:3], 3), expected[2:3])
    assert torch.allclose(normalised(x, 3).norm(dim=1), torch.tensor(150.0, dtype=torch.float64).sqrt(), rtol=1e-4)


@pytest.mark.parametrize(("shape", "groups"), [((256,), 27), ((3, 4, 4), 48), ((10,), 20)])
def test_features_that_do_not_fall_into_groups_are_refused(shape: tuple[int, ...], groups: int) -> None:
    with pytest.raises(SpecError, match=f"Expected groups={groups} .* to cut the .* features"):
        ScatterNetLinear(groups=groups).plan(Task(shape, 10, 100, CPU), Budget(1.0, 1e-5))


def test_the_default_plan_is_60_epochs_of_the_authors_batches() -> None:
    task, budget = Task((15_552,), 10, 50_000, CPU), Budget(3.0, 1e-5)
    learner = ScatterNetLinear().settle(task, budget)
    assert learner.learning_rate == pytest.approx(4.0, rel=0.01)
    (release,) = learner.plan(task, budget)
    assert (release.steps, release.sample_rate * 50_000) == (60 * (50_000 // 8192), 8192)


def stripes(count: int, seed: int) -> tuple[list[Image.Image], Tensor]:
    """Return waves that run down (0) or across (1), each with a random phase: no pixel tells which."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(2, size=count)
    made = []
    for label, phase in zip(labels, draw.uniform(0, 2 * np.pi, count), strict=True):
        wave = np.broadcast_to(127 + 100 * np.sin(np.arange(16) * np.pi / 2 + phase), (16, 16))
        made.append(Image.fromarray((wave.T if label else wave).astype(np.uint8)))
    return made, torch.from_numpy(labels)


@needs_kymatio
def test_the_probe_privately_tells_textures_apart_whose_pixels_have_the_same_means() -> None:
    (train, y), (test, truth), extractor = stripes(300, 0), stripes(100, 1), ScatterNet(size=16, grey=True)
    x, learner = features(extractor, *train), ScatterNetLinear(steps=20, sample_rate=0.5, learning_rate=4.0)
    rows = PrivateRows(x, y, torch.arange(len(y)))
    curator = curator_over(rows, learner.plan(Task((1296,), 2, 300, CPU), Budget(1.0, 1e-5)), sigma=5.0, classes=2)
    predict = learner.fit(curator.handle(), PublicData(x[:0], None), torch.Generator())
    assert float((predict(features(extractor, *test)).argmax(1) == truth).float().mean()) > 0.95
