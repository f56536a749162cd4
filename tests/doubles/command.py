"""dpbench on a double: `python -m tests.doubles.command FOLDER data info cifar100`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dpbench import cli
from tests.doubles.catalogue import apply


def main(folder: Path, words: list[str]) -> None:
    """Run a command with loaders that expect the doubles in a folder; it is a data folder unless another is named."""
    os.environ.setdefault("DPBENCH_DATA", str(folder))
    apply(folder)
    sys.argv = ["dpbench", *words]
    cli.main()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
