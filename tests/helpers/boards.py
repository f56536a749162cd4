"""Synthetic results of a board: cheap, sealed, and such that every check passes. For tests of many results.

>>> from dpbench.records.board import find_board
>>> [result.spec.learner.name for result in synthetic(find_board("digits-eps1"), 3, seed=0)]
['non-private', 'synthetic-00001', 'synthetic-00002']
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import json
import math
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpbench import registry
from dpbench.api import Budget, Release
from dpbench.board.folder import locate_result
from dpbench.board.verify.rerun_record import rerun_seeds, write_rerun
from dpbench.board.verify.verdict import describe_tolerance, judge_seeds, list_compared_scores
from dpbench.harness.guarantee import compute_cross_checked_epsilon
from dpbench.privacy import MECHANISM
from dpbench.privacy.core.accounting import accountant
from dpbench.records import provenance
from dpbench.records.board import Board
from dpbench.records.checksums import compute_seal, evidence_digest
from dpbench.records.metrics import encode_confusion_matrix
from dpbench.records.packed import list_records
from dpbench.records.rerun import ClaimCheck, Rerun, SeedRerun
from dpbench.records.result import Result, SeedResult
from dpbench.records.spec import Spec
from dpbench.registry.boards import fill_in_board_defaults, make_entry_spec
from dpbench.registry.components import make_component_record
from tests.conftest import built_once
from tests.helpers.commands import call
from tests.helpers.sessions import session

COMMIT = provenance.read_git_state()[0] or "0" * 40  # of this tree: a submission names a commit that exists
REPOSITORY = "https://git.example/synthetic.git"
PRIVATE, PUBLIC, TEST = 45_000, 5_000, 1_000
STEPS = (10, 20, 30, 50, 70, 100, 150, 200, 300, 500)
RULES = ("default",) * 7 + ("by-hand", "transfer", "public-validation", "private-unaccounted")


def synthetic(board: Board, count: int, seed: int) -> list[Result]:
    """Return `count` results on `board`, each of a learner of its own; the first is the ceiling."""
    return list(made(board, count, seed))


def made(board: Board, count: int, seed: int) -> Iterator[Result]:
    """Yield them one by one, for more than fit into memory."""
    whole = fill_in_board_defaults(board, _plugins())
    classes = tuple(_plugins().find("dataset", board.dataset.name).cls.classes)
    chance = np.random.default_rng(seed)
    labels, hardness = chance.integers(len(classes), size=TEST), chance.normal(size=TEST)
    versions = {
        "code": {"dpbench": "c" * 16, "learner": "5" * 16},
        "sources": {"dpbench-synthetic": {"repository": REPOSITORY, "commit": "a" * 40, "dirty": False}},
        "commit": COMMIT,
        "dirty": False,
        **{k: v for k, v in provenance.collect_provenance("cpu").items() if k in KEPT},
    }
    for place in range(count):
        spec = Spec(**{**whole.protocol, **_asked(place)})
        skill = math.inf if place == 0 else chance.normal(1.0, 0.5)
        seeds = [_seed(number, (labels, hardness), skill, len(classes), chance) for number in spec.seeds]
        largest = int(np.bincount(labels).max()) / TEST
        yield _result(spec, place, seeds, (classes, largest), versions)


KEPT = ("dpbench", "packages", "python", "platform", "processor", "cores", "threads", "device")


def write(results: Iterable[Result], folder: Path) -> list[Path]:
    """Write results as a leaderboard keeps them, and a re-run of each learner from elsewhere, or none is ranked."""
    folder.mkdir(parents=True, exist_ok=True)
    reruns = folder.parent.parent / "reruns" / folder.name
    for result in results:
        content = resealed(json.loads(result.model_dump_json()))
        (folder / result.file_name).write_text(json.dumps(content, sort_keys=True), encoding="utf-8")
        if folder.parent.name == "results" and result.components["learner"].distribution != provenance.HARNESS:
            reruns.mkdir(parents=True, exist_ok=True)
            record = json.loads(reproduced(Result.model_validate(content)).model_dump_json())
            (reruns / result.file_name).write_text(
                json.dumps({**record, "seal": compute_seal(record)}), encoding="utf-8"
            )
    return sorted(folder.iterdir())


def reproduced(result: Result) -> Rerun:
    """Return the record of a re-run that came out as the result states, by the same code."""
    seeds = tuple(
        SeedRerun(
            seed=seed.seed, outcome="differs", accuracy=seed.accuracy, predictions=seed.predictions,
            correct=None, agreement=1.0,
            scores={name: seed.metrics[name] for name in list_compared_scores(seed)},
        )
        for seed in result.seeds
    )  # fmt: skip
    code = result.provenance.get("code", {})
    record = Rerun(
        digest=result.digest, content=result.evidence_digest, seeds=seeds,
        tolerance=describe_tolerance(result, result.provenance),
        claims=tuple(ClaimCheck(claim=f"provenance.code.{role}", verdict="same") for role in code),
        provenance={"code": code},
    )  # fmt: skip
    return judge_seeds(record, result)


@functools.cache
def _plugins() -> registry.Registry:
    return registry.load()


def _asked(place: int) -> dict[str, Any]:
    """Return what an entry chooses for itself."""
    if place == 0:
        ceiling = make_component_record(_plugins().find("learner", "non-private").cls())
        return {"learner": ceiling, "epsilon": math.inf}
    options = {"k": 10 * (1 + place % 12), "steps": STEPS[place % len(STEPS)], "learning_rate": 0.1}
    asked: dict[str, Any] = {"learner": {"name": f"synthetic-{place:05}", "options": options}}
    rule = RULES[place % len(RULES)]
    if rule in {"public-validation", "private-unaccounted"}:
        asked["search"] = {"rule": rule, "space": {"k": (10, 20)}}
    return asked


def _seed(
    number: int, test: tuple[np.ndarray, np.ndarray], skill: float, classes: int, chance: np.random.Generator
) -> dict[str, Any]:
    labels, hardness = test
    reach = np.full(TEST, 3.0) if math.isinf(skill) else skill + 0.5 * chance.normal(size=TEST)
    right = hardness < reach
    there = np.bincount(labels, minlength=classes)
    hits = np.bincount(labels[right], minlength=classes)
    confusion = np.diag(hits) + np.roll(np.diag(there - hits), 1, axis=1)  # others are taken for the next class
    return {
        "seed": number, "confusion": encode_confusion_matrix(confusion.tolist()),
        "auroc": int(right.sum()) / TEST if classes == 2 else None,
        "correct": base64.b64encode(np.packbits(right).tobytes()).decode(),
        "predictions": hashlib.sha256(right.tobytes()).hexdigest(),
    }  # fmt: skip


@functools.cache
def _privacy(steps: int, epsilon: float, delta: float, name: accountant.AccountantName) -> dict[str, Any]:
    release = Release("rows" if math.isinf(epsilon) else "gradient", steps)
    sigma = accountant.calibrate([release], Budget(epsilon, delta, "add-or-remove-one"), name)
    stated, other = compute_cross_checked_epsilon([release], sigma, delta, name)
    planned = {"name": release.name, "steps": steps, "sample_rate": 1.0, "relative_noise": 1.0, "sigma": sigma}
    return {
        "epsilon": stated, "delta": delta, "accountant": name,
        "adjacency": "add-or-remove-one", "sigma": sigma, "plan": [planned], "rng": "research",
        "mechanism": MECHANISM, "independent": asdict(other),
    }  # fmt: skip


def _search(spec: Spec, rule: str) -> dict[str, Any] | None:
    if rule in {"default", "by-hand"}:
        return None
    source = {"digest": "0" * 64, "dataset": "elsewhere", "extractor": "pixels", "epsilon": 1.0, "selection": rule}
    trials = [{"setting": {"k": k}, "accuracy": 0.5 - k / 1000} for k in (10, 20)]
    searched = spec.search is not None
    return {
        "rule": rule, "space": {"k": [10, 20]}, "possible": 2, "tried": 2, "draw": "grid", "seed": 0,
        "private_touched": rule == "private-unaccounted", "public_labels": PUBLIC,
        "chosen": {"k": 10} if searched else {},
        "trials": trials if searched else [], "source": None if searched else {**source, "selection": "default"},
    }  # fmt: skip


def _result(
    spec: Spec, place: int, seeds: list[dict[str, Any]], split: tuple[tuple[str, ...], float], versions: dict[str, Any]
) -> Result:
    rule = RULES[place % len(RULES)]
    steps = 1 if place == 0 else STEPS[place % len(STEPS)]
    privacy = _privacy(steps, spec.epsilon, spec.delta, spec.accountant)
    spent = {release["name"]: release["steps"] for release in privacy["plan"]}
    scored = [SeedResult(**seed, spent=spent) for seed in seeds]
    harness = {"distribution": "dpbench-vision", "version": versions["dpbench"]}
    stranger = {"plugin": "synthetic", "distribution": "dpbench-synthetic", "version": "1.0"}
    find = _plugins().find
    components = {
        "dataset": {"plugin": find("dataset", spec.dataset.name).plugin, **harness},
        "extractor": {"plugin": find("extractor", spec.extractor.name).plugin, **harness},
        "learner": {"plugin": "non-private", **harness} if place == 0 else stranger,
    }
    if spec.public_dataset is not None:
        components["public_dataset"] = {"plugin": find("dataset", spec.public_dataset.name).plugin, **harness}
    pairs = {"test in private": TEST, "test in public": TEST, "public in private": PUBLIC}
    return Result.model_validate({
        "spec": spec, "selection": rule, "search": _search(spec, rule),
        "task": {
            "example_shape": [64], "classes": split[0], "private": PRIVATE, "public": PUBLIC if place else 0,
            "test": TEST, "public_labels_seen": False, "licence": "CC0",
            "digests": {"private": "d" * 64, "public": "d" * 64},
            "overlap": {pair: {"exact": 0, "near": 1, "among": among} for pair, among in pairs.items()},
            "largest": split[1], "sketch": "", "looks": None, "copies": None, "processing": None,
        },
        "privacy": privacy, "copies_epsilon": None, "seeds": scored, "components": components,
        "settled": {}, "seconds": {"load": 1.0, "fit": 0.5 + place % 97},
        "cpu_seconds": {"load": 1.5, "fit": 0.4 + place % 89},
        "peak_bytes": {"fit": 500_000_000 + place}, "provenance": versions,
    }).with_evidence_digest()  # fmt: skip


def resealed(content: dict[str, Any]) -> dict[str, Any]:
    """Return a result's JSON with a digest of what it says now: what a careful forger would do."""
    return {**content, "evidence_digest": evidence_digest(content)}


