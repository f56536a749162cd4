"""Attacks on released models on a leaderboard: the command files them, entries show them, and verify checks them."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

import pytest

from dpbench.board.build import build_index
from dpbench.harness import fitting
from dpbench.registry import Registry
from dpbench.site import build_site
from tests.board.test_audits import complaints, forge
from tests.helpers import boards
from tests.helpers.commands import call

LEARNER = "class-means"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A leaderboard with an attack on one entry of its board `tiny`."""
    root = boards.world(tmp_path_factory)
    entry = boards.file_of(root, LEARNER).stem
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "refuse_leftovers", contextlib.nullcontext)  # which takes longer than a shadow's fit
        assert call("audit", "--released", f"tiny/{entry}", "--root", root, "--shadows", 32, "--device", "cpu") == 0
    return root


@pytest.fixture
def root(world: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(world, tmp_path / "leaderboard"))


def attack_file(root: Path) -> Path:
    (file,) = (root / "released" / "tiny").glob("*.json")
    return file


def test_the_page_of_an_entry_shows_its_attack(root: Path, plugins: Registry, tmp_path: Path) -> None:
    assert complaints(root, plugins) == []
    build_site(build_index(root, plugins), root, tmp_path / "site")
    pages = {file.stem: file.read_text(encoding="utf-8") for file in (tmp_path / "site" / "entries").rglob("*.html")}
    shown = [name for name, text in pages.items() if "Attack on released models" in text]
    assert shown == [attack_file(root).stem]
    assert "likelihood ratio (LiRA)" in pages[shown[0]]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("content", "0" * 64, "the attack is on another result"),
        ("privacy.sigma", 0.1, "expected what the result states"),
        ("tests.0.rates.1.low", 0.5, "they do not follow from the counts"),
        ("tests.2.rates.0.bound", 0.9, "they do not follow from the counts"),
        ("shadows", 7, "expected at least 32, got 7"),
        ("tests", lambda tests: tests[:2], "expected one of each attack on private records"),
        ("tests.1.members", lambda members: members + 1, "expected a pair of each record and each shadow"),
        ("tests.1.rates.0.positives", 10**6, "expected positives among"),
    ],
)
def test_an_attack_that_does_not_fit_is_a_complaint(
    field: str, value: object, said: str, root: Path, plugins: Registry
) -> None:
    forge(attack_file(root), field, value)
    (found,) = complaints(root, plugins)
    assert found.startswith("released/tiny/class-means-digits-") and said in found


def test_an_attack_that_was_changed_or_has_no_result_is_a_complaint(root: Path, plugins: Registry) -> None:
    file = attack_file(root)
    content = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**content, "accuracy": 0.123}), encoding="utf-8")
    assert "changed after it was written" in "".join(complaints(root, plugins))
    file.rename(file.with_name("nothing.json"))
    assert "there is no such result on this board" in "".join(complaints(root, plugins))
