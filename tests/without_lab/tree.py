"""A copy of the tree without the lab, and what it builds beside what the whole tree builds."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
LAB = "dpbench_lab"
LAB_TESTS = ("tests/lab", "tests/mutants")  # of broken cores, whose list is the lab's
PARTS = (
    ".ci", ".github", "CITATION.cff", "LICENSE", "README.md", "dpbench", "leaderboard", "plugins", "pyproject.toml",
    "tests",
)  # fmt: skip
LINK = re.compile(r'(?:href|src)="([^"#?]*)[^"]*"')
STUDIES = ("claims", "figures", "museum")
"""The pages of the lab."""
OUTSIDE = ("http://", "https://", "data:", "mailto:")
ISOLATE = """
import os, sys
mine = os.path.dirname(os.path.dirname(__file__)) + os.sep
whole = [place for place in sys.path if os.path.isfile(os.path.join(place, "dpbench_lab", "__init__.py"))]
sys.path[:] = [place for place in sys.path if place.startswith(mine) or place not in whole]
"""
"""What Python runs as it starts: an installation of the whole tree would bring the lab back."""


def copy_tree(folder: Path, *, lab: bool, parts: Sequence[str] = PARTS) -> Path:
    """Copy parts of the tree into the new folder `folder`; without the lab, what names it goes."""
    for part in parts:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, folder / part, ignore=_ignored)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / part, folder / part)
    if not lab:
        take_lab_away(folder)
    (folder / ".start").mkdir()
    (folder / ".start" / "sitecustomize.py").write_text(ISOLATE, encoding="utf-8")
    return folder


def _ignored(folder: str, names: list[str]) -> set[str]:
    """Leave out what was built: bytecode, and the site of the leaderboard."""
    return {name for name in names if name == "__pycache__" or Path(folder, name) == ROOT / "leaderboard" / "site"}


def take_lab_away(folder: Path) -> None:
    """Delete the lab, its tests, and its lines in `pyproject.toml`."""
    shutil.rmtree(folder / "plugins" / LAB)
    for tests in LAB_TESTS:
        shutil.rmtree(folder / tests, ignore_errors=True)
    project = folder / "pyproject.toml"
    lines = project.read_text(encoding="utf-8").splitlines(keepends=True)
    project.write_text("".join(line for line in lines if LAB not in line), encoding="utf-8")


def run_python(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Python with the packages of a copy in place of those that are installed; its output is shown as it comes."""
    places = (folder / ".start", folder, folder / "plugins")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))}
    return subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=folder, env=environment, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip


def compare_files(whole: Path, less: Path, names: Sequence[str]) -> Iterator[str]:
    """Yield a complaint for each file whose bytes differ between two folders."""
    for name in names:
        if (whole / name).read_bytes() != (less / name).read_bytes():
            yield f"{name} differs without the lab"


def compare_sites(whole: Path, less: Path) -> Iterator[str]:
    """Yield what the site lacks without the lab, besides pages and lines that the lab adds; and every dead link.

    Data are the same bytes, and a page has the same lines in the same order. Missing may be the pages of the lab
    and what lies in a folder of their name.
    """
    for file in sorted(whole.rglob("*")):
        name = file.relative_to(whole)
        if file.is_file() and not (less / name).is_file() and name.parts[0].removesuffix(".html") not in STUDIES:
            yield f"{name} is not built without the lab"
    for file in sorted(file for file in less.rglob("*") if file.is_file()):
        name = file.relative_to(less)
        other = whole / name
        if not other.is_file():
            yield f"{name} is built only without the lab"
        elif file.suffix != ".html" and other.read_bytes() != file.read_bytes():
            yield f"{name} differs without the lab"
        elif file.suffix == ".html":
            left = iter(other.read_bytes().splitlines())
            if not all(line in left for line in file.read_bytes().splitlines()):
                yield f"{name} has lines without the lab that it has not with it"
    for site in (whole, less):
        yield from (f"{place} leads to {link}, which is not there" for place, link in dead_links(site))


def dead_links(site: Path) -> Iterator[tuple[Path, str]]:
    """Yield each page with a link that leads to no file of the site."""
    for file in sorted(site.rglob("*.html")):
        links = set(map(html.unescape, LINK.findall(file.read_text(encoding="utf-8"))))
        for link in sorted(link for link in links if link and not link.startswith(OUTSIDE)):
            if not (file.parent / link).resolve().is_file():
                yield file.relative_to(site), link
