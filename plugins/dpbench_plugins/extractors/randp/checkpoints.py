"""Files of a pre-training: the state it resumes from, and the final checkpoint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from dpbench import DataError, DataMissing, DpbenchError, SpecError
from dpbench_plugins.extractors.randp.encoder import KEPT
from dpbench_plugins.extractors.randp.recipe import PretrainingRecipe
from dpbench_plugins.networks.network_checkpoint import Checkpoint

FORMAT = "dpbench-pretraining-1"


def unfinished_state_path(out: Path) -> Path:
    """Return the path of the unfinished state of the pre-training that will write `out`."""
    return out.with_name(f"{out.stem}.unfinished.safetensors")


@dataclass(frozen=True)
class TrainingState:
    """The state of a pre-training between two steps."""

    network: str
    size: int
    recipe: PretrainingRecipe
    done: int
    tensors: Mapping[str, Tensor]

    def part(self, prefix: str) -> dict[str, Tensor]:
        """Return the tensors whose names start with `prefix`, with the prefix removed."""
        return {name.removeprefix(prefix): tensor for name, tensor in self.tensors.items() if name.startswith(prefix)}

    def save(self, file: Path) -> None:
        """Write the state to a safetensors file, completely or not at all."""
        from safetensors.torch import save_file

        about = {"format": FORMAT, "made": self.identity(), "done": str(self.done)}
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.tensors.items()}
        _write_file_atomically(file, lambda part: save_file(tensors, part, metadata=about))

    def identity(self) -> str:
        """Return, as JSON, everything that decides the weights; it is the same for all states of one pre-training."""
        decisive = {key: value for key, value in asdict(self.recipe).items() if not key.startswith("probe")}
        return json.dumps({"network": self.network, "size": self.size, **decisive}, sort_keys=True)

    @classmethod
    def load(cls, file: Path, wanted: TrainingState) -> TrainingState:
        """Read a state of the same pre-training as `wanted`.

        Raises:
            DataMissing: there is no file.
            DataError: the file is damaged or holds no such state.
            SpecError: the state is of another network or recipe; the message names the first difference.
        """
        from safetensors import SafetensorError, safe_open

        if not file.is_file():
            raise DataMissing(f"Expected an unfinished pre-training at {file} to resume. Leave out --resume.")
        try:
            with safe_open(file, "pt") as content:
                about = content.metadata() or {}
                tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118, not a dict
        except (SafetensorError, OSError) as error:
            raise DataError(f"The unfinished pre-training {file} cannot be read: {error}. Delete it.") from error
        if about.get("format") != FORMAT:
            raise DataError(f"Expected format={FORMAT} in {file}, got {about.get('format')}. Delete it to start over.")
        there, here = {"embed": False, **json.loads(about["made"])}, json.loads(wanted.identity())
        for key, value in here.items():
            if there.get(key) != value:
                raise SpecError(f"{file} was started with {key}={there.get(key)}, not {value}. Resume with the same.")
        return cls(wanted.network, wanted.size, wanted.recipe, int(about["done"]), tensors)


def export_checkpoint(encoder: Mapping[str, Tensor], state: TrainingState, out: Path) -> None:
    """Write the trunk, the final normalisation and an embedding in half precision, with a record of how they were made.

    Raises:
        DpbenchError: a weight is too large for half precision.
    """
    named = {name: tensor for name, tensor in encoder.items() if name.startswith(KEPT)}
    kept = {name: tensor.detach().half().cpu().contiguous() for name, tensor in named.items()}
    for name, tensor in kept.items():
        if not bool(tensor.isfinite().all()):
            raise DpbenchError(f"Weight {name} does not fit half precision. Set a smaller learning_rate.")
    recipe = state.recipe
    watched = "none" if recipe.probe == "none" else f"{recipe.probe}: watched alone, nothing was chosen by it"
    about = {
        "data": "none: images from a random process", "generator": recipe.generator, "seed": str(recipe.seed),
        "steps": str(state.done), "recipe": state.identity(), "probe": watched, "digest": digest_tensors(kept),
        "size": str(state.size), "torch": str(torch.__version__),
    }  # fmt: skip
    _write_file_atomically(out, Checkpoint(state.network, kept, about).save)


def digest_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Return one SHA-256 of the names, types, shapes and bytes of tensors, in the order of their names."""
    total = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        total.update(tensor.contiguous().numpy().tobytes())
    return total.hexdigest()


def _write_file_atomically(file: Path, save: Callable[[Path], None]) -> None:
    """Write a temporary file with `save`, then move it to `file` in one step."""
    part = file.with_name(f".{file.name}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        save(part)
        part.chmod(0o644)  # safetensors makes files that only their owner can read
        part.replace(file)
    except OSError as error:
        raise SpecError(f"Cannot write {file}: {error.strerror}. Choose another --out.") from error
    finally:
        with suppress(OSError):
            part.unlink()
