"""A program that runs a model in a process of its own; `models.process` starts it and sends it requests.

A model may be malicious, and the libraries that run its operations may have memory errors. So this process holds
nothing else, and drops its rights before it reads the model: after its imports it cannot open a file or a connection,
write a file, dump core, or take more than `MEMORY` further bytes. It reads requests from standard input (length and
content), and writes answers to standard output (kind, length and content).

It runs as a script, and imports nothing from dpbench except `torch_program` for models of version 0.2.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

MEMORY = 5 * 2**28  # bytes of a model and its batch
SECONDS = 7  # for a small request
MAX_SENTENCE = 300  # bytes of a library's words
MAX_THREADS, STACK = 32, 2**23  # bytes of a thread's stack, which takes address space
OPSETS = range(18, 24)  # versions of ONNX's operators
READY, ANSWER, REFUSAL, OUT_OF_MEMORY = range(4)
LENGTH, ANSWER_HEAD = struct.Struct("<Q"), struct.Struct("<BQ")

Rows = np.ndarray  # (n, *shape) float32
LoadedModel = tuple[str, tuple[int, ...], int, Callable[[Rows], np.ndarray]]  # card, shape of a row, classes, scores


def walk_protobuf_messages(message: Any) -> Iterator[Any]:
    """Yield a protobuf message and all messages in it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if field.is_repeated else [value]:
                yield from walk_protobuf_messages(part)


def main() -> None:
    """Answer requests until standard input ends: first a model, then batches of rows."""
    form, threads = sys.argv[1], min(int(sys.argv[2]), MAX_THREADS)
    _limit_stack_size()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # operations may print
    load = _make_onnx_loader(threads) if form == "onnx" else _make_torch_loader(threads)
    _drop_privileges()
    _write_answer(answers, READY, b"")
    predict: Callable[[Rows], np.ndarray] | None = None
    shape: tuple[int, ...] = ()
    while request := sys.stdin.buffer.read(LENGTH.size):
        (size,) = LENGTH.unpack(request)
        _limit_cpu_time(compute_request_time_limit(size) * threads)
        content = sys.stdin.buffer.read(size)
        try:
            if predict is None:
                card, shape, classes, predict = load(content)
                _write_answer(answers, ANSWER, json.dumps({"card": card, "shape": shape, "classes": classes}).encode())
            else:
                scores = predict(np.frombuffer(content, np.float32).reshape(-1, *shape).copy())
                _write_answer(answers, ANSWER, np.ascontiguousarray(scores, np.float64).tobytes())
        except MemoryError:
            _write_answer(answers, OUT_OF_MEMORY, b"")
        except Exception as error:  # whatever a library says of a stranger's numbers
            said = " ".join(str(error).split()) or type(error).__name__
            short = any(
                text in said for text in ("bad_alloc", "bad allocation", "can't allocate", "Failed to allocate")
            )
            _write_answer(answers, OUT_OF_MEMORY if short else REFUSAL, said.encode(errors="replace")[:MAX_SENTENCE])


def _write_answer(answers: BinaryIO, kind: int, content: bytes) -> None:
    answers.write(ANSWER_HEAD.pack(kind, len(content)) + content)
    answers.flush()


def _limit_stack_size() -> None:
    """Limit the stack of each thread, and restart the process if its limit was higher.

    The restart is needed because the C library reads the limit only when a process starts.
    """
    with suppress(ImportError):
        import resource

        size, most = resource.getrlimit(resource.RLIMIT_STACK)
        if size > STACK:
            resource.setrlimit(resource.RLIMIT_STACK, (STACK, most))
            os.execv(sys.executable, sys.orig_argv)  # this very command


