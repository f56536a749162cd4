"""Ready-made sweeps, by name. Imports stay light: `dpbench --help` lists them."""

from __future__ import annotations

from pathlib import Path

from dpbench.errors import UnknownName
from dpbench.support.messages import unknown_name

FOLDER = Path(__file__).parent / "ready_made"


def sweep_names() -> tuple[str, ...]:
    """Return the names of the ready-made sweeps, sorted."""
    return tuple(sorted(file.stem for file in FOLDER.glob("*.toml")))


def lines(name: str) -> list[str]:
    """Return the lines of a ready-made sweep's file."""
    return (FOLDER / f"{name}.toml").read_text(encoding="utf-8").splitlines()


def find_sweep_file(named: Path) -> Path:
    """Return the sweep file that `named` means: a file of that path, else the ready-made sweep of that name.

    Raises:
        UnknownName: neither exists; lists the ready-made ones.
    """
    if named.exists() and not named.is_dir():  # a folder of results may have the sweep's name
        return named
    if str(named) in sweep_names():
        return FOLDER / f"{named}.toml"
    raise UnknownName(f"No file {named}. {unknown_name('ready-made sweep', str(named), sweep_names())}")
