"""The settings of a run besides its spec: board, settings file, device, threads and results folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from dpbench.records.setting import FlagFacts
from dpbench.support.validation import UserRecord


class RunOptions(UserRecord):
    """The user's choices for a run besides its spec. Only the board and the settings file affect a run's numbers."""

    board: str | None = Field(
        None,
        description="Leaderboard board (name, FOLDER/NAME or file) whose protocol to use; you choose only the learner",
    )
    settings: Path | None = Field(
        None,
        description="Use the settings chosen in this tuning or result file, which may be about other data",
    )
    device: str = Field("auto", description="Device, such as auto, cpu, cuda or cuda:1")
    threads: Annotated[int | None, FlagFacts(default="1 for small heads, else all cores")] = Field(
        None, ge=1, le=1024, description="Compute threads, per worker where there are several"
    )
    out: Path = Field(Path("dpbench-results"), description="Results folder")
