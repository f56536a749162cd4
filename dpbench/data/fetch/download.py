"""Download files from publishers' servers: resume, verify and unpack them.

pooch 1.9 is not used: it restarts an interrupted download, and on Python 3.11 it follows `../` in a tar out of its
folder.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import re
import shutil
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Any, Literal
from urllib.error import HTTPError
from urllib.parse import urljoin, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from dpbench.api import Download
from dpbench.errors import DataError, OutputError
from dpbench.support import progress
from dpbench.support.messages import format_bytes

MAX_TRIES = 4
TIMEOUT = 30  # seconds without a byte
BLOCK = 1 << 20
SIZE_TOLERANCE = (
    0.1,
    1 << 20,
)  # how much more than its stated size, which may be rounded, a file may have: a share, and bytes
RETRIED_STATUSES = {408, 429, 500, 502, 503, 504}  # what a server says that may answer in a moment
ARCHIVE_ERRORS = (  # what the three kinds of archive raise; zipfile raises RuntimeError for passwords, unknown methods
    tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError, ValueError,
    RuntimeError, KeyError,
)  # fmt: skip


def download(wanted: Sequence[Download], folder: Path) -> list[Path]:
    """Download files into `folder` under their own names and return their paths; a partial file is continued.

    Raises:
        DataError: a server does not answer, or a file is not the published one or is much larger; such a file is
            deleted.
        OutputError: the folder has no space.
    """
    files = [folder / file_name(download) for download in wanted]
    done = [file.stat().st_size if file.exists() else 0 for file in files]
    left = sum(max(0, download.size - size) for download, size in zip(wanted, done, strict=True))
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if left > free:
        raise OutputError(f"Expected {format_bytes(left)} free in {folder} for the download, got {format_bytes(free)}.")
    for source, file in zip(wanted, files, strict=True):
        if file.exists() and _has_checksum(file, source.checksum):
            continue
        with progress.show_transfer_bar(f"Downloading {file.name}", source.size) as (advance, total):
            _resume_download(source, file, advance, total)
        if not _has_checksum(file, source.checksum):
            file.unlink()
            raise DataError(
                f"Expected {source.checksum} of {source.url}, got another file, now deleted: it was damaged in transit "
                "or changed by its publisher. Try again; if it happens again, report it to the plugin's authors."
            )
    return files


def file_name(wanted: Download) -> str:
    """Return the name under which the publisher serves the file."""
    return PurePosixPath(re.split("[?#]", wanted.url)[0]).name  # not by urlsplit, which refuses some addresses


def unpack(file: Path, wanted: Download, root: Path) -> None:
    """Copy a downloaded file to its path below `root`, or unpack it there if `wanted.unpack` is set.

    Raises:
        DataError: the archive is damaged, or holds a path outside its folder.
    """
    place = root / wanted.path
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        if not wanted.unpack:
            shutil.copyfile(file, place)
        elif tarfile.is_tarfile(file):
            with tarfile.open(file) as archive:
                archive.extractall(place, filter="data")
        elif zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                archive.extractall(place)
        else:
            with gzip.open(file) as packed, place.open("wb") as out:
                shutil.copyfileobj(packed, out, BLOCK)
    except ARCHIVE_ERRORS as error:
        raise DataError(f"Expected an archive in {file}: {error}. Delete it and fetch it again.") from error


def is_published_file(file: Path, wanted: Download) -> bool:
    """Return whether a file exists and has the published checksum."""
    return file.is_file() and _has_checksum(file, wanted.checksum)


def _resume_download(
    wanted: Download, file: Path, advance: Callable[[int], None], total: Callable[[int], None]
) -> None:
    reason = ""
    for attempt in range(MAX_TRIES):
        time.sleep(min(attempt, 3))
        try:
            if _receive_remaining_bytes(wanted, file, advance, total):
                return
            reason = "the connection ended early"
        except HTTPError as error:
            error.close()
            if error.code == 416:  # nothing is left: what is there is whole, or not the published file
                return
            reason = " ".join(f"status {error.code} {error.reason}".split())
            if error.code not in RETRIED_STATUSES:
                raise _make_unreachable_error(wanted, file, reason) from error
        except (OSError, HTTPException) as error:
            reason = str(getattr(error, "reason", "") or error)
        except ValueError as error:  # of the address
            raise _make_unreachable_error(wanted, file, f"an address that cannot be read ({error})") from error
    raise _make_unreachable_error(wanted, file, reason)


def _receive_remaining_bytes(
    wanted: Download, file: Path, advance: Callable[[int], None], total: Callable[[int], None]
) -> bool:
    """Append the remaining bytes to the partial file; return whether the server sent all the bytes it announced.

    Raises:
        DataError: the server announces or sends more bytes than the file has; the partial file is deleted.
    """
    if not _is_http(wanted.url):
        raise DataError(f"Expected an http or https address to download from, got {wanted.url}.")
    done = file.stat().st_size if file.exists() else 0
    headers = {"User-Agent": "dpbench", **({"Range": f"bytes={done}-"} if done else {})}
    with _send_request(Request(wanted.url, headers=headers)) as response:
        continued = done > 0 and response.status == 206
        start = done if continued else 0  # a server that knows no ranges sends all again
        expected = response.length or 0  # unknown where a server sends in chunks
        _check_size(wanted, file, start + expected)
        total(start + expected)
        advance(start)
        if not continued:
            _append_block(file, b"", "wb")
        got = 0
        while block := response.read(BLOCK):
            got += len(block)
            _check_size(wanted, file, start + got)
            _append_block(file, block, "ab")
            advance(start + got)
    return got >= expected and not (continued and got == 0)


def _send_request(request: Request) -> Any:
    """Send a request and return the server's response, an `http.client.HTTPResponse`."""
    return build_opener(_HttpRedirectHandler).open(request, timeout=TIMEOUT)


