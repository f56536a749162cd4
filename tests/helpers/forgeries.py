"""Forgeries of a leaderboard's entry, each as a dishonest submitter would make it, and what finds it first.

`table` is what the page about them shows; `tests/board/test_forgeries.py` makes each and sees what finds it.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from dpbench.analysis.paired import decode_bits
from dpbench.api import Budget, Release
from dpbench.board import build
from dpbench.board.add import SubmissionChecker
from dpbench.board.verify.expectations import ReviewContext
from dpbench.board.verify.rerun_record import describe_rerun_differences, rerun_seeds
from dpbench.board.verify.verdict import list_compared_scores
from dpbench.errors import NotReproducible
from dpbench.harness.guarantee import compute_cross_checked_epsilon
from dpbench.privacy.core import randomness
from dpbench.privacy.core.accounting import accountant
from dpbench.records.board import Board
from dpbench.records.checksums import compute_seal
from dpbench.records.packed import pack_records, read_record
from dpbench.records.result import Result, SeedResult
from dpbench.registry import Registry
from dpbench.registry.boards import make_entry_spec
from tests.helpers import boards
from tests.helpers.sessions import session

SCRIPT = Path(__file__).parents[2] / ".ci" / "submission.py"
Finder = Literal["verify", "workflow", "rerun", "nobody"]
FINDERS: Mapping[Finder, str] = {
    "verify": "`verify`",
    "workflow": "the workflow",
    "rerun": "`verify --rerun`",
    "nobody": "nobody",
}
Content = dict[str, Any]


@dataclass
class Scene:
    """A repository with a leaderboard, in which an entry of `class-means` is forged."""

    repository: Path
    honest: Content  # the result of class-means as it was
    plugins: Registry
    patch: pytest.MonkeyPatch
    file: Path | None = None  # the forged result

    @property
    def root(self) -> Path:
        return self.repository / "leaderboard"

    def submit(self, content: Content) -> Path:
        """File a result with a digest that fits, under the name that it has to have."""
        content = boards.resealed(content)
        self.file = self.root / "results" / "tiny" / Result.model_validate(content).file_name
        self.file.write_text(json.dumps(content), encoding="utf-8")
        return self.file

    def ran(self, asked: Mapping[str, Any], **changed: Any) -> Content:
        """Return the result of an honest run for the board, of a clean commit, with some keys of its spec changed."""
        spec = make_entry_spec(Board.read(self.root / "boards" / "tiny.toml"), asked, self.plugins, "the test")
        made = session(self.plugins).run(spec.model_copy(update=changed))
        content: Content = json.loads(made.model_dump_json())
        return boards.edited(boards.edited(content, "provenance.commit", boards.COMMIT), "provenance.dirty", False)

    def record(self, kind: Literal["audits", "reruns"], learner: str = "class-means") -> Path:
        return self.root / kind / "tiny" / boards.file_of(self.root, learner).name

    def git(self, *words: str) -> str:
        who = ("-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false")
        return subprocess.run(
            ["git", *who, *words], cwd=self.repository, check=True, capture_output=True, text=True
        ).stdout

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "x")


def nothing(scene: Scene) -> None:
    """Leave what was there before as it is."""


@dataclass(frozen=True)
class Forgery:
    """One forgery."""

    what: str  # as the page says it
    found_by: Finder
    forge: Callable[[Scene], object]
    says: str  # what the finder says, or what is shown of what nobody finds
    there: bool = False  # whether the honest entry, its audit and its re-run were on the board before
    before: Callable[[Scene], object] = nothing  # what else was so before


def find(scene: Scene) -> tuple[Finder, str]:
    """Return what finds a forgery first, in the order in which a submission meets them, and what it says."""
    known = ReviewContext.read(scene.root, scene.plugins)
    if complaints := build.verify_leaderboard(scene.root, known).complaints:
        return "verify", "; ".join(map(str, complaints))
    if said := workflow(scene, known):
        return "workflow", said
    if scene.file is not None:
        try:
            record = rerun_seeds(Result.read(scene.file), None, session(scene.plugins))
        except NotReproducible as error:
            return "nobody", str(error)
        if not record.agrees:
            return "rerun", describe_rerun_differences(record)
    return "nobody", shown(scene)


def workflow(scene: Scene, known: ReviewContext) -> str:
    """Return what the submission workflow says beside `verify`; nothing where it passes."""
    scene.commit()
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "HEAD~1"], cwd=scene.repository, capture_output=True, text=True, check=False
    )
    if done.returncode:
        return done.stdout
    changed = scene.git("diff", "--name-only", "HEAD~1").split()
    if changed == ["leaderboard/leaderboard.json"]:
        current = build.is_index_current(build.build_index(scene.root, scene.plugins), scene.root)
        return "" if current else "leaderboard.json is not what its results give"
    new = [scene.repository / name for name in changed if name.startswith("leaderboard/results/")]
    submissions = SubmissionChecker(scene.root, known)
    return "; ".join(str(said) for file in new for said in submissions.match_boards(file)[0].complaints)


def shown(scene: Scene) -> str:
    """Return what the page of a forged entry says that nobody finds: why it has no rank, and the author's word."""
    index = build.build_index(scene.root, scene.plugins)
    entries = [entry for standing in index.standings for entry in standing.entries]
    (entry,) = [entry for entry in entries if scene.file is not None and entry.id == scene.file.stem]
    assert not entry.reproduced
    return "; ".join([entry.why, *entry.author_word])


