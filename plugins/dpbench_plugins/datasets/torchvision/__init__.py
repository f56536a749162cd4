"""Datasets in torchvision's own layout in a data folder, read without torchvision.

torchvision's classes do not expose their lists of files, which are needed here, and unpickle CIFAR without restriction;
importing them takes seconds and imports torch. So addresses and checksums are repeated here. Tests check that these
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
