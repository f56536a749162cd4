"""Skip a build if neither its inputs nor its outputs have changed since an earlier build.

Inputs are the leaderboard's files, the commits that changed its results, the code of dpbench and of all plugins, the
installed packages, and the environment variables that pages show. Outputs are `leaderboard.json`, its schema and the
site. The cache folder holds the digests of both. A changed byte on either side means that everything is checked and
built again, so that no output is ever stale or a mixture of two builds.

Not covered: data and network weights that arrive on this machine between two builds. Verification asks more learners
for their plans if it has the network behind activations; `dpbench leaderboard verify` always asks.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

from dpbench.board.build import INDEX, SCHEMA
from dpbench.board.history import History
from dpbench.errors import OutputError
from dpbench.records.board import list_board_files
from dpbench.records.fingerprints import locate_fingerprint_folder
from dpbench.registry import Registry
from dpbench.site.extras import Extras
from dpbench.site.settings import ADDRESS, EPOCH, REPOSITORY
from dpbench.support.code import DPBENCH, code_digest, top_package
from dpbench.support.files import canonical_digest, write_json
from dpbench.support.folders import MARKER
from dpbench.support.paths import cache_folder


@dataclass(frozen=True)
class BuildTarget:
    """A leaderboard, the folder of its site, and what else decides the bytes of the site."""

    root: Path
    out: Path
    plugins: Registry
    extras: Extras
    docs: bool  # whether the documentation is wanted

    def digest_inputs(self) -> str:
        """Return a digest of everything that a build reads, except `leaderboard.json` and its schema."""
        versions = sorted((str(found.metadata["Name"]), found.version) for found in distributions())
        classes = [item.cls for found in self.plugins.components.values() for item in found.values()]
        environment = [os.environ.get(name, "") for name in (ADDRESS, REPOSITORY, EPOCH)]
        history = History.open(self.root)
        filings = history.list_filings() if history else None
        digest = hashlib.sha256(
            repr((sys.version, versions, [*map(code_digest, classes)], environment, self.docs, filings)).encode()
        )
        modules = [DPBENCH, *self.extras.packages, *(cls.__module__ for cls in classes)]
        folders = [
            Path(place)
            for name in sorted({*map(top_package, modules)})
            for place in getattr(sys.modules[name], "__path__", ())
        ]
        own = sorted(part for part in self.root.iterdir() if part.name not in {INDEX, SCHEMA} and not _is_output(part))
        boards = sorted(list_board_files().values())  # where the leaderboard has none of its own
        _add_files(digest, [*folders, locate_fingerprint_folder(), *boards, *own])
        return digest.hexdigest()

    def find_build(self, inputs: str) -> str | None:
        """Return the sentence of the build whose inputs and outputs these are; None if there is no such build."""
        try:
            kept = json.loads(self._record.read_text(encoding="utf-8"))
            same = (kept["inputs"], kept["outputs"]) == (inputs, self._digest_outputs())
            return str(kept["said"]) if same else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def keep_build(self, inputs: str, said: str) -> None:
        """Remember a build of these inputs and its sentence, unless an input has changed meanwhile."""
        if self.digest_inputs() != inputs:
            return
        try:
            write_json(self._record, {"inputs": inputs, "outputs": self._digest_outputs(), "said": said})
        except OutputError:
            return  # a build does not fail because it cannot be remembered

    @property
    def _record(self) -> Path:
        place = canonical_digest([str(self.root.resolve()), str(self.out.resolve())])
        return cache_folder() / "builds" / f"{place[:32]}.json"

    def _digest_outputs(self) -> str:
        digest = hashlib.sha256()
        _add_files(digest, [self.root / INDEX, self.root / SCHEMA, self.out])
        return digest.hexdigest()


def _is_output(part: Path) -> bool:
    """Return whether an entry of the leaderboard's folder is a built site or hidden, as unfinished sites are."""
    return part.name.startswith(".") or (part / MARKER).is_file()


def _add_files(digest: hashlib._Hash, paths: Iterable[Path]) -> None:
    """Add files, and all files in folders, to a digest: their paths, lengths and bytes."""
    for path in paths:
        for file in _list_files(path):
            content = file.read_bytes()
            digest.update(f"{file.relative_to(path.parent)}\0{len(content)}\0".encode() + content)


def _list_files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from (file for file in sorted(path.rglob("*")) if file.is_file() and "__pycache__" not in file.parts)
    elif path.exists():
        yield path
