"""ImageNet (ILSVRC 2012), unpacked into class folders as for torchvision."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from dpbench import DataError, Dataset, Source, Splits, locate
from dpbench_plugins.datasets.extractors import NETWORK
from dpbench_plugins.datasets.image_trees import (
    Layout,
    check_class_names,
    check_image_counts,
    fingerprint_images,
    list_class_folders,
    list_images,
    open_splits,
)

PAGE = "https://www.image-net.org/download.php"
ARCHIVES = {"ILSVRC2012_img_train.tar": 147_897_477_120, "ILSVRC2012_img_val.tar": 6_744_924_160}  # bytes
ADVICE = f"Unpack {' and '.join(ARCHIVES)} again, from {PAGE}."
PATTERN = re.compile(r"(?P<root>)(?P<kind>[^/]+)/(?P<file>[^/]+\.(?i:jpe?g))")
LAYOUTS = (Layout(PATTERN, lambda _: "train", ADVICE), Layout(PATTERN, lambda _: "test", ADVICE))


@dataclass(frozen=True)
class ImageNet(Dataset):
    """ImageNet: 1,281,167 training and 50,000 validation images of many sizes, RGB, 1,000 classes.

    Read from a data folder: imagenet/train/nXXXXXXXX/*.JPEG and imagenet/val/nXXXXXXXX/*.JPEG; any folder may be a
    link. The validation images are the test split, because the labels of the ILSVRC test images are unpublished.
    Classes are the WordNet IDs of the folders, sorted, as in pre-trained classifiers. Counts are checked. The digest
    covers every file's name and size, and the bytes of 256 images per split; other images are not read.

    Most pre-trained extractors were trained on these same images: with them, nothing here is private.
    """

    name = "imagenet"
    default_extractor = NETWORK
    licence = "non-commercial research, see image-net.org"
    citation = "Russakovsky et al., ImageNet Large Scale Visual Recognition Challenge, IJCV 2015"
    counts = {"train": 1_281_167, "test": 50_000}
    kinds = 1_000

    @cached_property
    def classes(self) -> tuple[str, ...]:  # type: ignore[override]  # known only from the folders
        """The class folders of the training images."""
        train, _ = locate(self).paths
        found = list_class_folders(train)
        if len(found) != self.kinds:
            raise DataError(f"Expected {self.kinds:,} class folders in {train}, got {len(found):,}. {ADVICE}")
        return found

    def source(self) -> Source:
        """Return where the images come from (a login is needed) and where they are kept."""
        return Source(homes=[["imagenet/train", "imagenet/val"]], page=PAGE, size=sum(ARCHIVES.values()))

    def load(self) -> Splits:
        """Open the two splits, sorted by class and file name.

        Raises:
            DataError: a class folder is missing or unknown, or the number of images is wrong.
        """
        paths = locate(self).paths
        classes, folder = self.classes, paths[0].parent
        files = [file for path, layout in zip(paths, LAYOUTS, strict=True) for file in list_images(path, layout)]
        check_class_names(files, classes, folder, ADVICE)
        check_image_counts(files, self.counts, folder, ADVICE)
        return open_splits(files, classes, "RGB", fingerprint_images(files), ADVICE)
