"""Where dpbench looks for data and keeps what it computed."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def data_folders() -> tuple[Path, ...]:
    """Return the folders where local data is looked for: those of `DPBENCH_DATA`, then the user's data folder."""
    named = os.environ.get("DPBENCH_DATA", "")
    folders = [Path(part).expanduser() for part in named.split(os.pathsep) if part]
    return (*folders, Path(platformdirs.user_data_dir("dpbench")))


def cache_folder() -> Path:
    """Return the folder for features and calibrations: `DPBENCH_CACHE`, or the user's cache folder."""
    named = os.environ.get("DPBENCH_CACHE")
    return Path(named).expanduser() if named else Path(platformdirs.user_cache_dir("dpbench"))