def result_of(content: dict[str, Any]) -> Result:
    """Return the result that JSON states, its digest made to fit."""
    return Result.model_validate(resealed(content))


BOARD = """
name = "{name}"
title = "Tiny"
dataset = "digits"
extractor = "pixels"
epsilon = {epsilon}
delta = 1e-5
accountant = "pld"
adjacency = "add-or-remove-one"
public_fraction = 0.1
public_labels = true
train_fraction = 1.0
split_seed = 0
seeds = 2
metric = "accuracy"
selection = ["default", "public-validation"]
"""
LEARNERS = ("class-means", "pillar:steps=5", "public-only", "non-private:regularisation=1")


def world(factory: pytest.TempPathFactory) -> Path:
    """Return a leaderboard of two boards, `tiny` and `tiny-2`, with real results of four learners on the first."""
    return _copy(built_once(factory, "world", _write_world), factory)


def _write_world(root: Path) -> None:
    (root / "boards").mkdir()
    for name, epsilon in (("tiny", 1.0), ("tiny-2", 2.0)):
        (root / "boards" / f"{name}.toml").write_text(BOARD.format(name=name, epsilon=epsilon), encoding="utf-8")
    for learner in LEARNERS:
        enter(root, learner)


def _copy(root: Path, factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(root, factory.mktemp("world") / "leaderboard"))