def raised(content: Content, seeds: Sequence[int], hits: int) -> Content:
    """Return a result with so many more right answers in some seeds, and confusion matrices that fit.

    Calibration is left out: a learner may give no probabilities, and its bins would contradict the new answers.
    """
    copy: Content = json.loads(json.dumps(content))
    test = copy["task"]["test"]
    for seed in copy["seeds"]:
        seed.pop("calibration", None)
        if seed["seed"] in seeds:
            bits = decode_bits(seed["correct"], test).copy()
            bits[np.flatnonzero(~bits)[:hits]] = True
            seed["correct"] = base64.b64encode(np.packbits(bits).tobytes()).decode()
            seed["confusion"] = corrected(seed["confusion"], hits)
    return copy


def corrected(confusion: Sequence[str], hits: int) -> list[str]:
    """Return a confusion matrix in which so many errors are right answers."""
    matrix = [[int(count) for count in line.split()] for line in confusion]
    for label, row in enumerate(matrix):
        for guess in range(len(row)):
            if guess != label:
                moved = min(hits, row[guess])
                row[guess], row[label], hits = row[guess] - moved, row[label] + moved, hits - moved
    return [" ".join(map(str, row)) for row in matrix]


def elsewhere(content: Content) -> Content:
    """Return a result whose predictions are others, as on another processor."""
    for seed in content["seeds"]:
        seed["predictions"] = hashlib.sha256(seed["correct"].encode()).hexdigest()
    return content


def resealed(file: Path, content: Content) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**content, "seal": compute_seal(content)}), encoding="utf-8")


def read(file: Path) -> Content:
    content: Content = json.loads(file.read_text(encoding="utf-8"))
    return content


def passed_on(scene: Scene, sealed: bool) -> None:
    """Raise the scores, and have the old audit and re-run name the new digest."""
    result = Result.read(scene.submit(raised(scene.honest, [0], 15)))
    for kind in ("audits", "reruns"):
        file = scene.record(kind)
        content = {**read(file), "content": result.evidence_digest}
        if sealed:
            resealed(file, content)
        else:
            file.write_text(json.dumps(content), encoding="utf-8")


def made_up_rerun(scene: Scene) -> None:
    result = Result.read(scene.submit(raised(scene.honest, [0, 1], 15)))
    content = read(scene.root.parent / "rerun.json")
    for seed, stated in zip(content["seeds"], result.seeds, strict=True):
        scores = {name: stated.metrics[name] for name in list_compared_scores(stated)}
        seed |= {"accuracy": stated.accuracy, "correct": stated.correct, "agreement": 1.0, "scores": scores}
    resealed(scene.record("reruns"), {**content, "content": result.evidence_digest})


