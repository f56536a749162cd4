"""Model files: an ONNX graph that ends with its card and a digest of all earlier bytes. They hold no code."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

from dpbench.errors import DataError
from dpbench.models.card import Card
from dpbench.support.untrusted import read_regular_file

MAX_BYTES = 300_000_000  # of a file
DIGEST_BYTES = 76  # of the last entry of a graph's metadata
OLD_START = b'{"__metadata__"'


def build_model_file(graph: bytes, card: Card) -> bytes:
    """Return the content of a model file; equal models give equal bytes.

    Card and digest are appended to the graph, because protobuf accepts further fields after a message.
    """
    content = graph + _encode_metadata_entry("card", card.model_dump_json())
    return content + _encode_metadata_entry("digest", hashlib.sha256(content).hexdigest())


def detect_model_format(content: bytes) -> Literal["onnx", "torch"]:
    """Return a model's format: `onnx`, or `torch`, which version 0.2 wrote. dpbench stops reading `torch` in 0.4."""
    return "torch" if content[8 : 8 + len(OLD_START)] == OLD_START else "onnx"


def read_model_content(file: Path) -> bytes:
    """Return the content of an untrusted model file, for `process` to run.

    Raises:
        DataError: the file does not exist, is not a model, or was damaged or changed.
    """
    try:
        if not file.is_file():
            trouble = "is no file" if file.exists() else "does not exist"
            raise DataError(f"Expected a model, got {file}, which {trouble}.")
        content = read_regular_file(file, MAX_BYTES)
    except OSError as error:
        raise DataError(f"Cannot read model {file}: {error.strerror}.") from error
    digest = hashlib.sha256(content[:-DIGEST_BYTES]).hexdigest().encode()
    if detect_model_format(content) == "onnx" and not content.endswith(digest):
        raise DataError(f"{file} is not a dpbench model, or is damaged or was changed: its digest does not fit.")
    return content


def _encode_metadata_entry(key: str, value: str) -> bytes:
    import onnx

    entry: bytes = onnx.ModelProto(metadata_props=[{"key": key, "value": value}]).SerializeToString()
    return entry