def enter(root: Path, learner: str) -> None:
    """Run a learner for the board `tiny` of a leaderboard, and file its result there."""

    spec = make_entry_spec(Board.read(root / "boards" / "tiny.toml"), {"learner": learner}, _plugins(), "the test")
    result = session(_plugins()).run(spec)
    clean = {**result.provenance, "commit": COMMIT, "dirty": False}
    result.model_copy(update={"provenance": clean}).with_evidence_digest().write(root / "results" / "tiny")


@contextlib.contextmanager
def clean_commit() -> Iterator[None]:
    """Have runs and re-runs be of one clean commit, whatever the tree of this repository is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "read_git_state", lambda root=None: (COMMIT, False))
        yield


def proven(factory: pytest.TempPathFactory) -> Path:
    """Return the same leaderboard, where the entries of `class-means` and `pillar` are reproduced and audited."""

    def write(root: Path) -> None:
        shutil.copytree(world(factory), root, dirs_exist_ok=True)
        for file in (file_of(root, learner) for learner in ("class-means", "pillar")):
            write_rerun(rerun_seeds(Result.read(file), None, session(_plugins())), locate_result(file, root), root)
            assert call("audit", f"tiny/{file.stem}", "--root", str(root), "--canaries", "1000", "--device", "cpu") == 0

    with clean_commit():
        return _copy(built_once(factory, "proven", write), factory)


def file_of(root: Path, learner: str, board: str = "tiny") -> Path:
    """Return the file of a learner's result."""
    found = list_records(root / "results" / board)
    (file,) = (file for file in found if file.name.startswith(f"{learner}-digits-"))
    return file


def edited(content: dict[str, Any], field: str, value: Any) -> dict[str, Any]:
    """Return a result's JSON with one field, such as seeds.0.accuracy, set to `value` or to what it makes of it."""
    copy: dict[str, Any] = json.loads(json.dumps(content))
    place: Any = copy
    *path, last = [int(part) if part.isdigit() else part for part in field.split(".")]
    for part in path:
        place = place[part]
    place[last] = value(place[last]) if callable(value) else value
    return copy
