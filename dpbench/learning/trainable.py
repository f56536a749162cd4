"""Extractors whose weights need nothing that was collected: they can be made by whoever wants them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dpbench.api import Extractor

if TYPE_CHECKING:
    import torch


class Trainable(Extractor):
    """An extractor whose weights can be made here, from no data at all: `dpbench pretrain` asks it to."""

    recipe: ClassVar[type[Any]]
    """A frozen dataclass of what decides the weights, `steps` and `batch` among its fields: the command's options."""

    @classmethod
    @abstractmethod
    def pretrain(
        cls, recipe: Any, out: Path, device: torch.device, report: Callable[[str, float], None], *, resume: bool
    ) -> None:
        """Make the weights that an instance of `recipe` describes, and write them to the file `out`.

        What an interruption leaves beside `out` goes on, with `resume`, to the same weights. `report` is told `step`
        (how many are done) after each step, and whatever else is worth watching under a name of one word.

        Raises:
            SpecError: `out` is there already, or an interrupted pre-training is and `resume` does not ask for it.
            DataMissing: there is nothing to resume.
        """