def made_up_audit(scene: Scene) -> None:
    result = Result.read(scene.submit(raised(scene.honest, [0, 1], 15)))
    resealed(scene.record("audits"), {**read(scene.root.parent / "audit.json"), "content": result.evidence_digest})


def of_another(scene: Scene, kind: Literal["audits", "reruns"]) -> None:
    """Copy a record of pillar beside the entry."""
    scene.file = boards.file_of(scene.root, "class-means")
    scene.record(kind).write_bytes(scene.record(kind, "pillar").read_bytes())


def dropped_seed(scene: Scene) -> None:
    content = boards.edited(scene.honest, "spec.seeds", [0])
    scene.submit({**content, "seeds": content["seeds"][:1]})


def chosen_seeds(scene: Scene) -> None:
    content = scene.ran({"learner": "class-means"}, seeds=(7, 11))
    for number, seed in enumerate(content["seeds"]):
        seed["seed"] = number
    scene.submit(boards.edited(content, "spec.seeds", [0, 1]))


def other_plan(scene: Scene) -> None:
    """State two cheaper questions in place of one, with the sigma and epsilon that these have."""
    plan, budget = [Release("class-sums", 2)], Budget(1.0, 1e-5, "add-or-remove-one")
    sigma = accountant.calibrate(plan, budget, "pld")
    epsilon, other = compute_cross_checked_epsilon(plan, sigma, 1e-5, "pld")
    stated = {**scene.honest["privacy"]["plan"][0], "steps": 2, "sigma": sigma}
    changed = {"plan": [stated], "sigma": sigma, "epsilon": epsilon, "independent": dataclasses.asdict(other)}
    scene.submit({**scene.honest, "privacy": {**scene.honest["privacy"], **changed}, "copies_epsilon": None})


def less_noise(scene: Scene) -> None:
    sigma = 0.8 * scene.honest["privacy"]["sigma"]
    content = boards.edited(scene.honest, "privacy.sigma", sigma)
    scene.submit(boards.edited(content, "privacy.plan.0.sigma", sigma))


def other_learner(scene: Scene) -> None:
    """Submit what a better learner predicted."""
    better, spent = scene.ran({"learner": "thrift"}), scene.honest["seeds"][0]["spent"]
    scene.submit({**scene.honest, "seeds": [{**seed, "spent": spent} for seed in better["seeds"]]})


def no_overlap(scene: Scene) -> None:
    overlap = {pair: {**value, "exact": 0, "near": 0} for pair, value in scene.honest["task"]["overlap"].items()}
    scene.submit(boards.edited(scene.honest, "task.overlap", overlap))


def alone(scene: Scene) -> None:
    """Have no other result on the board, nor a record of one."""
    for file in scene.root.glob("*/tiny/*.json"):
        file.unlink()


def made_up_search(scene: Scene) -> None:
    """Submit a setting that was found elsewhere as the outcome of a search on public data."""
    content = scene.ran({"learner": "class-means:k=5"})
    trials = [
        {"setting": {"k": 5}, "accuracy": 0.95, "error": None},
        {"setting": {"k": 9}, "accuracy": 0.3, "error": None},
    ]
    record = {
        "rule": "public-validation", "space": {"k": [5, 9]}, "possible": 2, "tried": 2, "draw": "grid", "seed": 0,
        "private_touched": False, "public_labels": 144, "chosen": {"k": 5}, "source": None, "trials": trials,
    }  # fmt: skip
    content = boards.edited(content, "spec.learner.options.k", None)
    content = boards.edited(content, "spec.search", {"rule": "public-validation", "space": {"k": [5, 9]}})
    scene.submit({**content, "search": record, "selection": "public-validation"})


def set_by_hand(scene: Scene) -> None:
    scene.submit({**scene.ran({"learner": "class-means:k=5"}), "selection": "default"})


