"""Build the documentation's site once for each state of its sources, and keep it in the cache folder."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from dpbench.docs.reference import Command, generate_pages
from dpbench.errors import DocsMissing, DocsNotBuilt
from dpbench.registry import KINDS, Registry, load
from dpbench.site.extras import NO_EXTRAS, SiteExtras
from dpbench.site.layout import SECTIONS, PageSection
from dpbench.support.folders import replace_site
from dpbench.support.paths import PACKAGE, cache_folder

SOURCE = Path(__file__).parent


@dataclass(frozen=True)
class SiteHeader:
    """The header of a leaderboard's site, shown on every page of the documentation."""

    root: str  # leads from the first page of the documentation to the site
    sections: tuple[PageSection, ...]


PAGE_SUFFIXES = (".md", ".ipynb", ".svg", ".png", ".css", ".html")
GENERATOR_PACKAGES = ("Sphinx", "furo", "myst-nb")


def build_documentation(
    out: Path, command: Command, *, root: str | None = None, extras: SiteExtras = NO_EXTRAS
) -> None:
    """Build the documentation into `out` and replace any earlier site there.

    Args:
        out: a folder that is absent, empty, or a site that dpbench built.
        command: the root command; the command-line reference describes it.
        root: the relative path from `out` to a leaderboard's site; every page then shows the header of that site.
            None: no header.
        extras: additional pages.

    Raises:
        DocsMissing: the extra `docs` is not installed.
        DocsNotBuilt: a page, a link or a notebook is broken; the message names it.
        OutputError: `out` is a folder with other content, or cannot be written.
    """
    with replace_site(out) as folder:  # refuses a place before anything is built
        shutil.copytree(build_cached_documentation(command, root=root, extras=extras), folder, dirs_exist_ok=True)


def build_cached_documentation(command: Command, *, root: str | None = None, extras: SiteExtras = NO_EXTRAS) -> Path:
    """Return the cache folder with the site of the current sources; build the site first if the folder is missing.

    Raises:
        DocsMissing: the extra `docs` is not installed.
        DocsNotBuilt: a page, a link or a notebook is broken; the message names it.
    """
    versions = [_require_version(name) for name in GENERATOR_PACKAGES]
    plugins = load()
    made = {**generate_pages(command, plugins), **{path: page() for path, page in extras.manual.items()}}
    header = None if root is None else SiteHeader(root, SECTIONS)
    kind = "alone" if root is None else "beside-a-leaderboard"  # either is rebuilt without the other
    site = cache_folder() / "docs" / kind / _digest_sources(made, versions, header, plugins)
    if not site.is_dir():
        _build_site(made, site, header)
    return site


def _require_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        raise DocsMissing(
            f"Expected {name}, which builds the documentation. Install it with: pip install 'dpbench-vision[docs]'"
        ) from None


def _digest_sources(
    generated_pages: Mapping[str, str], versions: list[str], header: SiteHeader | None, plugins: Registry
) -> str:
    """Return a digest (16 hexadecimal digits) of all pages, docstrings, versions and plugins' source files."""
    found = hashlib.sha256(repr((str(PACKAGE), versions, header, sorted(generated_pages.items()))).encode())
    classes = {component.cls for kind in KINDS for component in plugins.components[kind].values()}
    brought = {Path(where) for cls in classes if (where := getattr(sys.modules[cls.__module__], "__file__", None))}
    own = {file for file in SOURCE.parent.rglob("*") if file.suffix in {*PAGE_SUFFIXES, ".py", ".jinja"}}
    for file in sorted(own | brought):
        found.update(f"{file}\0".encode() + file.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def _build_site(generated_pages: Mapping[str, str], site: Path, header: SiteHeader | None) -> None:
    """Build the site in a temporary folder, then move it to its final path and delete older sites."""
    site.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=site.parent, prefix=".building.") as name:
        pages, out = Path(name) / "pages", Path(name) / "site"
        _gather_pages(generated_pages, pages)
        _run_sphinx(pages, out, header)
        for old in site.parent.glob("[0-9a-f]*"):
            shutil.rmtree(old)
        out.rename(site)


def _encode_header(header: SiteHeader | None) -> str:
    return "" if header is None else json.dumps(asdict(header))


def _gather_pages(generated_pages: Mapping[str, str], pages: Path) -> None:
    """Copy the written pages and the generated pages into one folder."""
    for file in sorted(SOURCE.rglob("*")):
        if file.suffix in PAGE_SUFFIXES or file.name == "conf.py":
            place = pages / file.relative_to(SOURCE)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)
    for path, text in generated_pages.items():
        place = pages / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    index = pages / "index.md"
    index.write_text(_expand_listing(index.read_text(encoding="utf-8"), pages), encoding="utf-8")


def _expand_listing(index: str, pages: Path) -> str:
    """Expand each line `folder/*` of the start page into the pages of the folder that are not listed there yet."""

    def list_unlisted_pages(found: re.Match[str]) -> str:
        files = [file for file in (pages / found[1]).glob("*") if file.suffix in {".md", ".ipynb", ".rst"}]
        names = sorted(f"{found[1]}/{file.stem}" for file in files)
        return "".join(f"{name}\n" for name in names if f"\n{name}\n" not in index)

    return re.sub(r"^([\w-]+)/\*\n", list_unlisted_pages, index, flags=re.MULTILINE)


def _run_sphinx(pages: Path, out: Path, header: SiteHeader | None) -> None:
    """Run Sphinx in its own process, and delete build files from the site.

    Raises:
        DocsNotBuilt: Sphinx reports an error or a warning.
    """
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-d", str(pages / "_doctrees")]
    places = [*sys.path, os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places)), "NO_COLOR": "1"}
    environment |= {
        "DPBENCH_DOCS_HEADER": _encode_header(header),
        "PYTHONWARNINGS": "",
        "DPBENCH_CACHE": str(cache_folder()),
    }
    done = subprocess.run(
        [*command, str(pages), str(out)], capture_output=True, text=True, env=environment, check=False
    )
    if done.returncode:
        said = "\n".join(line.replace(f"{pages}{os.sep}", "") for line in done.stderr.splitlines()[-40:])
        raise DocsNotBuilt(f"The documentation does not build:\n{said}")
    for left in (out / ".buildinfo", out / "objects.inv"):
        left.unlink(missing_ok=True)
    shutil.rmtree(out / "_sources", ignore_errors=True)
