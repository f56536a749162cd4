"""Tests stand where what they test stands: a folder of tests for each package, and few files beside them."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
MIRRORS = {"plugins": ROOT / "plugins" / "dpbench_plugins", "lab": ROOT / "plugins" / "dpbench_lab"}
"""Folders of tests of packages outside dpbench."""
HELPERS = "helpers"  # what tests share; no tests
WHOLE = {"benchmarks", "doubles", "golden", "gpu", "mutants", "without_lab"}
"""Folders that are about no package alone, each with a command or data of its own."""
FLAT = {
    "test_any_machine",  # a clone, on any machine
    "test_deprecation",  # dpbench/__init__.py
    "test_errors",  # dpbench/errors.py
    "test_extras",  # what an installation has
    "test_fresh",  # each component, in a new process
    "test_layers",  # the packages of dpbench
    "test_mirror",
    "test_packaging",  # the wheel
    "test_workflows",  # .github and .ci
}


def test_a_folder_of_tests_is_named_for_a_package() -> None:
    for folder in sorted(file.parent for file in TESTS.rglob("__init__.py")):
        first, *rest = folder.relative_to(TESTS).parts or (HELPERS,)
        if first not in WHOLE | {HELPERS}:
            mirrored = MIRRORS.get(first, ROOT / "dpbench" / first).joinpath(*rest)
            assert mirrored.is_dir(), f"{folder.relative_to(ROOT)} mirrors no package: there is no {mirrored}"


def test_every_test_is_in_a_package_of_tests() -> None:
    for file in TESTS.rglob("test_*.py"):
        assert (file.parent / "__init__.py").is_file(), f"{file.relative_to(ROOT)}: its folder has no __init__.py"
        assert file.relative_to(TESTS).parts[0] != HELPERS, f"{file.relative_to(ROOT)} is among helpers"


def test_few_tests_lie_beside_the_folders() -> None:
    flat = {file.stem for file in TESTS.glob("*.py")} - {"__init__", "conftest"}
    assert flat == FLAT, "put a test where it mirrors what it tests, such as tests/harness/test_fitting.py"
