"""The provenance of a result: package versions, commit and machine."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.metadata import distribution as metadata_of
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from dpbench.support.paths import PACKAGE

HARNESS = "dpbench-vision"  # the distribution of dpbench
RELEASED_VERSIONS = ("0.2.0",)
"""Versions of dpbench before this one whose results can be run again: research noise is derived from the version."""
PACKAGES = (
    "datasets", "dp-accounting", "numpy", "onnxruntime", "opacus", "opendp", "prv-accountant",
    "scikit-learn", "scipy", "timm", "torch", "torchvision",
)  # fmt: skip


def collect_provenance(device: str) -> dict[str, Any]:
    """Return the package versions, commit and machine of this process."""
    commit, dirty = read_git_state()
    return {
        "dpbench": _find_package_version(HARNESS),
        "commit": commit,
        "dirty": dirty,
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _find_package_version(name))},
        "platform": f"{platform.system()} {platform.machine()}",
        "processor": _find_processor_name(),
        "cores": os.cpu_count(),
        "threads": _count_threads(),
        "device": device,
    }


def current_date() -> str:
    """Return today's date in UTC as YYYY-MM-DD."""
    return datetime.now(UTC).date().isoformat()


@cache
def _find_package_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def read_git_state(root: Path | None = None) -> tuple[str | None, bool | None]:
    """Return the commit of a source tree (default: dpbench's) and whether it has changes; (None, None) without git."""
    root = root or PACKAGE.parent
    if not (root / ".git").exists():
        return None, None
    try:
        commit = _run_git(root, "rev-parse", "HEAD")
        return commit, bool(_run_git(root, "status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return None, None


def list_plugin_sources(provenance: Mapping[str, Any]) -> dict[str, dict[str, Any]] | None:
    """Return the recorded sources of third-party plugins, by distribution; None if the record is malformed."""
    sources = provenance.get("sources", {})
    whole = isinstance(sources, dict) and all(isinstance(source, dict) for source in sources.values())
    return sources if whole else None


def find_git_source(distribution: str) -> dict[str, Any] | None:
    """Return the repository and commit of a distribution installed from git, and whether it has uncommitted changes.

    The source is the repository that `pip install git+URL` recorded, or the remote of a working copy that was installed
    by `pip install -e`. Returns None if pip recorded neither.
    """
    try:
        installed = metadata_of(distribution).files or ()
        (file,) = (path for path in installed if path.name == "direct_url.json")
        noted = json.loads(file.read_text(encoding="utf-8"))
    except (PackageNotFoundError, OSError, ValueError):
        return None
    url, vcs = str(noted.get("url", "")), noted.get("vcs_info")
    if vcs:
        return {"repository": remove_credentials(url), "commit": vcs.get("commit_id"), "dirty": False}
    root = Path(unquote(urlparse(url).path)) if url.startswith("file:") else None
    if root is None or not (root / ".git").exists():
        return None
    commit, dirty = read_git_state(root)
    try:
        origin = remove_credentials(_run_git(root, "remote", "get-url", "origin"))
        return {"repository": origin, "commit": commit, "dirty": dirty}
    except (OSError, subprocess.SubprocessError):
        return {"repository": None, "commit": commit, "dirty": dirty}


def remove_credentials(address: str) -> str:
    """Return the address of a repository without any credentials in it.

    >>> remove_credentials("https://me:secret@example.org/me/plugin.git")
    'https://example.org/me/plugin.git'
    >>> remove_credentials("ssh://git:secret@example.org:22/me/plugin.git")
    'ssh://git@example.org:22/me/plugin.git'
    """
    address = re.sub(r"^(https?://)[^/]*@", r"\1", address)
    return re.sub(r"^(\w+://[^/@:]*):[^/]*@", r"\1@", address)  # ssh needs the name


def find_git_user_name() -> str | None:
    """Return the author name that git uses on this machine; None if git has none."""
    try:
        return _run_git(Path.cwd(), "config", "user.name") or None
    except (OSError, subprocess.SubprocessError):
        return None


def _run_git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()


def _find_processor_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _count_threads() -> int | None:
    return sys.modules["torch"].get_num_threads() if "torch" in sys.modules else None
