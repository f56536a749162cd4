"""Download files of dataset repositories on the Hugging Face hub, and check their SHA-256; downloads are resumed."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from dpbench.errors import DataError
from dpbench.support.files import file_sha256


def fetch_hub_files(wanted: Sequence[tuple[str, str]], downloads: Path, root: Path) -> None:
    """Download files (repository, path or pattern) to `root`/repository/path; partial files stay in `downloads`.

    Raises:
        DataError: the hub does not answer, or a file is not the one that the hub lists.
    """
    came = [
        (repository, *file)
        for repository, pattern in wanted
        for file in _download_matching_files(repository, pattern, downloads)
    ]
    for repository, file, got in came:  # only now: until the last one is here, an interruption loses none
        place = root / repository / file
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(got, place)


def _download_matching_files(repository: str, pattern: str, downloads: Path) -> list[tuple[str, Path]]:
    """Download the files of a repository that match a pattern; return each file's repository path and local path."""
    import huggingface_hub

    came = []
    try:
        listed: dict[str, Any] = {
            file.path: getattr(file, "lfs", None)
            for file in huggingface_hub.HfApi().list_repo_tree(repository, recursive=True, repo_type="dataset")
            if isinstance(file, huggingface_hub.hf_api.RepoFile) and fnmatchcase(file.path, pattern)
        }
        for file in listed:
            folder = downloads / repository
            got = huggingface_hub.hf_hub_download(repository, file, repo_type="dataset", local_dir=folder)
            came.append((file, Path(got)))
    except Exception as error:  # the hub's client raises a dozen kinds
        if getattr(error, "errno", None) in {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS}:
            raise
        raise DataError(
            f"Expected {pattern} of {repository} from the Hugging Face hub, got {type(error).__name__}. What was "
            "downloaded is kept. Try again when you can reach the hub, or download it elsewhere and run `dpbench data "
            "import`."
        ) from error
    if not came:
        raise DataError(f"Expected {pattern} in {repository} on the Hugging Face hub, which has no such file.")
    for file, path in came:
        expected = listed[file] and listed[file].sha256
        if expected and file_sha256(path) != expected:
            path.unlink()
            raise DataError(f"Expected SHA-256 {expected} of {file} of {repository}, got another; try again.")
    return came
