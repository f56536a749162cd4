"""The provenance of a result: versions, commit and machine."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.metadata import distribution as metadata_of
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from dpbench.support.paths import PACKAGE

HARNESS = "dpbench-vision"  # the distribution of dpbench
RELEASED_VERSIONS = (
    "0.2.0",
)  # its versions whose results can be run again: research noise is derived from the version
PACKAGES = (
    "datasets", "dp-accounting", "numpy", "onnxruntime", "opacus", "opendp", "prv-accountant",
    "scikit-learn", "scipy", "timm", "torch", "torchvision",
)  # fmt: skip


def collect_provenance(device: str) -> dict[str, Any]:
    """Return versions, commit and machine of this process."""
    commit, dirty = read_tree()
    return {
        "dpbench": _version(HARNESS),
        "commit": commit,
        "dirty": dirty,
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
        "platform": f"{platform.system()} {platform.machine()}",
        "processor": _find_processor(),
        "cores": os.cpu_count(),
        "threads": _count_threads(),
        "device": device,
    }


def current_day() -> str:
    """Return today's date for records, YYYY-MM-DD in UTC."""
    return datetime.now(UTC).date().isoformat()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def read_tree(root: Path | None = None) -> tuple[str | None, bool | None]:
    """Return the commit of a source tree (default: dpbench's) and whether it has changes; (None, None) for a wheel."""
    root = root or PACKAGE.parent
    if not (root / ".git").exists():
        return None, None
    try:
        commit = _run_git(root, "rev-parse", "HEAD")
        return commit, bool(_run_git(root, "status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return None, None


def find_source(distribution: str) -> dict[str, Any] | None:
    """Return repository, commit and whether there are changes, for a distribution that was installed from git.

    From a repository, as `pip install git+URL` notes it, or from a working copy (`pip install -e`), whose remote it is.
    None where pip noted neither.
    """
    try:
        installed = metadata_of(distribution).files or ()
        (file,) = (path for path in installed if path.name == "direct_url.json")
        noted = json.loads(file.read_text(encoding="utf-8"))
    except (PackageNotFoundError, OSError, ValueError):
        return None
    url, vcs = str(noted.get("url", "")), noted.get("vcs_info")
    if vcs:
        return {"repository": without_credentials(url), "commit": vcs.get("commit_id"), "dirty": False}
    root = Path(unquote(urlparse(url).path)) if url.startswith("file:") else None
    if root is None or not (root / ".git").exists():
        return None
    commit, dirty = read_tree(root)
    try:
        origin = without_credentials(_run_git(root, "remote", "get-url", "origin"))
        return {"repository": origin, "commit": commit, "dirty": dirty}
    except (OSError, subprocess.SubprocessError):
        return {"repository": None, "commit": commit, "dirty": dirty}


def without_credentials(address: str) -> str:
    """Return the address of a repository without the credentials that somebody may have put into it.

    >>> without_credentials("https://me:secret@example.org/me/plugin.git")
    'https://example.org/me/plugin.git'
    >>> without_credentials("ssh://git:secret@example.org:22/me/plugin.git")
    'ssh://git@example.org:22/me/plugin.git'
    """
    address = re.sub(r"^(https?://)[^/]*@", r"\1", address)
    return re.sub(r"^(\w+://[^/@:]*):[^/]*@", r"\1@", address)  # ssh needs the name


def find_user_name() -> str | None:
    """Return the name under which commits are made here; None if git knows none."""
    try:
        return _run_git(Path.cwd(), "config", "user.name") or None
    except (OSError, subprocess.SubprocessError):
        return None


def _run_git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()


def _find_processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _count_threads() -> int | None:
    return sys.modules["torch"].get_num_threads() if "torch" in sys.modules else None
