"""The leaderboard as a dataset repository of the Hugging Face hub, uploaded by the hub's own client.

The token is read only from the environment and sent only in the Authorization header. No message
quotes the hub or its client, because either might repeat the token.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dpbench.errors import OutputError, SpecError
from dpbench.support.files import file_sha256, write_json

if TYPE_CHECKING:
    from huggingface_hub import HfApi

MARKER = ".dpbench-published.json"
"""The file with the digests of all published files. If it is missing, dpbench refuses to replace any other file."""
TIMEOUT = 60.0  # seconds for an answer to a question
PUBLISHED_FILES = re.compile(
    r"README\.md|entries\.parquet|leaderboard\.json|schema\.json|boards/[^/]+\.toml|curves/[^/]+\.json|"
    r"(results|reruns|challenges|audits|released)/[^/]+/[^/]+\.json|" + re.escape(MARKER)
)
HUB_FILE = ".gitattributes"  # comes with every repository
REPOSITORY = r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*"
LOOPBACK = {"127.0.0.1", "::1", "localhost"}


def describe_changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Compare two states of a folder or repository (digests by path); return a line for each changed file.

    >>> describe_changes({"a": "1", "b": "1"}, {"b": "2", "c": "1"})
    ['add c', 'change b', 'delete a']
    """
    added, deleted = sorted(after.keys() - before.keys()), sorted(before.keys() - after.keys())
    changed = sorted(path for path in after.keys() & before.keys() if after[path] != before[path])
    return [*(f"add {path}" for path in added), *(f"change {path}" for path in changed),
            *(f"delete {path}" for path in deleted)]  # fmt: skip


def upload_folder(repository: str, folder: Path, *, dry_run: bool) -> list[str]:
    """Make a dataset repository contain exactly the files of `folder`, and create it if necessary.

    Return one line for each file that is added, changed or deleted. With `dry_run`, nothing is changed.

    The hub's client may split many files into several commits. If it is interrupted, call this function again to upload
    the rest.

    Raises:
        SpecError: see `make_client`.
        OutputError: the hub does not answer or refuses, or the repository holds files that dpbench did not publish.
    """
    api = make_client(repository)
    files = {file.relative_to(folder).as_posix(): file for file in folder.rglob("*") if file.is_file()}
    write_json(folder / MARKER, {path: file_sha256(file) for path, file in files.items() if path != MARKER})
    files[MARKER] = folder / MARKER
    with _translate_hub_errors(repository, api.endpoint):
        head, before = _read_repository_state(api, repository)
    _check_published_by_dpbench(f"{api.endpoint}/datasets/{repository}", before)
    after = {path: _compute_hub_digest(file.read_bytes(), before.get(path, "")) for path, file in files.items()}
    lines = describe_changes(before, after)
    if lines and not dry_run:
        with _translate_hub_errors(repository, api.endpoint):
            if head is None:
                api.create_repo(repository, repo_type="dataset")  # fails if someone else created it in between
            api.upload_folder(
                repo_id=repository,
                repo_type="dataset",
                folder_path=folder,
                delete_patterns="*",  # of files that the folder does not have
                commit_message="The leaderboard, verified by dpbench",
                parent_commit=head,  # fails if someone else published in between
            )
    return lines


def _read_token() -> str:
    token = os.environ.get("HF_TOKEN", "").strip()
    if not token:
        raise SpecError(
            "Expected a token of the Hugging Face hub in the environment variable HF_TOKEN, got none. "
            "Make one with write access in your account's settings there."
        )
    if not re.fullmatch("[!-~]+", token):  # the client would refuse it too, and print it
        raise SpecError("Expected a token in HF_TOKEN, got text with characters that no token has. Copy it again.")
    return token


def make_client(repository: str) -> HfApi:
    """Return the hub's client with the token, without sending a request.

    Raises:
        SpecError: the repository's name, the token or the hub's address does not fit, or the client is offline.
    """
    import huggingface_hub

    if not re.fullmatch(REPOSITORY, repository):
        raise SpecError(f"Expected hf:OWNER/NAME to publish to, got hf:{repository}.")
    api = huggingface_hub.HfApi(token=_read_token(), library_name="dpbench")
    if huggingface_hub.constants.HF_HUB_OFFLINE:
        raise SpecError("Expected to reach the hub to publish there, but HF_HUB_OFFLINE is set. Unset it.")
    address = urlsplit(api.endpoint)
    if address.scheme != "https" and address.hostname not in LOOPBACK:
        raise SpecError("Expected an https address in HF_ENDPOINT: a token is not sent in the clear.")
    if "@" in address.netloc:
        raise SpecError("Expected HF_ENDPOINT without a name and password: they would be shown in messages.")
    return api


def _read_repository_state(api: HfApi, repository: str) -> tuple[str | None, dict[str, str]]:
    """Return a repository's latest commit (None if it does not exist) and the digests of its files by path."""
    try:
        info = api.dataset_info(repository, files_metadata=True, timeout=TIMEOUT)
    except OSError as error:  # which all that its client raises of an answer is
        if _http_status(error) == 404:
            return None, {}
        raise
    files = (sibling for sibling in info.siblings or () if sibling.rfilename != HUB_FILE)
    return info.sha, {file.rfilename: f"sha256:{file.lfs.sha256}" if file.lfs else str(file.blob_id) for file in files}


def _compute_hub_digest(content: bytes, digest: str) -> str:
    """Return the digest of `content` in the format of the hub's `digest`: SHA-256 (large files) or git's blob hash."""
    if digest.startswith("sha256:"):
        return f"sha256:{hashlib.sha256(content).hexdigest()}"
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _check_published_by_dpbench(address: str, before: Mapping[str, str]) -> None:
    others = sorted(path for path in before if not PUBLISHED_FILES.fullmatch(path))
    others = others or ([] if MARKER in before else sorted(before))
    if others:
        raise OutputError(
            f"Expected {address} to be empty or published by dpbench, got {others[0]!r} in it. "
            "Delete what is there, or name another repository."
        )


@contextmanager
def _translate_hub_errors(repository: str, hub: str) -> Iterator[None]:
    """Replace errors of the hub's client in the block with dpbench's messages, and drop log records with the token."""
    token = _read_token()
    client = logging.getLogger("huggingface_hub._upload_pipeline")  # which logs the hub's answer before it tries again
    without_token = lambda record: token not in record.getMessage()
    client.addFilter(without_token)
    try:
        yield
    except Exception as error:
        raise _describe_error(error, repository, hub) from None
    finally:
        client.removeFilter(without_token)


def _http_status(error: BaseException) -> int | None:
    """Return the HTTP status of the answer that caused an error, if any."""
    return getattr(getattr(error, "response", None), "status_code", None)


def _describe_error(error: Exception, repository: str, hub: str) -> OutputError:
    """Return an error in dpbench's own words; it quotes nothing from the hub."""
    status = _http_status(error)
    if status == 401:
        return OutputError(f"Expected a token in HF_TOKEN that {hub} knows, got one that it refuses. Make a new one.")
    if status == 403:
        return OutputError(
            f"Expected a token in HF_TOKEN that may write to {repository}, got one that may not. "
            "Make one with write access, or name a repository of your own."
        )
    if status in {409, 412}:
        return OutputError(f"{repository} changed while dpbench was publishing to it. Publish again.")
    what = f"status {status}" if status else type(error).__name__
    return OutputError(f"Expected {hub} to take the leaderboard for {repository}, got {what}. Publish again later.")
