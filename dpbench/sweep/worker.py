"""Run cells in a worker process that keeps data between cells, so that a cell takes little longer than its fit.

The local pool starts the worker as `python -m dpbench.sweep.worker DEVICE THREADS`. Each line on standard input is a
spec as JSON. The first line on standard output is `READY`; each further line is the answer of `Worker.run_cell` to a
spec. Standard input ends when the parent is gone, for whatever reason; the worker then exits at once, even in the
middle of a cell.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import traceback
from functools import cached_property, partial

from dpbench import registry
from dpbench.errors import DpbenchError
from dpbench.harness.session import Session, open_session
from dpbench.records.spec import Spec
from dpbench.registry import Registry

READY = "ready"


class CellWorker:
    """Runs cells one after another in one session, which keeps the data that runs may share.

    A cell has the same result as a separate run. The session is opened with the first cell; if the device cannot be
    used, the outcome of that cell reports this.
    """

    def __init__(self, device: str, threads: int | None = None, plugins: Registry | None = None) -> None:
        self._open = partial(open_session, device, plugins=plugins, threads=threads)

    @cached_property
    def session(self) -> Session:
        """The session, with the installed plugins and the data that cells share."""
        return self._open()

    def run_cell(self, spec: str) -> str:
        """Run a cell, given its spec as JSON, and return {"result": ...} or {"error": ...} as JSON."""
        try:
            result = self.session.run(Spec.model_validate_json(spec))
        except DpbenchError as error:
            return json.dumps({"error": str(error)})
        except Exception as error:  # a slip of dpbench's own ends a cell, not the sweep
            print(traceback.format_exc(), file=sys.stderr)
            return json.dumps({"error": f"{type(error).__name__}: {error} Its traceback is in the log of the worker."})
        return f'{{"result": {result.model_dump_json()}}}'


def main(device: str, threads: int) -> None:
    """Run the cells whose specs arrive on standard input, until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides what stops
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what plugins print goes to the log: it must not mix with answers
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_queue_requests, args=(requests,), daemon=True).start()

    worker = CellWorker(device, threads, registry.load())
    print(READY, file=answers, flush=True)
    while True:
        print(worker.run_cell(requests.get()), file=answers, flush=True)


def _queue_requests(requests: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        requests.put(line)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
