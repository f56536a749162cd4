"""Put datasets into the user's data folder, record their files, and delete them again.

Layout below the folder, beside the data themselves::

    .dpbench/NAME.json        the files that dpbench put there for dataset NAME, and their origin
    .dpbench/NAME.downloads/  partial downloads; kept until the dataset is complete
    .dpbench/NAME.staging/    a dataset that is being checked
    .dpbench/NAME.lock        held by the one process that changes the dataset
    .dpbench/lock             held by the one process that moves or deletes anything

A dataset is staged first, opened there by its own loader, which knows counts and checksums, and moved into place only
when that succeeds. Only files in a record are ever overwritten or deleted, and never a file that two records name.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Annotated
from urllib.parse import quote

from filelock import FileLock
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from dpbench.api import Dataset, Source
from dpbench.data.fetch import download, hub, layouts
from dpbench.data.sources import format_dataset_spec, get_dataset_source, make_missing_data_error
from dpbench.errors import DataError, DataMissing, OutputError, SpecError
from dpbench.support import progress
from dpbench.support.files import check_writable_folder, write_json
from dpbench.support.paths import restrict_data_search
from dpbench.support.plugin_calls import call_plugin
from dpbench.support.validation import first_schema_violation


def _check_path_below_folder(path: str) -> str:
    if path.startswith("/") or ".." in PurePosixPath(path).parts:
        raise ValueError(f"{path} is not below the folder")
    return path


class StoredDatasetRecord(BaseModel):
    """The files that dpbench put into a data folder for one dataset, and where they came from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    paths: tuple[Annotated[str, AfterValidator(_check_path_below_folder)], ...]  # of files and links below the folder
    origin: str
    digest: str

    def __str__(self) -> str:
        """Name the files, or count them if there are many."""
        if len(self.paths) <= 4:
            return ", ".join(self.paths) or "no file"
        tops = sorted({path.partition("/")[0] for path in self.paths})
        return f"{len(self.paths):,} files in {', '.join(tops[:4])}{', ...' if len(tops) > 4 else ''}"


def fetch_dataset(dataset: Dataset, folder: Path) -> StoredDatasetRecord:
    """Download a dataset into `folder`, check it and move it into place.

    Raises:
        DataMissing: it cannot be downloaded without a login; the message says what to do by hand.
        DataError: a server does not answer, or the download is not the published data.
    """
    source = _require_readable_source(dataset)
    if not source.downloads and not source.hub:
        raise make_missing_data_error(dataset)
    downloads = _dataset_path(dataset, folder, "downloads")
    with _open_staging_folder(dataset, folder) as staging:
        if source.hub:
            hub.fetch_hub_files(source.hub, downloads, staging)
            origin = ", ".join(sorted({repository for repository, _ in source.hub}))
        else:
            files = download.download(source.downloads, downloads)
            layouts.unpack_files(files, source.downloads, staging)
            origin = ", ".join(download.url for download in source.downloads)
        kept = _check_and_move_files(dataset, folder, staging, origin)
        layouts.delete_path(downloads)
    return kept


def import_dataset(dataset: Dataset, path: Path, folder: Path, *, link: bool = False) -> StoredDatasetRecord:
    """Check a dataset that the user downloaded, then copy it into `folder` or, with `link`, link to it.

    `path` may be the dataset's file or folder under any name, a folder that holds it, its published archives, or a
    folder of these archives.

    Raises:
        DataMissing: `path` does not exist.
        DataError: the data are not the dataset (the message is the loader's own), or are in place already.
        OutputError: the folder cannot be written, or another file is in the way.
    """
    source = _require_readable_source(dataset)
    try:
        path = path.expanduser().resolve()
        path.stat()
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataMissing(f"Expected dataset {dataset.name!r} in {path}: {reason}. Check the path.") from error
    with _open_staging_folder(dataset, folder) as staging:
        layouts.stage_dataset(dataset, source, path, staging)
        earlier = read_stored_dataset_record(dataset, folder)
        layouts.check_no_self_overwrite(staging, folder, earlier.paths if earlier else ())
        return _check_and_move_files(dataset, folder, staging, str(path), link=link)


def remove_dataset(dataset: Dataset, folder: Path) -> StoredDatasetRecord:
    """Delete the files that dpbench put into `folder` for a dataset, and nothing else.

    Raises:
        DataMissing: dpbench put no files there.
    """
    if read_stored_dataset_record(dataset, folder) is not None:
        with _lock_dataset(dataset, folder), FileLock(folder / ".dpbench" / "lock"):
            kept = read_stored_dataset_record(dataset, folder)
            if kept is not None:
                gone = set(kept.paths) - _list_other_datasets_files(dataset, folder)
                layouts.delete_files(folder, gone)
                _dataset_path(dataset, folder, "json").unlink()
                return kept.model_copy(update={"paths": tuple(sorted(gone))})
    name = format_dataset_spec(dataset)
    raise DataMissing(
        f"dpbench has put no files of dataset {name!r} into {folder}, so there is nothing it may delete. `dpbench data "
        f"info {shlex.quote(name)}` shows where the data are; delete them yourself."
    )


