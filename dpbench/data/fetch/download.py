"""Files from publishers' servers: resumed, verified, unpacked.

Not by pooch 1.9: it starts an interrupted download anew, and on Python 3.11 follows `../` in a tar out of its folder.
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
from dpbench.support.messages import bytes_in_words

TRIES = 4
TIMEOUT = 30  # seconds without a byte
BLOCK = 1 << 20
SPARE = 0.1, 1 << 20  # how much more than its stated size, which may be rounded, a file may have: a share, and bytes
BUSY = {408, 429, 500, 502, 503, 504}  # what a server says that may answer in a moment
DAMAGED = (  # what the three kinds of archive raise; RuntimeError is zipfile's, of a password or an unknown method
    tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError, ValueError,
    RuntimeError, KeyError,
)  # fmt: skip


def download(wanted: Sequence[Download], folder: Path) -> list[Path]:
    """Return the files, downloaded into `folder` under their own names; a part that is there already is continued.

    Raises:
        DataError: a server does not answer, or a file is not the published one or much larger (it is deleted then).
        OutputError: the folder has no space.
    """
    files = [folder / file_name(one) for one in wanted]
    done = [file.stat().st_size if file.exists() else 0 for file in files]
    left = sum(max(0, one.size - size) for one, size in zip(wanted, done, strict=True))
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if left > free:
        raise OutputError(
            f"Expected {bytes_in_words(left)} free in {folder} for the download, got {bytes_in_words(free)}."
        )
    for one, file in zip(wanted, files, strict=True):
        if file.exists() and _verified(file, one.checksum):
            continue
        with progress.transfer(f"Downloading {file.name}", one.size) as (advance, total):
            _continue(one, file, advance, total)
        if not _verified(file, one.checksum):
            file.unlink()
            raise DataError(
                f"Expected {one.checksum} of {one.url}, got another file, now deleted: it was damaged in transit or "
                "changed by its publisher. Try again; if it happens again, report it to the plugin's authors."
            )
    return files


def file_name(wanted: Download) -> str:
    """Return the name under which a publisher gives the file."""
    return PurePosixPath(re.split("[?#]", wanted.url)[0]).name  # not by urlsplit, which refuses some addresses


def unpack(file: Path, wanted: Download, root: Path) -> None:
    """Put a downloaded file where it belongs below `root`: unpacked, if it is an archive.

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
    except DAMAGED as error:
        raise DataError(f"Expected an archive in {file}: {error}. Delete it and fetch it again.") from error


def matches(file: Path, wanted: Download) -> bool:
    """Return whether a file is the published one."""
    return file.is_file() and _verified(file, wanted.checksum)


def _continue(wanted: Download, file: Path, advance: Callable[[int], None], total: Callable[[int], None]) -> None:
    reason = ""
    for attempt in range(TRIES):
        time.sleep(min(attempt, 3))
        try:
            if _receive(wanted, file, advance, total):
                return
            reason = "the connection ended early"
        except HTTPError as error:
            error.close()
            if error.code == 416:  # nothing is left: what is there is whole, or not the published file
                return
            reason = " ".join(f"status {error.code} {error.reason}".split())
            if error.code not in BUSY:
                raise _unreachable(wanted, file, reason) from error
        except (OSError, HTTPException) as error:
            reason = str(getattr(error, "reason", "") or error)
        except ValueError as error:  # of the address
            raise _unreachable(wanted, file, f"an address that cannot be read ({error})") from error
    raise _unreachable(wanted, file, reason)


def _receive(wanted: Download, file: Path, advance: Callable[[int], None], total: Callable[[int], None]) -> bool:
    """Append what the server still has; return whether it sent all that it announced.

    Raises:
        DataError: the server announces or sends more than the file has; what came of it is deleted.
    """
    if not _is_http(wanted.url):
        raise DataError(f"Expected an http or https address to download from, got {wanted.url}.")
    done = file.stat().st_size if file.exists() else 0
    headers = {"User-Agent": "dpbench", **({"Range": f"bytes={done}-"} if done else {})}
    with _open(Request(wanted.url, headers=headers)) as response:
        continued = done > 0 and response.status == 206
        start = done if continued else 0  # a server that knows no ranges sends all again
        expected = response.length or 0  # unknown where a server sends in chunks
        _check_size(wanted, file, start + expected)
        total(start + expected)
        advance(start)
        if not continued:
            _append(file, b"", "wb")
        got = 0
        while block := response.read(BLOCK):
            got += len(block)
            _check_size(wanted, file, start + got)
            _append(file, block, "ab")
            advance(start + got)
    return got >= expected and not (continued and got == 0)


def _open(request: Request) -> Any:
    """Return a server's response, an `http.client.HTTPResponse`."""
    return build_opener(_HttpRedirects).open(request, timeout=TIMEOUT)


class _HttpRedirects(HTTPRedirectHandler):
    """Follows redirects to other http and https addresses; urllib's own follows them to ftp too."""

    def http_error_302(self, req: Request, fp: Any, code: int, msg: str, headers: Any) -> Any:
        """Follow a redirect of any status.

        Raises:
            HTTPError: it leads to another protocol, or to what is no address.
        """
        place = headers.get("Location", "")
        if not _is_http_from(req.full_url, place):
            raise HTTPError(req.full_url, code, f"redirect to {place}, which is no http or https address", headers, fp)
        return super().http_error_302(req, fp, code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def _is_http_from(url: str, place: str) -> bool:
    try:
        return _is_http(urljoin(url, place))
    except ValueError:
        return False


def _is_http(url: str) -> bool:
    return urlsplit(url).scheme in {"http", "https"}


def _check_size(wanted: Download, file: Path, size: int) -> None:
    """Refuse more bytes than the file has: a server could fill the disk."""
    share, spare = SPARE
    if size > wanted.size * (1 + share) + spare:
        file.unlink(missing_ok=True)
        raise DataError(
            f"Expected {bytes_in_words(wanted.size)} from {wanted.url}, but the server sends {bytes_in_words(size)} or "
            "more: it is not the published file. The partial download was deleted. Try again later, or download it "
            "elsewhere and run `dpbench data import`."
        )


def _append(file: Path, block: bytes, mode: Literal["ab", "wb"]) -> None:
    try:
        with file.open(mode) as out:
            out.write(block)
    except OSError as error:
        raise OutputError(
            f"Cannot write {file}: {error.strerror}. The partial download is kept. Free some space and "
            "repeat the command."
        ) from error


def _verified(file: Path, checksum: str) -> bool:
    kind, _, digest = checksum.partition(":")
    with file.open("rb") as content:
        return hashlib.file_digest(content, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest() == digest


def _unreachable(wanted: Download, file: Path, reason: str) -> DataError:
    kept = (
        f"The partial download in {file} is kept; repeat the command to continue"
        if file.exists()
        else "Try again later"
    )
    return DataError(
        f"Expected {wanted.url} to answer, got: {reason}. {kept}; or download it elsewhere and run "
        "`dpbench data import`."
    )