def _drop_privileges() -> None:
    """Permanently limit memory, files and core dumps, if the system supports it."""
    try:
        import resource
    except ImportError:  # Windows
        return
    limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: 0}
    with suppress(OSError):
        pages = Path("/proc/self/statm").read_bytes().split()
        held = {resource.RLIMIT_AS: pages[0], resource.RLIMIT_DATA: pages[5]}
        limits |= {limit: int(count) * resource.getpagesize() + MEMORY for limit, count in held.items()}
    for limit, most in {**limits, resource.RLIMIT_NOFILE: 0}.items():
        with suppress(ValueError, OSError):  # a stricter one holds already
            resource.setrlimit(limit, (most, most))


def compute_request_time_limit(size: int) -> int:
    """Return the time limit, in seconds, for a request of `size` bytes."""
    return SECONDS + size // 40_000_000


def _limit_cpu_time(seconds: int) -> None:
    """Make the system end this process if a request takes too long, in case the caller is gone."""
    with suppress(ImportError):
        import resource

        used, hard = resource.getrusage(resource.RUSAGE_SELF), resource.getrlimit(resource.RLIMIT_CPU)[1]
        most = int(used.ru_utime + used.ru_stime) + 1 + seconds
        if hard == resource.RLIM_INFINITY or most < hard:  # a stricter one holds already
            resource.setrlimit(resource.RLIMIT_CPU, (most, hard))


def _make_onnx_loader(threads: int) -> Callable[[bytes], LoadedModel]:
    import onnx
    import onnxruntime
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    def load_onnx_model(content: bytes) -> LoadedModel:
        try:
            model = onnx.ModelProto.FromString(content)
        except DecodeError:
            raise ValueError("it is no ONNX graph") from None
        _check_onnx_graph(model)
        texts = {entry.key: entry.value for entry in model.metadata_props}
        if "card" not in texts:
            raise ValueError("it has no card")
        del model
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 4
        for setting, value in {"load_model_format": "ONNX", "intra_op.allow_spinning": "0"}.items():
            options.add_session_config_entry(f"session.{setting}", value)
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        (given,), (found,) = session.get_inputs(), session.get_outputs()
        if (
            given.type != "tensor(float)"
            or len(found.shape) != 2
            or not all(_is_fixed_size(n) for n in found.shape[1:])
        ):
            raise ValueError("its graph does not take rows of float32 and give a score for each class")
        if not all(_is_fixed_size(n) for n in given.shape[1:]):
            raise ValueError("its graph does not say how wide a row is")
        return (
            texts["card"], tuple(given.shape[1:]), found.shape[1],
            lambda rows: session.run([found.name], {given.name: rows})[0],
        )  # fmt: skip

    return load_onnx_model


def _check_onnx_graph(model: Any) -> None:
    """Check that a graph is self-contained and uses only ONNX's own operators.

    Raises:
        ValueError: the graph breaks a rule; the message says which.
    """
    versions = {entry.domain: entry.version for entry in model.opset_import}
    if versions.get("") not in OPSETS:
        raise ValueError(f"expected opset {OPSETS[0]} to {OPSETS[-1]} of ONNX, got {versions.get('', 'none')}")
    if len(model.graph.input) != 1 or len(model.graph.output) != 1:
        raise ValueError("its graph has several inputs or outputs, or none")
    for message in walk_protobuf_messages(model):
        kind = message.DESCRIPTOR.name
        if kind in {"NodeProto", "FunctionProto"} and message.domain not in {"", "ai.onnx"}:
            raise ValueError(f"it has an operator of another domain, {message.domain!r}")
        if kind == "TensorProto" and (message.data_location or message.external_data):
            raise ValueError("it keeps numbers in another file")


def _is_fixed_size(axis: Any) -> bool:
    return isinstance(axis, int) and axis > 0


def _make_torch_loader(threads: int) -> Callable[[bytes], LoadedModel]:
    import torch

    from dpbench.models.torch_program import load_program
    from dpbench.privacy.core.exact.quantised import exact_linear

    torch.set_num_threads(threads)
    exact_linear(torch.zeros(1, 1), torch.zeros(1, 1))  # imports what it needs
    return load_program


if __name__ == "__main__":
    main()
