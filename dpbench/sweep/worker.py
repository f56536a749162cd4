"""A worker: what it keeps between cells, so that a cell costs little more than its learner's own time.

Of the local pool it is `python -m dpbench.sweep.worker DEVICE THREADS`.
Each line on standard input is a spec as JSON; each line on standard output is what `Memory.work` returns for it. When
standard input ends, because the parent is gone for whatever reason, the worker exits at once, even in mid-cell.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import traceback

from dpbench import registry
from dpbench.errors import DpbenchError
from dpbench.harness.roles import Sharing, check_sharing
from dpbench.harness.run import run
from dpbench.harness.shared import SharedWork
from dpbench.records.spec import Spec
from dpbench.registry import Registry
from dpbench.registry.components import resolve
from dpbench.support.device import find_device

READY = "ready"


class Memory:
    """The plugins, and what runs may share: a cell gets what a run of its own would compute."""

    def __init__(self, plugins: Registry | None = None) -> None:
        self._plugins, self._shared = plugins or registry.load(), SharedWork()

    def prepare(self, spec: Spec, device: str, sharing: Sharing = "any") -> None:
        """Extract features and compare images, which the cache folder keeps for every process that comes after.

        Raises:
            DpbenchError: as `run` does; also, what the splits may not share, see `check_sharing`.
        """
        asked = resolve(spec, self._plugins)
        roles = self._shared.roles(asked.parts, asked.spec.split_rule, asked.spec.budget, find_device(device))
        roles.test()
        roles.compared()
        check_sharing(roles, sharing)

    def work(self, spec: str, device: str, threads: int) -> str:
        """Run one cell: spec as JSON -> {"result": ...} or {"error": ...} as JSON."""
        self._shared.threads = threads
        try:
            result = run(Spec.model_validate_json(spec), device=device, plugins=self._plugins, shared=self._shared)
        except DpbenchError as error:
            return json.dumps({"error": str(error)})
        except Exception as error:  # a slip of dpbench's own ends a cell, not the sweep
            print(traceback.format_exc(), file=sys.stderr)
            return json.dumps({"error": f"{type(error).__name__}: {error} Its traceback is in the log of the worker."})
        return f'{{"result": {result.model_dump_json()}}}'


def main(device: str, threads: int) -> None:
    """Serve until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides what stops
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what plugins print goes to the log: it must not mix with answers
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()

    memory = Memory()
    print(READY, file=answers, flush=True)
    while True:
        print(memory.work(requests.get(), device, threads), file=answers, flush=True)


def _listen(requests: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        requests.put(line)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
