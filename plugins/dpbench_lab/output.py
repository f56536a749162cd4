"""Write the output of a study: a record, and a plot of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from dpbench.cli.output import print_record_if_unwritable
from dpbench.support.files import check_writable_folder

if TYPE_CHECKING:
    from dpbench_lab.explain.explanation import Explanation
    from dpbench_lab.inspect.report import Inspection

Plotted = TypeVar("Plotted", "Explanation", "Inspection")


def check_output_paths(out: Path, plot: Path | None) -> None:
    """Check that the folder and the plot can be written, before anything is computed.

    Raises:
        SpecError: the plot is not PNG, SVG or PDF, or matplotlib is missing.
        OutputError: a folder cannot be created or written.
    """
    check_writable_folder(out)
    if plot is not None:
        from dpbench.analysis.draw import check_chart_file

        check_chart_file(plot, "--plot")
        check_writable_folder(plot.parent)


def write_record_and_plot(
    record: Plotted, out: Path, plot: Path | None, draw: Callable[[Plotted, Path], None]
) -> list[Path]:
    """Write a record into `out`, and its plot if requested; return the files.

    Raises:
        OutputError: a file cannot be written; the record is then printed.
    """
    with print_record_if_unwritable(record):
        files = [record.write(out)]
        if plot is not None:
            draw(record, plot)
            files.append(plot)
    return files
