"""The statistical image model: noise with a random spectrum, colours and wavelet marginals as in natural images."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from dpbench_plugins.extractors.random_images.draws import ImageRandomState
from dpbench_plugins.extractors.random_images.random_fields import make_fft_frequency_grid

ORIENTATIONS = 4
ROUNDS = 3  # of imposing one statistic after the other; Baradad et al. take 10
SLOPES = (0.5, 3.5)  # of the amplitude spectrum
SLOPE_DIFFERENCE = 0.05  # deviation of half the difference between the slopes of the two directions
EXPONENTS = (0.4, 0.8)  # of wavelet marginals, exp(-|x / scale|^exponent)
CUT = 200.0  # where these end
LEVELS = 256  # of a pixel, in which scales and cut are given
COLOURS = (3, 23)  # fewest, and one more than the most
BLUR = 10 / 128  # of the palette's stripes, at most, as a share of the side
GRAIN = 10 / LEVELS
# Makes the squares of cos^3 in four orientations add up to one.
NORM = math.sqrt(2 ** (2 * ORIENTATIONS - 2) / (ORIENTATIONS * math.comb(2 * ORIENTATIONS - 2, ORIENTATIONS - 1)))


@dataclass(frozen=True)
class StatisticalImages:
    """Images from noise, with random spectrum, colours and wavelet marginals (WMM) imposed in turn.

    Each image draws its own amplitude spectrum 1 / (|f_x|^a + |f_y|^b), its own palette of 3 to 22 colours, which
    fixes the histograms and principal axes of its colours, and its own generalised Laplacian for each band of a
    steerable pyramid.

    Source: Baradad et al. 2021 (arXiv:2106.05963), section 3.2, with the ranges of its code; after Portilla and
    Simoncelli 2000. Differs: 3 rounds, where theirs has 10; bands are computed in the Fourier domain; histograms are
    matched by ranks.
    """

    seed: int
    size: int

    def __call__(self, indices: Tensor) -> Tensor:
        """Return images (n, 3, size, size), float32 in [0, 1], for image indices (n,) int64."""
        draws = ImageRandomState(self.seed, indices)
        amplitude = draw_spectrum(draws, self.size)
        palette, axes = draw_palette(draws, self.size)
        levels, rest = make_pyramid_filters(self.size, indices.device)
        marginals = [draw_marginals(draws, octave, level) for octave, level in enumerate(levels)]
        x = draws.uniform(3, self.size, self.size)
        for _ in range(ROUNDS):
            x = _impose_amplitude(x, amplitude)
            x = _impose_marginals(x, levels, rest, marginals)
            x = match_ranks(x.flatten(2), palette).reshape_as(x)
        image = (axes @ x.flatten(2)).reshape_as(x)
        flat = image.flatten(1)
        low, high = (extreme[:, None, None, None] for extreme in (flat.amin(1), flat.amax(1)))
        return (image - low) / (high - low).clamp(min=1e-6)


def make_pyramid_filters(size: int, device: torch.device) -> tuple[list[Tensor], Tensor]:
    """Return the filters (m, side, side) of each octave of a steerable pyramid, and the squared low-pass filter (s, s).

    All are in the Fourier domain; s is `size`. Each octave has `ORIENTATIONS` odd filters, and the highest also has a
    high-pass residual; the side halves with each octave, down to about 32 pixels. The squared amplitudes of all filters
    add up to one (Simoncelli and Freeman 1995).
    """
    levels = []
    for octave in range(max(1, int(math.log2(size)) - 4)):
        down, right = (axis / 2**octave for axis in make_fft_frequency_grid(size >> octave, device))
        radius, angle = (down.square() + right.square()).sqrt(), torch.atan2(down, right)
        above, below = (_low_pass_filter(radius, shift) for shift in (octave, octave + 1))
        ring = above * (1 - below.square()).clamp(min=0).sqrt()
        turns = angle - torch.arange(ORIENTATIONS, device=device)[:, None, None] * (math.pi / ORIENTATIONS)
        level = 1j * ring * (NORM * torch.cos(turns) ** (ORIENTATIONS - 1))
        high = (1 - above.square()).clamp(min=0).sqrt().to(level).unsqueeze(0)
        levels.append(torch.cat([high, level]) if octave == 0 else level)
    down, right = make_fft_frequency_grid(size, device)
    return levels, _low_pass_filter((down.square() + right.square()).sqrt(), len(levels)).square()


def _low_pass_filter(radius: Tensor, octaves: int) -> Tensor:
    """Return a low-pass filter: 1 from `octaves` + 1 octaves below the highest frequency down, 0 from `octaves` up."""
    octave = torch.log2(radius.clamp(min=1e-6) / 0.5)  # 0 at the highest frequency
    return torch.cos(math.pi / 2 * (octave + octaves + 1).clamp(0, 1))


def draw_spectrum(draws: ImageRandomState, size: int) -> Tensor:
    """Draw amplitude spectra (n, 1, size, size) with random slopes; 0 at frequency 0."""
    down, right = make_fft_frequency_grid(size, draws.device)
    slope = draws.uniform(1, 1, 1, low=SLOPES[0], high=SLOPES[1])
    difference = SLOPE_DIFFERENCE * draws.normal(1, 1, 1)
    total = right.abs() ** (slope + difference) + down.abs() ** (slope - difference)
    total[..., 0, 0] = torch.inf
    return 1 / total


def _impose_amplitude(x: Tensor, amplitude: Tensor) -> Tensor:
    """Return x with these Fourier amplitudes; its phases, means and standard deviations stay."""
    mean, deviation = _compute_moments(x)
    spectrum = torch.fft.fft2(x - mean)
    y: Tensor = torch.fft.ifft2(spectrum / spectrum.abs().clamp(min=1e-9) * amplitude).real
    return y * (deviation / _compute_moments(y)[1]) + mean


def _impose_marginals(x: Tensor, levels: list[Tensor], low_pass: Tensor, marginals: list[Tensor]) -> Tensor:
    """Return x with the values of each band replaced by `marginals`, matched by rank; the low-pass band stays."""
    spectrum = torch.fft.fft2(x)  # (n, 3, s, s)
    total = spectrum * low_pass
    for filters, values in zip(levels, marginals, strict=True):
        side = filters.shape[-1]
        kept = torch.fft.fftfreq(side, 1 / side, device=x.device).long() % x.shape[-1]
        rows, columns = kept[:, None], kept[None, :]  # of the frequencies that the smaller bands have
        found = torch.fft.ifft2(spectrum[..., rows, columns].unsqueeze(2) * filters).real  # (n, 3, m, side, side)
        wanted = match_ranks(found.flatten(3), values).reshape_as(found)
        total[..., rows, columns] += (torch.fft.fft2(wanted) * filters.conj()).sum(2)
    image: Tensor = torch.fft.ifft2(total).real
    return image


def match_ranks(x: Tensor, values: Tensor) -> Tensor:
    """Return the ascending `values` (..., p), reordered to have the ranks of x (..., p)."""
    return torch.empty_like(x).scatter_(-1, x.argsort(-1), values.expand_as(x))


def draw_marginals(draws: ImageRandomState, octave: int, filters: Tensor) -> Tensor:
    """Draw a generalised Laplacian for each band; return its quantiles (n, 3, m, pixels), for images in [0, 1]."""
    scale, pixels = 4.0 ** (2**octave), filters.shape[-1] ** 2
    exponent = draws.uniform(3, len(filters), 1, low=EXPONENTS[0], high=EXPONENTS[1])
    x = torch.linspace(-CUT, CUT, 801, device=draws.device)
    density = torch.exp(-((x.abs() / scale) ** exponent))  # (n, 3, m, 801)
    below = density.cumsum(-1)
    below = below / below[..., -1:]
    wanted = (torch.arange(pixels, device=x.device) + 0.5) / pixels
    values = _interpolate_quantiles(below, x, wanted.expand(*below.shape[:-1], -1).contiguous())
    return values / LEVELS


def _interpolate_quantiles(cdf: Tensor, x: Tensor, levels: Tensor) -> Tensor:
    """Return quantiles at `levels` (..., p) of a distribution with values `cdf` (..., k) at x (k,), interpolated."""
    place = torch.searchsorted(cdf, levels).clamp(1, len(x) - 1)
    left, right = cdf.gather(-1, place - 1), cdf.gather(-1, place)
    share = ((levels - left) / (right - left).clamp(min=1e-12)).clamp(0, 1)
    return x[place - 1] + share * (x[1] - x[0])


def draw_palette(draws: ImageRandomState, size: int) -> tuple[Tensor, Tensor]:
    """Draw a palette; return its sorted values (n, 3, pixels) along its principal axes, and the axes (n, 3, 3)."""
    most = COLOURS[1] - 1
    number = COLOURS[0] + draws.integers(1, below=COLOURS[1] - COLOURS[0])
    colours = draws.uniform(most, 3)
    share = draws.uniform(most, low=0.001, high=1.001) * (torch.arange(most, device=draws.device) < number)
    ends = (share / share.sum(1, keepdim=True)).cumsum(1)  # (n, most)
    pixels = size * size
    places = ((torch.arange(pixels, device=draws.device) + 0.5) / pixels).expand(len(ends), -1).contiguous()
    stripes = torch.searchsorted(ends, places).clamp(max=most - 1)
    image = colours.gather(1, stripes.unsqueeze(2).expand(-1, -1, 3))  # (n, pixels, 3)
    image = _blur_rows(image, draws.uniform(1, high=BLUR)) + GRAIN * draws.uniform(pixels, 3)
    centred = image - image.mean(1, keepdim=True)
    axes = torch.linalg.eigh(centred.transpose(1, 2) @ centred).eigenvectors
    axes = axes * axes.gather(1, axes.abs().argmax(1, keepdim=True)).sign()  # either sign is an eigenvector's
    return (centred @ axes).transpose(1, 2).sort(-1).values, axes


def _blur_rows(image: Tensor, share: Tensor) -> Tensor:
    """Blur rows of colours (n, p, 3) by moving averages over `share` (n, 1) of the positions, fewer at the ends."""
    total = torch.cat([torch.zeros_like(image[:, :1]), image.cumsum(1)], 1)
    place, last = torch.arange(image.shape[1], device=image.device), image.shape[1]
    reach = (share * last / 2).long()
    start, stop = (place - reach).clamp(min=0), (place + reach + 1).clamp(max=last)  # (n, p)
    ends = [total.gather(1, end.unsqueeze(2).expand(-1, -1, 3)) for end in (start, stop)]
    return (ends[1] - ends[0]) / (stop - start).unsqueeze(2)


def _compute_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    mean = x.mean((-2, -1), keepdim=True)
    return mean, (x - mean).square().mean((-2, -1), keepdim=True).sqrt().clamp(min=1e-9)
