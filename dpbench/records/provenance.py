"""What a result was made with."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import dpbench

PACKAGES = (
    "datasets", "dp-accounting", "numpy", "opacus", "opendp", "prv-accountant",
    "scikit-learn", "scipy", "timm", "torch", "torchvision",
)  # fmt: skip


def collect(device: str) -> dict[str, Any]:
    """Return versions, commit and machine of this process."""
    commit, dirty = _commit()
    return {
        "dpbench": _version("dpbench-vision"),
        "commit": commit,
        "dirty": dirty,
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
        "platform": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": _threads(),
        "device": device,
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _commit() -> tuple[str | None, bool | None]:
    """Return the commit of the source tree dpbench runs from and whether it has changes; None for a wheel."""
    root = Path(dpbench.__file__).parent.parent
    if not (root / ".git").exists():
        return None, None
    try:
        commit = _git(root, "rev-parse", "HEAD")
        return commit, bool(_git(root, "status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return None, None


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _threads() -> int | None:
    return sys.modules["torch"].get_num_threads() if "torch" in sys.modules else None
