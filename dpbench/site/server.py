"""A preview of the built site: `http.server` on the loopback interface."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dpbench.errors import OutputError, SpecError

ADDRESS = "127.0.0.1"


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log nothing, because the browser shows missing files."""

    def send_head(self) -> Any:
        """Answer only requests for the site: refuse other host names, and paths outside the site's folder."""
        host = urlsplit(f"//{self.headers.get('Host', '')}").hostname
        place = Path(self.translate_path(self.path)).resolve()
        if host not in {ADDRESS, "localhost"} or not place.is_relative_to(Path(self.directory).resolve()):
            self.send_error(HTTPStatus.FORBIDDEN)
            return None
        return super().send_head()


def serve(site: Path, port: int, on_ready: Callable[[str], object]) -> None:
    """Serve a built site on the loopback interface until interrupted; first call `on_ready` with its address.

    Raises:
        SpecError: the port is in use, or only an administrator may open it.
        OutputError: the site has not been built.
    """
    if not (site / "index.html").is_file():
        raise OutputError(f"Expected the leaderboard's page in {site}, got none. Run `dpbench leaderboard build`.")
    try:
        server = ThreadingHTTPServer((ADDRESS, port), partial(_QuietHandler, directory=str(site)))
    except OSError as error:
        used = error.errno == errno.EADDRINUSE
        why = "which another program uses" if used else f"which cannot be opened: {error.strerror}"
        raise SpecError(f"Expected a free port, got {port}, {why}. Name another with --port, or 0 for any.") from error
    with server:
        try:
            on_ready(f"http://{ADDRESS}:{server.server_port}/")
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            return
