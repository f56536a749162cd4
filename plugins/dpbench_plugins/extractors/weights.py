"""Weight files of pre-trained networks: find them, identify them by digest, read them without pickle, load them.

It registers nothing. A network loaded here has every weight from the file: anything missing, left over or of another
shape is refused, because a layer left at its random initialisation would give plausible but useless features.
"""

from __future__ import annotations

import difflib
import os
import re
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpbench import DataError, data_folders

if TYPE_CHECKING:
    import torch
    from torch import Tensor

NESTED = ("state_dict", "model")  # where training scripts store the weights, beside epochs and optimisers


def torch_cache_folder() -> Path:
    """Return torch's weights cache, like `torch.hub.get_dir` but without importing torch."""
    caches = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return Path(os.environ.get("TORCH_HOME", f"{caches}/torch")).expanduser() / "hub" / "checkpoints"


def hub_cache_path(repository: str, name: str) -> Path:
    """Return the path of a model file in the Hugging Face cache, whether or not the file exists.

    The cache names folders by commit, and the file `refs/main` holds the last one requested. The hub's own
    `try_to_load_from_cache` is slow.
    """
    from huggingface_hub import constants

    folder = Path(constants.HF_HUB_CACHE) / f"models--{repository.replace('/', '--')}"
    main = folder / "refs" / "main"
    return folder / "snapshots" / (main.read_text(encoding="utf-8").strip() if main.is_file() else "main") / name


def candidate_paths(path: str) -> list[Path]:
    """Return the paths where a file may be: as given and, if relative, below each data folder."""
    named = Path(path).expanduser()
    return list(dict.fromkeys([named, *(folder / named for folder in data_folders())]))


def find_first_file(paths: Iterable[Path]) -> Path | None:
    """Return the first of `paths` that is a file; None if there is none."""
    return next((path for path in paths if path.is_file()), None)


def digest_file(file: Path) -> str:
    """Return the SHA-256 of a file, without a cache: a cache that a fit fills would keep state between fits."""
    import hashlib

    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def read_state_dict(file: Path) -> dict[str, Tensor]:
    """Return the tensors of a file by name: a .safetensors file, or one written by `torch.save`.

    Raises:
        DataError: the file is damaged, holds no tensors, or holds Python objects that would need unpickling.
    """
    import torch

    content: Any
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(file)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about formats refused below
            content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # the readers raise many kinds
        raise _make_unreadable_error(file, error) from error
    return _extract_tensors(content, file)


def _make_unreadable_error(file: Path, error: Exception) -> DataError:
    foreign = re.search(r"GLOBAL (\S+)", str(error))
    if foreign:
        return DataError(
            f"Expected only tensors in {file}, got a Python object ({foreign[1]}), which is refused because loading it "
            "could run any code. If you trust the file, save only its state_dict, best as .safetensors, and use that."
        )
    kind = "safetensors" if file.suffix == ".safetensors" else "a file of torch.save"
    reason = (str(error).splitlines() or [""])[0][:150]
    return DataError(
        f"Expected {file} to be readable as {kind}, got {type(error).__name__}: {reason} "
        "It is damaged or in another format; download it again."
    )


def _extract_tensors(content: Any, file: Path) -> dict[str, Tensor]:
    import torch

    while isinstance(content, dict) and (inner := next((key for key in NESTED if key in content), None)):
        content = content[inner]
    tensors = (
        isinstance(content, dict) and content and all(isinstance(value, torch.Tensor) for value in content.values())
    )
    if not tensors:
        raise DataError(
            f"Expected a dictionary of tensors in {file}, at the top or under {' or '.join(map(repr, NESTED))}. "
            "Save only the network's state_dict and use that file."
        )
    state: dict[str, Tensor] = content  # this same object: torch stores layer versions on it
    return state


def load_state_strictly(network: torch.nn.Module, state: dict[str, Tensor], file: Path) -> None:
    """Load `state` into `network`; the two must have exactly the same weights.

    Raises:
        DataError: keys are missing, left over or of another shape; the message names a few.
    """
    expected = network.state_dict()
    counters = "num_batches_tracked"  # absent from old files, and never read in evaluation mode
    missing = [key for key in expected if key not in state and not key.endswith(counters)]
    left_over = [key for key in state if key not in expected]
    misfits = [
        f"{key} {tuple(tensor.shape)} for {tuple(expected[key].shape)}"
        for key, tensor in state.items()
        if key in expected and tensor.shape != expected[key].shape
    ]
    found = {"missing": missing, "left over": left_over, "of another shape": misfits}
    wrong = "; ".join(f"{len(keys)} {what} ({_abbreviate_keys(keys)})" for what, keys in found.items() if keys)
    if wrong:
        raise DataError(f"Expected weights of {type(network).__name__} in {file}, got {wrong}. Check its model.")
    network.load_state_dict(state, strict=False)  # only counters can be missing here


def _abbreviate_keys(keys: Sequence[str]) -> str:
    return ", ".join(keys[:3]) + (", ..." if len(keys) > 3 else "")


def remove_classifier_head(network: torch.nn.Module) -> bool:
    """Replace a torchvision classifier's last linear layer by the identity; return whether one was found."""
    import torch

    for name in ("fc", "classifier", "heads", "head"):
        head = getattr(network, name, None)
        if isinstance(head, torch.nn.Linear):
            setattr(network, name, torch.nn.Identity())
            return True
        if isinstance(head, torch.nn.Sequential) and isinstance(head[-1], torch.nn.Linear):
            head[-1] = torch.nn.Identity()
            return True
    return False


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """Return a message that `name` is unknown, with similar names, or all names if they are few.

    >>> unknown_name("tag", "IMAGENET1K_V3", ["IMAGENET1K_V1", "IMAGENET1K_V2"])
    "Unknown tag 'IMAGENET1K_V3'. Available: IMAGENET1K_V1, IMAGENET1K_V2."
    """
    known = sorted(known)
    near = known if len(known) <= 10 else difflib.get_close_matches(name, known, 5, 0.4)
    return f"Unknown {what} {name!r}. Available: {', '.join(near) or f'{len(known)} others'}."
