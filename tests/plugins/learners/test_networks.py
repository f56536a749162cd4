"""Networks, their per-example gradients and views: exact, per example, and as large in memory as a chunk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from dpbench_plugins.learners.networks.gradients import ParameterLayout, PerExampleGradients, Trains
from dpbench_plugins.networks.models import Network, WSConv2d, build_network, draw_parameters, standardise_weight
from dpbench_plugins.networks.views import Augmentation, hash_seeds, normalise_pixels
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy, pad

from dpbench import Chunk, Joined, Release, SpecError
from dpbench.privacy.core.rows import PrivateRows
from tests.helpers.worlds import curator_over

SHAPE = (2, 8, 8)
NAMES = ("tiny", "wrn-10-1", "resnet-9")


def _chunk(count: int, shape: tuple[int, ...] = SHAPE) -> Chunk:
    draw = torch.Generator().manual_seed(1)
    x, y = torch.rand(count, *shape, generator=draw), torch.randint(3, (count,), generator=draw)
    return Chunk(x, y, torch.randint(2**62, (count,), generator=draw))


def _start(name: str, views: Augmentation, shape: tuple[int, ...] = SHAPE) -> tuple[PerExampleGradients, Tensor]:
    network = build_network(name, shape, 3)
    layout = ParameterLayout(network)
    theta = layout.flatten_parameters(draw_parameters(network, torch.Generator().manual_seed(0))).double()
    # Away from the start, where gains and scales are 1 and biases 0, which would hide a factor that is left out.
    theta = theta * (1 + 0.3 * torch.rand(theta.shape, generator=torch.Generator().manual_seed(2)).double()) + 0.01
    return PerExampleGradients(layout, views), theta


def _rows(gradients: PerExampleGradients, theta: Tensor, chunk: Chunk, trains: Trains = "all") -> Tensor:
    """Return (c, p): the row function's rows written out."""
    found = gradients.row_function(theta, trains)(chunk)
    assert isinstance(found, Joined)
    return found.dense()


def _one_at_a_time(gradients: PerExampleGradients, theta: Tensor, chunk: Chunk) -> Tensor:
    """Return (c, p) gradients by autograd on the network itself, one example and one view at a time, then the mean."""
    rows = []
    for i in range(len(chunk)):
        views = normalise_pixels(gradients.views(chunk.x[i : i + 1].double(), chunk.seeds[i : i + 1])[0])
        parts = []
        for view in views:
            at = theta.clone().requires_grad_()
            logits = functional_call(gradients.layout.network, gradients.layout.views(at), (view[None],))
            parts.append(torch.autograd.grad(cross_entropy(logits, chunk.y[i : i + 1]), at)[0])
        rows.append(torch.stack(parts).mean(0))
    return torch.stack(rows)


@pytest.mark.parametrize(("name", "millions"), [("wrn-16-4", 2.7), ("wrn-40-4", 8.9), ("resnet-9", 2.4)])
def test_a_network_has_as_many_parameters_as_published(name: str, millions: float) -> None:
    size = ParameterLayout(build_network(name, (3, 32, 32), 10)).size
    assert millions <= size / 1e6 < millions + 0.1


def test_the_bare_wide_resnet_has_2751562_parameters_and_a_gain_for_each_filter() -> None:
    network = build_network("wrn-16-4", (3, 32, 32), 10)
    gains = sum(module.out_channels for module in network.modules() if isinstance(module, WSConv2d))
    assert ParameterLayout(network).size == 2_751_562 + gains


@pytest.mark.parametrize("name", ["wrn-16-4", "wrn-40-4", *NAMES])
def test_nothing_in_a_network_reads_other_images(name: str) -> None:
    kinds = {type(module) for module in build_network(name, (1, 32, 32), 10).modules()}
    assert not any(issubclass(kind, (nn.modules.batchnorm._BatchNorm, nn.Dropout)) for kind in kinds)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 28, 28), (4, 9, 13)])
@pytest.mark.parametrize("name", NAMES)
def test_any_number_of_channels_and_any_size_give_one_score_a_class(name: str, shape: tuple[int, ...]) -> None:
    network = build_network(name, shape, 7)
    start = draw_parameters(network, torch.Generator().manual_seed(0))
    assert functional_call(network, start, (torch.rand(2, *shape),)).shape == (2, 7)


@pytest.mark.parametrize(("name", "side"), [("wrn-16-4", 7), ("resnet-9", 7), ("tiny", 3)])
def test_an_image_too_small_for_the_network_is_refused(name: str, side: int) -> None:
    with pytest.raises(SpecError, match=rf"needs images of {side + 1}x{side + 1} pixels or more, got {side}x{side}"):
        build_network(name, (3, side, side), 10)


@pytest.mark.parametrize("name", ["wrn-17-4", "wrn-4-4", "resnet-18"])
def test_a_network_that_does_not_exist_is_refused(name: str) -> None:
    with pytest.raises(SpecError, match="Expected a network named wrn-16-4"):
        build_network(name, (3, 32, 32), 10)


