"""Images from random processes: each a function of seed and number, with the statistics that were asked for."""

from __future__ import annotations

import math

import pytest
import torch
from dpbench_plugins.extractors.random_images import dead_leaves, statistical, stylegan
from dpbench_plugins.extractors.random_images.draws import ImageRandomState
from dpbench_plugins.extractors.random_images.generators import GENERATORS, make_generator
from dpbench_plugins.extractors.random_images.random_fields import draw_power_law_fields
from torch import Tensor

from dpbench import SpecError

SIZE = 16
every_generator = pytest.mark.parametrize("name", sorted(GENERATORS))


def images(name: str, count: int, seed: int = 0, size: int = SIZE) -> Tensor:
    return make_generator(name, seed, size)(torch.arange(count))


def amplitude_slope(image: Tensor, highest: float = 0.5) -> Tensor:
    """Return minus the slope of log amplitude against log frequency below `highest`, of images (n, s, s)."""
    size = image.shape[-1]
    f = torch.fft.fftfreq(size)
    radius = (f[:, None].square() + f[None, :].square()).sqrt().flatten()
    kept = (radius > 0) & (radius < highest)
    x = radius[kept].log()
    y = (torch.fft.fft2(image).abs().flatten(1)[:, kept] + 1e-9).log()
    centred = x - x.mean()
    slope: Tensor = (y * centred).sum(1) / centred.square().sum()
    return -slope


def coherence(image: Tensor) -> Tensor:
    """Return for images (n, s, s) how much their gradients share one orientation, in [0, 1]."""
    down, right = image[:, 2:, 1:-1] - image[:, :-2, 1:-1], image[:, 1:-1, 2:] - image[:, 1:-1, :-2]
    along, across = (right.square() - down.square()).sum((1, 2)), 2 * (right * down).sum((1, 2))
    return (along.square() + across.square()).sqrt() / (right.square() + down.square()).sum((1, 2))


@every_generator
def test_the_same_seed_makes_the_same_images(name: str) -> None:
    assert torch.equal(images(name, 3), images(name, 3))


@every_generator
def test_another_seed_makes_other_images(name: str) -> None:
    difference = (images(name, 3) - images(name, 3, seed=1)).abs().mean((1, 2, 3))
    assert bool((difference > 0.02).all())


@every_generator
def test_an_image_depends_on_its_number_and_not_on_its_batch(name: str) -> None:
    make = make_generator(name, 5, SIZE)
    together = make(torch.tensor([4, 9, 2, 30]))
    alone = torch.cat([make(torch.tensor([number])) for number in (4, 9, 2, 30)])
    torch.testing.assert_close(together, alone, rtol=0, atol=2e-4)


@every_generator
def test_pixels_are_finite_and_in_the_unit_range(name: str) -> None:
    made = images(name, 24)
    assert made.shape == (24, 3, SIZE, SIZE)
    assert made.dtype == torch.float32
    assert bool(made.isfinite().all())
    assert (float(made.min()) >= 0, float(made.max()) <= 1) == (True, True)
    assert bool((made.flatten(1).std(1) > 0.01).all())  # none is blank


@every_generator
def test_all_images_differ(name: str) -> None:
    flat = images(name, 24).flatten(1)
    distances = torch.cdist(flat, flat) + torch.eye(24) * 100
    assert float(distances.min()) > 0.5


@every_generator
def test_images_have_colours(name: str) -> None:
    made = images(name, 16)
    assert float((made - made.mean(1, keepdim=True)).abs().mean()) > 0.03


@every_generator
def test_size_is_the_side_of_the_images(name: str) -> None:
    assert images(name, 2, size=8).shape == (2, 3, 8, 8)


def test_an_unknown_generator_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        SpecError, match=r"'fractals'\. Available: dead-leaves, statistical, stylegan-high-freq, stylegan-oriented"
    ):
        make_generator("fractals", 0, SIZE)


def test_draws_have_the_moments_of_their_distributions() -> None:
    draws = ImageRandomState(3, torch.arange(200))
    uniform, normal, laplace = draws.uniform(500, low=-1, high=3), draws.normal(500), draws.laplace(500)
    assert (float(uniform.mean()), float(uniform.std())) == pytest.approx((1, 4 / math.sqrt(12)), abs=0.02)
    assert (float(normal.mean()), float(normal.std())) == pytest.approx((0, 1), abs=0.02)
    assert (float(laplace.mean()), float(laplace.std())) == pytest.approx((0, math.sqrt(2)), abs=0.02)
    counts = draws.integers(500, below=5).flatten().bincount(minlength=5)
    assert (counts / counts.sum()).tolist() == pytest.approx([0.2] * 5, abs=0.01)


