"""Write a double; see the package."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.doubles.catalogue import SHARES, WRITERS, write


def main(words: list[str]) -> None:
    """Write the double that was asked for, and say what a loader must expect to read it."""
    parser = argparse.ArgumentParser("python -m tests.doubles")
    parser.add_argument("name", help=f"a dataset, like pathmnist:size=64: {', '.join(WRITERS)}")
    parser.add_argument("folder", type=Path, help="where to write it, laid out as in a data folder")
    parser.add_argument("--share", type=float, help=f"how much of it [default: 1; imagenet: {SHARES['imagenet']}]")
    given = parser.parse_args(words)
    expected = write(given.name, given.folder, given.share)
    how = f"needs `python -m tests.doubles.command {given.folder}` for its own {' and '.join(expected)}"
    print(f"The double of {given.name} in {given.folder} {how if expected else 'is read as the published data are'}.")


if __name__ == "__main__":
    main(sys.argv[1:])
