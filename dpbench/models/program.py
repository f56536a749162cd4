"""Represent a predictor as plain data: the tensor operations that it applies to a batch, and their constants.

A predictor is a Python function of a plugin, which no file can hold without pickle. The operations on rows can be
held: the predictor runs once on a batch, every operation is recorded (torch's own, by `make_fx`), and everything that
does not depend on the rows is computed once. The recording needs neither the plugin nor the learner's code, and people
can read it.

Covered: operations of torch's core set, which check their arguments, draw nothing at random and write to nothing that
outlives a batch. All others are refused, because some trust the indices they are given, print, or open files. A
predictor that branches on values, or leaves torch on the way, is refused; whoever records a predictor compares the
recording with it on other rows (`models.model`).

A program may come from a stranger. Before its first batch, only its shapes go through it (torch's device `meta`), which
shows whether its operations fit together and how many numbers they hold at once.
"""

from __future__ import annotations

import math
import operator
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, library
from torch.fx import GraphModule, Node
from torch.overrides import TorchFunctionMode

from dpbench.api import Predict
from dpbench.errors import DataError, SpecError
from dpbench.privacy.core.exact.quantised import exact_linear

BATCH = 64  # rows at once, whoever asks for how many: a recording has one shape
STRING_ARGUMENTS = {"none", "tanh", "floor", "trunc", "reflect", "constant"}  # texts that operations take
EXTRA_OPERATIONS = {"aten.copy_.default"}  # into the batch alone (`_check_writes`)
UNINITIALISED_OPERATIONS = {"empty", "empty_strided"}  # core, but what they give is whatever memory holds
MAX_STEPS = 10_000
MAX_NUMBERS = 2**29  # that are held at once for a batch: 2 GiB of float32
CONSTANT_TYPES = {"dtype": torch.dtype, "layout": torch.layout, "memory_format": torch.memory_format}
GETITEM = "getitem"
TENSOR_TYPES = {"Tensor", "List[Tensor]"}  # what operations give: no text, no numbers

library.define("dpbench::exact_linear", "(Tensor x, Tensor weight, Tensor? bias=None) -> Tensor")
library.impl("dpbench::exact_linear", "CompositeExplicitAutograd")(exact_linear)


