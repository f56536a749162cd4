"""Datasets of the Hugging Face hub, from the hub or from a local mirror of its layout under `DPBENCH_DATA`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dpbench import DataError, DataMissing, Dataset, Split, Splits, data_folders, hookimpl

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class Column:
    """The image column of a Hugging Face dataset, decoded one at a time."""

    rows: Any
    key: str

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int, /) -> Image:
        image: Image = self.rows[index][self.key]
        return image


@dataclass(frozen=True)
class Cifar10(Dataset):
    """CIFAR-10: 50,000 training and 10,000 test images, 32x32, 10 classes, as `uoft-cs/cifar10`.

    A mirror is `uoft-cs/cifar10/plain_text/{train,test}-00000-of-00001.parquet` below a folder of `DPBENCH_DATA`;
    without one the hub is asked. Which one was read shows in the digest.
    """

    name: ClassVar[str] = "cifar10"
    classes: ClassVar[tuple[str, ...]] = (
        "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
    )  # fmt: skip
    licence: ClassVar[str] = "none stated; research use"
    citation: ClassVar[str] = "Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009"
    hub_id: ClassVar[str] = "uoft-cs/cifar10"

    def load(self) -> Splits:
        """Open the two splits from a mirror or from the hub."""
        files = _mirror(self.hub_id, "plain_text")
        data = _read_mirror(files) if files else _read_hub(self.hub_id)
        return Splits(_split(data["train"], "img", "label"), _split(data["test"], "img", "label"), _digest(files, data))


def _mirror(hub_id: str, config: str) -> dict[str, str]:
    for folder in data_folders():
        files = {split: folder / hub_id / config / f"{split}-00000-of-00001.parquet" for split in ("train", "test")}
        if all(file.is_file() for file in files.values()):
            return {split: str(file) for split, file in files.items()}
    return {}


def _read_mirror(files: dict[str, str]) -> Any:
    import datasets

    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # what fails is said below, in one sentence
    try:
        return datasets.load_dataset("parquet", data_files=files)
    except (OSError, ValueError, datasets.exceptions.DatasetGenerationError) as error:
        cause = error.__cause__ or error
        raise DataError(
            f"Expected Parquet files of {', '.join(files.values())}: {cause}. Copy them again from the hub."
        ) from error


def _read_hub(hub_id: str) -> Any:
    import datasets

    _go_offline_unless_reachable(hub_id)
    try:
        return datasets.load_dataset(hub_id)
    except Exception as error:  # the hub's client raises a dozen kinds
        looked = ", ".join(str(folder / hub_id) for folder in data_folders())
        raise DataMissing(
            f"Dataset {hub_id!r} is not on this machine (looked in {looked}, then asked the Hugging Face hub: "
            f"{type(error).__name__}). Connect to the network once, or copy the hub's folder {hub_id} (125 MB) below "
            "a folder and name that folder in DPBENCH_DATA."
        ) from error


def _go_offline_unless_reachable(hub_id: str) -> None:
    """Ask the hub once, briefly; without an answer, what was downloaded earlier is all there is, and at once."""
    import datasets
    import huggingface_hub

    try:
        huggingface_hub.HfApi().dataset_info(hub_id, timeout=5)
    except Exception:  # the hub's client raises a dozen kinds
        huggingface_hub.constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True


def _split(rows: Any, image: str, label: str) -> Split:
    import numpy as np

    return Split(Column(rows, image), np.asarray(rows[label], dtype=np.int64))


def _digest(files: dict[str, str], data: Any) -> str:
    import hashlib

    if not files:  # the hub's own fingerprints name the very revision
        return hashlib.sha256(
            "".join(str(data[split]._fingerprint) for split in ("train", "test")).encode()
        ).hexdigest()
    total = hashlib.sha256()
    for split in ("train", "test"):
        total.update(hashlib.sha256(Path(files[split]).read_bytes()).digest())
    return total.hexdigest()


@hookimpl
def dpbench_datasets() -> Sequence[type[Dataset]]:
    """Register the datasets of this module."""
    return [Cifar10]