def test_draws_of_neighbouring_images_and_purposes_are_unrelated() -> None:
    numbers, other = (
        ImageRandomState(0, torch.arange(50)).normal(400),
        ImageRandomState(0, torch.arange(50), purpose=1).normal(400),
    )
    related = torch.corrcoef(torch.cat([numbers, other])) - torch.eye(100)
    assert float(related.abs().max()) < 0.3  # 6 standard errors


def test_a_field_has_the_spectrum_that_was_asked_for() -> None:
    exponents = torch.tensor([[0.5, 1.0, 2.0, 3.0]])
    fields = draw_power_law_fields(ImageRandomState(0, torch.arange(1)), exponents, 32)[0]
    torch.testing.assert_close(amplitude_slope(fields), exponents[0], rtol=0, atol=0.02)
    torch.testing.assert_close(fields.std((1, 2), unbiased=False), torch.ones(4), rtol=0, atol=1e-4)


def test_radii_of_leaves_fall_as_their_third_power() -> None:
    drawn = dead_leaves.compute_radii_at_quantiles(ImageRandomState(0, torch.arange(1)).uniform(40_000))[0].double()
    low, high = dead_leaves.SMALLEST, dead_leaves.LARGEST
    whole = (low**-2 - high**-2) / 2 - (high - low) * high**-3
    for bound in (0.04, 0.06, 0.1, 0.3):
        below = ((low**-2 - bound**-2) / 2 - (bound - low) * high**-3) / whole
        assert float((drawn < bound).double().mean()) == pytest.approx(below, abs=0.012)


@pytest.mark.parametrize(
    ("kind", "area"),
    [
        ("disc", math.pi), ("square", 2.0), ("oriented square", 2.0), ("rectangle", 4 / math.pi),
        ("triangle", 1.5 / math.pi), ("quadrilateral", 3 / math.pi),
    ],
)  # fmt: skip
def test_every_shape_covers_the_area_of_its_kind(kind: str, area: float) -> None:
    """Of random polygons on the unit circle the mean area is known: 3 / (2 pi) and 3 / pi."""
    leaves, size, radius = 600, 24, 0.45
    draws = ImageRandomState(0, torch.arange(1))
    kinds = torch.full((1, leaves), dead_leaves.KINDS.index(kind))
    centres, radii = 0.5 + draws.uniform(leaves, 2, low=-0.02, high=0.02), torch.full((1, leaves), radius)
    angles = dead_leaves.draw_corner_angles(draws, kinds)
    across, up = dead_leaves.compute_edge_terms(centres, radii, kinds == 0, angles, size)
    covered = (across.unsqueeze(3) <= up.unsqueeze(4)).all(2).float().mean((2, 3))  # share of the image
    assert float(covered.mean()) / radius**2 == pytest.approx(area, rel=0.05)


def test_oriented_squares_turn_and_squares_do_not() -> None:
    kinds = torch.tensor([[1, 1, 2, 2]])
    angles = dead_leaves.draw_corner_angles(ImageRandomState(0, torch.arange(1)), kinds)[0]
    assert torch.equal(angles[0], angles[1])
    assert not torch.allclose(angles[2], angles[3], atol=0.01)


def test_leaves_have_sharp_edges_and_textures_inside() -> None:
    made = images("dead-leaves", 16, size=32)
    steps = made.diff(dim=3).abs().amax(1)
    assert float((steps > 0.2).float().mean()) > 0.1
    assert float(((steps > 0.0005) & (steps < 0.05)).float().mean()) > 0.05


