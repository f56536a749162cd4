"""Delete the lab in a copy of the tree, build the leaderboard with and without it, compare, and run the other tests.

    python -m tests.without_lab [--only-tests|--only-build] [ARGUMENT OF PYTEST]...

The site is built without the manual, which has pages of the lab's commands.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.without_lab.tree import compare_files, compare_sites, copy_tree, run_python

BUILD = ("-m", "dpbench", "--quiet", "leaderboard", "build", "--no-docs")
INDEXES = ("leaderboard/leaderboard.json", "leaderboard/schema.json")


def main(words: list[str]) -> int:
    """Return how many of the steps failed."""
    wanted = [word for word in words if word not in {"--only-tests", "--only-build"}]
    with tempfile.TemporaryDirectory() as folder:
        less = copy_tree(Path(folder) / "without", lab=False)
        failed = 0 if "--only-tests" in words else _build(copy_tree(Path(folder) / "whole", lab=True), less)
        return failed if "--only-build" in words else failed + _test(less, wanted)


def _build(whole: Path, less: Path) -> int:
    for folder in (whole, less):
        done = run_python(folder, *BUILD)
        print(f"{folder.name}: {done.stdout.strip()}", flush=True)
        if done.returncode:
            return 1
    sites = whole / "leaderboard" / "site", less / "leaderboard" / "site"
    complaints = [*compare_files(whole, less, INDEXES), *compare_sites(*sites)]
    print(*complaints, sep="\n", end="\n" * bool(complaints))
    pages, kept = (sum(1 for _ in site.rglob("*.html")) for site in sites)
    files = sum(file.is_file() for file in sites[1].rglob("*")) - kept
    print(f"{pages} pages with the lab, {kept} without it; {files} other files; {len(complaints)} complaints.")
    return bool(complaints)


def _test(less: Path, arguments: list[str]) -> int:
    done = run_python(less, "-m", "pytest", "-q", "-m", "not lab and not slow", *arguments)
    print(done.stdout)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
