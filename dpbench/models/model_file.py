"""Write and read model files: numbers as safetensors, and the card and operations as JSON in the header. No code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from torch import Tensor

from dpbench.errors import DataError
from dpbench.models.card import Card
from dpbench.models.program import Program
from dpbench.records import storage
from dpbench.support.files import canonical_digest, write_atomically
from dpbench.support.untrusted import parse_json

FORMAT = "dpbench-model-1"
ENDING = ".safetensors"


def write_model(file: Path, card: Card, program: Program) -> Path:
    """Write a model atomically and return its file; equal models give equal bytes.

    Raises:
        OutputError: it cannot be written.
    """
    from safetensors.torch import save

    texts, tensors = _serialise(card, program)
    content = save(tensors, {"format": FORMAT, **texts, "digest": _digest_parts(texts, tensors)})
    write_atomically(file, lambda out: out.write(content))
    return file


def digest_model(card: Card, program: Program) -> str:
    """Return the SHA-256 of a model: of its card, operations and numbers."""
    return _digest_parts(*_serialise(card, program))


def _serialise(card: Card, program: Program) -> tuple[dict[str, str], dict[str, Tensor]]:
    tensors = {name: value.detach().cpu().contiguous() for name, value in program.tensors.items()}
    return {"card": card.model_dump_json(), "program": json.dumps(program.to_json(), sort_keys=True)}, tensors


def read_model(file: Path) -> tuple[Card, Program]:
    """Read the card and the program of a model from a file.

    Raises:
        DataError: the file does not exist, is not a model, or was damaged or changed.
    """
    from safetensors import safe_open

    if not file.is_file():
        raise DataError(f"Expected a model, got {file}, which {'is a folder' if file.exists() else 'does not exist'}.")
    try:
        with safe_open(file, "pt") as opened:
            header, names = opened.metadata() or {}, opened.keys()
            tensors = {name: opened.get_tensor(name) for name in names}
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise DataError(f"{file} is not a dpbench model, or is damaged ({error}).") from error
    if header.get("format") != FORMAT:
        got = header.get("format") or "none"
        raise DataError(f"This version of dpbench cannot read {file}: expected {FORMAT}, got {got}.")
    texts = {name: header.get(name, "") for name in ("card", "program")}
    if header.get("digest") != _digest_parts(texts, tensors):
        raise DataError(f"Model {file} is damaged or was changed: its digest does not fit.")
    try:
        card = storage.validate_record(Card, parse_json(texts["card"].encode(), "its card"), "in its header")
        program = Program.of(json.loads(texts["program"]), tensors)
    except (DataError, ValueError, RecursionError) as error:  # pydantic's is a ValueError
        said = str(error).splitlines()[0].rstrip(".:")
        raise DataError(f"Model {file} cannot be read: {said}.") from error
    return card, program


def _digest_parts(texts: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    numbers = {name: [str(value.dtype), list(value.shape), _hash_tensor(value)] for name, value in tensors.items()}
    return canonical_digest([dict(texts), numbers])


def _hash_tensor(tensor: Tensor) -> str:
    import torch

    flat = tensor.contiguous().reshape(-1)
    return hashlib.sha256(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"").hexdigest()
