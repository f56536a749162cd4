"""The user's own data folder: what `dpbench data` puts there, remembers and takes away again.

Layout below the folder, beside the data themselves::

    .dpbench/NAME.json       which paths were put there for dataset NAME, and where they came from
    .dpbench/downloads/      files under way; kept until the dataset is whole
    .dpbench/NAME.staging/   a dataset that is being checked
    .dpbench/NAME.lock       held by the one process that changes the dataset

A dataset is staged first, opened there by its own loader, which knows counts and checksums, and moved into place only
when that succeeds.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock
from pydantic import BaseModel, ConfigDict, ValidationError

from dpbench import progress
from dpbench.api import Dataset
from dpbench.data import download, hub, layouts
from dpbench.errors import DataError, DataMissing, OutputError, SpecError
from dpbench.files import check_writable, write_json
from dpbench.guard import guarded
from dpbench.paths import only_in
from dpbench.sources import Source, label, missing


class Kept(BaseModel):
    """What was put into a data folder for one dataset."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    paths: tuple[str, ...]  # below the folder
    origin: str
    digest: str


def fetch(dataset: Dataset, folder: Path) -> Kept:
    """Download a dataset into `folder`, check it and put it in place.

    Raises:
        DataMissing: nobody gives it without a login; the text says what to do by hand.
        DataError: a server does not answer, or what came is not the published data.
    """
    source = _source(dataset)
    if not source.downloads and not source.hub:
        raise missing(dataset)
    downloads = folder / ".dpbench" / "downloads"
    with _staging(dataset, folder) as staging:
        if source.hub:
            hub.fetch(source.hub, downloads, staging)
            origin = ", ".join(sorted({repository for repository, _ in source.hub}))
        else:
            files = download.download(source.downloads, downloads)
            layouts.unpack(files, source.downloads, staging)
            origin = ", ".join(one.url for one in source.downloads)
        kept = _settle(dataset, folder, staging, origin)
        for wanted in source.downloads:
            (downloads / download.file_name(wanted)).unlink()
    return kept


def adopt(dataset: Dataset, path: Path, folder: Path, *, link: bool = False) -> Kept:
    """Check data that the user downloaded and put it in place: a copy, or with `link` a symbolic link to it.

    `path` may be the dataset's file or folder under any name, a folder that holds it, or the archives as published, or
    a folder of those.

    Raises:
        DataError: what is there is not the dataset; the text is the loader's own.
    """
    path = path.expanduser().resolve()
    if not path.exists():
        raise DataMissing(f"Expected dataset {dataset.name!r} in {path}, which does not exist. Check the path.")
    source = _source(dataset)
    with _staging(dataset, folder) as staging:
        layouts.stage(dataset, source, path, staging)
        return _settle(dataset, folder, staging, str(path), link=link)


def remove(dataset: Dataset, folder: Path) -> Kept:
    """Delete what was put into `folder` for a dataset, and nothing else.

    Raises:
        DataMissing: nothing was.
    """
    with FileLock(_lock(_key(dataset), folder)):
        kept = kept_in(dataset, folder)
        if kept is None:
            raise DataMissing(
                f"dpbench put nothing into {folder} for dataset {label(dataset)!r}. What lies elsewhere is yours to "
                f"delete; `dpbench data info {label(dataset)}` says where it is."
            )
        for path in kept.paths:
            layouts.delete(folder / path)
            for parent in (folder / path).parents:
                if parent == folder or any(parent.iterdir()):
                    break
                parent.rmdir()
        _record(dataset, folder).unlink()
        return kept


def kept_in(dataset: Dataset, folder: Path) -> Kept | None:
    """Return what was put into `folder` for a dataset, if anything was."""
    try:
        return Kept.model_validate_json(_record(dataset, folder).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise DataError(f"Cannot read what dpbench keeps for {label(dataset)!r} in {folder}: {error}.") from error


def _source(dataset: Dataset) -> Source:
    source = dataset.source()
    if source is None:
        raise SpecError(f"Dataset {dataset.name!r} comes with a Python package: there is nothing to fetch or import.")
    return source


@contextmanager
def _staging(dataset: Dataset, folder: Path) -> Iterator[Path]:
    """Lend an empty folder below `folder`, which is deleted afterwards."""
    check_writable(folder / ".dpbench")
    staging = folder / ".dpbench" / f"{_key(dataset)}.staging"
    with FileLock(_lock(_key(dataset), folder)):
        layouts.delete(staging)  # of a run that was killed
        staging.mkdir()
        try:
            yield staging
        except OSError as error:
            raise OutputError(f"Cannot write below {folder}: {error.strerror or error}. Free some space.") from error
        finally:
            layouts.delete(staging)


def _settle(dataset: Dataset, folder: Path, staging: Path, origin: str, *, link: bool = False) -> Kept:
    """Open what is staged by the dataset's own loader, and move it into place."""
    with only_in(staging), progress.status(f"Checking {dataset.name}"):
        try:
            digest = guarded(f"load of {dataset.name!r}", dataset.load).digest
        except DataError as error:
            raise DataError(f"What came from {origin} is not dataset {dataset.name!r}. {error}") from error
    if not link:
        with progress.status(f"Copying {dataset.name}"):
            _copy_links(staging)
    moved: list[str] = []
    for child in sorted(staging.iterdir()):
        _merge(child, folder / child.name, folder, moved)
    earlier = kept_in(dataset, folder)
    paths = {path for path in (earlier.paths if earlier else ()) if os.path.lexists(folder / path)}
    kept = Kept(paths=tuple(sorted({*paths, *moved})), origin=origin, digest=digest)
    write_json(_record(dataset, folder), kept.model_dump(mode="json"))
    return kept


def _copy_links(folder: Path) -> None:
    for child in sorted(folder.iterdir()):
        if child.is_symlink():
            origin = child.readlink()
            child.unlink()
            (shutil.copytree if origin.is_dir() else shutil.copy2)(origin, child)
        elif child.is_dir():
            _copy_links(child)


def _merge(staged: Path, target: Path, folder: Path, moved: list[str]) -> None:
    """Move what is staged to where it belongs; folders that others share are kept."""
    if staged.is_dir() and not staged.is_symlink() and target.is_dir() and not target.is_symlink():
        for child in sorted(staged.iterdir()):
            _merge(child, target / child.name, folder, moved)
        return
    layouts.delete(target)
    staged.rename(target)
    moved.append(target.relative_to(folder).as_posix())


def _key(dataset: Dataset) -> str:
    return re.sub(r"[^a-zA-Z0-9.=_-]+", "-", label(dataset))


def _record(dataset: Dataset, folder: Path) -> Path:
    return folder / ".dpbench" / f"{_key(dataset)}.json"


def _lock(key: str, folder: Path) -> Path:
    return folder / ".dpbench" / f"{key}.lock"
