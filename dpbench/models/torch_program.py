"""Read models of version 0.2: torch operations in JSON, with their tensors. dpbench 0.4 drops this format.

Only `worker` runs this. Only operations of torch's core set are allowed: none of them opens files, and random ones are
refused. This does not make a model safe; the limits of the process do.
"""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from safetensors.torch import load
from torch import Tensor

from dpbench.privacy.core.exact.quantised import exact_linear
from dpbench.support.files import canonical_digest

FORMAT = "dpbench-model-1"
BATCH = 64  # rows that a program was recorded with
OWN_OPERATIONS: dict[str, Callable[..., Any]] = {
    "getitem": operator.getitem,
    "dpbench.exact_linear.default": exact_linear,
    "aten.copy_.default": torch.ops.aten.copy_.default,
}
CONSTANTS = ("dtype", "layout", "memory_format")
Step = tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any]]


def load_program(content: bytes) -> tuple[str, tuple[int, ...], int, Callable[[np.ndarray], np.ndarray]]:
    """Return the card of a model, the shape of a row, the number of classes and a function that scores rows.

    Raises:
        ValueError: the content is not a model of version 0.2, or was damaged or changed.
        Exception: torch's own error for operations that do not fit together.
    """
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    tensors = load(content)
    if header.get("format") != FORMAT:
        raise ValueError(f"expected {FORMAT}, got {header.get('format', 'none')}")
    texts = {name: header.get(name, "") for name in ("card", "program")}
    if header.get("digest") != digest_model_parts(texts, tensors):
        raise ValueError("it is damaged or was changed: its digest does not fit")
    program = json.loads(texts["program"])
    steps = [(_look_up_operation(name), arguments, named) for name, arguments, named in program["steps"]]
    shape = tuple(map(int, program["shape"]))

    def score_rows(rows: np.ndarray) -> np.ndarray:
        parts = torch.split(torch.from_numpy(rows), BATCH)
        padded = (torch.cat([part, part.new_zeros(BATCH - len(part), *shape)]) for part in parts)
        with torch.no_grad():
            scores = [
                _run_program_steps(steps, tensors, whole)[: len(part)]
                for part, whole in zip(parts, padded, strict=True)
            ]
        return torch.cat(scores).double().numpy()

    return texts["card"], shape, score_rows(np.zeros((1, *shape), np.float32)).shape[1], score_rows


def digest_model_parts(texts: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of a model's card, operations and numbers."""
    numbers = {name: [str(value.dtype), [*value.shape], _hash_tensor(value)] for name, value in tensors.items()}
    return canonical_digest([dict(texts), numbers])


def _hash_tensor(tensor: Tensor) -> str:
    flat = tensor.reshape(-1)
    return hashlib.sha256(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"").hexdigest()


def _look_up_operation(name: str) -> Callable[..., Any]:
    if str(name) in OWN_OPERATIONS:
        return OWN_OPERATIONS[str(name)]
    space, _, rest = str(name).partition(".")
    packet, _, overload = rest.partition(".")
    found: Any = getattr(getattr(torch.ops.aten, packet, None), overload, None) if space == "aten" else None
    tags = found.tags if isinstance(found, torch._ops.OpOverload) else ()
    if torch.Tag.core not in tags or torch.Tag.nondeterministic_seeded in tags:
        raise ValueError(f"it has an operation that a model may not have: {str(name)[:60]!r}")
    operation: Callable[..., Any] = found
    return operation


def _run_program_steps(steps: Sequence[Step], tensors: Mapping[str, Tensor], batch: Tensor) -> Tensor:
    """Run the steps on a batch and return the scores: value 0 is the batch, and value i + 1 the result of step i."""
    values: dict[int, Any] = {0: batch}
    last = {used: number for number, step in enumerate(steps, 1) for used in _list_value_numbers(step[1:])}
    read = partial(_decode_argument, values=values, tensors=tensors)
    for number, (operation, arguments, named) in enumerate(steps, 1):
        made = operation(*map(read, arguments), **{name: read(value) for name, value in named.items()})
        for index in [value for value in values if last.get(value, 0) <= number]:
            del values[index]
        values[number] = made
    scores: Tensor = values[len(steps)]
    return scores


def _list_value_numbers(argument: Any) -> Iterator[int]:
    """Yield the number of each value that an argument refers to, at any depth."""
    if isinstance(argument, Mapping) and argument.keys() == {"value"}:
        yield argument["value"]
    elif isinstance(argument, Mapping | list | tuple):
        for part in argument.values() if isinstance(argument, Mapping) else argument:
            yield from _list_value_numbers(part)


def _decode_argument(argument: Any, values: Mapping[int, Any], tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(argument, list):
        return [_decode_argument(part, values, tensors) for part in argument]
    if not isinstance(argument, Mapping):
        return argument
    ((kind, content),) = argument.items()
    sources: dict[str, Callable[[], Any]] = {
        "value": lambda: values[content], "tensor": lambda: tensors[content], "float": lambda: float(content),
        "device": lambda: torch.device("cpu"), **dict.fromkeys(CONSTANTS, lambda: getattr(torch, content)),
    }  # fmt: skip
    return sources[kind]()
