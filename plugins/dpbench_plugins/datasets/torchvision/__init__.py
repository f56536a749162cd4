"""Datasets in torchvision's own layout in a data folder, read without torchvision.

Its classes do not expose their list of files, which is needed here, and unpickle CIFAR without restriction; importing
them takes seconds and brings in torch, so addresses and checksums stand here as well. The tests check that these
readers return the same images and labels as torchvision's, and that addresses and checksums are torchvision's.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpbench import Dataset, hookimpl
from dpbench_plugins.datasets.torchvision.cifar100 import Cifar100
from dpbench_plugins.datasets.torchvision.fashion_mnist import FashionMnist
from dpbench_plugins.datasets.torchvision.flowers102 import Flowers102
from dpbench_plugins.datasets.torchvision.gtsrb import Gtsrb
from dpbench_plugins.datasets.torchvision.pcam import Pcam

__all__ = ["Cifar100", "FashionMnist", "Flowers102", "Gtsrb", "Pcam", "dpbench_datasets"]


@hookimpl
def dpbench_datasets() -> Sequence[type[Dataset]]:
    """Register the datasets of this package."""
    return [Cifar100, FashionMnist, Flowers102, Gtsrb, Pcam]