def read_stored_dataset_record(dataset: Dataset, folder: Path) -> StoredDatasetRecord | None:
    """Return the record of the files that dpbench put into `folder` for a dataset; None if there is no record."""
    return _read_record(_dataset_path(dataset, folder, "json"))


def _read_record(file: Path) -> StoredDatasetRecord | None:
    try:
        return StoredDatasetRecord.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        reason = error.strerror if isinstance(error, OSError) else first_schema_violation(error).said
        raise DataError(
            f"Cannot read {file}, which lists the files that dpbench put there: {reason}. Delete it; dpbench then "
            "treats the data as yours."
        ) from error


def _list_other_datasets_files(dataset: Dataset, folder: Path) -> set[str]:
    own = _dataset_path(dataset, folder, "json")
    records = [_read_record(file) for file in own.parent.glob("*.json") if file != own]
    return {path for kept in records if kept for path in kept.paths}


def _require_readable_source(dataset: Dataset) -> Source:
    """Return a dataset's source, after checking that the packages that read the dataset can be imported.

    This check comes before a download of gigabytes, not after it.
    """
    source = get_dataset_source(dataset)
    if source is None:
        raise SpecError(f"Dataset {dataset.name!r} comes with a Python package: there is nothing to fetch or import.")
    for module in source.requires:
        try:
            import_module(module)
        except Exception as error:  # a broken package raises anything
            raise DataError(
                f"Expected to read dataset {dataset.name!r} with the package {module}, which cannot be imported "
                f"({type(error).__name__}: {error}). Install it first: pip install {module}."
            ) from error
    return source


@contextmanager
def _lock_dataset(dataset: Dataset, folder: Path) -> Iterator[None]:
    """Lock a dataset against other processes while the block runs; raise `OutputError` for a system error."""
    try:
        with FileLock(_dataset_path(dataset, folder, "lock")):
            yield
    except OSError as error:
        first = error.args[0] if error.args else error
        reason = f"{error.strerror or first}{f' ({error.filename})' if error.filename else ''}"
        raise OutputError(f"Cannot change {folder}: {reason}. Check the free space and your permissions.") from error


@contextmanager
def _open_staging_folder(dataset: Dataset, folder: Path) -> Iterator[Path]:
    """Lock the dataset and yield an empty folder below `folder`; delete this folder after the block."""
    check_writable_folder(folder / ".dpbench")
    staging = _dataset_path(dataset, folder, "staging")
    with _lock_dataset(dataset, folder):
        layouts.delete_path(staging)  # of a run that was killed
        staging.mkdir()
        try:
            yield staging
        finally:
            layouts.delete_path(staging)


def _check_and_move_files(
    dataset: Dataset, folder: Path, staging: Path, origin: str, *, link: bool = False
) -> StoredDatasetRecord:
    """Check staged data with the dataset's loader, copy linked files unless `link`, move and record the files."""
    with restrict_data_search(staging), progress.show_status(f"Checking {dataset.name}"):
        try:
            digest = call_plugin(f"load of {dataset.name!r}", dataset.load).digest
        except DataError as error:
            said = str(error).replace(f"{staging}/", "")
            raise DataError(f"What came from {origin} is not dataset {dataset.name!r}. {said}") from error
    if not link:
        with progress.show_status(f"Copying {dataset.name}"):
            layouts.replace_links_with_copies(staging)
    with FileLock(folder / ".dpbench" / "lock"):
        earlier, others = read_stored_dataset_record(dataset, folder), _list_other_datasets_files(dataset, folder)
        before = set(earlier.paths if earlier else ())
        moves, paths = layouts.plan_moves(staging, folder, before - others, others)
        kept = StoredDatasetRecord(paths=tuple(sorted(paths)), origin=origin, digest=digest)
        under_way = kept.model_copy(update={"paths": tuple(sorted({*before, *paths}))})
        _write_record(dataset, folder, under_way)  # so that what a killed run leaves behind is known
        layouts.delete_files(folder, before - others)
        layouts.apply_moves(moves)
        _write_record(dataset, folder, kept)
    return kept


def _write_record(dataset: Dataset, folder: Path, record: StoredDatasetRecord) -> None:
    write_json(_dataset_path(dataset, folder, "json"), record.model_dump(mode="json"))


def _dataset_path(dataset: Dataset, folder: Path, kind: str) -> Path:
    """Return the path of a dataset's record, lock, downloads or staging folder."""
    return folder / ".dpbench" / f"{quote(format_dataset_spec(dataset), safe='=,')}.{kind}"
