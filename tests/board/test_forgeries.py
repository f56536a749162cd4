"""Each forgery of a leaderboard's entry is made, and found by what the page says that finds it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from dpbench.board import build
from dpbench.board.verify.rerun_record import rerun_seeds
from dpbench.records.result import Result
from dpbench.registry import Registry
from tests.helpers import boards, readme
from tests.helpers.forgeries import (
    FORGERIES,
    SCRIPT,
    Forgery,
    Scene,
    best_of_many,
    find,
    packed,
    read,
    secure_with_less_noise,
)
from tests.helpers.hostile_plugins import HOSTILE, HostilePlugin, Means
from tests.helpers.sessions import session
from tests.helpers.strangers import run_learner

LEARNER = "class-means"
pytestmark = pytest.mark.usefixtures("clean_commit")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, clean_commit: None) -> Path:
    """A leaderboard two of whose entries were reproduced and audited."""
    return boards.proven(tmp_path_factory)


@pytest.fixture
def scene(world: Path, tmp_path: Path, plugins: Registry, monkeypatch: pytest.MonkeyPatch) -> Scene:
    shutil.copytree(world, tmp_path / "leaderboard")
    honest = json.loads(boards.file_of(world, LEARNER).read_text(encoding="utf-8"))
    made = Scene(tmp_path, honest, plugins, monkeypatch)
    made.git("init", "-q")
    return made


def begin(scene: Scene, forgery: Forgery) -> None:
    """Commit what was there before."""
    if not forgery.there:
        for kind in ("audits", "reruns"):
            name = kind.removesuffix("s") + ".json"
            shutil.move(scene.record(kind), scene.repository / name)
        boards.file_of(scene.root, LEARNER).unlink()
    forgery.before(scene)
    build.write_index(build.build_index(scene.root, scene.plugins), scene.root)
    scene.commit()


@pytest.mark.slow
def test_an_honest_submission_is_found_fault_with_by_nobody(scene: Scene) -> None:
    begin(scene, FORGERIES[0])
    file = scene.submit(scene.honest)
    scene.commit()
    assert read(file) == scene.honest
    record = rerun_seeds(Result.read(file), None, session(scene.plugins))
    assert record.agrees and {claim.verdict for claim in record.claims} == {"same"}


@pytest.mark.slow
@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda complaint: complaint.what)
def test_a_forgery_is_found_by_what_the_page_says(scene: Scene, forgery: Forgery) -> None:
    begin(scene, forgery)
    forgery.forge(scene)
    finder, said = find(scene)
    assert (finder, forgery.says in said) == (forgery.found_by, True), said


def honest(scene: Scene) -> None:
    """Submit an honest result, as somebody does who follows the instructions."""
    scene.submit(scene.honest)


SUBMISSIONS = [
    Forgery("an honest result", "nobody", honest, ""),
    Forgery("an honest result on a packed board", "nobody", honest, "", before=packed),
] + [
    forgery for forgery in FORGERIES
    if (forgery.found_by in {"verify", "workflow"} and forgery.forge.__name__ in
    {"made_up_rerun", "dropped_seed", "index_by_hand", "other_archive", "with_code"})
    or "earlier version" in forgery.what
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "forgery",
    [  # what `verify` finds is found above too
        pytest.param(forgery, id=forgery.what, marks=[pytest.mark.long] * (forgery.found_by == "verify"))
        for forgery in SUBMISSIONS
    ],
)
def test_the_workflow_takes_honest_submissions_alone(scene: Scene, forgery: Forgery) -> None:
    shutil.copytree(SCRIPT.parent, scene.repository / ".ci")
    begin(scene, forgery)
    scene.git("update-ref", "refs/remotes/origin/main", "HEAD")
    forgery.forge(scene)
    if forgery.found_by == "nobody":
        build.write_index(build.build_index(scene.root, scene.plugins), scene.root)
    scene.commit()
    content = yaml.safe_load((SCRIPT.parents[1] / ".github/workflows/submission.yml").read_text(encoding="utf-8"))
    lines = [step["run"] for step in content["jobs"]["verify"]["steps"] if not step.get("run", "pip").startswith("pip")]
    found = {**os.environ, "GITHUB_BASE_REF": "main", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-e", "-c", "\n".join(lines)],
        cwd=scene.repository, env=found, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode == 0) == (forgery.found_by == "nobody"), done.stdout + done.stderr


SECURE = [forgery for forgery in FORGERIES if forgery.forge in (best_of_many, secure_with_less_noise)]


@pytest.mark.slow
@pytest.mark.parametrize("forgery", SECURE, ids=lambda complaint: complaint.what)
def test_secure_results_have_no_rank(scene: Scene, forgery: Forgery) -> None:
    begin(scene, forgery)
    forgery.forge(scene)
    index = build.build_index(scene.root, scene.plugins)
    (entry,) = [entry for standing in index.standings for entry in standing.entries if entry.learner == LEARNER]
    assert (entry.role, entry.rank, entry.rng) == ("unranked", None, "secure")
    assert "its noise was secure and cannot be drawn again" in entry.why


@pytest.mark.parametrize("plugin", HOSTILE, ids=lambda plugin: plugin.learner.name)
def test_a_plugin_that_is_written_to_defeat_the_harness_does(plugin: HostilePlugin) -> None:
    honest, hostile = (
        run_learner(learner, epsilon=0.01).metrics["accuracy"].mean for learner in (Means, plugin.learner)
    )
    assert (honest < 0.4, hostile > 0.8) == (True, True), (honest, hostile)


def test_there_are_twenty_forgeries_at_least_each_once() -> None:
    assert len({forgery.what for forgery in FORGERIES}) == len(FORGERIES) >= 20
    assert "forgeries" in readme.TABLES
