"""CIFAR-10, which several components of dpbench read. The plugin `huggingface` registers it."""

from __future__ import annotations

from dataclasses import dataclass

from dpbench import DataError, Dataset, Source, Splits
from dpbench_plugins.datasets.extractors import NETWORK
from dpbench_plugins.datasets.hub_files import PAGE, open_repository, open_split

CIFAR10 = "uoft-cs/cifar10"


@dataclass(frozen=True)
class Cifar10(Dataset):
    """CIFAR-10: 50,000 training and 10,000 test images, 32x32, 10 classes (`uoft-cs/cifar10` on the Hugging Face hub).

    A mirror is `uoft-cs/cifar10/plain_text/{train,test}-00000-of-00001.parquet` below a data folder; without one, the
    hub is used. The two have different digests.
    """

    name = "cifar10"
    default_extractor = NETWORK
    classes = (
        "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
    )  # fmt: skip
    licence = "none stated; research use"
    citation = "Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009"

    def source(self) -> Source:
        """Return the two files on the hub, and where a mirror keeps them."""
        files = [f"plain_text/{split}-00000-of-00001.parquet" for split in ("train", "test")]
        homes, hub = [[f"{CIFAR10}/{file}" for file in files]], [(CIFAR10, file) for file in files]
        return Source(homes=homes, page=PAGE + CIFAR10, size=143_646_105, hub=hub, requires=("datasets",))

    def load(self) -> Splits:
        """Open the two splits from a mirror or from the hub."""
        opened = open_repository(self, CIFAR10, ("train", "test"), "plain_text")
        if opened.test is None:
            raise DataError(f"Expected the splits train and test of {CIFAR10}, got {opened.split} alone.")
        return Splits(open_split(opened.train, "img", "label"), open_split(opened.test, "img", "label"), opened.digest)
