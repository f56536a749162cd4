"""Trees of images: class folders in a folder, or in a zip that stays packed, as Kaggle ships them.

It registers nothing; datasets in this layout are built on it. A zip and its unpacked folder are the same data, with the
same order, labels, pixels and digest.
"""

from dpbench_plugins.datasets.image_trees.groups import add_groups, age_band
from dpbench_plugins.datasets.image_trees.listing import (
    ANYWHERE,
    FILE,
    ImageFile,
    Layout,
    add_checksums,
    list_class_folders,
    list_ignored_files,
    list_images,
)
from dpbench_plugins.datasets.image_trees.pictures import (
    PictureReader,
    check_class_names,
    check_image_counts,
    digest_images,
    fingerprint_images,
    make_image_records,
    open_splits,
)
from dpbench_plugins.datasets.image_trees.tables import check_one_line_per_image, parse_rows, read_rows, table_name
from dpbench_plugins.datasets.image_trees.units import add_units

__all__ = [
    "ANYWHERE",
    "FILE",
    "ImageFile",
    "Layout",
    "PictureReader",
    "add_checksums",
    "add_groups",
    "add_units",
    "age_band",
    "check_class_names",
    "check_image_counts",
    "check_one_line_per_image",
    "digest_images",
    "fingerprint_images",
    "list_class_folders",
    "list_ignored_files",
    "list_images",
    "make_image_records",
    "open_splits",
    "parse_rows",
    "read_rows",
    "table_name",
]
