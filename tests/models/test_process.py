"""A model runs in a process with limits; whatever it does, the caller gets scores or one sentence."""

from __future__ import annotations

import errno
import resource
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from dpbench.errors import DataError
from dpbench.models import worker
from dpbench.models.model_file import build_model_file
from dpbench.models.process import MAX_ROWS, ModelProcess
from tests.helpers.models import CLASSES, WIDTH, make_card, make_graph, mutate_models

ROWS = torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(0))
Node = onnx.NodeProto


def _graph(nodes: Sequence[Node], **numbers: np.ndarray) -> onnx.ModelProto:
    """Return a graph of these nodes, which take `x` (n, WIDTH) and make `scores` (n, CLASSES)."""
    graph = helper.make_graph(
        nodes,
        "made",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", WIDTH])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", CLASSES])],
        [numpy_helper.from_array(value, name) for name, value in {"weight": WEIGHT, **numbers}.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


WEIGHT = np.ones((WIDTH, CLASSES), np.float32)


def _product(name: str = "product") -> Node:
    return helper.make_node("MatMul", ["x", "weight"], [name])


PRODUCT = _product("scores")


def _scores(model: onnx.ModelProto, rows: torch.Tensor = ROWS) -> torch.Tensor:
    with ModelProcess(build_model_file(model.SerializeToString(), make_card())) as process:
        return process(rows)


def test_rows_are_sent_in_batches_and_none_give_no_scores() -> None:
    rows = torch.randn(2 * MAX_ROWS + 1, WIDTH)
    with ModelProcess(build_model_file(_graph([PRODUCT]).SerializeToString(), make_card())) as process:
        assert torch.allclose(process(rows), rows.double().sum(1, keepdim=True).expand(-1, CLASSES), atol=1e-4)
        assert process(rows[:0]).shape == (0, CLASSES)
        assert (process.facts.shape, process.facts.classes) == ((WIDTH,), CLASSES)


def _value(name: str, kind: int, shape: Sequence[str | int]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _loop() -> onnx.ModelProto:
    """Return a loop of 2^62 turns."""
    turn = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Add", ["v", "v"], ["w"])],
        "turn",
        [_value("i", TensorProto.INT64, []), _value("go", TensorProto.BOOL, []), _value("v", 1, ["n", CLASSES])],
        [_value("on", TensorProto.BOOL, []), _value("w", 1, ["n", CLASSES])],
    )
    loop = helper.make_node("Loop", ["turns", "yes", "product"], ["scores"], body=turn)
    return _graph([_product(), loop], turns=np.array(2**62), yes=np.array(True))


def _division(by: int) -> onnx.ModelProto:
    """Return a division of the smallest integer."""
    nodes = [
        _product(),
        helper.make_node("Mul", ["product", "far"], ["low"]),
        helper.make_node("Cast", ["low"], ["whole"], to=TensorProto.INT64),
        helper.make_node("Div", ["whole", "by"], ["quotient"]),
        helper.make_node("Cast", ["quotient"], ["scores"], to=TensorProto.FLOAT),
    ]
    return _graph(nodes, far=np.array([-1e30], np.float32), by=np.array([by]))


def _filled(size: int) -> onnx.ModelProto:
    """Return a graph that fills this many numbers."""
    nodes = [
        helper.make_node("ConstantOfShape", ["size"], ["filled"]),
        helper.make_node("ReduceMax", ["filled"], ["most"], keepdims=0),
        _product(),
        helper.make_node("Add", ["product", "most"], ["scores"]),
    ]
    return _graph(nodes, size=np.array([size]))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (_loop(), "it takes more than 2 seconds"),
        (_division(-1), "its operations ended its process by SIGFPE"),
        (_division(0), "Integer division by zero|by SIGFPE|ONNXRuntimeError"),
        (_filled(1_180_000_000), "it takes more than 1.25 GiB of memory"),
    ],
    ids=["time", "overflow", "zero", "memory"],
)
def test_a_model_that_takes_too_much_is_ended_in_one_sentence(
    model: onnx.ModelProto, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "SECONDS", 2 if "seconds" in said else 60)
    with pytest.raises(DataError, match=said):
        _scores(model, ROWS.abs())


