"""Audits on a leaderboard: the command files them, entries show them, and verify holds each against its result."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpbench.board.build import build_index, verify_leaderboard
from dpbench.board.verify.expectations import ReviewContext
from dpbench.records.checksums import compute_seal
from dpbench.registry import Registry
from dpbench.site import build_site
from tests.helpers import boards
from tests.helpers.boards import edited
from tests.helpers.commands import call


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A leaderboard whose board `tiny` was audited, and not re-run."""
    root = boards.proven(tmp_path_factory)
    shutil.rmtree(root / "reruns")
    return root


@pytest.fixture
def root(world: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(world, tmp_path / "leaderboard"))


def audit_of(root: Path, learner: str) -> Path:
    (file,) = (root / "audits" / "tiny").glob(f"{learner}-digits-*.json")
    return file


def complaints(root: Path, plugins: Registry) -> list[str]:
    return [
        f"{complaint.file} {complaint}"
        for complaint in verify_leaderboard(root, ReviewContext.read(root, plugins)).complaints
    ]


def change(file: Path, field: str, value: Any) -> None:
    file.write_text(json.dumps(edited(json.loads(file.read_text(encoding="utf-8")), field, value)), encoding="utf-8")


def forge(file: Path, field: str, value: Any) -> None:
    """Change a field of an audit and seal it again."""
    change(file, field, value)
    change(file, "seal", compute_seal(json.loads(file.read_text(encoding="utf-8"))))


@pytest.mark.slow
def test_a_board_is_audited_entry_by_entry_and_what_cannot_be_says_why(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert {file.name.partition("-digits")[0] for file in root.glob("audits/tiny/*")} == {"class-means", "pillar"}
    shutil.rmtree(root / "audits")
    assert call("audit", "tiny", "--root", str(root), "--canaries", "1000", "--device", "cpu") == 0
    said, left_out = capsys.readouterr()
    assert "not audited: Learner 'public-only' asks nothing of the private data" in left_out
    assert "not audited: A run at epsilon = inf adds no noise" in left_out
    assert said.count("attack       passed") == 2


@pytest.mark.slow
def test_entries_carry_the_figures_and_the_page_shows_them(root: Path, plugins: Registry, tmp_path: Path) -> None:
    index = build_index(root, plugins)
    (standing,) = (standing for standing in index.standings if standing.board.name == "tiny")
    found = {entry.learner: entry for entry in standing.entries}
    audit = json.loads(audit_of(root, "pillar").read_text(encoding="utf-8"))
    shown = found["pillar"].audit
    assert shown is not None and found["pillar"].trust == "audited"
    assert (shown.noise_low, shown.noise_high) == (audit["figures"]["low"], audit["figures"]["high"])
    assert found["public-only"].audit is None and found["public-only"].trust == "submitted"
    build_site(index, root, tmp_path / "site")
    page = (tmp_path / "site" / "entries" / "tiny" / f"{found['pillar'].id}.html").read_text(encoding="utf-8")
    assert f"{shown.noise_low:.4f} to {shown.noise_high:.4f} of the stated σ" in page
    assert "<strong>audited</strong>" in page


def test_audits_of_a_leaderboard_pass_its_checks(root: Path, plugins: Registry) -> None:
    assert complaints(root, plugins) == []


Change = tuple[str, Any, str]
SAMPLED = {
    "release": "gradient", "steps": 9, "sizes": 9.0, "rows": 9.0, "counts": None, "rate": 5e-324, "members": 9,
    "units": 9,
}  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("epsilon", 0.5, "epsilon: expected what the result states"),
        ("sigma", lambda sigma: sigma * 1.01, "sigma: expected what the result states"),
        ("plan.0.sigma", lambda sigma: sigma * 1.01, "plan: expected what the result states"),
        ("mechanism", "floats-0", "mechanism: expected what the result states"),
        ("components.learner.distribution", "other", "components: expected what the result states"),
        ("content", "0" * 64, "content: the audit is of another result"),
        ("seed", 99, "seed: expected one of the result's"),
        ("noise.squares", lambda squares: squares * 1.02, "figures: they do not follow"),
        ("attack.correct", 30, "figures: they do not follow"),
        ("attack.guesses", lambda guesses: guesses + 1, "attack.guesses: expected"),
        ("attack.correct", 10**6, "attack: expected correct guesses among"),
        ("attack.canaries", 10**12, "attack.canaries: expected at most 1,000,000"),
        ("noise.samples", [SAMPLED], "noise.samples: expected the rate of the plan"),
        ("repeats", False, "repeats: expected a fit that gave the result's predictions"),
        ("sensitivity.rows", 0, "sensitivity: expected rows that were tried"),
        ("attack.members", 10, "attack.members: expected each canary"),
        ("attack.mu", None, "attack.mu: expected none where samples are drawn"),
        ("attack", None, "attack: expected all three parts"),
        ("figures.failed", ["noise: size of all noise (p 1e-9)"], "figures: they do not follow"),
        ("figures.steinke.epsilon", lambda epsilon: epsilon + 1e-4, "figures: they do not follow"),
        ("figures.steinke.epsilon", 1e9, "figures: they do not follow"),
        ("figures.mahloujifar.epsilon", lambda epsilon: epsilon + 1e-4, "figures: they do not follow"),
        ("figures.mahloujifar.epsilon", 1e9, "figures: they do not follow"),
        ("sensitivity.largest", 1.5, "figures: they do not follow"),
        ("figures", "nothing", "figures"),
        ("attack.mean", "NaN", "attack.mean"),
        ("noise.squares", "Infinity", "noise.squares"),
        ("epsilon", "Infinity", "epsilon"),
    ],
)
def test_an_audit_that_is_not_that_of_its_result_is_found(
    root: Path, plugins: Registry, field: str, value: Callable[[Any], Any] | Any, said: str
) -> None:
    forge(audit_of(root, "pillar"), field, value)
    found = complaints(root, plugins)
    assert any(said in line for line in found), found
    assert all(line.startswith("audits/tiny/pillar-digits-") for line in found)


