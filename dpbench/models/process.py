"""Run a model in a process with limits (`models.worker`), and explain each failure in a sentence."""

from __future__ import annotations

import math
import os
import signal
import struct
import subprocess
import sys
from contextlib import suppress
from functools import cached_property
from threading import Timer
from typing import Any

import numpy as np
import torch
from pydantic import Field, ValidationError
from torch import Tensor

from dpbench.errors import DataError
from dpbench.models import worker
from dpbench.models.model_file import detect_model_format
from dpbench.support.untrusted import MAX_BYTES, make_printable, parse_json
from dpbench.support.validation import Record

START_SECONDS = 120  # for the imports of a busy machine
BATCH_NUMBERS, MAX_ROWS = 2**20, 1024  # that are sent at once
OUT_OF_MEMORY = f"it takes more than {worker.MEMORY / 2**30:g} GiB of memory"


class ModelGraphFacts(Record):
    """The card, row shape and number of classes that a model's process reports."""

    card: str  # JSON
    shape: tuple[int, ...]  # of a row
    classes: int = Field(gt=0)


class ModelProcess:
    """A process that runs one model and maps rows to scores; leaving the `with` block ends the process.

    The process starts at once, and imports its modules while the caller continues. Every request has a time limit, and
    every answer is checked: a model can return wrong scores, but cannot affect the calling process otherwise.
    """

    def __init__(self, content: bytes) -> None:
        self._content, self._timed_out = content, False
        command = [sys.executable, "-P", worker.__file__, detect_model_format(content), str(torch.get_num_threads())]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={**os.environ, "MALLOC_ARENA_MAX": "2"},  # each takes address space, which is limited
        )  # fmt: skip

    def __enter__(self) -> ModelProcess:
        return self

    def __exit__(self, *raised: object) -> None:
        self._process.kill()
        with suppress(BrokenPipeError), self._process:  # closes its pipes
            pass

    @cached_property
    def facts(self) -> ModelGraphFacts:
        """The model's card, the shape of its rows and its number of classes.

        Raises:
            DataError: the model cannot be loaded.
        """
        self._receive_answer(worker.READY, START_SECONDS, 0)
        answer = self._ask(self._content, MAX_BYTES)
        try:
            return ModelGraphFacts.model_validate(parse_json(answer, "its description"))
        except ValidationError as error:
            raise DataError("its process does not describe it") from error

    def __call__(self, x: Tensor) -> Tensor:
        """Return the scores (n, classes) float64 of rows (n, *shape).

        Raises:
            DataError: the model fails, or its scores are not finite.
        """
        classes, rows = self.facts.classes, max(1, min(MAX_ROWS, BATCH_NUMBERS // max(1, math.prod(x.shape[1:]))))
        parts = [np.empty((0, classes))]
        for start in range(0, len(x), rows):
            batch = x[start : start + rows].to("cpu", torch.float32).contiguous()
            size = len(batch) * classes * 8
            answer = self._ask(batch.numpy().tobytes(), size)
            if len(answer) != size:
                raise DataError(f"it gives {len(answer) // 8:,} numbers for {len(batch)} images of {classes} classes")
            parts.append(np.frombuffer(answer).reshape(len(batch), classes))
        scores = np.concatenate(parts)
        if not np.isfinite(scores).all():
            raise DataError("it gives scores that are not finite")
        return torch.from_numpy(scores)

    def _ask(self, content: bytes, max_bytes: int) -> bytes:
        """Send a request and return the answer, which has at most `max_bytes` bytes."""
        seconds = worker.compute_request_time_limit(len(content))
        return self._receive_answer(worker.ANSWER, seconds, max_bytes, worker.LENGTH.pack(len(content)), content)

    def _receive_answer(self, expected_kind: int, seconds: float, max_bytes: int, *request: bytes) -> bytes:
        pipes: Any = self._process
        timer = Timer(seconds, self._kill_on_timeout)
        timer.start()
        try:
            for part in request:
                pipes.stdin.write(part)
            pipes.stdin.flush()
            kind, length = worker.ANSWER_HEAD.unpack(pipes.stdout.read(worker.ANSWER_HEAD.size))
            content: bytes = pipes.stdout.read(min(length, max_bytes + worker.MAX_SENTENCE))
        except (OSError, struct.error) as error:  # its end of a pipe is closed
            raise DataError(self._explain_exit(seconds)) from error
        finally:
            timer.cancel()
        if kind == expected_kind and length <= max_bytes:
            return content
        if kind == worker.OUT_OF_MEMORY:
            raise DataError(OUT_OF_MEMORY)
        if kind == worker.REFUSAL:
            raise DataError(make_printable(content.decode(errors="replace")[: worker.MAX_SENTENCE]).rstrip("."))
        raise DataError(f"it answers with {length:,} bytes, expected {max_bytes:,} at most")

    def _kill_on_timeout(self) -> None:
        self._timed_out = True
        self._process.kill()

    def _explain_exit(self, seconds: float) -> str:
        code = self._process.wait()
        if self._timed_out:
            return f"it takes more than {seconds:g} seconds"
        if code < 0:
            return f"its operations ended its process by {signal.Signals(-code).name}"
        return f"its process ended with code {code}"
