"""The preview: on loopback alone, ended quietly."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pytest_socket import enable_socket, socket_allow_hosts

from dpbench.errors import OutputError, SpecError
from dpbench.site import server
from tests.helpers.commands import call


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "index.html").write_text("<title>ε</title>", encoding="utf-8")
    return folder


def test_without_a_page_the_way_to_one_is_said(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="Run `dpbench leaderboard build`"):
        server.serve(tmp_path, 0, print)


def test_a_port_in_use_is_said_with_the_way_out(site: Path) -> None:
    enable_socket()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(SpecError, match=rf"got {port}, which another program uses\. Name another with --port"):
            server.serve(site, port, print)


@pytest.mark.parametrize(("words", "opened"), [(["--open"], ["http://127.0.0.1:1/"]), ([], [])])
def test_the_browser_is_opened_where_that_is_asked_for(
    site: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], opened: list[str]
) -> None:
    got: list[str] = []
    monkeypatch.setattr(webbrowser, "open", got.append)
    monkeypatch.setattr(server, "serve", lambda folder, port, ready: ready("http://127.0.0.1:1/"))
    call("leaderboard", "serve", "--site", str(site), *words)
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
        address = re.fullmatch(r"The leaderboard is at (http://127\.0\.0\.1:\d+/) \(press Ctrl-C to stop\)\n", said)
        assert address is not None
        with urllib.request.urlopen(address[1], timeout=10) as answer:
            assert answer.read() == (site / "index.html").read_bytes()
        os.kill(process.pid, signal.SIGINT)
        assert process.communicate(timeout=20) == ("", "")
        assert process.returncode == 0


def test_neither_another_name_nor_a_link_out_of_the_site_is_answered(site: Path, tmp_path: Path) -> None:
    enable_socket()
    socket_allow_hosts(["127.0.0.1"], allow_unix_socket=True)
    secret = tmp_path / "secret"
    secret.write_text("a secret", encoding="utf-8")
    link = site / "link"
    link.symlink_to(secret)
    try:
        with running(site) as process:
            assert process.stdout is not None
            address = process.stdout.readline().split()[4]
            for asked in (
                urllib.request.Request(f"{address}link"),
                urllib.request.Request(address, headers={"Host": "example.org:80"}),
            ):
                with pytest.raises(urllib.error.HTTPError, match="403"):
                    urllib.request.urlopen(asked, timeout=10)
            without_port = urllib.request.Request(address, headers={"Host": "127.0.0.1"})  # as on port 80
            with urllib.request.urlopen(without_port, timeout=10) as answer:
                assert answer.status == 200
    finally:
        link.unlink()
