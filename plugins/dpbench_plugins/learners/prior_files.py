"""Read linear heads that were made outside dpbench, such as embeddings of class names. Imports no torch."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpbench import DataError, DataMissing, SpecError, Task, exact_linear, label_temperature
from dpbench_plugins.networks.network_checkpoint import list_candidate_paths

if TYPE_CHECKING:
    from torch import Tensor

LARGEST = 1e6
"""The largest absolute value in a head, so that logits and their squares stay finite in single precision."""


@dataclass(frozen=True)
class LinearHead:
    """A linear head on the features of a row."""

    weight: Tensor  # (classes, d)
    bias: Tensor  # (classes,)

    def __call__(self, x: Tensor) -> Tensor:
        """Return logits (c, classes) of rows (c, *shape); the bits of each row's logits depend on that row alone."""
        return exact_linear(x.flatten(1), self.weight, self.bias)

    def calibrate(self, x: Tensor, y: Tensor) -> LinearHead:
        """Return the head divided by the temperature with the least log loss on labels y (m,) of public rows x."""
        temperature = label_temperature(self(x).cpu(), y.cpu())
        return LinearHead(self.weight / temperature, self.bias / temperature)


def read_linear_head(path: str, digest: str, task: Task, learner: str) -> LinearHead:
    """Read the tensors `weight` (classes, d) and, if present, `bias` (classes,) of a safetensors file.

    Raises:
        DataMissing: there is no such file.
        SpecError: the SHA-256 digest of the file is not `digest`, or its head is zero or does not fit the task.
        DataError: the file is not a safetensors file, or its tensors or their numbers are not as expected.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    places = list_candidate_paths(path)
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise DataMissing(
            f"Expected the head of learner {learner!r} at prior={path}, but there is no such file (looked at "
            f"{', '.join(dict.fromkeys(map(str, places)))})."
        )
    content = found.read_bytes()
    actual = hashlib.sha256(content).hexdigest()
    if actual != digest:
        raise SpecError(
            f"Expected prior_digest={digest or '...'} of prior={path} in learner {learner!r}, so that results say "
            f"which file it was, but its SHA-256 digest is {actual}. Set {learner}:prior={path},prior_digest={actual}."
        )
    try:
        tensors = load(content)
    except (SafetensorError, KeyError, ValueError) as error:  # a type of numbers that torch does not know, among them
        raise DataError(f"The prior {path} of learner {learner!r} cannot be read as safetensors: {error}.") from error
    shapes = {name: tuple(value.shape) for name, value in tensors.items()}
    if "weight" not in shapes or shapes.keys() - {"weight", "bias"}:
        raise DataError(f"Expected tensors weight and bias in the prior {path} of learner {learner!r}, got {shapes}.")
    if wrong := sorted({str(value.dtype) for value in tensors.values() if not value.is_floating_point()}):
        raise DataError(f"Expected floating-point numbers in the prior {path} of learner {learner!r}, got {wrong[0]}.")
    features = math.prod(task.example_shape)
    weight = tensors["weight"].float()
    bias = tensors.get("bias", weight.new_zeros(task.classes)).float()
    if (weight.shape, bias.shape) != ((task.classes, features), (task.classes,)):
        raise SpecError(
            f"Expected a head for {task.classes} classes and {features} features in the prior {path} of learner "
            f"{learner!r}, got {shapes}."
        )
    if not all(bool((values.abs() <= LARGEST).all()) for values in (weight, bias)):  # nan is not, either
        raise DataError(
            f"Expected numbers from -{LARGEST:g} to {LARGEST:g} in the prior {path} of learner {learner!r}."
        )
    if not bool(weight.any() or bias.any()):
        raise SpecError(
            f"All numbers in the prior {path} of learner {learner!r} are zero: it says nothing of any class."
        )
    return LinearHead(weight.to(task.device), bias.to(task.device))
