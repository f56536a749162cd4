"""The preview: on loopback alone, of the site's files alone, ended quietly."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pytest_socket import enable_socket, socket_allow_hosts

from dpbench.cli import main
from dpbench.errors import OutputError, SpecError
from dpbench.site.publishing import serve


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    (folder / "entries").mkdir(parents=True)
    (folder / "index.html").write_text("<title>ε</title>", encoding="utf-8")
    (folder / "entries" / "one.html").write_text("<title>one</title>", encoding="utf-8")
    (folder / "leaderboard.json").write_text("{}", encoding="utf-8")
    (folder / "style.css").write_text("b {}", encoding="utf-8")
    (folder / "glue.js").write_text("1", encoding="utf-8")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("hidden", encoding="utf-8")
    (tmp_path / "secret").write_text("secret", encoding="utf-8")
    (folder / "link").symlink_to(tmp_path / "secret")
    return folder


@pytest.fixture
def port(site: Path) -> Iterator[int]:
    """The port of a server of `site` in a thread."""
    enable_socket()
    socket_allow_hosts(["127.0.0.1"], allow_unix_socket=True)  # ended by pytest-socket after every test
    with serve._bound(site, 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def got(port: int, path: str, host: str = "127.0.0.1", method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", f"{host}:{port}")
    connection.endheaders()
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, {name.title(): value for name, value in answer.getheaders()}, content


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/index.html?a=b#c", "text/html; charset=utf-8"),
        ("/entries/one.html", "text/html; charset=utf-8"),
        ("/leaderboard.json", "application/json; charset=utf-8"),
        ("/style.css", "text/css; charset=utf-8"),
        ("/glue.js", "text/javascript; charset=utf-8"),
    ],
)
def test_every_file_comes_with_its_type(port: int, path: str, kind: str) -> None:
    status, headers, content = got(port, path)
    assert (status, headers["Content-Type"], int(headers["Content-Length"])) == (200, kind, len(content))


def test_the_page_comes_as_it_is(port: int, site: Path) -> None:
    assert got(port, "/")[2] == (site / "index.html").read_bytes()
    assert got(port, "/", method="HEAD")[2] == b""


@pytest.mark.parametrize(
    "path",
    [
        "/../secret",
        "/entries/../../secret",
        "/%2e%2e/secret",
        "/%2e%2e%2fsecret",
        "/..%5csecret",
        "//../secret",
        "/link",
        "/.git/config",
        "/entries/../.git/config",
        "/entries/",
        "/nothing.html",
        "/%00",
    ],
)
def test_nothing_but_files_of_the_site_is_given(port: int, path: str) -> None:
    status, _, content = got(port, path)
    assert status == 404
    assert b"secret<" not in content
    assert b"hidden" not in content


def test_what_is_not_there_is_the_sites_own_page(port: int, site: Path) -> None:
    (site / "404.html").write_text("<title>lost</title>", encoding="utf-8")
    assert [got(port, path)[::2] for path in ("/nothing", "/link")] == [(404, b"<title>lost</title>")] * 2
    assert got(port, "/nothing", method="HEAD")[2] == b""
    assert got(port, "/", host="elsewhere.example")[0] == 421


@pytest.mark.parametrize("path", ["/", "/nothing.html", "/entries"])
def test_every_answer_keeps_the_page_to_itself(port: int, path: str) -> None:
    headers = got(port, path)[1]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'self'" in headers["Content-Security-Policy"]
    assert not re.search(r"https?:|\*", headers["Content-Security-Policy"])


def test_only_the_documentation_may_run_a_script_that_stands_in_its_page(port: int) -> None:
    allowed = "script-src 'self' 'unsafe-inline'"
    assert allowed in got(port, "/docs/index.html")[1]["Content-Security-Policy"]
    for path in ("/", "/entries/docs/x.html", "/docs"):
        assert allowed not in got(port, path)[1]["Content-Security-Policy"]


def test_a_name_that_was_bent_to_this_machine_is_not_answered(port: int) -> None:
    assert got(port, "/", host="elsewhere.example")[0] == 421
    assert got(port, "/", host="localhost")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_can_be_written(port: int, method: str) -> None:
    assert got(port, "/", method=method)[0] == 501


def test_only_loopback_is_bound(site: Path) -> None:
    enable_socket()
    with serve._bound(site, 0) as server:
        assert server.socket.getsockname()[0] == "127.0.0.1"


def test_without_a_page_the_way_to_one_is_said(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="Run `dpbench leaderboard build`"):
        serve.serve(tmp_path, 0, print)


def test_a_port_in_use_is_said_with_the_way_out(site: Path, port: int) -> None:
    with pytest.raises(SpecError, match=rf"got {port}, which another program uses\. Name another with --port"):
        serve.serve(site, port, print)


def test_a_port_beyond_the_last_is_refused(site: Path) -> None:
    enable_socket()
    with pytest.raises(SpecError, match="from 0 to 65535, got 65536"):
        serve.serve(site, 65536, print)


@pytest.mark.parametrize(("words", "opened"), [(["--open"], ["http://127.0.0.1:1/"]), ([], [])])
def test_the_browser_is_opened_where_that_is_asked_for(
    site: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], opened: list[str]
) -> None:
    got: list[str] = []
    monkeypatch.setattr(webbrowser, "open", got.append)
    monkeypatch.setattr(serve, "serve", lambda folder, port, ready: ready("http://127.0.0.1:1/"))
    with pytest.raises(SystemExit):
        main(["leaderboard", "serve", "--site", str(site), *words])
    assert got == opened


@contextmanager
def running(site: Path) -> Iterator[subprocess.Popen[str]]:
    code = (
        "import sys; from pathlib import Path; from dpbench.cli.publish import serve; "
        "serve(site=Path(sys.argv[1]), port=0)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(site)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_the_command_says_its_address_answers_there_and_ends_quietly_on_ctrl_c(site: Path) -> None:
    enable_socket()
    socket_allow_hosts(["127.0.0.1"], allow_unix_socket=True)
    with running(site) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        address = re.fullmatch(r"The leaderboard is at http://127\.0\.0\.1:(\d+)/ \(Ctrl-C ends it\)\n", said)
        assert address is not None
        assert got(int(address[1]), "/")[0] == 200
        os.kill(process.pid, signal.SIGINT)
        assert process.communicate(timeout=20) == ("", "")
        assert process.returncode == 0