def test_another_version_audits_a_result_if_its_fit_gave_the_same_predictions(root: Path, plugins: Registry) -> None:
    file = audit_of(root, "pillar")
    forge(file, "components.learner.version", "0.0")
    assert complaints(root, plugins) == []
    forge(file, "repeats", None)
    (said,) = complaints(root, plugins)
    assert "components: expected what the result states" in said


def test_of_an_audit_that_changed_nothing_else_is_said(root: Path, plugins: Registry) -> None:
    change(audit_of(root, "pillar"), "epsilon", 0.5)
    (said,) = complaints(root, plugins)
    assert "seal: changed after it was written" in said


def test_a_result_that_changed_after_its_audit_has_to_be_audited_again(root: Path, plugins: Registry) -> None:
    file = boards.file_of(root, "pillar")
    content = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(boards.resealed(edited(content, "seconds.fit", 0.25))), encoding="utf-8")
    assert any("audit it again" in line for line in complaints(root, plugins))


@pytest.mark.slow
def test_an_audit_that_failed_stands_in_the_way_until_the_result_is_disputed(
    root: Path, plugins: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = boards.file_of(root, "pillar").stem
    with monkeypatch.context() as patch:
        from dpbench.privacy.core import randomness

        plain = randomness._SeededDraws.noise
        patch.setattr(randomness._SeededDraws, "noise", lambda self, shape, std: plain(self, shape, std * 0.9))
        asked = ["audit", f"tiny/{entry}", "--root", str(root), "--canaries", "2000", "--device", "cpu"]
        assert call(*asked) == 1
    assert any("figures.failed: noise: size of" in line for line in complaints(root, plugins))
    file = boards.file_of(root, "pillar")
    change(file, "status", "disputed")
    assert complaints(root, plugins) == []
    (standing,) = (standing for standing in build_index(root, plugins).standings if standing.board.name == "tiny")
    assert all(entry.trust != "audited" for entry in standing.entries if entry.learner == "pillar")


def test_an_entry_is_audited_with_a_seed_of_its_own(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = boards.file_of(root, "pillar").stem
    assert call("audit", f"tiny/{entry}", "--root", str(root), "--seed", "7") == 1
    assert f"Expected --seed 7 to be a seed of tiny/{entry}: 0, 1." in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["audits", "reruns"])
def test_what_belongs_to_no_result_is_a_stray(root: Path, plugins: Registry, kind: str) -> None:
    stray = root / kind / "tiny" / "nothing.json"
    stray.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(audit_of(root, "pillar"), stray)
    (line,) = complaints(root, plugins)
    assert line.startswith(f"{kind}/tiny/nothing.json") and line.endswith(
        "there is no such result on this board: remove it"
    )


def age(file: Path, **figures: Any) -> None:
    """Make an audit one of before e-values: without evidence, with the level of its tests."""
    content = json.loads(file.read_text(encoding="utf-8"))
    content["figures"] = {**content["figures"], "evidence": None, "level": 1e-5, **figures}
    forge(file, "figures", content["figures"])


@pytest.mark.slow
def test_an_audit_of_before_e_values_is_shown_with_the_evidence_of_its_p_values(root: Path, plugins: Registry) -> None:
    file = audit_of(root, "pillar")
    evidence = json.loads(file.read_text(encoding="utf-8"))["figures"]["evidence"]
    age(file)
    assert complaints(root, plugins) == []
    (standing,) = (found for found in build_index(root, plugins).standings if found.board.name == "tiny")
    (shown,) = (entry.audit for entry in standing.entries if entry.learner == "pillar")
    assert shown is not None and shown.evidence == pytest.approx(evidence)


@pytest.mark.slow
def test_an_audit_of_before_e_values_hides_no_alarm(root: Path, plugins: Registry) -> None:
    file = audit_of(root, "pillar")
    checks = json.loads(file.read_text(encoding="utf-8"))["noise"]["checks"]
    age(file)
    forge(file, "noise.checks", [{**check, "p": 1e-12} for check in checks])
    forge(file, "figures.gauss", None)
    assert "figures: they do not follow" in complaints(root, plugins)[0]


@pytest.mark.slow
def test_looking_again_multiplies_the_evidence_of_an_entry(root: Path, plugins: Registry) -> None:
    file = audit_of(root, "pillar")
    first = json.loads(file.read_text(encoding="utf-8"))
    assert call("audit", f"tiny/{file.stem}", "--seed", "1", "--root", str(root), "--canaries", "2000") == 0
    second = json.loads(file.read_text(encoding="utf-8"))
    assert second["earlier"]["seeds"] == [first["seed"]] and second["seed"] == 1
    assert complaints(root, plugins) == []
    forge(file, "earlier.seeds", [1])
    assert "earlier.seeds: expected different seeds" in complaints(root, plugins)[0]
