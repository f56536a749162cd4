"""Scattering coefficients: their number, what they are on images whose coefficients are known, and what is refused."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import numpy as np
import pytest
import scipy.special
import torch
from dpbench_scatternet import ScatterNet
from PIL import Image
from torch import Tensor

from dpbench import DataMissing, SpecError
from tests import weights

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


@pytest.mark.parametrize(("size", "pool"), [(30, 1), (4, 1), (32, 3), (32, 0)])
def test_sizes_that_do_not_divide_are_refused(size: int, pool: int) -> None:
    with pytest.raises(SpecError, match=r"Expected (size|pool)="):
        ScatterNet(size=size, pool=pool)
