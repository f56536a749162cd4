"""Several extractors at once: the features of each, flattened, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from dpbench import Extractor, SpecError, build_extractor, hookimpl

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image
    from torch import Tensor


@dataclass(frozen=True)
class Concat(Extractor):
    """The features of two or more extractors side by side, d the sum of theirs.

    `of` names them, joined by `+`: `concat:pixels:size=8;flat=true+efficientnet-lite0`. Options of a part are separated
    by `;`, because `,` separates those of `concat` itself.
    """

    name: ClassVar[str] = "concat"
    shorthand: ClassVar[str] = "of"

    of: str

    def __post_init__(self) -> None:
        """Refuse what is not two or more other extractors; spell their options out, as results name all of them."""
        names = self.of.split("+")
        if not all(name.strip() for name in names):
            raise SpecError(f"Expected an extractor on both sides of each '+' in concat:{self.of}. {_EXAMPLE}")
        if any(name.partition(":")[0].strip() == self.name for name in names):
            raise SpecError(f"Expected no concat inside concat:{self.of}. Join all extractors with '+' in one.")
        if len(names) < 2:
            raise SpecError(f"Expected two or more extractors in concat:{self.of}, got one. Name it alone. {_EXAMPLE}")
        object.__setattr__(self, "of", "+".join(map(_spelled_out, self._parts)))

    @cached_property
    def _parts(self) -> tuple[Extractor, ...]:
        return tuple(map(_built, self.of.split("+")))

    def parts(self) -> Sequence[Extractor]:
        """Return the extractors that `of` names."""
        return self._parts

    def present(self) -> bool:
        """Say whether the weights of all parts are on this machine."""
        return all(part.present() for part in self._parts)

    def weights(self) -> str:
        """Return a digest over the parts: their versions and weights; `of` holds their names and options."""
        import hashlib

        return hashlib.sha256(repr([(part.version, part.weights()) for part in self._parts]).encode()).hexdigest()

    def prepare(self, image: Image) -> Tensor:
        """Return the parts' prepared tensors as bytes, one after the other, each with its own shape and type."""
        import io

        import numpy as np
        import torch

        stream = io.BytesIO()
        for part in self._parts:
            np.save(stream, part.prepare(image).numpy(), allow_pickle=False)
        return torch.frombuffer(bytearray(stream.getvalue()), dtype=torch.uint8)

    def open(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        """Return the map (c, bytes) uint8 -> (c, d): each part's network on what the part prepared."""
        import io

        import numpy as np
        import torch

        networks = [part.open(device) for part in self._parts]

        def prepared(row: Tensor) -> list[Tensor]:
            stream = io.BytesIO(row.numpy().tobytes())
            return [torch.from_numpy(np.load(stream, allow_pickle=False)) for _ in networks]

        def embed(images: Tensor) -> Tensor:
            batches = map(torch.stack, zip(*map(prepared, images.cpu()), strict=True))
            features = [network(batch).flatten(1) for network, batch in zip(networks, batches, strict=True)]
            return torch.cat([part.to("cpu", torch.float32) for part in features], 1)  # not all are on the device

        return embed


_EXAMPLE = "Write it like concat:pixels:size=8+efficientnet-lite0."


def _built(text: str) -> Extractor:
    """Return the extractor that `name` or `name:key=value;key=value` names; a first value needs no key."""
    name, _, rest = text.partition(":")
    options: dict[str, str] = {}
    for place, pair in enumerate(filter(None, rest.split(";"))):
        key, equals, value = map(str.strip, pair.partition("="))
        options |= {key: value} if place or (equals and key.isidentifier()) else {"": pair.strip()}
    return build_extractor(name.strip(), options)


def _spelled_out(part: Extractor) -> str:
    options = ";".join(f"{field.name}={getattr(part, field.name)}" for field in fields(part))  # type: ignore[arg-type]
    return f"{part.name}:{options}" if options else part.name


@hookimpl
def dpbench_extractors() -> Sequence[type[Extractor]]:
    """Register the extractors of this module."""
    return [Concat]
