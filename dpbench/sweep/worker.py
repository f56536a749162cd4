"""A worker of the local pool: `python -m dpbench.sweep.worker DEVICE THREADS`.

It answers lines with lines: a spec as JSON on standard input, what `Memory.work` gives on standard output. When
standard input ends, for whatever reason the parent is gone, it ends at once, in the middle of a cell too.
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent says what ends
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what plugins print goes to the log: it must not stand between answers
    asked: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(asked,), daemon=True).start()

    from dpbench.sweep.memory import Memory

    memory = Memory()
    print(READY, file=answers, flush=True)
    while True:
        print(memory.work(asked.get(), device, threads), file=answers, flush=True)


def _listen(asked: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        asked.put(line)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
