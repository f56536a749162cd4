"""Find ready-made sweeps by name. Imports stay light, because `dpbench --help` lists the sweeps."""

from __future__ import annotations

from pathlib import Path

from dpbench.errors import UnknownName
from dpbench.support.messages import format_unknown_name_message

FOLDER = Path(__file__).parent / "ready_made"


def list_sweep_names() -> tuple[str, ...]:
    """Return the names of the ready-made sweeps, sorted."""
    return tuple(sorted(file.stem for file in FOLDER.glob("*.toml")))


def read_sweep_lines(name: str) -> list[str]:
    """Return the lines in the file of a ready-made sweep."""
    return (FOLDER / f"{name}.toml").read_text(encoding="utf-8").splitlines()


def find_sweep_file(path_or_name: Path) -> Path:
    """Return `path_or_name` if it is a file, or else the file of the ready-made sweep with that name.

    Raises:
        UnknownName: neither exists; the message lists the ready-made sweeps.
    """
    if path_or_name.exists() and not path_or_name.is_dir():  # a folder of results may have the sweep's name
        return path_or_name
    if str(path_or_name) in list_sweep_names():
        return FOLDER / f"{path_or_name}.toml"
    raise UnknownName(
        f"No file {path_or_name}. "
        + format_unknown_name_message("ready-made sweep", str(path_or_name), list_sweep_names())
    )