def test_standardised_filters_have_mean_zero_and_the_norm_of_their_gain() -> None:
    weight, gain = torch.randn(5, 3, 3, 3), torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    filters = standardise_weight(weight, gain).flatten(1)
    assert torch.allclose(filters.mean(1), torch.zeros(5), atol=1e-6)
    assert torch.allclose(filters.norm(dim=1), gain)


def test_the_start_follows_the_generator_alone() -> None:
    network = build_network("tiny", SHAPE, 3)
    first, second, other = (draw_parameters(network, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["head.weight"], other["head.weight"])


def test_the_start_has_variance_one_over_fan_in() -> None:
    weight = draw_parameters(build_network("wrn-16-4", (3, 32, 32), 10), torch.Generator().manual_seed(0))[
        "trunk.5.conv2.weight"
    ]
    assert float(weight.var()) * 9 * 256 == pytest.approx(1, rel=0.02)
    assert float(weight.abs().max()) <= 2 * (9 * 256) ** -0.5 / 0.8796 + 1e-6


@pytest.mark.quick("tiny-plain", "tiny-3 views")
@pytest.mark.parametrize("views", [Augmentation(0), Augmentation(3)], ids=["plain", "3 views"])
@pytest.mark.parametrize("name", NAMES)
def test_rows_are_the_gradients_of_autograd_one_at_a_time(name: str, views: Augmentation) -> None:
    gradients, theta = _start(name, views)
    chunk = _chunk(3)
    found, expected = _rows(gradients, theta, chunk), _one_at_a_time(gradients, theta, chunk)
    assert torch.allclose(found, expected, rtol=1e-9, atol=1e-11)


def test_a_filter_too_small_to_be_standardised_has_the_gradient_of_autograd_too() -> None:
    gradients, theta = _start("tiny", Augmentation(0))
    gradients.layout.views(theta)["trunk.0.weight"][:4] *= 1e-4
    chunk = _chunk(2)
    found = _rows(gradients, theta, chunk)
    assert torch.allclose(found, _one_at_a_time(gradients, theta, chunk), rtol=1e-9, atol=1e-9)


def test_rows_with_views_are_the_mean_of_the_rows_of_each_view() -> None:
    gradients, theta = _start("wrn-10-1", Augmentation(4, padding=2))
    chunk = _chunk(3)
    seen = gradients.views(chunk.x, chunk.seeds)  # (c, 4, ...)
    plain = PerExampleGradients(gradients.layout, Augmentation(0))
    each = torch.stack([_rows(plain, theta, Chunk(seen[:, view], chunk.y, chunk.seeds)) for view in range(4)])
    found = _rows(gradients, theta, chunk)
    assert torch.allclose(found, each.mean(0), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("trains", ["head", "norm+head"])
def test_training_a_part_gives_the_last_columns_of_training_all(trains: Trains) -> None:
    gradients, theta = _start("wrn-10-1", Augmentation(2))
    chunk = _chunk(3)
    part, whole = _rows(gradients, theta, chunk, trains), _rows(gradients, theta, chunk)
    named = dict(gradients.layout.network.named_parameters())
    kept = [name for name in named if name.startswith("head.") or (trains == "norm+head" and name.startswith("norm."))]
    assert part.shape[1] == sum(named[name].numel() for name in kept)
    assert torch.allclose(part, whole[:, -part.shape[1] :], rtol=1e-9, atol=1e-12)


def test_an_empty_chunk_gives_no_rows() -> None:
    gradients, theta = _start("tiny", Augmentation(2))
    assert _rows(gradients, theta, _chunk(0)).shape == (0, len(theta))


@pytest.mark.slow
def test_the_size_of_a_chunk_changes_the_noisy_sum_by_rounding_alone() -> None:
    gradients, theta = _start("wrn-10-1", Augmentation(2))
    chunk, answers = _chunk(23), list[Tensor]()
    for size in (1, 5, 23):
        rows = PrivateRows(chunk.x, chunk.y, torch.arange(23))
        curator = curator_over(rows, [Release("gradient")])
        function = gradients.row_function(theta.float(), "all")
        answer = curator.noisy_sum(function, release="gradient", clip=1.0, chunk_size=size)
        assert isinstance(answer, Tensor)
        answers.append(answer)
    for answer in answers[1:]:
        assert float((answer - answers[0]).norm() / answers[0].norm()) < 1e-5  # float32 sums of 23 rows


def test_a_row_is_clipped_once_whatever_the_number_of_views() -> None:
    chunk = _chunk(1)
    for count in (1, 8):
        gradients, theta = _start("tiny", Augmentation(count))
        curator = curator_over(PrivateRows(chunk.x, chunk.y, torch.arange(1)), [Release("gradient")])
        total = curator.noisy_sum(gradients.row_function(theta.float(), "all"), release="gradient", clip=0.01)
        assert isinstance(total, Tensor)
        assert float(total.norm()) == pytest.approx(0.01, rel=1e-3)  # norms are bounded from above


def test_views_are_reflected_crops_half_of_them_mirrored() -> None:
    x, seeds = torch.rand(40, 2, 6, 5), torch.arange(40)
    seen, padded = Augmentation(8, padding=2)(x, seeds), pad(x, (2,) * 4, mode="reflect")
    mirrored = 0
    for i in range(40):
        crops = [padded[i, :, top : top + 6, left : left + 5] for top in range(5) for left in range(5)]
        for view in seen[i]:
            plain, turned = (any(torch.equal(side, crop) for crop in crops) for side in (view, view.flip(2)))
            assert plain or turned
            mirrored += turned and not plain  # crops at both ends are symmetric
    assert 47 < mirrored < 145  # of 320, within six standard deviations of a half of three fifths


def test_without_mirroring_views_are_crops_alone() -> None:
    x = torch.arange(36.0).reshape(1, 1, 6, 6)
    steps = Augmentation(20, padding=0, flip=False)(x, torch.tensor([7]))
    assert all(torch.equal(view, x[0]) for view in steps[0])


def test_every_place_of_a_crop_is_drawn_about_as_often() -> None:
    drawn = hash_seeds(torch.arange(2000), 4).flatten()
    counts = torch.bincount((drawn & (2**20 - 1)) % 9, minlength=9)
    assert int((counts - 8000 / 9).abs().max()) < 6 * (8000 / 9) ** 0.5


def test_a_view_depends_on_its_seed_and_number_alone() -> None:
    x, seeds, views = torch.rand(6, 1, 8, 8), torch.randint(2**62, (6,)), Augmentation(5)
    seen, order = views(x, seeds), torch.tensor([4, 0, 5])
    assert torch.equal(views(x[order], seeds[order]), seen[order])
    assert torch.equal(Augmentation(3)(x, seeds), seen[:, :3])


def test_different_seeds_see_different_views() -> None:
    assert len(set(hash_seeds(torch.arange(1000), 3).flatten().tolist())) == 3000


def test_normalising_reads_no_data() -> None:
    assert normalise_pixels(torch.tensor([0.0, 0.5, 1.0])).tolist() == [-2.0, 0.0, 2.0]


@pytest.mark.quick(1)
@pytest.mark.parametrize("views", [Augmentation(0), Augmentation(16)], ids=["plain", "16 views"])
def test_rows_at_once_shrink_with_the_network_and_the_views(views: Augmentation) -> None:
    def fitting(name: str, views: Augmentation) -> int:
        gradients = PerExampleGradients(ParameterLayout(build_network(name, (3, 32, 32), 10)), views)
        return gradients.count_rows_per_chunk((3, 32, 32), torch.device("cpu"))

    assert 1 <= fitting("wrn-40-4", views) < fitting("wrn-16-4", views) < fitting("tiny", views)
    assert fitting("wrn-16-4", Augmentation(64)) < fitting("wrn-16-4", views)


# Peak memory of a step over 24 rows in chunks of 16, then over ten times as many, then of one chunk of them all.
_PEAKS = r"""
import re, torch
from pathlib import Path
from dpbench import Release
from dpbench.privacy.core.rows import PrivateRows
from dpbench_plugins.learners.networks.gradients import Gradients, Layout
from dpbench_plugins.networks.models import build, draw_parameters
from dpbench_plugins.networks.views import Views
from tests.helpers.worlds import curator_over

network = build("wrn-10-1", (1, 16, 16), 3)
layout = Layout(network)
theta = layout.vector(draw_parameters(network, torch.Generator().manual_seed(0)))
rows = PrivateRows(torch.rand(240, 1, 16, 16), torch.zeros(240, dtype=torch.int64), torch.arange(240))
for rate, chunk in ((0.1, 16), (1.0, 16), (1.0, 240)):
    curator = curator_over(rows, [Release("gradient", sample_rate=rate)])
    counted = Gradients(layout, Views(1)).row_function(theta, "all")
    curator.noisy_sum(counted, release="gradient", clip=1.0, chunk_size=chunk)
    print(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])  # getrusage's counts the parent's too
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells a process' peak memory")
@pytest.mark.long
def test_peak_memory_follows_the_chunk_and_not_the_batch() -> None:
    done = subprocess.run([sys.executable, "-c", _PEAKS], capture_output=True, text=True, check=True, timeout=120)
    few, many, whole = (int(size) / 1024 for size in done.stdout.split())  # MiB
    assert many - few < 0.1 * (whole - few)
    assert whole - few > 60  # one chunk of 240 rows of 78,000 numbers is 71 MiB by itself


def test_networks_are_shapes_alone_until_they_have_parameters() -> None:
    network = build_network("wrn-40-4", (3, 32, 32), 10)
    assert isinstance(network, Network)
    assert {parameter.device.type for parameter in network.parameters()} == {"meta"}
