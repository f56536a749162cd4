"""A publisher's server on loopback: slow, broken or hostile as a test tells it to be."""

from __future__ import annotations

import hashlib
import json
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
        self.below = ""  # where the files are in a repository of the Hugging Face hub, if it stands for that

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that hangs up."""

    def url(self, path: str = "/x.bin") -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"


class Handler(BaseHTTPRequestHandler):
    """One answer, as the server was told."""

    server: Server
    protocol_version = "HTTP/1.1"

    def end_headers(self) -> None:
        """Announce that the connection ends with this answer, or a client asks again on it before it sees the end."""
        self.send_header("Connection", "close")
        super().end_headers()

    def do_GET(self) -> None:
        server, asked = self.server, self.headers.get("Range", "")
        server.asked.append(asked)
        if server.refusals:
            return self.send_error(server.refusals.pop(0))
        if self.path == "/circle":
            self.path = "/to//circle"
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/to/"))
            return self.end_headers()
        if self.path.startswith("/api/datasets/"):
            return self.answer(json.dumps(self.tree()).encode(), 200)
        content = self.content()
        return self.send_error(404) if content is None else self.send_part(content, asked)

    def content(self) -> bytes | None:
        """Return the file that was asked for."""
        found = self.server.files.get(PurePosixPath(self.path.partition("?")[0]).name)
        if found is None and self.path.startswith("/x"):
            found = self.server.content
        return None if found is None else found + bytes(self.server.flood)

    def send_part(self, content: bytes, asked: str) -> None:
        """Answer with a file or with the rest of it."""
        server = self.server
        start = int(asked[6:-1]) if asked and server.ranges else 0
        if server.empty:
            return self.answer(b"", 206)
        if asked and server.ranges and start >= len(content):
            return self.send_error(416)
        return self.answer(content[start:], 206 if asked and server.ranges else 200)

    def do_HEAD(self) -> None:
        """Describe a file, as the Hugging Face hub does before it is downloaded."""
        self.send_response(200)
        self.as_hub()
        self.send_header("Content-Length", str(len(self.server.files[PurePosixPath(self.path).name])))
        self.end_headers()

    def tree(self) -> list[dict[str, object]]:
        """Return what the hub says of the files of a repository."""
        return [
            {
                "type": "file",
                "path": f"{self.server.below}/{name}",
                "size": len(content),
                "oid": hashlib.sha1(content).hexdigest(),
                "lfs": {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 100},
            }
            for name, content in self.server.files.items()
        ]

    def as_hub(self) -> None:
        content = self.server.files.get(PurePosixPath(self.path).name)
        if self.server.below and content is not None:
            self.send_header("X-Repo-Commit", "0" * 40)
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')

    def answer(self, content: bytes, status: int) -> None:
        server = self.server
        sent = content[: server.cuts.pop(0)] if server.cuts else content
        self.send_response(status)
        self.as_hub()
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
