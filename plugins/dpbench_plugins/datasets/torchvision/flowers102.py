"""Oxford's 102 flowers, unpacked as torchvision unpacks them."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dpbench import DataError, Dataset, Download, Records, Source, Split, Splits, locate, setting
from dpbench_plugins.datasets.extractors import NETWORK
from dpbench_plugins.datasets.image_files import (
    digest_byte_strings,
    fingerprint_files,
    read_rgb_image,
    read_verified_file,
)

PAGE = "https://www.robots.ox.ac.uk/~vgg/data/flowers/102/"
FOLDER = "flowers-102"
IMAGES = Download(
    url=f"{PAGE}102flowers.tgz",
    checksum="md5:52808999861908f626f3c1f4e79d11fa",
    size=344_862_509,
    path=FOLDER,  # it holds the folder jpg
    unpack=True,
)
TABLE_SIZES = {"imagelabels.mat": 502, "setid.mat": 14_989}  # bytes


@dataclass(frozen=True)
class Flowers102(Dataset):
    """Oxford 102 flowers: 1,020 training and 6,149 test photographs of many sizes, RGB, 102 classes.

    Read from a data folder as torchvision unpacks it: flowers-102/jpg/image_NNNNN.jpg, flowers-102/imagelabels.mat and
    flowers-102/setid.mat. The two .mat files must have their published MD5. The published validation split, 1,020
    images more, is left out unless `val=train` adds it to the training split. The digest covers labels, splits, every
    file's name and size, and the bytes of 256 images per split.
    """

    name = "flowers102"
    default_extractor = NETWORK
    classes = (
        "pink primrose", "hard-leaved pocket orchid", "canterbury bells", "sweet pea", "english marigold", "tiger lily",
        "moon orchid", "bird of paradise", "monkshood", "globe thistle", "snapdragon", "colt's foot", "king protea",
        "spear thistle", "yellow iris", "globe-flower", "purple coneflower", "peruvian lily", "balloon flower",
        "giant white arum lily", "fire lily", "pincushion flower", "fritillary", "red ginger", "grape hyacinth",
        "corn poppy", "prince of wales feathers", "stemless gentian", "artichoke", "sweet william", "carnation",
        "garden phlox", "love in the mist", "mexican aster", "alpine sea holly", "ruby-lipped cattleya", "cape flower",
        "great masterwort", "siam tulip", "lenten rose", "barbeton daisy", "daffodil", "sword lily", "poinsettia",
        "bolero deep blue", "wallflower", "marigold", "buttercup", "oxeye daisy", "common dandelion", "petunia",
        "wild pansy", "primula", "sunflower", "pelargonium", "bishop of llandaff", "gaura", "geranium", "orange dahlia",
        "pink-yellow dahlia?", "cautleya spicata", "japanese anemone", "black-eyed susan", "silverbush",
        "californian poppy", "osteospermum", "spring crocus", "bearded iris", "windflower", "tree poppy", "gazania",
        "azalea", "water lily", "rose", "thorn apple", "morning glory", "passion flower", "lotus", "toad lily",
        "anthurium", "frangipani", "clematis", "hibiscus", "columbine", "desert-rose", "tree mallow", "magnolia",
        "cyclamen", "watercress", "canna lily", "hippeastrum", "bee balm", "ball moss", "foxglove", "bougainvillea",
        "camellia", "mallow", "mexican petunia", "bromelia", "blanket flower", "trumpet creeper", "blackberry lily",
    )  # fmt: skip
    licence = "unknown"
    citation = "Nilsback and Zisserman, Automated Flower Classification over a Large Number of Classes, ICVGIP 2008"
    md5 = {
        "imagelabels.mat": "e0620be6f572b9609742df49c70aed4d",
        "setid.mat": "a5357ecc9cb78c4bef273ce3793fc85c",
    }

    val: Literal["leave-out", "train"] = setting(
        "leave-out", added=True, says="what happens to the published validation split"
    )

    def source(self) -> Source:
        """Return where images, labels and splits come from and where they are kept."""
        tables = [
            Download(PAGE + name, f"md5:{md5}", TABLE_SIZES[name], f"{FOLDER}/{name}") for name, md5 in self.md5.items()
        ]
        home = tuple(f"{FOLDER}/{name}" for name in ("jpg", *self.md5))
        downloads = (IMAGES, *tables)
        return Source(
            homes=(home,),
            page=PAGE,
            size=sum(item.size for item in downloads),
            downloads=downloads,
            requires=("scipy",),
        )

    def load(self) -> Splits:
        """Open the two splits, in the published order.

        Raises:
            DataError: labels or splits are not the published ones, or an image is missing.
        """
        import numpy as np

        jpg, *paths = locate(self).paths
        tables = [read_verified_file(path, md5, PAGE) for path, md5 in zip(paths, self.md5.values(), strict=True)]
        labels, order = (_parse_matlab(table, path) for table, path in zip(tables, paths, strict=True))
        train, val, test = (order[key].ravel().astype(int) for key in ("trnid", "valid", "tstid"))  # images, from 1
        if self.val == "train":
            train = np.concatenate([train, val])
        of = [tuple(jpg / f"image_{number:05d}.jpg" for number in numbers) for numbers in (train, test)]
        classes = labels["labels"].ravel().astype("int64") - 1
        digest = digest_byte_strings(*tables, *(fingerprint_files(images, jpg.parent) for images in of))
        return Splits(
            Split(Records(of[0], read_rgb_image), classes[train - 1]),
            Split(Records(of[1], read_rgb_image), classes[test - 1]),
            digest,
        )


def _parse_matlab(content: bytes, path: Path) -> Any:
    from scipy.io import loadmat

    try:
        return loadmat(io.BytesIO(content))
    except Exception as error:  # damaged files raise many kinds
        raise DataError(f"Expected a MATLAB file in {path}: {error}. Download it again from {PAGE}.") from error
