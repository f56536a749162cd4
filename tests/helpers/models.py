"""Model files that no run writes: of version 0.2 with chosen operations, and ONNX graphs with seeded faults."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from safetensors.torch import save
from torch import Tensor

import dpbench
from dpbench.models import Card
from dpbench.models.model_file import build_model_file
from dpbench.models.torch_program import BATCH, FORMAT, digest_model_parts
from dpbench.receipts import from_result
from tests.conftest import built_once
from tests.helpers.boards import clean_commit

OLD_MODEL = Path(__file__).parents[1] / "models" / "class-means-0.2.safetensors"
WIDTH, CLASSES = 16, 10
EXTREMES = (0, 1, -1, 2**31, 2**63 - 1, -(2**63))


def model_folder(factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the result of a run at a clean commit, its model and its receipt."""

    def write(folder: Path) -> None:
        with clean_commit():
            found = dpbench.run("class-means", epsilon=2, train_fraction=0.2, seeds=1, out=folder)
        found.model().save(folder / "model.onnx")
        from_result(found.file).write(folder / "receipt.json")

    return Path(shutil.copytree(built_once(factory, "released-model", write), factory.mktemp("model") / "out"))


def read_old_card() -> Card:
    """Return the card of the model that version 0.2 wrote."""
    content = OLD_MODEL.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return Card.model_validate_json(header["__metadata__"]["card"])


def write_old_model(steps: list[Any], tensors: Mapping[str, Tensor]) -> bytes:
    """Return a model of version 0.2 with these operations and a digest that fits."""
    program = {"batch": BATCH, "shape": read_old_card().example_shape, "steps": steps}
    texts = {"card": read_old_card().model_dump_json(), "program": json.dumps(program)}
    return save(dict(tensors), {"format": FORMAT, **texts, "digest": digest_model_parts(texts, tensors)})


def make_card(shape: tuple[int, ...] = (WIDTH,)) -> Card:
    """Return a card for rows of this shape."""
    return read_old_card().model_copy(update={"example_shape": shape})


