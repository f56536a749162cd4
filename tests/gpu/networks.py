"""Whole networks on CIFAR-10 at epsilon 3, in the papers' setting, for as many steps as the time holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dpbench import DataMissing
from dpbench.harness.session import open_session
from dpbench.records.result import Result
from dpbench.records.spec import make_spec
from tests.gpu.asked import Asked, Row
from tests.gpu.pretraining import checkpoint

EPSILON = 3.0
STEPS, PHASE_TWO = 1593, 96  # of the papers, at this epsilon: all, and those of the head alone


def rows(asked: Asked) -> Iterator[Row]:
    """Train dp-randp and dp-sgd-net."""
    for name in ("dp-randp", "dp-sgd-net"):
        try:
            yield _row(asked, name)
        except DataMissing as error:
            yield Row(f"{name} on CIFAR-10", f"not run: {error}")


def _row(asked: Asked, name: str) -> Row:
    step = _trained(asked, name, 4).seconds["fit"] / 4
    steps = STEPS if asked.full and not asked.quick else max(4, min(STEPS, int(60 * asked.minutes / step)))
    result = _trained(asked, name, 6 if asked.quick else steps)
    result.write(asked.out)
    taken, spec = sum(result.seeds[0].spent.values()), result.spec
    step, accuracy = result.seconds["fit"] / taken, 100 * result.metrics["accuracy"].mean
    found = f"accuracy {accuracy:.1f}, {step:.3g} s a step; the paper's {STEPS:,} take {STEPS * step / 3600:.2g} h"
    return Row(f"{name} on {spec.dataset.name} at ε {result.privacy.epsilon:.2f}, {taken} steps", found)


def _trained(asked: Asked, name: str, steps: int) -> Result:
    """Return the result of so many steps; of dp-randp, as many of them train the head alone as in the paper."""
    options: dict[str, Any] = {"steps": steps}
    if name == "dp-randp":
        head = max(1, round(steps * PHASE_TWO / STEPS))
        options = {"phase2_steps": head, "phase3_steps": steps - head}
        if checkpoint(asked).exists():
            options["weights"] = str(checkpoint(asked))
    if asked.quick:
        options |= {"network": "tiny", "augmult": 0, "sample_rate": 1.0}
        if name == "dp-randp":
            options.setdefault("weights", "random")
    images = {"name": "pixels", "options": {"flat": False, "mode": "RGB"}}
    values = {
        "learner": {"name": name, "options": options}, "dataset": "digits" if asked.quick else "cifar10",
        "extractor": images, "epsilon": EPSILON, "public_fraction": 0.0, "seeds": [0],
    }  # fmt: skip
    return open_session(str(asked.device)).run(make_spec(values, "tests.gpu"))