def taken_from(scene: Scene, digest: str) -> None:
    """Submit settings that were found on these very data as those of a run on another dataset."""
    source = {"digest": digest, "dataset": "mnist", "extractor": "pixels", "epsilon": 1.0, "selection": "default"}
    record = {
        "rule": "transfer", "space": {}, "possible": 1, "tried": 1, "draw": "none", "seed": 0, "private_touched": False,
        "public_labels": 0, "chosen": {"k": 5}, "source": source, "trials": [],
    }  # fmt: skip
    scene.submit({**scene.ran({"learner": "class-means:k=5"}), "search": record, "selection": "transfer"})


def from_a_run_that_is_there(scene: Scene) -> None:
    taken_from(scene, Result.read(boards.file_of(scene.root, "pillar")).digest)


def secure(scene: Scene) -> Content:
    """Return a run with secure noise whose two seeds differ by four test images or more.

    What a re-run may differ by follows from how far the seeds lie apart: nothing, if by chance they agree.
    """
    while True:
        found = scene.ran({"learner": "class-means"}, secure_rng=True)
        accuracy, other = (SeedResult.model_validate(seed).accuracy for seed in found["seeds"])
        if abs(accuracy - other) > 0.01:
            return found


def best_of_many(scene: Scene) -> None:
    """Run with secure noise until the scores please: one that pleases is like any other."""
    scene.submit(secure(scene))


def secure_with_less_noise(scene: Scene) -> None:
    plain = randomness._SecureDraws.noise
    with scene.patch.context() as patch:
        patch.setattr(randomness._SecureDraws, "noise", lambda self, shape, std: plain(self, shape, std * 0.8))
        scene.submit(secure(scene))


def index_by_hand(scene: Scene) -> None:
    file = scene.root / build.INDEX
    file.write_bytes(file.read_bytes().replace(b'"rank": 1', b'"rank": 9', 1))


def worse_result(scene: Scene) -> None:
    """Replace somebody else's result by the same with lower scores."""
    content = json.loads(read_record(boards.file_of(scene.root, "public-only")))
    scene.submit({**content, "seconds": {"fit": 1.0}})
    scene.file = None


def packed(scene: Scene) -> None:
    """Have the results of the board in one archive."""
    pack_records(scene.root / "results" / "tiny")


def other_archive(scene: Scene) -> None:
    """Put a worse result into the archive, in place of somebody else's."""
    worse_result(scene)
    packed(scene)


def easier_board(scene: Scene) -> None:
    file = scene.root / "boards" / "tiny.toml"
    file.write_text(file.read_text(encoding="utf-8").replace('"default", ', '"default", "by-hand", '), encoding="utf-8")


def with_code(scene: Scene) -> None:
    scene.submit(scene.honest)
    (scene.repository / "dpbench").mkdir()
    (scene.repository / "dpbench" / "checks.py").write_text("ok = True\n", encoding="utf-8")
    scene.file = None


