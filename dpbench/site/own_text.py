"""The texts of a leaderboard of your own: its title and how to submit to it, from `site.toml` in its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, ValidationError

from dpbench.errors import SpecError
from dpbench.site.text import MAX_LENGTH
from dpbench.support.untrusted import read_toml
from dpbench.support.validation import UserRecord, describe_validation_error

FILE = "site.toml"


class LeaderboardText(UserRecord):
    """A leaderboard's own texts for its pages, from its `site.toml`; if a text is empty, pages show dpbench's own."""

    title: str = Field(default="", max_length=120)  # of the leaderboard, in place of dpbench's
    submission: str = Field(default="", max_length=MAX_LENGTH)  # how to submit a result, in place of a pull request

    @classmethod
    def read(cls, root: Path | None) -> Self:
        """Read the texts of the leaderboard in `root`; they are empty if there is no folder or no file.

        Raises:
            SpecError: the file cannot be read, or a key or value is not valid.
        """
        if root is None or not (file := root / FILE).is_file():
            return cls()
        try:
            return cls(**read_toml(file, "file"))
        except ValidationError as error:
            raise SpecError(describe_validation_error(error, str(file), {"": cls})) from None
