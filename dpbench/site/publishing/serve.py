"""A preview of the built site: on this machine alone, and of the site's files alone."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO

from dpbench.errors import OutputError, SpecError

ADDRESS = "127.0.0.1"
# Pages name a stricter policy themselves; this one stands where they cannot.
POLICY = (
    "default-src 'self' data:; style-src 'self' 'unsafe-inline'; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
# The documentation has no stranger's word, a script of its own in each page, and a field to search in.
DOCS = POLICY.replace("form-action 'none'", "form-action 'self'; script-src 'self' 'unsafe-inline'")
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
TEXTS = ("text/", "application/json", "application/toml")


class _Handler(SimpleHTTPRequestHandler):
    """Files below one folder, by GET and HEAD."""

    extensions_map = SimpleHTTPRequestHandler.extensions_map | {
        ".css": "text/css",
        ".csv": "text/csv",
        ".html": "text/html",
        ".js": "text/javascript",
        ".json": "application/json",
        ".png": "image/png",
        ".svg": "image/svg+xml",
        ".toml": "application/toml",
        ".woff2": "font/woff2",
    }
    server_version, sys_version = "dpbench", ""

    def send_head(self) -> BinaryIO | None:
        """Answer with a file of the site; what is hidden, or linked from outside, is not of it."""
        if self.headers.get("Host", "").partition(":")[0] not in {ADDRESS, "localhost"}:
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST)  # a stranger's name was bent to this machine
            return None
        if not self._of_the_site():
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        return super().send_head()

    def _of_the_site(self) -> bool:
        root, path = Path(self.directory).resolve(), Path(self.translate_path(self.path))
        try:
            path = (path / "index.html" if path.is_dir() else path).resolve()
        except ValueError:  # a null byte
            return False
        return path.is_relative_to(root) and not any(part.startswith(".") for part in path.relative_to(root).parts)

    def list_directory(self, path: object) -> None:
        """Show no folder that has no page."""
        self.send_error(HTTPStatus.NOT_FOUND)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer with the site's own page of what is not there, as GitHub does."""
        lost = Path(self.directory) / "404.html"
        if code != HTTPStatus.NOT_FOUND or not lost.is_file():
            super().send_error(code, message, explain)
            return
        content = lost.read_bytes()
        self.send_response(code)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def guess_type(self, path: object) -> str:
        """Return the type of a file; texts are UTF-8."""
        kind = super().guess_type(str(path))
        return f"{kind}; charset=utf-8" if kind.startswith(TEXTS) else kind

    def end_headers(self) -> None:
        """Send what keeps the page to itself with every answer."""
        documented = getattr(self, "path", "").startswith("/docs/")  # none where a request could not be read
        self.send_header("Content-Security-Policy", DOCS if documented else POLICY)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing: the browser shows what is missing."""


def serve(site: Path, port: int, ready: Callable[[str], object]) -> None:
    """Serve a built site on the loopback interface until interrupted; `ready` gets its address once it answers.

    Raises:
        SpecError: no port of that number, or one in use.
        OutputError: there is no site.
    """
    if not (site / "index.html").is_file():
        raise OutputError(f"Expected the leaderboard's page in {site}, got none. Run `dpbench leaderboard build`.")
    with _bound(site, port) as server:
        try:
            ready(f"http://{ADDRESS}:{server.server_port}/")
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            return


def _bound(site: Path, port: int) -> ThreadingHTTPServer:
    try:
        return ThreadingHTTPServer((ADDRESS, port), partial(_Handler, directory=str(site)))
    except OverflowError:
        raise SpecError(f"Expected a port from 0 to 65535, got {port}.") from None
    except OSError as error:
        used = error.errno == errno.EADDRINUSE
        why = "which another program uses" if used else f"which cannot be had: {error.strerror}"
        raise SpecError(f"Expected a free port, got {port}, {why}. Name another with --port, or 0 for any.") from error
