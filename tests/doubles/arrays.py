"""Doubles of datasets that are published as arrays: HDF5, .npz, .npy, idx, pickles and Parquet."""

from __future__ import annotations

import gzip
import hashlib
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.doubles.pictures import blocks, deal

Expected = dict[str, Any]
"""What a loader's class must hold in place of published facts: checksums, and counts where not all is written."""


def pcam(kind: Any, folder: Path, share: float) -> Expected:
    """Write the six HDF5 files, `x` (n, 96, 96, 3) and `y` (n, 1, 1, 1) uint8.

    The published ones are not compressed: 7.2 GB of training images. Here each row is a chunk of its own, deflated,
    which costs time to read and saves a hundredfold of the space.
    """
    sizes = {name: part(size, share) for name, size in kind.sizes.items()}
    first = 0
    for name, size in sizes.items():
        stem = folder / f"pcam/camelyonpatch_level_2_split_{name}"
        stem.parent.mkdir(parents=True, exist_ok=True)
        _write_hdf5(stem, deal(size, 2), first)
        first += size
    return {"sizes": sizes} if share < 1 else {}


def _write_hdf5(stem: Path, labels: np.ndarray, first: int) -> None:
    import h5py

    with h5py.File(f"{stem}_x.h5", "w", libver="latest") as file:
        shape = (len(labels), 96, 96, 3)
        rows = file.create_dataset("x", shape, "u1", chunks=(1, *shape[1:]), compression="gzip", compression_opts=1)
        start = 0
        for block in blocks(labels, first, (96, 96)):
            rows[start : start + len(block)] = block
            start += len(block)
    with h5py.File(f"{stem}_y.h5", "w") as file:
        file["y"] = labels.astype(np.uint8).reshape(-1, 1, 1, 1)


def medmnist(kind: Any, folder: Path, share: float) -> Expected:
    """Write the .npz of one size, with `val`: images (n, side, side) or (n, side, side, 3), labels (n, 1), uint8."""
    side, channels = kind.size, 3 if kind.colour else 1
    counts = {"train": kind.counts[0], "val": kind.val_count, "test": kind.counts[1]}
    sizes = {name: part(count, share) for name, count in counts.items()}
    file = folder / (f"{kind.name}.npz" if side == 28 else f"{kind.name}_{side}.npz")
    first = 0
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, size in sizes.items():
            labels, shape = deal(size, len(kind.classes)), (size, side, side, *([3] if kind.colour else []))
            _write_npy(archive, f"{name}_images.npy", shape, blocks(labels, first, (side, side), channels))
            _write_npy(archive, f"{name}_labels.npy", (size, 1), [labels.astype(np.uint8)])
            first += size
    smaller = {"counts": (sizes["train"], sizes["test"]), "val_count": sizes["val"]}
    return {"md5": {str(side): md5_of(file)}, **(smaller if share < 1 else {})}


def _write_npy(archive: zipfile.ZipFile, name: str, shape: tuple[int, ...], parts: Any) -> None:
    with archive.open(name, "w", force_zip64=True) as out:
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(out, header)
        for block in parts:
            out.write(block.tobytes())


def cifar100(kind: Any, folder: Path, share: float) -> Expected:
    """Write the pickles `train` and `test` of Python 2, with fine and coarse labels."""
    (folder / "cifar-100-python").mkdir(parents=True, exist_ok=True)
    published, first = {}, 0
    for name, count in (("train", 50_000), ("test", 10_000)):
        size = part(count, share)
        fine, file = deal(size, 100), folder / "cifar-100-python" / name
        pixels = np.concatenate([block.transpose(0, 3, 1, 2) for block in blocks(fine, first, (32, 32))])
        items = {
            "filenames": _list(_text(f"double_{first + row:06d}.png".encode()) for row in range(size)),
            "batch_label": _text(f"{name}ing batch 1 of 1".encode()),
            "fine_labels": _numbers(fine.tolist()),
            "coarse_labels": _numbers((fine % 20).tolist()),
            "data": _array(pixels.reshape(size, 3072)),
        }
        pairs = b"".join(_text(key.encode()) + value for key, value in items.items())
        file.write_bytes(b"\x80\x02}(" + pairs + b"u.")
        published[name] = md5_of(file)
        first += size
    return {"md5": published}