def make_digits_model() -> bytes:
    """Return a model of digits that no run made: a product with ones."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "weight"], ["scores"])],
        "digits",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", CLASSES])],
        [numpy_helper.from_array(np.ones((64, CLASSES), np.float32), "weight")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return build_model_file(model.SerializeToString(), read_old_card())


def make_graph() -> onnx.ModelProto:
    """Return a graph with a convolution, a product and integers: what mutants are made of."""
    draw = np.random.default_rng(0)
    numbers: dict[str, np.ndarray] = {
        "square": np.array([-1, 1, 4, 4]), "kernel": draw.normal(size=(2, 1, 3, 3)).astype(np.float32),
        "weight": draw.normal(size=(8, CLASSES)).astype(np.float32), "seven": np.array([7]), "three": np.array([3]),
        "table": draw.normal(size=(3, CLASSES)).astype(np.float32), "first": np.array([0]), "last": np.array([1]),
        "axis": np.array([1]), "many": np.array([1, CLASSES]), "k": np.array([CLASSES]),
        "hundred": np.array(100, np.float32),
    }  # fmt: skip
    nodes: list[tuple[str, list[str], str, dict[str, Any]]] = [
        ("Reshape", ["x", "square"], "image", {}),
        ("Conv", ["image", "kernel"], "maps", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
        ("MaxPool", ["maps"], "pooled", {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("Flatten", ["pooled"], "flat", {"axis": 1}),
        ("MatMul", ["flat", "weight"], "product", {}),
        ("Mul", ["x", "hundred"], "large", {}),
        ("Cast", ["large"], "whole", {"to": TensorProto.INT64}),
        ("Div", ["whole", "seven"], "quotient", {}),
        ("Mod", ["quotient", "three"], "rest", {}),
        ("Slice", ["rest", "first", "last", "axis"], "place", {}),
        ("Squeeze", ["place", "axis"], "index", {}),
        ("Abs", ["index"], "positive", {}),
        ("Gather", ["table", "positive"], "row", {"axis": 0}),
        ("TopK", ["row", "k"], "highest", {}),
        ("Expand", ["highest", "many"], "wide", {}),
        ("Add", ["product", "wide"], "scores", {}),
    ]  # fmt: skip
    graph = helper.make_graph(
        [helper.make_node(kind, given, [made, "ranks"] if kind == "TopK" else [made], **more)
         for kind, given, made, more in nodes],
        "mutant",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", WIDTH])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", CLASSES])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in numbers.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def mutate_models(count: int) -> Iterator[bytes]:
    """Yield model files whose digests fit, each with one to three faults."""
    draw = np.random.default_rng(0)
    faults: list[Callable[[onnx.ModelProto, np.random.Generator], None]] = [
        _change_operator, _swap_inputs, _change_attribute, _change_numbers, _change_shape, _divide_integers,
        _make_large,
    ]  # fmt: skip
    for number in range(count):
        model = make_graph()
        for _ in range(int(draw.integers(1, 4))):
            faults[number % len(faults) if _ == 0 else int(draw.integers(len(faults)))](model, draw)
        content = bytearray(model.SerializeToString())
        if number % 5 == 4:
            for place in draw.integers(0, len(content), int(draw.integers(1, 9))):
                content[place] ^= 1 << int(draw.integers(8))
        yield build_model_file(bytes(content), make_card())


def _pick(things: Any, draw: np.random.Generator) -> Any:
    return things[int(draw.integers(len(things)))]


def _change_operator(model: onnx.ModelProto, draw: np.random.Generator) -> None:
    names = sorted({schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""})
    _pick(model.graph.node, draw).op_type = _pick(names, draw)


def _swap_inputs(model: onnx.ModelProto, draw: np.random.Generator) -> None:
    node, other = _pick(model.graph.node, draw), _pick(model.graph.node, draw)
    node.input[int(draw.integers(len(node.input)))] = _pick(other.input, draw)


def _change_attribute(model: onnx.ModelProto, draw: np.random.Generator) -> None:
    attribute = _pick([each for node in model.graph.node for each in node.attribute], draw)
    attribute.i = _pick(EXTREMES, draw)
    for place in range(len(attribute.ints)):
        attribute.ints[place] = _pick(EXTREMES, draw)


def _change_numbers(model: onnx.ModelProto, draw: np.random.Generator) -> None:
    whole = [each for each in model.graph.initializer if _is_whole(each)]
    if not whole:
        return
    tensor = _pick(whole, draw)
    values = numpy_helper.to_array(tensor).copy()
    extremes = EXTREMES if tensor.data_type == TensorProto.INT64 else (np.nan, np.inf, -1e38, 1e-45)
    values.reshape(-1)[int(draw.integers(values.size))] = _pick(extremes, draw)
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def _is_whole(tensor: onnx.TensorProto) -> bool:
    """Whether a tensor's numbers fit its shape and type, which other faults change."""
    sizes: dict[int, int] = {TensorProto.FLOAT: 4, TensorProto.INT64: 8}
    expected: int = math.prod(tensor.dims) * sizes.get(tensor.data_type, 0)
    return 0 < expected == len(tensor.raw_data)


def _change_shape(model: onnx.ModelProto, draw: np.random.Generator) -> None:
    tensor = _pick(model.graph.initializer, draw)
    tensor.dims.append(_pick((2, *EXTREMES), draw))
    tensor.data_type = int(draw.integers(1, 18)) if draw.integers(2) else tensor.data_type


def _divide_integers(model: onnx.ModelProto, draw: np.random.Generator) -> None:
    name = _pick(("seven", "three"), draw)
    by = next(tensor for tensor in model.graph.initializer if tensor.name == name)
    by.CopyFrom(numpy_helper.from_array(np.array([_pick((0, -1), draw)]), by.name))
    start = next((node for node in model.graph.node if node.op_type == "Div"), None)
    if start is not None and draw.integers(2):
        start.input[0] = "smallest"
        model.graph.initializer.append(numpy_helper.from_array(np.full((1, WIDTH), -(2**63)), "smallest"))


def _make_large(model: onnx.ModelProto, draw: np.random.Generator) -> None:
    size = np.array([_pick((2**20, 2**28, 2**31, 2**40), draw), _pick((1, CLASSES), draw)])
    node = _pick(model.graph.node[-6:], draw)
    model.graph.initializer.append(numpy_helper.from_array(size, "large size"))
    model.graph.node.insert(0, helper.make_node("ConstantOfShape", ["large size"], ["filled"]))
    node.input[0] = "filled"
