"""A publisher's server on loopback: slow, broken or hostile as a test tells it to be."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import PurePosixPath

import numpy as np
from pytest_socket import enable_socket, socket_allow_hosts

CONTENT = np.random.default_rng(0).bytes(300_000)


class Server(ThreadingHTTPServer):
    """Serves `files` by their names, and CONTENT at any other path that begins with /x; notes what it sent."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str] = []  # the ranges, empty for a whole file
        self.sent = 0
        self.ranges = True
        self.announce = True  # the length
        self.extra = 0  # bytes that the next answers announce beyond what they have; below 0 for fewer
        self.flood = 0  # bytes that follow each file
        self.empty = False  # answers of status 206 without a byte
        self.cuts: list[int] = []  # bytes after which the next answers end
        self.refusals: list[int] = []  # statuses of the next answers
        self.content = CONTENT
        self.files: Mapping[str, bytes] = {}

    def url(self, path: str = "/x.bin") -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"


class Handler(BaseHTTPRequestHandler):
    """One answer, as the server was told."""

    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server, asked = self.server, self.headers.get("Range", "")
        self.close_connection = True
        server.asked.append(asked)
        if server.refusals:
            return self.send_error(server.refusals.pop(0))
        if self.path == "/circle":
            self.path = "/to//circle"
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/to/"))
            return self.end_headers()
        name = PurePosixPath(self.path.partition("?")[0]).name
        if name not in server.files and not self.path.startswith("/x"):
            return self.send_error(404)
        content = server.files.get(name, server.content) + bytes(server.flood)
        start = int(asked[6:-1]) if asked and server.ranges else 0
        if server.empty:
            return self.answer(b"", 206)
        if asked and server.ranges and start >= len(content):
            return self.send_error(416)
        return self.answer(content[start:], 206 if asked and server.ranges else 200)

    def answer(self, content: bytes, status: int) -> None:
        server = self.server
        sent = content[: server.cuts.pop(0)] if server.cuts else content
        self.send_response(status)
        if server.announce:
            self.send_header("Content-Length", str(max(0, len(content) + server.extra)))
        else:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        server.sent += len(sent)
        if server.announce:
            self.wfile.write(sent)
        else:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(sent), sent))
            self.wfile.write(b"0\r\n\r\n" if sent == content else b"")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def publisher() -> Iterator[Server]:
    """Run a server; the test may speak to this machine, and pytest-socket ends that after it."""
    enable_socket()
    socket_allow_hosts(["127.0.0.1"], allow_unix_socket=True)
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()