def _text(value: bytes) -> bytes:
    """Return a string of Python 2, which Python 3 does not write."""
    return b"T" + struct.pack("<i", len(value)) + value


def _list(values: Any) -> bytes:
    return b"](" + b"".join(values) + b"e"


def _numbers(values: Sequence[int]) -> bytes:
    return _list(b"J" + struct.pack("<i", value) for value in values)


def _array(values: np.ndarray) -> bytes:
    """Return a uint8 array as Python 2 and numpy 1 pickled it: an empty one, then its state."""
    shape = b"(" + b"".join(b"J" + struct.pack("<i", size) for size in values.shape) + b"t"
    empty = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + _text(b"b") + b"tR"
    minus = b"J\xff\xff\xff\xff"
    dtype = b"cnumpy\ndtype\n(" + _text(b"u1") + b"K\x00K\x01tR(K\x03" + _text(b"|") + b"NNN" + minus * 2 + b"K\x00tb"
    return empty + b"(K\x01" + shape + dtype + b"\x89" + _text(values.tobytes()) + b"tb"


def cifar10_1(kind: Any, folder: Path, share: float) -> Expected:
    """Write data (n, 32, 32, 3) uint8 and labels (n,) int32 of the version; always all of it, which is 6 MB."""
    (folder / "CIFAR-10.1/datasets").mkdir(parents=True, exist_ok=True)
    labels = deal({"v4": 2021, "v6": 2000}[kind.version], 10)
    stem = folder / f"CIFAR-10.1/datasets/cifar10.1_{kind.version}"
    np.save(f"{stem}_data.npy", np.concatenate(list(blocks(labels, 0, (32, 32)))))
    np.save(f"{stem}_labels.npy", labels.astype(np.int32))
    return {}


def fashion_mnist(kind: Any, folder: Path, share: float) -> Expected:
    """Write the four packed idx files: (n, 28, 28) and (n,) uint8."""
    below = folder / "FashionMNIST/raw"
    below.mkdir(parents=True, exist_ok=True)
    sizes, first = {name: part(size, share) for name, size in kind.sizes.items()}, 0
    for name, size in sizes.items():
        labels = deal(size, 10)
        pixels = np.concatenate(list(blocks(labels, first, (28, 28), 1)))[..., 0]
        for suffix, array in (("images-idx3", pixels), ("labels-idx1", labels.astype(np.uint8))):
            header = struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
            (below / f"{name}-{suffix}-ubyte.gz").write_bytes(gzip.compress(header + array.tobytes(), 1, mtime=0))
        first += size
    md5 = {name: md5_of(below / name) for name in kind.md5}
    return {"md5": md5, **({"sizes": sizes} if share < 1 else {})}


def cifar10(kind: Any, folder: Path, share: float) -> Expected:
    """Write the two Parquet files of the hub, with PNG images in `img` and classes in `label`."""
    import datasets
    from PIL import Image

    datasets.disable_progress_bars()
    features, first = datasets.Features({"img": datasets.Image(), "label": datasets.ClassLabel(names=kind.classes)}), 0
    for name, count in (("train", 50_000), ("test", 10_000)):
        labels = deal(part(count, share), 10)
        images = [Image.fromarray(image) for block in blocks(labels, first, (32, 32)) for image in block]
        rows = datasets.Dataset.from_dict({"img": images, "label": labels.tolist()}, features=features)
        file = folder / f"uoft-cs/cifar10/plain_text/{name}-00000-of-00001.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        rows.to_parquet(str(file))
        first += len(labels)
    return {}


def part(count: int, share: float) -> int:
    """Return a share of a count, at least 1."""
    return max(1, round(share * count))


def md5_of(file: Path) -> str:
    """Return the MD5 of a file."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
