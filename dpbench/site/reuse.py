"""Skip a build if neither its inputs nor its outputs have changed since an earlier build.

Inputs are the leaderboard's files, the commits that changed its results, the code of dpbench and of all plugins, the
installed packages, and the environment variables that pages show. Outputs are `leaderboard.json`, its schema and the
site. The cache folder holds the digests of both. A change on either side (a byte, a name, a folder, or a link in place
of a file) means that everything is checked and built again, so that no output is ever stale or a mixture of two builds.
Two builds of one leaderboard never run at the same time.

Not covered: data and network weights that arrive on this machine between two builds (with the network that produced the
activations, verification asks more learners for their plans; `dpbench leaderboard verify` always asks), code that is
edited while Python starts, and a record that somebody else wrote into your cache folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

from dpbench.board.build import INDEX, SCHEMA
from dpbench.board.history import GitHistory
from dpbench.errors import OutputError
from dpbench.records.board import list_board_files
from dpbench.records.fingerprints import locate_fingerprint_folder
from dpbench.registry import Registry
from dpbench.site.extras import SiteExtras
from dpbench.site.settings import ADDRESS, EPOCH, REPOSITORY
from dpbench.support.code import DPBENCH, code_digest, get_top_package
from dpbench.support.files import canonical_digest, write_json
from dpbench.support.folders import lock_folder
from dpbench.support.paths import cache_folder

OUTPUTS = (INDEX, SCHEMA)
"""The output files in the leaderboard's folder. The site is an output too."""


@contextmanager
def lock_build(root: Path) -> Iterator[None]:
    """Hold the build lock of a leaderboard, so that no second build replaces the site while the first one records it.

    Raises:
        OutputError: another process holds the lock.
    """
    try:
        with lock_folder(root):
            yield
    except BlockingIOError as error:
        raise OutputError(f"Another process builds or converts {root} at the moment. Wait for it.") from error


@dataclass(frozen=True)
class BuildTarget:
    """A leaderboard, the folder of its site, and all other inputs of the build."""

    root: Path
    out: Path
    plugins: Registry
    extras: SiteExtras
    docs: bool  # whether the documentation is wanted

    def digest_inputs(self) -> str | None:
        """Return a digest of everything that a build reads, except outputs; None if an input cannot be read."""
        facts = [found.metadata for found in distributions()]  # once each: they are parsed every time
        versions = sorted((str(fact["Name"]), str(fact["Version"])) for fact in facts)
        classes = [item.cls for found in self.plugins.components.values() for item in found.values()]
        environment = [os.environ.get(name, "") for name in (ADDRESS, REPOSITORY, EPOCH)]
        history = GitHistory.open(self.root)
        filings = history.list_filings() if history else None
        values = sys.version, versions, [*map(code_digest, classes)], environment, self.docs, filings
        modules = [DPBENCH, *self.extras.packages, *(cls.__module__ for cls in classes)]
        folders = [
            Path(place)
            for name in sorted({*map(get_top_package, modules)})
            for place in getattr(sys.modules[name], "__path__", ())
        ]
        boards = sorted(list_board_files().values())  # where the leaderboard has none of its own
        code = _digest_files([*folders, locate_fingerprint_folder(), *boards], lambda path: path.name == "__pycache__")
        own = _digest_files([self.root], self._is_excluded_from_inputs)
        return canonical_digest([repr(values), code, own]) if code and own else None

    def find_recorded_message(self, inputs_digest: str | None) -> str | None:
        """Return the message of an earlier build with these inputs and unchanged outputs; None if there is none."""
        outputs = self._digest_outputs()
        if inputs_digest is None or outputs is None:
            return None
        try:
            kept = json.loads(self._record_path.read_text(encoding="utf-8"))
            return str(kept["said"]) if (kept["inputs"], kept["outputs"]) == (inputs_digest, outputs) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def record_build(self, inputs_digest: str | None, message: str) -> None:
        """Record a build with these inputs and its message, unless an input has changed meanwhile."""
        outputs = self._digest_outputs()
        if None in (inputs_digest, outputs) or self.digest_inputs() != inputs_digest:
            return
        try:
            write_json(self._record_path, {"inputs": inputs_digest, "outputs": outputs, "said": message})
        except OutputError:
            return  # a build does not fail because it cannot be remembered

    def _is_excluded_from_inputs(self, path: Path) -> bool:
        """Return whether a path in the leaderboard's folder is an output, or hidden, such as an unfinished site."""
        top = path.parent == self.root
        return path.resolve() == self.out.resolve() or (top and (path.name in OUTPUTS or path.name.startswith(".")))

    @property
    def _record_path(self) -> Path:
        place = canonical_digest([str(self.root.resolve()), str(self.out.resolve())])
        return cache_folder() / "builds" / f"{place[:32]}.json"

    def _digest_outputs(self) -> str | None:
        return _digest_files([*(self.root / name for name in OUTPUTS), self.out])


def _digest_files(paths: Sequence[Path], left_out: Callable[[Path], bool] = lambda path: False) -> str | None:
    """Return a digest of everything at and below these paths: names, kinds, targets of links and contents of files.

    Links are followed, and a folder is entered once. Return None if something cannot be read.
    """
    digest, entered, left = hashlib.sha256(), set[Path](), [*paths]
    try:
        while left:
            path, content = left.pop(), ""
            kind = stat.S_IFMT(path.lstat().st_mode) if os.path.lexists(path) else 0
            target = str(path.readlink()) if path.is_symlink() else ""
            if path.is_file():
                with path.open("rb") as file:
                    content = hashlib.file_digest(file, "sha256").hexdigest()
            elif path.is_dir() and (folder := path.resolve()) not in entered:
                entered.add(folder)
                left += sorted(part for part in path.iterdir() if not left_out(part))
            digest.update(repr((os.fspath(path), kind, target, content)).encode())
    except (OSError, RuntimeError):  # links that lead to each other are the latter
        return None
    return digest.hexdigest()
