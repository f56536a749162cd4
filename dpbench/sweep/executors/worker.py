"""A worker of the local pool: `python -m dpbench.sweep.executors.worker DEVICE THREADS`.

Each line on standard input is a spec as JSON; each line on standard output is what `Memory.work` returns for it. When
standard input ends, because the parent is gone for whatever reason, the worker exits at once, even in mid-cell.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading

READY = "ready"


def main(device: str, threads: int) -> None:
    """Serve until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides what stops
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what plugins print goes to the log: it must not mix with answers
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()

    from dpbench.sweep.memory import Memory

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
