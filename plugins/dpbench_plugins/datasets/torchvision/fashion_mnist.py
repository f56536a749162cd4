"""Fashion-MNIST from its four idx files: torchvision's, or those of Debian's package."""

from __future__ import annotations

import gzip
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from dpbench import DataError, Dataset, Download, Source, Split, Splits, locate
from dpbench_plugins.datasets.extractors import NETWORK
from dpbench_plugins.datasets.image_files import digest_byte_strings, make_array_records, read_verified_file

if TYPE_CHECKING:
    import numpy as np

PAGE = "https://github.com/zalandoresearch/fashion-mnist"
MIRROR = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"  # has no https
PACKAGE = "dataset-fashion-mnist"
DEBIAN = Path("/usr/share/datasets/fashion-mnist")
BELOW = ("FashionMNIST/raw", "fashion-mnist", ".")  # torchvision's folder first
PACKED_SIZES = {  # bytes
    "train-images-idx3-ubyte.gz": 26_421_880,
    "train-labels-idx1-ubyte.gz": 29_515,
    "t10k-images-idx3-ubyte.gz": 4_422_102,
    "t10k-labels-idx1-ubyte.gz": 5_148,
}


@dataclass(frozen=True)
class FashionMnist(Dataset):
    """Fashion-MNIST: 60,000 training and 10,000 test images of clothes, 28x28 grey, 10 classes.

    The four files {train,t10k}-{images-idx3,labels-idx1}-ubyte, all packed (.gz) or none, are looked for in every data
    folder, in its FashionMNIST/raw (torchvision's folder) and fashion-mnist, and last in
    /usr/share/datasets/fashion-mnist, where Debian's package dataset-fashion-mnist puts them. Magic number, sizes and
    length are checked. Packed files must have the published MD5, except in Debian's folder, because Debian packed them
    again. The digest is that of the unpacked bytes, so it is the same for every copy.
    """

    name = "fashion-mnist"
    default_extractor = NETWORK
    classes = (
        "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
    )  # fmt: skip
    licence = "MIT"
    citation = (
        "Xiao, Rasul and Vollgraf, Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning Algorithms, "
        "2017; arXiv:1708.07747"
    )
    sizes = {"train": 60_000, "t10k": 10_000}
    md5 = {
        "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
    }

    def source(self) -> Source:
        """Return where the four files come from and where they are kept."""
        ways = (tuple(self.md5), tuple(name.removesuffix(".gz") for name in self.md5))
        homes = [tuple(str(PurePosixPath(below, name)) for name in names) for below in BELOW for names in ways]
        downloads = [
            Download(MIRROR + name, f"md5:{md5}", PACKED_SIZES[name], f"{BELOW[0]}/{name}")
            for name, md5 in self.md5.items()
        ]
        return Source(
            homes=homes,
            page=PAGE,
            size=sum(file.size for file in downloads),
            downloads=downloads,
            elsewhere=((str(DEBIAN), ways),),
            package=PACKAGE,
        )

    def load(self) -> Splits:
        """Open the two splits.

        Raises:
            DataError: a file is damaged or not the published one.
        """
        contents = [self._read_content(path) for path in locate(self).paths]
        shapes = [shape for size in self.sizes.values() for shape in ((size, 28, 28), (size,))]
        arrays = [_parse_idx(*each) for each in zip(contents, shapes, self.md5, strict=True)]
        train, test = (Split(make_array_records(arrays[at]), arrays[at + 1].astype("int64")) for at in (0, 2))
        return Splits(train, test, digest_byte_strings(*contents))

    def _read_content(self, path: Path) -> bytes:
        published = path.suffix == ".gz" and path.parent != DEBIAN
        try:
            content = read_verified_file(path, self.md5[path.name], PAGE) if published else path.read_bytes()
            return gzip.decompress(content) if path.suffix == ".gz" else content
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"Expected a complete file {path}: {error}. Download it again from {PAGE}.") from error


def _parse_idx(content: bytes, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Return the array in one idx file.

    The file has two zero bytes, the type (8 is uint8), the number of axes, their sizes, and the values.
    """
    import numpy as np

    header = struct.pack(f">4B{len(shape)}I", 0, 0, 8, len(shape), *shape)
    length = len(header) + int(np.prod(shape))
    if not content.startswith(header) or len(content) != length:
        raise DataError(
            f"Expected {name} unpacked to start with {header.hex()} (uint8 {shape}) and have {length:,} bytes, got "
            f"{content[: len(header)].hex()} and {len(content):,}. Download it again from {PAGE}."
        )
    return np.frombuffer(content, np.uint8, offset=len(header)).reshape(shape)
