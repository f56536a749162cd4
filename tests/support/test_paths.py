"""Where dpbench keeps what it caches."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dpbench.support import paths

CODE = """
import os, subprocess, sys
from dpbench.support.paths import cache_folder
found = cache_folder()
(found / "kept").write_text("")
child = "from dpbench.support.paths import cache_folder; print((cache_folder() / 'kept').exists())"
print(found == cache_folder(), subprocess.run([sys.executable, "-c", child], capture_output=True, text=True).stdout)
print(found)
"""


def test_a_home_that_cannot_be_written_is_replaced_until_the_end(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text("")  # nobody can make a folder in a file, whoever runs the test
    environment = {**os.environ, "HOME": str(home), "XDG_CACHE_HOME": "", "TMPDIR": str(tmp_path)}
    environment.pop("DPBENCH_CACHE", None)
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True, env=environment)
    same, shared, folder = done.stdout.split()
    assert (same, shared) == ("True", "True")
    assert done.stderr.count("so what is cached is deleted at the end. Name another folder in DPBENCH_CACHE.") == 1
    assert Path(folder).parent == tmp_path and not Path(folder).exists()


def test_a_home_that_can_be_written_keeps_its_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPBENCH_CACHE", raising=False)
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(tmp_path / "new" / name))
    assert paths.cache_folder() == tmp_path / "new" / "dpbench"
    assert not (tmp_path / "new").exists()
