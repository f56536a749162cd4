"""Base class of extractors whose weights can be trained without real data."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dpbench.api import Extractor

if TYPE_CHECKING:
    import torch


class Trainable(Extractor):
    """An extractor whose weights anyone can train without real data, with `dpbench pretrain`."""

    recipe: ClassVar[type[Any]]
    """A frozen dataclass of everything that determines the weights, including `steps` and `batch`.

    Its fields are the options that `dpbench pretrain` takes.
    """

    @classmethod
    @abstractmethod
    def pretrain(
        cls, recipe: Any, out: Path, device: torch.device, report: Callable[[str, float], None], *, resume: bool
    ) -> None:
        """Train the weights as `recipe` describes, and write them to the file `out`.

        After an interruption, `resume` continues from the files next to `out` and reaches the same weights. `report`
        receives `step` (the number of finished steps) after each step, and any other values to show.

        Raises:
            SpecError: `out` exists already, or an interrupted training exists and `resume` is not set.
            DataMissing: there is nothing to resume.
        """
