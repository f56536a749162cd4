"""Find ready-made sweeps by name. Imports stay light, because `dpbench --help` lists the sweeps."""

from __future__ import annotations

from pathlib import Path

from dpbench.errors import UnknownName
from dpbench.support.messages import unknown_name

FOLDER = Path(__file__).parent / "ready_made"


def list_sweep_names() -> tuple[str, ...]:
    """Return the names of the ready-made sweeps, sorted."""
    return tuple(sorted(file.stem for file in FOLDER.glob("*.toml")))


def read_sweep_lines(name: str) -> list[str]:
    """Return the lines in the file of a ready-made sweep."""
    return (FOLDER / f"{name}.toml").read_text(encoding="utf-8").splitlines()


def find_sweep_file(named: Path) -> Path:
    """Return the sweep file at the path `named`, or else the ready-made sweep with that name.

    Raises:
        UnknownName: neither exists; the message lists the ready-made sweeps.
    """
    if named.exists() and not named.is_dir():  # a folder of results may have the sweep's name
        return named
    if str(named) in list_sweep_names():
        return FOLDER / f"{named}.toml"
    raise UnknownName(f"No file {named}. {unknown_name('ready-made sweep', str(named), list_sweep_names())}")