def test_a_file_that_needs_more_than_itself_or_is_no_classifier_is_refused() -> None:
    other_domain = _graph([helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft"), PRODUCT])
    elsewhere = _graph([PRODUCT])
    elsewhere.graph.initializer[0].data_location = TensorProto.EXTERNAL
    elsewhere.graph.initializer[0].external_data.add(key="location", value="/etc/passwd")
    elsewhere.graph.initializer[0].ClearField("raw_data")
    old, wide, twice = _graph([PRODUCT]), _graph([PRODUCT]), _graph([PRODUCT])
    old.opset_import[0].version = 9
    wide.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "any"
    twice.graph.output.append(twice.graph.output[0])
    for model, said in (
        (other_domain, "it has an operator of another domain, 'com.microsoft'"),
        (elsewhere, "it keeps numbers in another file"),
        (old, "expected opset 18 to 23 of ONNX, got 9"),
        (wide, "its graph does not say how wide a row is"),
        (twice, "several inputs or outputs"),
        (_graph([helper.make_node("Identity", ["x"], ["scores"])]), "."),
        (_graph([PRODUCT], unused=np.zeros(1), weight=np.full((WIDTH, CLASSES), np.nan, np.float32)), "not finite"),
    ):
        with pytest.raises(DataError, match=said):
            _scores(model)
    for content, said in ((_graph([PRODUCT]).SerializeToString(), "it has no card"), (b"\x00text", "no ONNX graph")):
        with ModelProcess(content) as process, pytest.raises(DataError, match=said):
            process(ROWS)


def test_the_process_opens_no_file_and_no_connection() -> None:
    program = (
        "import socket, sys\n"
        f"sys.path.insert(0, {str(Path(worker.__file__).parent)!r})\n"
        "import worker; worker._drop_privileges()\n"
        "for attempt in (lambda: open('/etc/hostname'), lambda: socket.socket(), lambda: open('/tmp/x', 'w')):\n"
        "    try: attempt()\n"
        "    except OSError as error: print(error.errno)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(errno.EMFILE)] * 3


def predict_with_mutants(count: int) -> None:
    """Predict with mutants of a model, each in a process of its own, and check how they end."""
    ends: set[str] = set()
    for content in mutate_models(count):
        with ModelProcess(content) as process, suppress(DataError):
            ends.add("scores" if process(ROWS).isfinite().all() else "")
    assert ends == {"scores"}  # some are harmless


def test_fifteen_mutants_of_a_model_end_in_a_sentence() -> None:
    predict_with_mutants(15)


@pytest.mark.slow
def test_three_hundred_mutants_of_a_model_end_in_a_sentence_and_take_little_memory() -> None:
    """In a fresh process, whose children are the mutants' alone."""
    program = """if True:
        import resource
        from tests.models.test_process import predict_with_mutants
        predict_with_mutants(300)
        assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 2 * 10**6  # kB
    """
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[2])


def test_the_graph_of_mutants_is_a_model_itself() -> None:
    assert _scores(make_graph()).shape == (5, CLASSES)


@pytest.mark.parametrize("stack", [2**23, 2**30])
def test_many_threads_and_large_stacks_fit_the_limit_of_memory(stack: int, monkeypatch: pytest.MonkeyPatch) -> None:
    before, most = resource.getrlimit(resource.RLIMIT_STACK)
    if most not in (resource.RLIM_INFINITY, max(stack, most)):
        pytest.skip("this system allows no larger stacks")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 192)
    resource.setrlimit(resource.RLIMIT_STACK, (stack, most))
    try:
        assert _scores(_graph([PRODUCT])).shape == (5, CLASSES)
    finally:
        resource.setrlimit(resource.RLIMIT_STACK, (before, most))


@pytest.mark.slow
def test_a_stricter_limit_of_processor_time_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "model"
    file.write_bytes(build_model_file(_graph([PRODUCT]).SerializeToString(), make_card()))
    said = """if True:
        import resource, sys, torch
        from pathlib import Path
        torch.get_num_threads = lambda: 8  # which may take more than 30 seconds together
        from dpbench.models.process import ModelProcess
        resource.setrlimit(resource.RLIMIT_CPU, (30, 30))  # of each process
        with ModelProcess(Path(sys.argv[1]).read_bytes()) as process:
            print(process.facts.classes)
    """
    done = subprocess.run([sys.executable, "-c", said, str(file)], capture_output=True, text=True, check=False)
    assert done.stdout == f"{CLASSES}\n", done.stderr
