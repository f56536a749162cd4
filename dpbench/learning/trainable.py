"""Extractors whose weights need no collected data, so that anyone can train them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dpbench.api import Extractor

if TYPE_CHECKING:
    import torch


class Trainable(Extractor):
    """An extractor whose weights can be trained here without real data, by `dpbench pretrain`."""

    recipe: ClassVar[type[Any]]
    """A frozen dataclass of what decides the weights, `steps` and `batch` among its fields: the command's options."""

    @classmethod
    @abstractmethod
    def pretrain(
        cls, recipe: Any, out: Path, device: torch.device, report: Callable[[str, float], None], *, resume: bool
    ) -> None:
        """Train the weights that an instance of `recipe` describes, and write them to the file `out`.

        After an interruption, `resume` continues from the files next to `out` and reaches the same weights. `report`
        receives `step` (how many are done) after each step, and any other values worth watching.

        Raises:
            SpecError: `out` is there already, or an interrupted pre-training is and `resume` does not ask for it.
            DataMissing: there is nothing to resume.
        """
