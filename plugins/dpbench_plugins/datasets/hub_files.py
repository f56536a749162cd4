"""Repositories of the Hugging Face hub, opened from the hub or from a mirror in a data folder. Registers nothing."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpbench import (
    DataError,
    DataMissing,
    Dataset,
    DeclaredImages,
    SpecError,
    Split,
    data_folders,
    locate,
)

if TYPE_CHECKING:
    from PIL.Image import Image

PAGE = "https://huggingface.co/datasets/"
SHARD = re.compile(r"(?P<split>.+)-(?P<number>\d{5})-of-(?P<shards>\d{5})(-\w+)?\.parquet")  # as the hub names them
PROCESSING = "a row of the published Parquet files, decoded on its own"


@dataclass(frozen=True)
class RepositorySplits:
    """The splits of a repository, and a digest of their data."""

    train: Any
    test: Any  # None where the repository has only one split, which is `train` then
    digest: str
    split: str = ""  # the name of the only split


@dataclass(frozen=True)
class ImageColumn:
    """The image column of a Hugging Face dataset; images are decoded one at a time."""

    rows: Any
    key: str

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int, /) -> Image:
        image: Image = self.rows[index][self.key]
        return image


def open_repository(
    dataset: Dataset, hub_id: str, splits: tuple[str, str], config: str, revision: str = ""
) -> RepositorySplits:
    """Open the training and test splits from a mirror, else from the hub; a `revision` is always read from the hub."""
    try:
        if revision:
            raise DataMissing(f"Revision {revision} of {hub_id} is only on the hub: mirrors have no revisions.")
        root = locate(dataset).folder / hub_id
    except DataMissing as missing:
        return _load_from_hub(hub_id, splits, missing, name=config or None, revision=revision or None)
    return _open_parquet_shards(_find_shards(root, splits, config))


def _find_shards(root: Path, splits: tuple[str, str], config: str) -> dict[str, list[Path]]:
    """Return the shards of each split by its name, from one folder below `root`.

    The folder is the one named `config` or, if `config` is empty, the only one that has both splits. If no
    folder has both, a folder with one of the splits and no other split is used.
    """
    found: dict[Path, dict[str, list[re.Match[str]]]] = {}
    files = sorted(root.rglob("*.parquet"))
    for file in files:
        if shard := SHARD.fullmatch(file.name):
            found.setdefault(file.parent, {}).setdefault(shard["split"], []).append(shard)
    whole = [folder for folder, shards in found.items() if shards.keys() >= set(splits)]
    if not whole:
        whole = [folder for folder, shards in found.items() if len(shards) == 1 and shards.keys() <= set(splits)]
    wanted = " and ".join(f"{split}-00000-of-0000N.parquet" for split in splits)
    if not whole:
        there = ", ".join(dict.fromkeys(file.name for file in files[:5])) or "no such file"
        raise DataError(f"Expected {wanted} in one folder below {root}, found {there}. Copy the hub's layout.")
    named = [folder for folder in whole if config in {"", folder.name}]
    if len(named) != 1:
        there = ", ".join(folder.name for folder in whole)
        raise SpecError(f"Expected config={config or '...'} to name one folder below {root}. Available: {there}.")
    chosen = {split: found[named[0]][split] for split in splits if split in found[named[0]]}
    for shards in chosen.values():
        numbers = [(int(shard["number"]), int(shard["shards"])) for shard in shards]
        if numbers != [(number, len(shards)) for number in range(len(shards))]:
            there = ", ".join(shard.string for shard in shards)
            raise DataError(f"Expected every shard in {named[0]} once, found {there}. Copy them from the hub again.")
    return {split: [named[0] / shard.string for shard in shards] for split, shards in chosen.items()}


def _open_parquet_shards(shards: Mapping[str, Sequence[Path]]) -> RepositorySplits:
    """Open the shards of both splits, training first, or of the only split."""
    import datasets

    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # failures are reported below, in one sentence
    names, paths = ("train", "test"), [file for files in shards.values() for file in files]
    files = {name: list(map(str, files)) for name, files in zip(names, shards.values(), strict=False)}
    try:
        data = datasets.load_dataset("parquet", data_files=files)
    except (OSError, ValueError, datasets.exceptions.DatasetGenerationError) as error:
        every, cause = ", ".join(map(str, paths)), error.__cause__ or error
        raise DataError(f"Expected Parquet files of {every}: {cause}. Copy them again from the hub.") from error
    total = hashlib.sha256()
    for file in paths:
        with file.open("rb") as content:
            total.update(hashlib.file_digest(content, "sha256").digest())
    return RepositorySplits(data["train"], data.get("test"), total.hexdigest(), "" if "test" in data else min(shards))


def _load_from_hub(hub_id: str, splits: tuple[str, str], missing: DataMissing, **which: str | None) -> RepositorySplits:
    """Load the splits from the hub, with the config and revision in `which`; report `missing` too if the hub fails."""
    import datasets

    datasets.config.HF_DATASETS_TRUST_REMOTE_CODE = False  # versions before 4 could run a repository's script
    _go_offline_unless_reachable(hub_id)
    try:
        data = datasets.load_dataset(hub_id, **which)
    except Exception as error:  # the hub's client raises many kinds
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        folder = data_folders()[0] / hub_id
        raise DataMissing(
            f"{missing} The Hugging Face hub failed too ({reason}); a copy of its folder would go to {folder}."
        ) from error
    named = [split for split in splits if split in data]
    if len(named) < 2 and (len(data) > 1 or not named):
        lacking = next(split for split in splits if split not in data)
        raise SpecError(f"Expected a split {lacking!r} in {hub_id}. Available: {', '.join(data)}.")
    fingerprints = "".join(data[split]._fingerprint for split in named)  # the hub's own: they identify the revision
    digest = hashlib.sha256(fingerprints.encode()).hexdigest()
    if len(named) < 2:
        return RepositorySplits(data[named[0]], None, digest, named[0])
    return RepositorySplits(data[named[0]], data[named[1]], digest)


def _go_offline_unless_reachable(hub_id: str) -> None:
    """Contact the hub once, briefly; if that fails, use earlier downloads only, without further waiting."""
    import datasets
    import huggingface_hub

    try:
        huggingface_hub.HfApi().dataset_info(hub_id, timeout=5)
    except Exception:  # the hub's client raises many kinds
        huggingface_hub.constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True


def open_split(rows: Any, image: str, label: str) -> Split:
    """Return rows as a split; `image` and `label` name their columns.

    Raises:
        DataError: an image has no label.
    """
    import numpy as np

    try:
        return Split(DeclaredImages(ImageColumn(rows, image), PROCESSING), np.asarray(rows[label], dtype=np.int64))
    except (TypeError, ValueError) as error:
        raise DataError(f"Expected a label for every image in {label!r}: {error}. Leave out the others.") from error
