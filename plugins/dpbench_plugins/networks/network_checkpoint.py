"""Checkpoints: the parameters of a network in a safetensors file, with a text manifest in its metadata.

In the manifest, `network` names the network and `format` names the format of this module. All other entries (generator,
seed, steps, digest) are kept but not read. Tensors have the names of the network's parameters, in any precision.
`head.*` and `norm.*` may be absent, because a pre-trained trunk has neither; only probes read `embedding.*`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dpbench import DataError, DataMissing, SpecError, data_folders

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = "dpbench-network-1"
OPTIONAL = ("head.", "norm.")
PROBED = "embedding."  # a layer on top of the trunk, which probes read and networks lack
SHIPPED = {"randp-wrn16-4": Path(__file__).parent / "randp-wrn16-4.safetensors"}  # come with dpbench


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint file."""

    network: str
    state: Mapping[str, Tensor]
    about: Mapping[str, str]

    def save(self, file: Path) -> None:
        """Write the checkpoint to a safetensors file."""
        from safetensors.torch import save_file

        state = {name: value.detach().contiguous() for name, value in self.state.items()}
        save_file(state, file, metadata={**self.about, "network": self.network, "format": FORMAT})

    @classmethod
    def load(cls, file: Path) -> Checkpoint:
        """Read a file that `save` wrote.

        Raises:
            DataError: the file cannot be read as safetensors, or its manifest is missing or has another format.
        """
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(file, "pt") as content:
                about = dict(content.metadata() or {})
                state = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118, not a dict
        except (SafetensorError, OSError) as error:
            raise DataError(f"Checkpoint {file} cannot be read as safetensors: {error}.") from error
        if about.get("format") != FORMAT or "network" not in about:
            raise DataError(
                f"Expected metadata format={FORMAT} and network=... in checkpoint {file}, got {about or 'none'}. "
                "Write it with dpbench_plugins.networks.network_checkpoint.Checkpoint."
            )
        return cls(about["network"], state, about)

    def apply_to_parameters(self, start: Mapping[str, Tensor], network: str) -> dict[str, Tensor]:
        """Return the parameters `start`, each replaced by the checkpoint's value if the checkpoint has one.

        The precision stays that of `start`. The checkpoint may lack `head.*` and `norm.*`, and its `embedding.*` is
        ignored.

        Raises:
            SpecError: the checkpoint is for another network, lacks any other parameter, or has one that is unknown or
                of another shape.
        """
        if self.network != network:
            raise SpecError(
                f"The checkpoint is for network {self.network!r}, not {network!r}. Set network={self.network}, or "
                "weights=random."
            )
        wrong = [name for name in start if name not in self.state and not name.startswith(OPTIONAL)]
        wrong += [name for name in self.state if name not in start and not name.startswith(PROBED)]
        wrong += [name for name in start if name in self.state and self.state[name].shape != start[name].shape]
        if wrong:
            here, there = (_format_shape(named, wrong[0]) for named in (self.state, start))
            raise SpecError(
                f"The checkpoint does not match network {network!r} on these images: {wrong[0]!r} is {here} in the "
                f"checkpoint and {there} in the network."
            )
        return {name: self.state.get(name, value).to(value) for name, value in start.items()}


def find_checkpoint(path: str) -> Path:
    """Return the file of the checkpoint that comes with dpbench under this name, or else the file at `path`.

    A path is absolute, or relative to the working folder or to a folder of `DPBENCH_DATA`.

    Raises:
        DataMissing: there is no such file; the message says where dpbench looked.
    """
    if path in SHIPPED:
        return SHIPPED[path]
    places = list_candidate_paths(path)
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        looked = ", ".join(dict.fromkeys(map(str, places)))
        raise DataMissing(
            f"Expected a checkpoint at weights={path}, but there is no such file (looked at {looked}). dpbench "
            f"includes weights={', '.join(SHIPPED)}."
        )
    return found


def list_candidate_paths(path: str) -> list[Path]:
    """Return the paths where a file may be: the path itself, and the same path below each folder of `DPBENCH_DATA`."""
    named = Path(path).expanduser()
    return [named, *(folder / named for folder in data_folders())]  # an absolute path stays itself


def _format_shape(tensors: Mapping[str, Tensor], name: str) -> str:
    return str(tuple(tensors[name].shape)) if name in tensors else "absent"
