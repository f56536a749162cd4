"""Submissions that a board must refuse; each function makes one."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from dpbench.api import Dataset, Learner, Splits
from dpbench.errors import DpbenchError
from dpbench.records.board import Board, list_board_files
from dpbench_lab.museum.exhibit import Exhibit, Findings
from dpbench_lab.museum.strangers import extend_registry, run_learner


@dataclass(frozen=True)
class RuleBreakingSubmission(Exhibit):
    """A submission that breaks the rules of boards; `shown` makes it."""

    learner: type[Learner] | None = None

    def visit(self) -> Findings:
        """Make the submission, and return the error that refuses it."""
        assert self.learner is not None
        try:
            self.shown(self.learner)
        except DpbenchError as error:
            return {"board": str(error)}
        return {"board": None}


@dataclass(frozen=True)
class DuplicateDigits(Dataset):
    """Digits whose test split is the training split."""

    name: ClassVar[str] = "museum-digits"
    classes: ClassVar[tuple[str, ...]] = tuple("0123456789")
    licence: ClassVar[str] = "CC BY 4.0"
    citation: ClassVar[str] = "Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI 1998"

    def load(self) -> Splits:
        """Return the training split of the digits, as both training and test split."""
        splits: Splits = extend_registry().build("dataset", "digits", {}).load()
        return Splits(splits.train, splits.train, f"museum {splits.digest}")


def evaluation_on_training_images(learner: type[Learner]) -> None:
    """Evaluates on images, public and private, that were used for training.

    Source: the code of GEP (Yu et al. 2021) takes labelled public data from the test set of CIFAR-10 (`--real_labels`).
    In the PATE of DPMLBench (Wei et al. 2023), the student trains on half of the test set.
    """
    run_learner(learner, DuplicateDigits, dataset=DuplicateDigits.name, for_board=True)


def unaccounted_tuning(learner: type[Learner]) -> None:
    """Ranks settings that were chosen by unaccounted runs on private data.

    Source: the grids of most papers on private learning. Appendix G of DP-RandP (Tang et al. 2023) searches the share
    of the budget for the mean by adding noise repeatedly to a stored true mean.
    """
    file = sorted(list_board_files().values())[0]
    rule = 'selection = ["private-unaccounted"]'
    lines = [rule if line.startswith("selection") else line for line in file.read_text(encoding="utf-8").splitlines()]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / file.name
        copy.write_text("\n".join(lines), encoding="utf-8")
        Board.read(copy)