FORGERIES: tuple[Forgery, ...] = (
    Forgery("Every seed gets more correct answers, and all other numbers are adjusted to match", "rerun",
            lambda scene: scene.submit(raised(scene.honest, [0, 1], 15)), "seed 0: differs"),
    Forgery("Every seed except the last gets more correct answers", "rerun",
            lambda scene: scene.submit(raised(scene.honest, [0], 15)), "seed 0: differs"),
    Forgery("An audited and reproduced entry gets higher scores, and both records its new digest",
            "verify", lambda scene: passed_on(scene, sealed=False), "seal: changed after it was written", there=True),
    Forgery("An audited and reproduced entry gets higher scores, and both records get new seals", "verify",
            lambda scene: passed_on(scene, sealed=True), "outcome: it does not follow", there=True),
    Forgery("Raised scores come with an invented record of a re-run", "workflow",
            made_up_rerun, "records of re-runs and challenge seeds are made by the project"),
    Forgery("Raised scores come with an audit of the honest result", "workflow",
            made_up_audit, "audits and records of re-runs and challenge seeds are made by the project"),
    Forgery("An entry gets the audit of another entry", "verify",
            lambda scene: of_another(scene, "audits"), "the audit is of another result", there=True),
    Forgery("An entry gets the re-run of another entry", "verify",
            lambda scene: of_another(scene, "reruns"), "the record is of another result", there=True),
    Forgery("A bad seed is omitted", "verify", dropped_seed, "spec.seeds: expected"),
    Forgery("Seeds are chosen by their scores and presented as the board's seeds", "rerun", chosen_seeds,
            "seed 0: differs"),
    Forgery("The stated plan is not the one that the learner makes", "verify", other_plan, "privacy.plan: expected"),
    Forgery("The run adds less noise than the stated ε needs", "verify", less_noise, "privacy.epsilon: expected"),
    Forgery("The scores come from the code of a better learner", "rerun", other_learner, "differs"),
    Forgery("The digest of the learner's code is invented", "rerun",
            lambda scene: scene.submit(boards.edited(scene.honest, "provenance.code.learner", "0" * 16)),
            "provenance.code.learner: the result states 0000000000000000"),
    Forgery("A result claims to be from an earlier version, which cannot be re-run", "workflow",
            lambda scene: scene.submit(boards.edited(scene.honest, "privacy.mechanism", "exact-sums-0")),
            "privacy.mechanism: expected"),
    Forgery("The counts of shared images are set to 0, on a board with other results", "verify",
            no_overlap, "task.overlap: expected"),
    Forgery("The counts of shared images are set to 0, in the first result of a board", "rerun",
            no_overlap, "task.overlap: the result states", before=alone),
    Forgery("Settings chosen by hand are presented as default settings", "verify", set_by_hand,
            "selection: expected by-hand"),
    Forgery("Settings tuned on private data are presented as found by a public search", "rerun",
            made_up_search, "search.trials: setting"),
    Forgery("Settings are attributed to a run on the leaderboard that had other settings", "verify",
            from_a_run_that_is_there, "search.source.dataset: expected digits"),
    Forgery("Settings are attributed to a run that nobody can find", "nobody",
            lambda scene: taken_from(scene, "1" * 64), "that the settings come from run 1111111111111111 on mnist"),
    Forgery("The submitted result is the best of twenty with secure noise", "nobody",
            best_of_many, "not the best of several"),
    Forgery("A modified core adds only 0.8 of the secure noise", "nobody",
            secure_with_less_noise, "that the noise was of the stated size"),
    Forgery("Scores are raised within the tolerance for another processor, by ten test images at most", "nobody",
            lambda scene: scene.submit(elsewhere(raised(scene.honest, [0, 1], 3))), "time, memory"),
    Forgery("Time and memory are invented", "nobody",
            lambda scene: scene.submit(boards.edited(scene.honest, "seconds.fit", 1e-3)), "time, memory"),
    Forgery("Ranks are changed in `leaderboard.json`", "workflow", index_by_hand, "not what its results give",
            there=True),
    Forgery("Somebody else's result is removed", "workflow",
            lambda scene: boards.file_of(scene.root, "public-only").unlink(), "changes and removes nothing"),
    Forgery("Somebody else's result is replaced", "workflow", worse_result, "changes and removes nothing"),
    Forgery("A file supersedes somebody else's packed result", "workflow", worse_result,
            "changes and removes nothing", before=packed),
    Forgery("Somebody else's result is replaced inside an archive", "workflow", other_archive,
            "made by the project; a submission brings results and boards", before=packed),
    Forgery("A board is changed so that it ranks more results", "verify", easier_board, "must not change"),
    Forgery("A submission also changes the code of the checks", "workflow", with_code, "changes leaderboard/ alone"),
)  # fmt: skip


def table() -> str:
    """Return the lists of the page: the forgeries that each check is the first to detect."""
    lines = []
    for finder, name in FINDERS.items():
        lines += [f"**Detected by {name}:**", "", *(f"- {it.what}" for it in FORGERIES if it.found_by == finder), ""]
    return "\n".join(lines)