@library.impl("dpbench::exact_linear", "Meta")
def _make_exact_linear_shape(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return x.new_empty(torch.nn.functional.linear(x.to(weight.dtype), weight, bias).shape)


@dataclass(frozen=True)
class Step:
    """One operation of a program, with its name and its arguments in JSON form (see `_encode_argument`)."""

    operation: str
    arguments: Sequence[Any]
    named: Mapping[str, Any]


@dataclass(frozen=True)
class Program:
    """Operations in order: value 0 is the batch, value i + 1 the result of step i; the last value holds the scores."""

    shape: tuple[int, ...]  # of one row
    steps: tuple[Step, ...]
    tensors: Mapping[str, Tensor]  # what steps name

    def __call__(self, x: Tensor) -> Tensor:
        """Return the scores (n, classes) of rows (n, *shape)."""
        parts = []
        for start in range(0, len(x), BATCH):
            rows = x[start : start + BATCH]
            whole = torch.cat([rows, rows.new_zeros(BATCH - len(rows), *self.shape)])
            parts.append(self._on(whole)[: len(rows)])
        return torch.cat(parts) if parts else self._on(x.new_zeros(BATCH, *self.shape))[:0]

    def to(self, device: torch.device) -> Program:
        """Return the program with its tensors on a device."""
        return Program(self.shape, self.steps, {name: value.to(device) for name, value in self.tensors.items()})

    def _on(self, batch: Tensor) -> Tensor:
        held = deque(self.values(batch), maxlen=1)
        scores: Tensor = held[0][len(self.steps)] if held else batch
        return scores

    def values(self, batch: Tensor) -> Iterator[Mapping[int, Any]]:
        """Run the steps on a batch; after each step, yield by number the needed values and the new value."""
        values: dict[int, Any] = {0: batch}
        read = partial(_decode_argument, values=values, tensors=self.tensors, device=batch.device)
        last = {
            used: number
            for number, step in enumerate(self.steps, 1)
            for used in _list_value_numbers([step.arguments, step.named])
        }
        for number, step in enumerate(self.steps, 1):
            named = {name: read(value) for name, value in step.named.items()}
            with torch.no_grad():
                made = _look_up_operation(step.operation)(*map(read, step.arguments), **named)
            for index in [value for value in values if last.get(value, 0) <= number]:
                del values[index]
            values[number] = made
            yield values

    def to_json(self) -> dict[str, Any]:
        """Return the program without its tensors, in JSON form."""
        steps = [[step.operation, step.arguments, step.named] for step in self.steps]
        return {"batch": BATCH, "shape": self.shape, "steps": steps}

    @classmethod
    def of(cls, written: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Program:
        """Read a program from the JSON form that `to_json` returns.

        Raises:
            DataError: it is not a program, or has an operation that a model may not have.
        """
        try:
            if written["batch"] != BATCH:
                raise DataError(f"It was recorded for {written['batch']} rows at once; this dpbench reads {BATCH}.")
            steps = tuple(Step(str(name), [*arguments], {**named}) for name, arguments, named in written["steps"])
            program = cls(tuple(map(int, written["shape"])), steps, tensors)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError("It holds no program.") from error
        if len(steps) > MAX_STEPS:
            raise DataError(f"It has {len(steps):,} operations; a model has {MAX_STEPS:,} at most.")
        for step in steps:
            _check_writes(step)
        _check_shapes(program)
        return program


def record_predictor(predict: Predict, shape: tuple[int, ...], device: torch.device) -> Program:
    """Record the operations that a predictor applies to a batch of rows (c, *shape) float32.

    Raises:
        SpecError: the predictor does something that cannot be recorded; the message says what.
    """
    from torch._decomp import core_aten_decompositions
    from torch.fx.experimental.proxy_tensor import make_fx

    rows = torch.randn(BATCH, *shape, generator=torch.Generator().manual_seed(0)).to(device)
    functional: Callable[[Tensor], Tensor] = torch.func.functionalize(lambda x: predict(x))
    try:
        with torch.no_grad(), _ExactProductRecorder():
            table: Any = core_aten_decompositions()
            graph = make_fx(functional, decomposition_table=table)(rows)
    except Exception as error:  # whatever a stranger's code meets that is asked for values it cannot have
        said = (str(error).splitlines() or [""])[0].rstrip(".")
        raise SpecError(f"its predictor is more than tensor operations ({type(error).__name__}: {said})") from error
    program = _build_program(graph, shape)
    _check_shapes(program)  # what is kept can be read again
    return program


class _ExactProductRecorder(TorchFunctionMode):
    """Records dpbench's exact product as a single operation, because CPUs and GPUs compute it differently."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is exact_linear:
            return torch.ops.dpbench.exact_linear(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _build_program(graph: GraphModule, shape: tuple[int, ...]) -> Program:
    """Build a program from a graph: compute all values that do not depend on the rows, and record the rest as steps."""
    fixed: dict[Node, Any] = {}
    places: dict[Node, int] = {}
    steps: list[Step] = []
    tensors: dict[str, Tensor] = {}
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            places[node] = 0
        elif node.op == "get_attr":
            fixed[node] = getattr(graph, str(node.target)).detach().clone()  # a step may write to it
        elif node.op == "output":
            return _finish_program(node.args[0], places, steps, shape, tensors)
        elif node.all_input_nodes and all(argument in fixed for argument in node.all_input_nodes):
            fixed[node] = _evaluate_constant(node, fixed)
        else:
            name = GETITEM if node.target is operator.getitem else str(node.target)
            _look_up_operation(name)
            write = partial(_encode_argument, places=places, fixed=fixed, tensors=tensors)
            steps.append(Step(name, write(node.args), {key: write(value) for key, value in node.kwargs.items()}))
            _check_writes(steps[-1])
            places[node] = len(steps)
    raise SpecError("its predictor returns nothing")


def _finish_program(
    scores: Any, places: Mapping[Node, int], steps: list[Step], shape: tuple[int, ...], tensors: Mapping[str, Tensor]
) -> Program:
    if scores not in places or places[scores] == 0:
        raise SpecError("its scores do not depend on the rows, or are not one tensor")
    return Program(shape, tuple(steps[: places[scores]]), tensors)


def _evaluate_constant(node: Node, fixed: Mapping[Node, Any]) -> Any:
    with torch.no_grad():
        arguments = torch.fx.map_arg((node.args, node.kwargs), lambda node: fixed[node])
        return node.target(*arguments[0], **arguments[1])  # type: ignore[operator]


def _check_writes(step: Step) -> None:
    """Check that a step writes only to the batch; other values may share memory with the model's own tensors.

    Raises:
        DataError: it writes to another value.
    """
    operation = _look_up_operation(step.operation)
    for place, argument in enumerate(
        operation._schema.arguments if isinstance(operation, torch._ops.OpOverload) else ()
    ):
        by_name = argument.kwarg_only or place >= len(step.arguments)
        given = step.named.get(argument.name) if by_name else step.arguments[place]
        if argument.alias_info is not None and argument.alias_info.is_write and given != {"value": 0}:
            raise DataError("its predictor remembers: it writes to what the fit made")


def _look_up_operation(name: str) -> Callable[..., Any]:
    """Return an operation that models may have: in torch's core set, without random draws, returning tensors.

    Raises:
        DataError: torch has no operation of that name, or a model may not have it.
    """
    if name == GETITEM:
        return operator.getitem
    if name == "dpbench.exact_linear.default":
        found: Callable[..., Any] = torch.ops.dpbench.exact_linear.default
        return found
    space, _, rest = str(name).partition(".")
    packet, _, overload = rest.partition(".")
    operation = getattr(getattr(torch.ops.aten, packet, None), overload, None) if space == "aten" else None
    if not isinstance(operation, torch._ops.OpOverload):
        raise DataError(f"it has an operation that torch does not have: {str(name)[:60]!r}")
    if torch.Tag.nondeterministic_seeded in operation.tags:
        raise DataError(f"it has an operation that draws: {name!r}")
    core = (torch.Tag.core in operation.tags and packet not in UNINITIALISED_OPERATIONS) or name in EXTRA_OPERATIONS
    if not core or not all(str(argument.type) in TENSOR_TYPES for argument in operation._schema.returns):
        raise DataError(f"it has an operation that a model may not have: {name!r}")
    return operation


def _check_shapes(program: Program) -> None:
    """Check that the operations of a program fit together, by sending only the shape of a batch through it.

    Raises:
        DataError: its operations do not fit together, or make more numbers than a model may.
    """
    shapes = program.to(torch.device("meta"))
    try:
        for held in shapes.values(torch.empty(BATCH, *program.shape, device="meta")):
            tensors = [
                part for value in held.values() for part in (value if isinstance(value, list | tuple) else [value])
            ]
            if sum(tensor.numel() for tensor in tensors) > MAX_NUMBERS:
                raise DataError(f"its operations hold over {MAX_NUMBERS:,} numbers of {BATCH} rows")
    except DataError:
        raise
    except Exception as error:  # whatever torch says of a stranger's arguments
        said = (str(error).splitlines() or [""])[0][:200]
        raise DataError(f"its operations do not fit together: {type(error).__name__}: {said}") from error


def _list_value_numbers(argument: Any) -> Iterator[int]:
    """Yield the number of each value that an argument refers to, at any depth."""
    if isinstance(argument, Mapping) and argument.keys() == {"value"}:
        yield argument["value"]
    elif isinstance(argument, Mapping | list | tuple):
        for part in argument.values() if isinstance(argument, Mapping) else argument:
            yield from _list_value_numbers(part)


def _encode_argument(
    argument: Any, places: Mapping[Node, int], fixed: Mapping[Node, Any], tensors: dict[str, Tensor]
) -> Any:
    """Return an argument in JSON form; add precomputed tensors to `tensors`."""
    if isinstance(argument, list | tuple):
        return [_encode_argument(part, places, fixed, tensors) for part in argument]
    if isinstance(argument, Node):
        return (
            {"value": places[argument]}
            if argument in places
            else _encode_argument(fixed[argument], places, fixed, tensors)
        )
    if isinstance(argument, Tensor):
        name = next((name for name, kept in tensors.items() if kept is argument), f"t{len(tensors)}")
        tensors[name] = argument
        return {"tensor": name}
    return _encode_constant(argument)


def _encode_constant(constant: Any) -> Any:
    if isinstance(constant, torch.device):
        return {"device": "here"}
    for kind, of in CONSTANT_TYPES.items():
        if isinstance(constant, of):
            return {kind: str(constant).removeprefix("torch.")}
    if isinstance(constant, float) and not math.isfinite(constant):
        return {"float": str(constant)}
    if constant is None or isinstance(constant, bool | int | float) or constant in STRING_ARGUMENTS:
        return constant
    raise SpecError(f"its predictor has an operation with {constant!r}, which cannot be written down")


def _decode_argument(
    argument: Any, values: Mapping[int, Any], tensors: Mapping[str, Tensor], device: torch.device
) -> Any:
    """Return the argument that this JSON form stands for.

    Raises:
        DataError: the JSON form is not that of an argument.
    """
    if isinstance(argument, list):
        return [_decode_argument(part, values, tensors, device) for part in argument]
    if isinstance(argument, Mapping) and len(argument) == 1:
        ((kind, what),) = argument.items()
        sources: dict[str, Callable[[], Any]] = {
            "value": lambda: values[what], "tensor": lambda: tensors[what], "device": lambda: device,
            "float": lambda: float(what),
        }  # fmt: skip
        return sources[kind]() if kind in sources else _decode_constant(str(kind), str(what))
    if argument is None or isinstance(argument, bool | int | float) or argument in STRING_ARGUMENTS:
        return argument
    raise DataError(f"it has an argument that cannot be read: {str(argument)[:60]!r}")


def _decode_constant(kind: str, name: str) -> Any:
    found = getattr(torch, name, None)
    if kind in CONSTANT_TYPES and isinstance(found, CONSTANT_TYPES[kind]):
        return found
    raise DataError(f"it has an argument that cannot be read: {name[:60]!r}")
