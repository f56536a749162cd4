"""What a mutant is, and how it is put into a copy of the package."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class NoLongerApplies(Exception):
    """The text that a mutant edits is not there, or is there more than once."""


@dataclass(frozen=True)
class Mutant:
    """One privacy bug as an edit of one file."""

    name: str
    why: str  # it is one
    file: str  # below dpbench/privacy, or `folder`
    edits: tuple[tuple[str, str], ...]  # (as it is, as the mutant has it): each text stands there once
    tests: tuple[str, ...]  # below tests/, as pytest names them: one of them must fail
    folder: str = "privacy"  # below dpbench

    def applied(self, source: str) -> str:
        """Return the file with the bug.

        Raises:
            NoLongerApplies: the file has changed; edit the mutant.
        """
        for text, instead in self.edits:
            if (count := source.count(text)) != 1:
                raise NoLongerApplies(
                    f"Mutant {self.name!r} no longer applies: expected once in {self.folder}/{self.file}, found "
                    f"{count} times: {text!r}. Edit the mutant to make the same bug in the code as it is now."
                )
            source = source.replace(text, instead)
        return source

    def path(self, root: Path) -> Path:
        """Return the file that it edits, in a copy of the repository."""
        return root / "dpbench" / self.folder / self.file


def edit(text: str, instead: str) -> tuple[tuple[str, str], ...]:
    """Return one edit."""
    return ((text, instead),)
