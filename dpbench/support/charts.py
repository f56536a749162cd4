"""How plots look and are written: colours, style, and files that are reproducible byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from dpbench.errors import SpecError
from dpbench.support.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
# Okabe and Ito's colours, safe for colour-blind readers; markers tell them apart in greyscale.
BLUE, VERMILLION, GREY = "#0072B2", "#D55E00", "#666666"


def check_file(file: Path, flag: str) -> None:
    """Refuse a file that is neither PNG, SVG nor PDF, before anything is read.

    Raises:
        SpecError: names the endings that are allowed; or matplotlib is missing.
    """
    check_drawing()
    if file.suffix.lower() not in FORMATS:
        raise SpecError(f"Expected {flag} {file} to end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}.")


def write_chart(file: Path, draw: Callable[[], Figure]) -> None:
    """Write what `draw` returns into `file`, of the kind of its ending, atomically; the same figure, the same bytes.

    Raises:
        OutputError: the file cannot be written.
    """
    import matplotlib as mpl

    kind = file.suffix.lower().removeprefix(".")
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    with mpl.rc_context(
        {
            "font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3,
            "legend.frameon": False, "svg.fonttype": "none", "svg.hashsalt": "dpbench", "pdf.fonttype": 42,
        }  # text stays text, and bytes are reproducible
    ):  # fmt: skip
        figure = draw()
        write_atomically(file, lambda out: figure.savefig(out, format=kind, metadata=metadata))


MISSING = "Expected matplotlib, which draws figures. Run: pip install 'dpbench-vision[plot]'"


def can_draw() -> bool:
    """Return whether what draws is installed."""
    return find_spec("matplotlib") is not None


def check_drawing() -> None:
    """Refuse to begin where what draws is missing.

    Raises:
        SpecError: matplotlib is not installed; says how to install it.
    """
    if not can_draw():
        raise SpecError(MISSING)