def test_the_pyramid_loses_nothing() -> None:
    levels, total = statistical.make_pyramid_filters(64, torch.device("cpu"))
    assert [tuple(level.shape) for level in levels] == [(5, 64, 64), (4, 32, 32)]
    for level in levels:
        side = level.shape[-1]
        kept = torch.arange(-side // 2, side // 2) % 64
        total[kept[:, None], kept] += torch.fft.fftshift(level.abs().square().sum(0))
    torch.testing.assert_close(total, torch.ones(64, 64), rtol=0, atol=1e-5)


@pytest.mark.slow
def test_statistical_images_have_the_slopes_that_they_drew_below_the_wavelets() -> None:
    numbers = torch.arange(32)
    low, high = statistical.SLOPES
    drawn = ImageRandomState(0, numbers).uniform(1, 1, 1, low=low, high=high).flatten()
    made = make_generator("statistical", 0, 64)(numbers)
    found = torch.stack([amplitude_slope(made[:, colour], 5 / 64) for colour in range(3)]).mean(0)
    assert float(torch.corrcoef(torch.stack([drawn, found]))[0, 1]) > 0.9
    assert float(found[drawn > 2.5].mean() - found[drawn < 1.5].mean()) > 1


def test_statistical_images_have_the_colours_of_their_palettes() -> None:
    numbers = torch.arange(4)
    draws = ImageRandomState(0, numbers)
    statistical.draw_spectrum(draws, SIZE)
    values, axes = statistical.draw_palette(draws, SIZE)
    made = axes.transpose(1, 2) @ make_generator("statistical", 0, SIZE)(numbers).flatten(2)
    for image in range(4):
        for axis in range(3):
            pair = torch.stack([made[image, axis].sort().values, values[image, axis]])
            assert float(torch.corrcoef(pair)[0, 1]) > 0.999


def test_wavelet_marginals_have_heavy_tails_and_grow_with_the_octave() -> None:
    levels, _ = statistical.make_pyramid_filters(64, torch.device("cpu"))
    fine, coarse = (
        statistical.draw_marginals(ImageRandomState(0, torch.arange(3)), *level) for level in enumerate(levels)
    )
    shape = fine.pow(4).mean(-1) / fine.square().mean(-1).square()
    assert float(shape.min()) > 3.2  # of a normal distribution it is 3
    assert bool((fine.diff(dim=-1) >= 0).all())
    assert float(coarse.abs().max()) < statistical.CUT / statistical.LEVELS + 1e-6
    assert 1.5 < float(coarse.std(-1).mean() / fine.std(-1).mean()) < 6


def test_ranks_decide_where_values_go() -> None:
    placed = statistical.match_ranks(torch.tensor([[0.3, -2.0, 7.0]]), torch.tensor([1.0, 2.0, 3.0]))
    assert placed.tolist() == [[2.0, 1.0, 3.0]]


def test_filters_are_oriented_and_come_with_their_negatives() -> None:
    filters = stylegan.make_filter_bank(torch.device("cpu"))
    assert filters.shape == (2 * (2 * stylegan.ORIENTATIONS + 4), 3, 3)
    torch.testing.assert_close(filters.square().sum((1, 2)), torch.ones(len(filters)))
    torch.testing.assert_close(filters[: len(filters) // 2], -filters[len(filters) // 2 :])
    waves = filters[: 2 * stylegan.ORIENTATIONS]
    torch.testing.assert_close(waves.mean((1, 2)), torch.zeros(len(waves)), rtol=0, atol=1e-6)


def test_untrained_generators_make_oriented_images_with_falling_spectra() -> None:
    grey = images("stylegan-oriented", 48, size=32).mean(1)
    isotropic = draw_power_law_fields(ImageRandomState(0, torch.arange(48)), torch.ones(48, 1), 32)[:, 0]
    assert float(coherence(grey).mean()) > 1.5 * float(coherence(isotropic).mean())
    assert 0.5 < float(amplitude_slope(grey).mean()) < 2.5


@pytest.mark.parametrize(
    ("variant", "envelopes", "fields"),
    [
        ("oriented", [SIZE], [SIZE]),
        ("sparse", [4, 8, 8, 16, 16], [4, 8, 8, 16, 16]),
        ("high-freq", [], [4, 8, 8, 16, 16]),
    ],
)
def test_variants_draw_noise_for_all_layers_or_each_with_an_envelope_or_without(
    variant: str, envelopes: list[int], fields: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: dict[str, list[int]] = {"_noise": [], "_field": []}
    for name, sizes in drawn.items():
        inner = getattr(stylegan, name)
        monkeypatch.setattr(
            stylegan, name, lambda draws, size, inner=inner, sizes=sizes: sizes.append(size) or inner(draws, size)
        )
    images(f"stylegan-{variant}", 2)
    assert list(drawn.values()) == [envelopes, fields]
