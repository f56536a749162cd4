"""Cores with noise of a wrong size, shape or dependence, and the audits that notice them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import special, stats

from dpbench.privacy.core import randomness
from dpbench_lab.museum.cores.broken_core import CANARIES, AuditCase, BrokenCore
from dpbench_lab.museum.cores.patch import Replacement
from dpbench_lab.museum.cores.published import KEY, NOISE, WHOLE, Honest


class NoiseRequest:
    """A request for noise, and the random streams that a broken core draws it from."""

    def __init__(self, honest: Honest, draws: Any, shape: Sequence[int]) -> None:
        self.shape, self._honest, self._draws = tuple(shape), honest, draws
        self.fit, self.step = draws._shared[:-1], int(draws._shared[-1])
        self.first = not getattr(draws, "asked", False)
        draws.asked = True

    def normal(self) -> np.ndarray:
        """Return the noise that the honest core adds, in standard deviations."""
        noise: np.ndarray = self._honest(self._draws, self.shape, 2.0**40) / 2.0**40
        return noise

    def uniform(self) -> np.ndarray:
        """Return further draws of the honest stream, uniform between 0 and 1 and new in each block."""
        drawn: np.ndarray = self._draws._normals.random(self.shape)
        return drawn

    def generator(self, *key: object) -> np.random.Generator:
        """Return a generator that the fit and `key` determine."""
        return randomness._stream((*self.fit, *map(str, key)))

    def step_noise(self, step: int) -> np.ndarray:
        """Return standard normal noise of this shape for a step: the same at every call in this fit."""
        return self.generator("innovation", step, self.shape).standard_normal(self.shape)


MakeNoise = Callable[[NoiseRequest], np.ndarray]


def noise_core(name: str, make: MakeNoise, *audits: AuditCase) -> BrokenCore:
    """Return a core that adds the noise of `make` to answers; the noise of canaries (one axis) stays honest."""

    def draw_broken_noise(honest: Honest, draws: Any, shape: Sequence[int], std: Any) -> np.ndarray:
        if len(shape) == 1 and shape[0] >= CANARIES:
            canaries: np.ndarray = honest(draws, shape, std)
            return canaries
        made: np.ndarray = np.rint(make(NoiseRequest(honest, draws, shape)) * std).astype(np.int64)
        return made

    return BrokenCore(name, Replacement({NOISE: draw_broken_noise}), audits=audits or (AuditCase("dp-sgd"),))


def _omit_last_column(request: NoiseRequest) -> np.ndarray:
    noise = request.normal()
    noise[..., -1] = 0 if noise.ndim > 1 else noise[..., -1]
    return noise


def _correlate_at_lag_three(request: NoiseRequest) -> np.ndarray:
    first = 1 + (request.step - 1) % 3
    noise = request.step_noise(first)
    for step in range(first + 3, request.step + 1, 3):
        noise = 0.5 * noise + math.sqrt(0.75) * request.step_noise(step)
    return noise


def _average_over_steps(request: NoiseRequest) -> np.ndarray:
    return (request.step_noise(request.step) + 0.1 * request.step_noise(request.step - 1)) / math.sqrt(1.01)


def _shrink_first_class(request: NoiseRequest, share: float = 0.9) -> np.ndarray:
    noise = request.normal()
    noise[0] *= share if noise.ndim > 1 else 1
    return noise


def _zero_some_coordinates(request: NoiseRequest) -> np.ndarray:
    noise = request.normal()
    noise.reshape(-1)[7::200] = 0
    return noise


def _average_over_coordinates(request: NoiseRequest) -> np.ndarray:
    noise = request.normal()
    flat = noise.reshape(-1)
    flat[1:] = (flat[1:] + 0.1 * flat[:-1].copy()) / math.sqrt(1.01)
    return noise


def _remove_directions(request: NoiseRequest, count: int) -> np.ndarray:
    flat = request.normal().reshape(-1)
    drawn = request.generator("directions", request.shape).standard_normal((len(flat), min(count, len(flat))))
    directions = np.linalg.qr(drawn)[0]
    rest: np.ndarray = flat - directions @ (directions.T @ flat)
    return rest.reshape(request.shape)


def _shrink_two_percent(request: NoiseRequest) -> np.ndarray:
    return request.normal() * np.where(request.uniform() < 0.02, 0.3, 1.0)


def _alternate_noise_scale(request: NoiseRequest) -> np.ndarray:
    noise = request.normal()
    flat = noise.reshape(-1)
    flat[::2] *= 1.1
    flat[1::2] *= math.sqrt(2 - 1.21)
    return noise


def _add_common_part(request: NoiseRequest) -> np.ndarray:
    common = float(request.generator("common", request.step).standard_normal())
    return math.sqrt(0.98) * request.normal() + math.sqrt(0.02) * common


def _repeat_every_fifty(request: NoiseRequest) -> np.ndarray:
    size = math.prod(request.shape)
    few = np.array([request.generator("coordinate", place, request.step).standard_normal() for place in range(50)])
    return few[np.arange(size) % 50].reshape(request.shape)


def _draw_from_table(request: NoiseRequest) -> np.ndarray:
    table = stats.norm.ppf((np.arange(500) + 0.5) / 500)
    return request.generator("pool", request.step, request.shape).choice(table, request.shape)


def _reorder_noise(request: NoiseRequest) -> np.ndarray:
    base = request.generator("base", request.shape).standard_normal(request.shape)
    order = request.generator("order", request.step).permutation(base.size)
    flat: np.ndarray = base.reshape(-1)[order]
    return flat.reshape(request.shape)


def _centre_over_classes(request: NoiseRequest) -> np.ndarray:
    noise = request.normal()
    return noise - noise.mean(0) if noise.ndim > 1 else noise


def _draw_laplace(request: NoiseRequest) -> np.ndarray:
    return request.generator("laplace", request.step, request.shape).laplace(scale=math.sqrt(0.5), size=request.shape)


def _draw_student(request: NoiseRequest) -> np.ndarray:
    return request.generator("t", request.step, request.shape).standard_t(8, request.shape) * math.sqrt(6 / 8)


def _draw_uniform(request: NoiseRequest) -> np.ndarray:
    shares: np.ndarray = special.erf(request.normal() / math.sqrt(2)) * math.sqrt(3)
    return shares


def _drift_variance(request: NoiseRequest) -> np.ndarray:
    return request.normal() * math.sqrt(1.15 - 0.3 * (request.step - 1) / 29)


def _repeat_previous_step(request: NoiseRequest) -> np.ndarray:
    return request.step_noise((request.step + 1) // 2)


def _shift_previous_step(request: NoiseRequest) -> np.ndarray:
    return np.roll(request.step_noise(0).reshape(-1), request.step).reshape(request.shape)


EVERYWHERE = tuple(AuditCase(learner, quick=learner == "dp-sgd") for learner in ("dp-sgd", "pillar", "gep", "adadps"))
NO_BIAS_IN_GEP = tuple(case for case in EVERYWHERE if case.learner != "gep")
THREE = tuple(AuditCase(learner) for learner in ("dp-sgd", "pillar", "thrift"))
CROWDED = AuditCase("dp-sgd", canaries=None)

NOISES = (
    BrokenCore(
        "sigma halved where it is bound",
        Replacement({"binding:release_sigmas": lambda honest, plan, sigma: honest(plan, sigma / 2)}),
        "noise for a budget four times smaller in sigma^2", audits=(AuditCase(WHOLE),),
        tests=("privacy/test_curator.py::test_the_noise_of_an_answer_has_std_sigma_times_clip",),
    ),
    BrokenCore(
        "noise that is the same in every step",
        Replacement({KEY: lambda honest, draws, key, shared: honest(draws, key[:-1], shared)}),
        audits=(AuditCase(WHOLE),),
    ),
    BrokenCore(
        "noise that is the same in every release",
        Replacement({KEY: lambda honest, draws, key, shared: honest(draws, (*key[:-2], key[-1]), shared)}),
        audits=(AuditCase("dp-raft:steps=6,private_mean=true"),),
    ),
    noise_core("noise of the right size that is not normal", _draw_uniform, AuditCase(WHOLE)),
    noise_core("no noise on the bias column", _omit_last_column, *NO_BIAS_IN_GEP, CROWDED),
    noise_core("correlation of 0.5 at lag 3", _correlate_at_lag_three, *EVERYWHERE),
    noise_core("moving average of 0.1 over steps", _average_over_steps, *EVERYWHERE),
    noise_core("one class with 90% of the noise", _shrink_first_class, *EVERYWHERE, CROWDED),
    noise_core("half a percent of coordinates without noise", _zero_some_coordinates, *EVERYWHERE),
    noise_core("noise cut off at 2 sigma, rescaled", lambda request: request.normal().clip(-2, 2) / 0.9594),
    noise_core("noise cut off at 3 sigma", lambda request: request.normal().clip(-3, 3)),
    noise_core("Laplace noise of the same variance", _draw_laplace),
    noise_core("Student's t with 8 degrees of freedom", _draw_student),
    noise_core("noise rounded to a quarter of sigma", lambda request: np.rint(4 * request.normal()) / 4),
    noise_core("noise with a mean of 0.05 sigma", lambda request: request.normal() + 0.05),
    noise_core("noise whose variance drifts from 115% to 85% over the steps", _drift_variance),
    noise_core("noise of the step before, every second step", _repeat_previous_step),
    noise_core(
        "noise of the step before with the other sign",
        lambda request: _repeat_previous_step(request) * (-1) ** request.step,
    ),
    noise_core("noise of the step before, one place on", _shift_previous_step),
    noise_core("noise of the first step, in another order", _reorder_noise),
    noise_core("fifty values of noise, coordinate by coordinate", _repeat_every_fifty),
    noise_core("noise from a table of 500 values", _draw_from_table),
    noise_core("no noise in one step", lambda request: request.normal() * (request.step != 5)),
    noise_core("noise in the first block alone", lambda request: request.normal() * request.first, AuditCase("gep")),
    noise_core("noise that adds up to 0 over the classes", _centre_over_classes),
    noise_core("noise that shares 2% of its variance in an answer", _add_common_part),
    noise_core("a moving average of 0.1 over coordinates", _average_over_coordinates),
    noise_core("variance 121% and 79%, coordinate after coordinate", _alternate_noise_scale),
    noise_core("noise 2% short in answers alone", lambda request: 0.98 * request.normal()),
    noise_core("noise 0.6% short in answers alone", lambda request: 0.994 * request.normal(), *THREE[:2]),
    noise_core("one class with 97% of the noise", lambda request: _shrink_first_class(request, 0.97), *THREE),
    noise_core("2% of the numbers at 0.3 sigma, others each time", _shrink_two_percent, *THREE),
    noise_core("no noise along one direction, drawn at random", lambda request: _remove_directions(request, 1), *THREE),
    noise_core("no noise along five directions", lambda request: _remove_directions(request, 5), *THREE),
)  # fmt: skip