class _HttpRedirectHandler(HTTPRedirectHandler):
    """Follows redirects to http and https addresses only; urllib's own handler also follows them to ftp."""

    def http_error_302(self, req: Request, fp: Any, code: int, msg: str, headers: Any) -> Any:
        """Follow a redirect of any status.

        Raises:
            HTTPError: the redirect leads to another protocol, or its address is invalid.
        """
        place = headers.get("Location", "")
        if not _is_http_redirect(req.full_url, place):
            raise HTTPError(req.full_url, code, f"redirect to {place}, which is no http or https address", headers, fp)
        return super().http_error_302(req, fp, code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def _is_http_redirect(url: str, location: str) -> bool:
    try:
        return _is_http(urljoin(url, location))
    except ValueError:
        return False


def _is_http(url: str) -> bool:
    return urlsplit(url).scheme in {"http", "https"}


def _check_size(wanted: Download, file: Path, size: int) -> None:
    """Check that a server does not send more bytes than the published file has, which could fill the disk."""
    share, spare = SIZE_TOLERANCE
    if size > wanted.size * (1 + share) + spare:
        file.unlink(missing_ok=True)
        raise DataError(
            f"Expected {format_bytes(wanted.size)} from {wanted.url}, but the server sends {format_bytes(size)} or "
            "more: it is not the published file. The partial download was deleted. Try again later, or download it "
            "elsewhere and run `dpbench data import`."
        )


def _append_block(file: Path, block: bytes, mode: Literal["ab", "wb"]) -> None:
    try:
        with file.open(mode) as out:
            out.write(block)
    except OSError as error:
        raise OutputError(
            f"Cannot write {file}: {error.strerror}. The partial download is kept. Free some space and "
            "repeat the command."
        ) from error


def _has_checksum(file: Path, checksum: str) -> bool:
    kind, _, digest = checksum.partition(":")
    with file.open("rb") as content:
        return hashlib.file_digest(content, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest() == digest


def _make_unreachable_error(wanted: Download, file: Path, reason: str) -> DataError:
    kept = (
        f"The partial download in {file} is kept; repeat the command to continue"
        if file.exists()
        else "Try again later"
    )
    return DataError(
        f"Expected {wanted.url} to answer, got: {reason}. {kept}; or download it elsewhere and run "
        "`dpbench data import`."
    )
