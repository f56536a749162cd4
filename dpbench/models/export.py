"""Export a predictor as an ONNX graph: a plugin's function becomes data that any ONNX runtime can run.

The predictor runs once on a few rows; torch records its operations for any number of rows and writes them as ONNX
operators. If the predictor asks for the number of rows, the graph repeats its operations on blocks of `ROWS` rows. A
predictor that branches on values or leaves torch cannot be exported. The export does not check the graph:
`models.model` compares the scores of graph and predictor on other rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from dpbench.api import Predict
from dpbench.data.engine import first_line_of_error, suppress_export_output
from dpbench.errors import SpecError
from dpbench.models.worker import walk_protobuf_messages
from dpbench.privacy.core.exact.limits import SLICE, SLICES, SMALLEST
from dpbench.privacy.core.exact.products import DEEPEST
from dpbench.privacy.core.exact.quantised import exact_linear

ROWS = 64  # rows that the predictor runs on, for which its choices among kernels are recorded; the graph takes any
RANDOM_OPERATORS = {
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}
DETAIL = 2.0 ** (SLICE * (SLICES - 1))  # steps of a row's unit


def export_predictor(predict: Predict, shape: tuple[int, ...], device: torch.device) -> bytes:
    """Return an ONNX graph that maps `examples` (n, *shape) float32 to `scores` (n, classes).

    The graph holds no names of source files and no lines of code.

    Raises:
        SpecError: the predictor has an operation that cannot be exported, or draws at random.
    """
    rows = torch.randn(ROWS, *shape, generator=torch.Generator().manual_seed(0)).to(device)
    try:
        with torch.no_grad(), suppress_export_output():
            try:
                model = _export_to_onnx(predict, rows, {0: torch.export.Dim("n", min=ROWS // 2, max=ROWS)})
            except torch._dynamo.exc.UserError:  # it asks for the number of rows, as `len(x)` does
                model = _apply_to_blocks_of_rows(_export_to_onnx(predict, rows, None))
    except Exception as error:  # whatever a stranger's code meets that is asked for values it cannot have
        raise SpecError(
            f"its predictor is more than tensor operations ({type(error).__name__}: {first_line_of_error(error)})"
        ) from error
    if drawn := {node.op_type for node in model.graph.node} & RANDOM_OPERATORS:
        raise SpecError(f"its predictor draws at random ({', '.join(drawn)})")
    for message in walk_protobuf_messages(model):  # the exporter notes lines of code
        for field in ("doc_string", "metadata_props", "value_info"):
            if field in message.DESCRIPTOR.fields_by_name:
                message.ClearField(field)
    for value in (*model.graph.input, *model.graph.output):
        for axis in value.type.tensor_type.shape.dim[:1]:
            axis.dim_param = "n"
    graph: bytes = model.SerializeToString(deterministic=True)
    return graph


def _export_to_onnx(predict: Predict, rows: Tensor, dynamic_axes: Any) -> Any:
    program = torch.export.export(_ExportableModule(predict), (rows,), dynamic_shapes=(dynamic_axes,), strict=False)
    names: Any = {"input_names": ["examples"], "output_names": ["scores"]}
    exported: Any = torch.onnx.export(program, dynamo=True, verbose=False, **names)
    return exported.model_proto


def _apply_to_blocks_of_rows(block: Any) -> Any:
    """Return a graph that divides its rows into blocks of `ROWS`, filled up with zeros, and runs `block` on each."""
    from onnx import TensorProto, helper, numpy_helper

    axes = [axis.dim_value for axis in block.graph.input[0].type.tensor_type.shape.dim]
    classes = block.graph.output[0].type.tensor_type.shape.dim[1].dim_value
    for value, name in ((block.graph.input[0], "block_examples"), (block.graph.output[0], "block_scores")):
        for node in block.graph.node:
            for names in (node.input, node.output):
                names[:] = [name if used == value.name else used for used in names]
        value.name = name
    numbers = {"block": [ROWS], "row": axes[1:], "blocks": [-1, *axes], "flat": [-1, classes], "first": [0]}
    nodes = [
        helper.make_node("Shape", ["examples"], ["n"], start=0, end=1),
        helper.make_node("Neg", ["n"], ["minus_n"]),
        helper.make_node("Mod", ["minus_n", "block"], ["missing"]),
        helper.make_node("Concat", ["missing", "row"], ["rest_shape"], axis=0),
        helper.make_node("ConstantOfShape", ["rest_shape"], ["rest"]),
        helper.make_node("Concat", ["examples", "rest"], ["whole"], axis=0),
        helper.make_node("Reshape", ["whole", "blocks"], ["split"]),
        helper.make_node("Scan", ["split"], ["scanned"], body=block.graph, num_scan_inputs=1),
        helper.make_node("Reshape", ["scanned", "flat"], ["all_scores"]),
        helper.make_node("Slice", ["all_scores", "first", "n"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes, "blocks",
        [helper.make_tensor_value_info("examples", TensorProto.FLOAT, ["n", *axes[1:]])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", classes])],
        [numpy_helper.from_array(np.array(values), name) for name, values in numbers.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=block.opset_import, ir_version=block.ir_version)


class _ExportableModule(nn.Module):
    """A module that calls a predictor and, while torch records the call, replaces operations that ONNX lacks."""

    def __init__(self, predict: Predict) -> None:
        super().__init__()
        self._predict = predict

    def forward(self, examples: Tensor) -> Tensor:
        with _OnnxOperatorMode():
            return self._predict(examples.clone())  # which it may write to


class _OnnxOperatorMode(TorchFunctionMode):
    """Replaces `exact_linear` with ONNX operators, and omits splits along rows if all rows fit in one part."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is exact_linear:
            return onnx_exact_linear(*args, **(kwargs or {}))
        if func in {torch.split, Tensor.split} and {*args[2:], *(kwargs or {}).values()} <= {0}:  # along rows
            size = args[1]
            return (args[0],) if isinstance(size, int) and args[0].shape[0] <= size else func(*args)
        return func(*args, **(kwargs or {}))


def onnx_exact_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute `exact_linear` with ONNX operators. The bits are the same, because its integers are exact in float64."""
    if x.dtype == torch.float64:
        return nn.functional.linear(x, weight, bias)
    (left, unit), (right, other) = _round_to_whole_numbers(x), _round_to_whole_numbers(weight)
    total = left.new_zeros(1, 1)
    for low in range(0, weight.shape[1], DEEPEST):
        total = total + left[:, low : low + DEEPEST] @ right[:, low : low + DEEPEST].T
    scores = (total * DETAIL**-2 * unit * other.T).float()
    return scores if bias is None else scores + bias


def _round_to_whole_numbers(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Compute `exact.quantised.round_to_integers` in float64, with comparisons: ONNX cannot read the bits of floats."""
    powers = 2.0 ** torch.arange(-126, 128, dtype=torch.float32, device=rows.device)
    largest = rows.abs().amax(1, keepdim=True).clamp(min=SMALLEST)
    unit = torch.where(largest >= powers, powers, 0).amax(1, keepdim=True) * 2.0**-5
    return (rows / unit * DETAIL).round().double(), unit.double()
