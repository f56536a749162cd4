"""Datasets of images in class folders: two from Kaggle, ImageNet, and the user's own."""

from __future__ import annotations

from collections.abc import Sequence

from dpbench import Dataset, hookimpl
from dpbench_plugins.datasets.image_folders.dermnet import DermNet
from dpbench_plugins.datasets.image_folders.flower16 import Flower16
from dpbench_plugins.datasets.image_folders.imagefolder import ImageFolder
from dpbench_plugins.datasets.image_folders.imagenet import ImageNet

__all__ = ["DermNet", "Flower16", "ImageFolder", "ImageNet", "dpbench_datasets"]


@hookimpl
def dpbench_datasets() -> Sequence[type[Dataset]]:
    """Register the datasets of this package."""
    return [DermNet, Flower16, ImageFolder, ImageNet]
