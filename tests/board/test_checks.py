"""A result that was changed: `verify` names the file and the field, also where the forger sealed it anew."""

from __future__ import annotations

import base64
import json
import math
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpbench import registry
from dpbench.analysis.describe import describe_result
from dpbench.analysis.paired import decode_bits
from dpbench.analysis.word import list_unchecked_claims
from dpbench.api import Release
from dpbench.board.build import verify_leaderboard
from dpbench.board.folder import ResultFile, locate_result
from dpbench.board.verify import review
from dpbench.board.verify.checks import check_result_file
from dpbench.board.verify.declarations import check_settings_selection
from dpbench.board.verify.derive import EpsilonInputs, derive_epsilon, make_epsilon_inputs
from dpbench.board.verify.expectations import ReviewContext
from dpbench.board.verify.rerun_record import find_rerun, rerun_path, rerun_seeds, summarize_rerun
from dpbench.board.verify.review import MIN_PARALLEL_FILES, review_files
from dpbench.board.verify.verdict import (
    ENGINE_AGREEMENT,
    NON_ACCURACY_METRICS,
    describe_tolerance,
    is_reproduced,
    judge_seeds,
)
from dpbench.errors import AccountantsDisagree, DataMissing, LeaderboardComplaint, SpecError
from dpbench.harness.prepare import PreparedRun
from dpbench.privacy.core.accounting import crosscheck
from dpbench.privacy.core.accounting.accountant import ACCOUNTANTS
from dpbench.privacy.core.accounting.private_search import RunCountDistribution
from dpbench.records.board import find_board
from dpbench.records.checksums import compute_seal
from dpbench.records.metrics import encode_confusion_matrix
from dpbench.records.rerun import Rerun, SeedRerun
from dpbench.records.result import Result, SeedResult
from tests.helpers import boards
from tests.helpers.sessions import session

Change = Callable[[Any], Any] | object


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return boards.world(tmp_path_factory)


@pytest.fixture(scope="module")
def known(world: Path) -> ReviewContext:
    return ReviewContext.read(world, registry.load())


@pytest.fixture
def root(world: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(world, tmp_path / "leaderboard"))


def content(root: Path, learner: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(boards.file_of(root, learner).read_text(encoding="utf-8"))
    return found


def complaints(root: Path, known: ReviewContext) -> list[LeaderboardComplaint]:
    return list(verify_leaderboard(root, known).complaints)


def changed(root: Path, known: ReviewContext, learner: str, edits: Mapping[str, Change], sealed: bool) -> list[str]:
    """Change a result and return the fields that are complained about."""
    file, made = boards.file_of(root, learner), content(root, learner)
    for field, value in edits.items():
        made = boards.edited(made, field, value)
    file.write_text(json.dumps(boards.resealed(made) if sealed else made), encoding="utf-8")
    found = complaints(root, known)
    assert {complaint.file for complaint in found} <= {f"results/tiny/{file.name}"}
    return [complaint.field for complaint in found]


def test_results_as_the_harness_wrote_them_pass(root: Path, known: ReviewContext) -> None:
    assert complaints(root, known) == []
    assert len(list(root.rglob("results/*/*.json"))) == len(boards.LEARNERS)


def last_digit(value: float) -> float:
    """Change the sixth significant digit."""
    return float(f"{value:.6g}"[:-1] + str((int(f"{value:.6g}"[-1]) + 5) % 10))


def first_letter(text: str) -> str:
    return ("0" if text[0] != "0" else "1") + text[1:]


SLIPS: dict[str, Change] = {
    "spec.epsilon": 2.0,
    "spec.seeds": [0, 1, 2],
    "selection": "by-hand",
    "task.test": 360,
    "task.licence": "CC0",
    "task.digests.private": first_letter,
    "privacy.epsilon": last_digit,
    "privacy.sigma": last_digit,
    "privacy.delta": 1e-6,
    "privacy.independent.lower": last_digit,
    "privacy.plan.0.steps": 2,
    "seeds.0.auroc": 0.5,
    "seeds.1.correct": lambda text: first_letter(text),
    "seeds.1.predictions": first_letter,
    "components.learner.version": "0.1.1",
    "provenance.commit": "1" * 40,
    "seconds.fit": 1e-9,
}


def stated(seed: dict[str, Any]) -> dict[str, Any]:
    """Return a seed that states its scores and keeps no confusion matrix."""
    kept = SeedResult.model_validate(seed)
    names = ("accuracy", "balanced_accuracy", "worst_class_accuracy", "macro_f1")
    scores = {name: kept.metrics[name] for name in names} | {"class_accuracy": kept.class_accuracy}
    return {name: seed[name] for name in seed if name not in {"confusion", "calibration"}} | {"stated": scores}


STATED: dict[str, Change] = {
    "accuracy": last_digit, "balanced_accuracy": last_digit, "worst_class_accuracy": last_digit,
    "class_accuracy": [0.5], "class_accuracy.0": 0.0,
}  # fmt: skip


@pytest.mark.parametrize("field", [None, *STATED])
def test_stated_scores_fit_the_right_answers(root: Path, known: ReviewContext, field: str | None) -> None:
    file, made = boards.file_of(root, "public-only"), content(root, "public-only")
    made["seeds"] = [stated(seed) for seed in made["seeds"]]
    if field is not None:
        made = boards.edited(made, f"seeds.1.stated.{field}", STATED[field])
    figure = root / "figures" / "tiny" / file.name
    figure.parent.mkdir(parents=True)
    figure.write_text(json.dumps(boards.resealed(made)), encoding="utf-8")
    found = [complaint.field for complaint in complaints(root, known)]
    assert found == [] if field is None else any(name.startswith("seeds.1.stated.") for name in found)


def test_no_board_takes_scores_that_are_stated_and_not_counted(root: Path, known: ReviewContext) -> None:
    edits: dict[str, Change] = {"seeds": lambda seeds: [stated(seed) for seed in seeds]}
    found = changed(root, known, "class-means", edits, sealed=True)
    assert found == ["seeds.0.confusion", "seeds.1.confusion"]


@pytest.mark.parametrize("field", SLIPS)
def test_a_slip_is_found_by_the_digest_of_the_evidence(root: Path, known: ReviewContext, field: str) -> None:
    assert changed(root, known, "class-means", {field: SLIPS[field]}, sealed=False) == ["evidence_digest"]


def one_more(row: str) -> str:
    first, _, rest = row.partition(" ")
    return f"{int(first) + 1} {rest}"


COPIED: Any = {"exact": 5, "near": 5, "among": 359}  # above a hundredth
REPEATED = {"images": 60, "most": 8, "among": 1294}
FORGERIES: list[tuple[str, dict[str, Change], str]] = [
    ("class-means", {"spec.epsilon": 2.0}, "file"),
    ("class-means", {"privacy.epsilon": last_digit}, "privacy.epsilon"),
    ("class-means", {"privacy.epsilon": 1.01}, "privacy.epsilon"),
    ("class-means", {"privacy.epsilon": "NaN"}, "privacy.epsilon"),
    ("class-means", {"privacy.sigma": last_digit}, "privacy.epsilon"),
    ("class-means", {"privacy.sigma": last_digit}, "privacy.plan.0.sigma"),
    ("class-means", {"privacy.sigma": "Infinity"}, "privacy.sigma"),
    ("class-means", {"privacy.sigma": 1e-9, "privacy.plan.0.sigma": 1e-9}, "privacy.epsilon"),
    ("class-means", {"privacy.sigma": 0.0, "privacy.plan.0.sigma": 0.0}, "privacy.epsilon"),
    ("class-means", {"privacy.plan.0.relative_noise": 2.0}, "privacy.plan.0.sigma"),
    ("class-means", {"privacy.plan.0.steps": 2, "seeds.0.spent": {"sums": 2}}, "privacy.epsilon"),
    ("class-means", {"privacy.plan.0.steps": 10**9}, "privacy.plan"),
    ("class-means", {"privacy.plan.0.sample_rate": 0.5}, "privacy.epsilon"),
    ("class-means", {"privacy.plan": lambda plan: plan * 2}, "privacy.plan"),
    ("class-means", {"privacy.plan": []}, "privacy.epsilon"),
    (
        "class-means",
        {
            "privacy.plan": [],
            "privacy.epsilon": 0.0,
            "seeds.0.spent": {},
            "seeds.1.spent": {},
            "privacy.independent": {"accountant": "none", "lower": 0.0, "upper": 0.0},
        },
        "privacy.plan",
    ),
    ("class-means", {"settled.k": 3}, "settled.k"),
    ("class-means", {"privacy.independent.lower": last_digit}, "privacy.independent.lower"),
    ("class-means", {"privacy.independent.upper": last_digit}, "privacy.independent.upper"),
    ("class-means", {"privacy.independent.accountant": "rdp"}, "privacy.independent.accountant"),
    ("class-means", {"privacy.accountant": "rdp"}, "privacy.accountant"),
    ("class-means", {"privacy.delta": 1e-6}, "privacy.delta"),
    ("class-means", {"privacy.rng": "secure"}, "privacy.rng"),
    ("class-means", {"privacy.repeats": {"mean": 10.0, "shape": 1.0}}, "privacy.repeats"),
    ("class-means", {"seeds.0.accuracy": 0.9}, "seeds.0.accuracy"),
    ("class-means", {"seeds.1.correct": lambda text: "A" + text[1:]}, "seeds.1.confusion"),
    ("class-means", {"seeds.1.correct": lambda text: text[:-4]}, "seeds.1.correct"),
    ("class-means", {"seeds.1.correct": lambda text: "<" + text[1:]}, "seeds.1.correct"),
    ("class-means", {"seeds.1.correct": lambda text: text[:-1] + "/"}, "seeds.1.correct"),
    ("class-means", {"seeds.1.correct": None}, "seeds.1.correct"),
    ("class-means", {"seeds.1.predictions": "abc"}, "seeds.1.predictions"),
    ("class-means", {"seeds.1.predictions": None}, "seeds.1.predictions"),
    ("class-means", {"seeds.0.auroc": 0.5}, "seeds.0.auroc"),
    ("class-means", {"seeds.0.confusion.0": one_more}, "seeds.0.confusion"),
    ("class-means", {"seeds.0.confusion": None, "seeds.0.calibration": None}, "seeds.0"),
    ("class-means", {"seeds.0.confusion": lambda rows: [" ".join("0" for _ in rows) for _ in rows]}, "seeds.0"),
    ("class-means", {"seeds.0.confusion": lambda rows: rows[:-1]}, "seeds.0"),
    ("class-means", {"seeds.1.confusion": lambda rows: [*rows[1:], rows[0]]}, "seeds.1.confusion"),
    ("public-only", {"seeds.0.calibration.log_loss": 3.59}, "seeds.0.calibration.log_loss"),
    ("public-only", {"seeds.0.calibration.brier": 0.0}, "seeds.0.calibration.brier"),
    ("public-only", {"seeds.0.calibration.right.14": lambda count: count + 1}, "seeds.0.calibration.count"),
    ("public-only", {"seeds.0.calibration.confidence.14": 1.0}, "seeds.0.calibration.confidence.14"),
    ("public-only", {"seeds.0.calibration.count": [0] * 14}, "seeds.0.calibration.count"),
    ("class-means", {"privacy.not_covered": ["nothing: audited"]}, "privacy.not_covered"),
    ("class-means", {"task.public_labels_seen": True}, "task.public_labels_seen"),
    ("public-only", {"task.public_labels_seen": False}, "task.public_labels_seen"),
    ("class-means", {"task.public": 3}, "task.public"),
    ("class-means", {"seeds.0.spent": {}}, "seeds.0.spent"),
    ("class-means", {"seeds.0.spent": {"class-sums": 2}}, "seeds.0.spent"),
    ("class-means", {"seeds.0.spent": {"class-sums": -1}}, "seeds.0.spent"),
    ("class-means", {"seeds.1.spent": {"class-sums": 0}}, "seeds.1.spent"),
    ("class-means", {"seeds.0.seed": 7}, "seeds"),
    ("class-means", {"seeds.0.setting": {}}, "seeds.0.setting"),
    ("class-means", {"seeds": []}, "seeds"),
    ("class-means", {"metrics": {}}, "metrics"),
    ("class-means", {"task.test": 0}, "task.test"),
    ("class-means", {"task.private": 10**6}, "task.private"),
    ("class-means", {"task.overlap": None}, "task.overlap"),
    ("class-means", {"spec.allow_overlap": True}, "spec.allow_overlap"),
    ("class-means", {"task.processing.private": ""}, "task.processing.private"),
    ("class-means", {"task.copies": REPEATED}, "task.copies"),
    ("class-means", {"task.altered": {"found": 6, "among": 10}}, "task.altered"),
    ("class-means", {"task.copies.most": 9}, "task.copies"),
    ("class-means", {"copies_epsilon": 1.5}, "copies_epsilon"),
    ("class-means", {"task.overlap.test in public.among": 5}, "task.overlap.test in public"),
    ("class-means", {"task.overlap.test in private.exact": 359}, "task.overlap.test in private"),
    ("class-means", {"task.overlap.test in private": COPIED}, "task.overlap.test in private"),
    ("class-means", {"task.classes": list("abcdefghij")}, "task.classes"),
    ("class-means", {"task.classes.7": ""}, "task.classes"),
    ("class-means", {"task.classes.7": "8"}, "task.classes"),
    ("class-means", {"task.public": 7}, "task.public"),
    ("class-means", {"cpu_seconds.fit": "NaN"}, "cpu_seconds.fit"),
    ("class-means", {"provenance.packages": {"numpy": 2}}, "provenance.packages"),
    ("class-means", {"provenance.engines": ["torch"]}, "provenance.engines"),
    ("class-means", {"task.digests.private": first_letter}, "task.digests"),
    ("class-means", {"task.sketch": lambda text: text[::-1]}, "task.sketch"),
    ("class-means", {"task.looks": lambda text: text[::-1]}, "task.looks"),
    ("class-means", {"task.processing.private": "cropped"}, "task.processing"),
    ("class-means", {"selection": "by-hand"}, "selection"),
    ("class-means", {"selection": "public-validation"}, "selection"),
    ("pillar", {"selection": "default"}, "selection"),
    ("class-means", {"components.learner.version": "0.1.1"}, "components.learner.version"),
    ("class-means", {"components.learner.plugin": "pillar"}, "components.learner.plugin"),
    ("class-means", {"components": {}}, "components"),
    ("class-means", {"provenance.commit": None}, "provenance.commit"),
    ("class-means", {"provenance.commit": "abc"}, "provenance.commit"),
    ("class-means", {"provenance.dirty": True}, "provenance.dirty"),
    ("class-means", {"provenance.dpbench": "0.1.1"}, "components.learner.version"),
    ("class-means", {"provenance": {}}, "provenance.commit"),
    ("non-private", {"privacy.sigma": 1.0}, "privacy.sigma"),
    ("public-only", {"privacy.epsilon": 0.5}, "privacy.epsilon"),
]


@pytest.mark.parametrize(
    ("learner", "edits", "field"), FORGERIES, ids=lambda value: value if isinstance(value, str) else "+".join(value)
)
def test_a_forgery_that_was_sealed_anew_is_found_by_what_contradicts_it(
    root: Path, known: ReviewContext, learner: str, edits: Mapping[str, Change], field: str
) -> None:
    assert field in changed(root, known, learner, edits, sealed=True)


def test_test_images_by_class_are_those_of_the_other_results(root: Path, known: ReviewContext) -> None:
    """Balanced accuracy is what it is among so many images of each class: with others in hits, it is nearly 1."""
    file, made = boards.file_of(root, "class-means"), content(root, "class-means")
    count = len(made["task"]["classes"])
    for seed in made["seeds"]:
        kept = SeedResult.model_validate(seed).evidence
        assert kept is not None
        matrix = np.diag([sum(kept.correct_counts) - count + 1, *[1] * (count - 1)])
        matrix[0, 1] = kept.size - sum(kept.correct_counts)
        seed["confusion"] = list(encode_confusion_matrix(matrix.tolist()))
    made["task"]["largest"] = int(matrix.sum(1).max()) / int(matrix.sum())
    made = boards.resealed(made)
    assert Result.model_validate(made).metrics["balanced_accuracy"].mean > 0.9
    file.write_text(json.dumps(made), encoding="utf-8")
    assert {complaint.field for complaint in complaints(root, known)} == {"task.largest", "seeds.confusion"}


SEARCH = {
    "rule": "public-validation", "space": {"k": [5, 9]}, "possible": 2, "tried": 2, "draw": "grid", "seed": 0,
    "private_touched": False, "public_labels": 144, "chosen": {"k": 9}, "source": None,
    "trials": [{"setting": {"k": 5}, "accuracy": 0.5}, {"setting": {"k": 9}, "accuracy": 0.6}],
}  # fmt: skip
ASKED = {"rule": "public-validation", "space": {"k": [5, 9]}}
SINGLE = {
    **SEARCH, "space": {"k": [9]}, "possible": 1, "tried": 1, "trials": [{"setting": {"k": 9}, "accuracy": 0.6}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("edits", "field"),
    [
        ({}, None),
        ({"search": None}, "search"),
        ({"search.private_touched": True}, "search.private_touched"),
        ({"search.chosen": {"k": 5}}, "search.chosen"),
        ({"search.tried": 1}, "search.tried"),
        ({"search.space": {"k": [9]}}, "search.space"),
        ({"spec.search": {**ASKED, "space": {"k": [9]}}, "search": SINGLE}, "selection"),
        (
            {
                "spec.search": {**ASKED, "space": {"k": [9]}},
                "search": {**SINGLE, "rule": "by-hand"},
                "selection": "by-hand",
            },
            None,
        ),
        ({"selection": "by-hand", "search.rule": "by-hand"}, "selection"),
        ({"search.rule": "transfer"}, "selection"),
        ({"selection": "default"}, "selection"),
    ],
)
def test_a_search_is_on_record_as_it_was_asked_for(
    root: Path, known: ReviewContext, edits: Mapping[str, Change], field: str | None
) -> None:
    searched = {"settled": {}, "spec.search": ASKED, "search": SEARCH, "selection": "public-validation", **edits}
    made = content(root, "class-means")
    for name, value in searched.items():
        made = boards.edited(made, name, value)
    made, place = boards.resealed(made), boards.file_of(root, "class-means")
    place.unlink()
    place.with_name(Result.model_validate(made).file_name).write_text(json.dumps(made), encoding="utf-8")
    found = [complaint.field for complaint in complaints(root, known)]
    assert found == [] if field is None else field in found


SOURCE = {"digest": "0" * 64, "dataset": "digits", "extractor": "pixels", "epsilon": 1.0, "selection": "default"}


@pytest.mark.parametrize(
    ("source", "chosen", "field"),
    [
        ({"dataset": "mnist"}, {}, None),
        ({"selection": "transfer"}, {}, None),
        ({"dataset": "mnist", "selection": "public-validation"}, {}, None),
        ({"dataset": "mnist", "selection": "by-hand"}, {}, "search.source"),
        ({"dataset": "mnist", "selection": "private-unaccounted"}, {}, "search.source"),
        ({"dataset": "mnist", "selection": "oracle"}, {}, "search.source"),
        ({}, {}, None),  # its defaults, in an earlier version
        ({"selection": "public-validation"}, {}, "search.source"),
        ({"dataset": "mnist"}, {"clip": 77.0}, "search.chosen"),
    ],
)
def test_settings_from_elsewhere_come_from_elsewhere_and_are_those_that_ran(
    root: Path, known: ReviewContext, source: Mapping[str, Any], chosen: Mapping[str, Any], field: str | None
) -> None:
    taken = {"rule": "transfer", "trials": [], "chosen": dict(chosen), "source": {**SOURCE, **source}}
    edits = {"selection": "transfer", "search": {**SEARCH, **taken}}
    found = changed(root, known, "class-means", edits, sealed=True)
    assert found == [] if field is None else field in found


@pytest.mark.parametrize(
    "field", ["privacy.epsilon", "privacy.independent.upper", "privacy.plan.0.sigma", "task.largest"]
)
def test_a_computed_number_may_differ_by_less_than_a_millionth(root: Path, known: ReviewContext, field: str) -> None:
    assert changed(root, known, "class-means", {field: lambda value: value * (1 - 1e-8)}, sealed=True) == []
    assert field in changed(root, known, "class-means", {field: lambda value: value * (1 - 3e-6)}, sealed=True)


def test_epsilon_above_its_target_is_refused_however_little_it_is(root: Path, known: ReviewContext) -> None:
    just_above = math.nextafter(1.0, 2.0)
    assert "privacy.epsilon" in changed(root, known, "class-means", {"privacy.epsilon": just_above}, sealed=True)


def test_of_trials_that_scored_the_same_either_may_be_chosen(root: Path, known: ReviewContext) -> None:
    tied = [{"setting": {"k": k}, "accuracy": accuracy} for k, accuracy in ((5, 0.3), (9, 0.1 + 0.2))]
    result = Result.read(boards.file_of(root, "class-means"))
    for k in (5, 9):
        record = {**SEARCH, "trials": tied, "chosen": {"k": k}}
        edits = {"settled": {}, "spec.search": ASKED, "selection": "public-validation", "search": record}
        made = json.loads(result.model_dump_json())
        for name, value in edits.items():
            made = boards.edited(made, name, value)
        assert [field for field, _ in check_settings_selection(boards.result_of(made))] == []


def test_a_strangers_learner_needs_no_commit_but_a_clean_tree(root: Path, known: ReviewContext) -> None:
    stranger = {"plugin": "mine", "distribution": "dpbench-mine", "version": "9"}
    edits = {"components.learner": stranger, "provenance.commit": None, "provenance.dirty": None}
    assert changed(root, known, "class-means", edits, sealed=True) == []
    assert changed(root, known, "class-means", {"provenance.dirty": True, "provenance.commit": "0" * 40}, sealed=True)


def test_epsilon_of_a_private_search_is_that_of_the_whole_search() -> None:
    plan = (Release("gradient", 10),)
    single = derive_epsilon(EpsilonInputs(plan, 30.0, 1e-5, "rdp", None, 1.0))
    searched = derive_epsilon(EpsilonInputs(plan, 30.0, 1e-5, "rdp", RunCountDistribution(10.0), 1.0))
    assert isinstance(single, tuple) and isinstance(searched, tuple)
    epsilon, second = searched
    assert second.accountant == "opacus-rdp"
    assert second.lower <= epsilon <= second.upper
    assert epsilon > 1.5 * single[0]


def test_equal_plans_share_a_derivation_whatever_their_releases_are_called(root: Path) -> None:
    result = Result.read(boards.file_of(root, "pillar"))

    def question(stated: float = 0.0, **changes: object) -> EpsilonInputs:
        plan = tuple(release.model_copy(update=changes) for release in result.privacy.plan)
        privacy = {"plan": plan, "epsilon": result.privacy.epsilon - stated}
        return make_epsilon_inputs(result.model_copy(update={"privacy": result.privacy.model_copy(update=privacy)}))

    assert question() == question(name="gradients") == question(stated=1e-9)
    assert question() != question(steps=7)


def test_images_and_activations_are_planned_for_in_a_process_of_their_own(root: Path, known: ReviewContext) -> None:
    checked = check_result_file(locate_result(boards.file_of(root, "pillar"), root), known)
    assert checked.result is not None and not review._may_plan_need_torch(checked.result)
    images = checked.result.task.model_copy(update={"example_shape": (3, 32, 32)})
    assert review._may_plan_need_torch(checked.result.model_copy(update={"task": images}))


def test_only_the_accountant_of_opacus_needs_torch() -> None:
    plan = (Release("gradient", 10, 0.1),)
    needs = {name: EpsilonInputs(plan, 1.0, 1e-5, name, None, 1.0).needs_torch for name in ACCOUNTANTS}
    assert needs == {"pld": False, "rdp": False, "prv": True}


def test_a_plan_that_would_cost_gigabytes_is_refused_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crosscheck, "cross_check", lambda *_: pytest.fail("it was accounted for"))
    answer = derive_epsilon(EpsilonInputs((Release("gradient", 1000, 0.5),), 1e-3, 1e-5, "pld", None, 1.0))
    assert "by Renyi divergences" in str(answer)


def test_accountants_that_contradict_each_other_are_a_complaint(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AccountantsDisagree("They do.")

    monkeypatch.setattr(crosscheck, "cross_check", refuse)
    answer = derive_epsilon(EpsilonInputs((Release("gradient", 10),), 30.0, 1e-5, "pld", None, 1.0))
    assert answer == "it cannot be derived: They do."


@pytest.mark.slow
@pytest.mark.parametrize("apart", [False, True])
def test_many_files_on_processes_give_the_complaints_of_one(
    root: Path, known: ReviewContext, monkeypatch: pytest.MonkeyPatch, apart: bool
) -> None:
    monkeypatch.setattr("dpbench.board.verify.review._may_plan_need_torch", lambda result: apart)
    fields = changed(root, known, "class-means", {"privacy.plan.0.steps": 2}, sealed=True)
    assert "privacy.plan" in fields  # what the learner is asked for
    stored = [result.stored for result in verify_leaderboard(root, known).results]
    many = stored * (MIN_PARALLEL_FILES // len(stored) + 1)
    single, spread = review_files(stored, known), review_files(many, known)
    assert spread.results[: len(stored)] == single.results
    assert not single.ok


def test_a_seed_that_is_run_again_gives_the_same_predictions(root: Path) -> None:
    result = Result.read(boards.file_of(root, "class-means"))
    record = rerun_seeds(result, [1], session(registry.load()))
    (seed,) = record.seeds
    assert (record.outcome, seed.seed, seed.agreement) == ("same predictions", 1, 1.0)
    assert (seed.predictions, seed.correct) == (result.seeds[1].predictions, None)  # the result has the answers
    assert record.claims == ()


def test_settings_that_a_search_chose_are_run_again_and_not_searched_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dpbench.harness.tuning import trials

    result = Result.read(boards.file_of(root, "pillar"))
    options = {**result.spec.learner.options, "k": 9}
    asked = boards.edited(content(root, "pillar"), "spec.learner.options", options)
    searched = boards.result_of({**asked, "search": {**SEARCH, "chosen": {"k": 5}}})
    searched = searched.model_copy(update={"spec": boards.result_of(boards.edited(asked, "spec.search", ASKED)).spec})
    monkeypatch.setattr(trials.TrialRunner, "choose_setting", lambda *_: pytest.fail("it searched again"))
    assert rerun_seeds(searched, [1], session(registry.load())).outcome == "same predictions"


def test_what_is_not_on_this_machine_is_not_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dpbench.errors import NotReproducible
    from dpbench.harness import memo

    result = Result.read(boards.file_of(root, "class-means"))
    other = result.components | {"learner": result.components["learner"].model_copy(update={"version": "7"})}
    with pytest.raises(
        NotReproducible, match=r"dpbench-vision 7 brings learner 'class-means'; here dpbench-vision .* does"
    ):
        rerun_seeds(result.model_copy(update={"components": other}), None, session(registry.load()))

    def missing(*_: object) -> None:
        raise DataMissing("Not here.")

    monkeypatch.setattr(memo, "assign_images", missing)
    with pytest.raises(NotReproducible, match=r"Not here"):
        rerun_seeds(result, None, session(registry.load()))
    with pytest.raises(SpecError, match=r"Expected a seed of .*, 0, 1, got 5"):
        rerun_seeds(result, [5], session(registry.load()))


@pytest.mark.slow
def test_secure_noise_is_compared_within_noise(root: Path) -> None:
    result = Result.read(boards.file_of(root, "class-means"))
    secure = result.model_copy(
        update={
            "spec": result.spec.model_copy(update={"secure_rng": True}),
            "privacy": result.privacy.model_copy(update={"rng": "secure"}),
        }
    )
    record = rerun_seeds(secure, None, session(registry.load()))
    assert {(seed.outcome, seed.agreement) for seed in record.seeds} == {("same within tolerance", None)}
    assert record.seeds[0].predictions != result.seeds[0].predictions
    assert "99 times in 100" in record.tolerance


@pytest.mark.parametrize(("raised", "outcome"), [(10, "same within tolerance"), (11, "differs")])
def test_on_another_processor_few_images_may_tip_in_favour_of_a_result(raised: int, outcome: str) -> None:
    result = result_with_right(5_000 + raised)
    record = Rerun(digest="", content="", seeds=seeds_with(FIRST_HALF, result), tolerance="", provenance={})
    assert judge_seeds(record, result).outcome == outcome


TEST = 10_000
FIRST_HALF = np.arange(TEST) < TEST // 2


def result_with_right(right: int) -> Result:
    """Return a result whose seeds have the first `right` of 10,000 test examples right."""
    *_, result = boards.synthetic(find_board("digits-eps1"), 2, seed=0)
    bits = {
        "correct": packed(np.arange(TEST) < right),
        "confusion": encode_confusion_matrix([[right, TEST - right], [0, 0]]),
    }
    task = result.task.model_copy(update={"test": TEST, "largest": 0.1})
    return result.model_copy(
        update={"seeds": tuple(seed.model_copy(update=bits) for seed in result.seeds), "task": task}
    )


def seeds_with(right: np.ndarray, result: Result) -> tuple[SeedRerun, ...]:
    """Return re-run seeds with these of the test examples right and other predictions."""
    return tuple(
        SeedRerun(
            seed=seed.seed, outcome="differs", accuracy=float(right.mean()), predictions="0" * 64,
            correct=packed(right), agreement=float((decode_bits(seed.correct, TEST) == right).mean()),
            scores={name: seed.metrics[name] for name in NON_ACCURACY_METRICS},
        )
        for seed in result.seeds
    )  # fmt: skip


MOST_CHANGED = round((1 - ENGINE_AGREEMENT) * TEST)


@pytest.mark.parametrize(
    ("engine", "processor", "changed", "outcome"),
    [
        ("onnxruntime 1.32.0", "same", MOST_CHANGED, "same within tolerance"),
        ("onnxruntime 1.32.0", "same", MOST_CHANGED + 2, "differs"),
        ("onnxruntime 1.32.0", "other", MOST_CHANGED + 2, "same within tolerance"),
        ("torch 2.7.0", "same", MOST_CHANGED + 2, "same within tolerance"),
    ],
)
def test_by_another_engine_as_many_predictions_may_change_as_were_measured(
    engine: str, processor: str, changed: int, outcome: str
) -> None:
    """On another processor the wider tolerance holds, whatever the engine."""
    result = result_with_right(TEST // 2)
    result = result.model_copy(update={"provenance": {**result.provenance, "processor": "same"}})
    right = np.roll(FIRST_HALF, changed // 2)  # as many examples become right as wrong
    provenance = {**result.provenance, "processor": processor, "engines": {"train": engine}}
    record = Rerun(digest="", content="", seeds=seeds_with(right, result), tolerance="", provenance=provenance)
    assert judge_seeds(record, result).outcome == outcome
    said = f"features by {engine.partition(' ')[0]}, not torch: " if engine.startswith("onnx") else ""
    assert describe_tolerance(result, provenance).startswith(f"{said}9")


def packed(bits: np.ndarray) -> str:
    return base64.b64encode(np.packbits(bits).tobytes()).decode()


def test_a_record_that_does_not_follow_from_its_numbers_is_named(root: Path, known: ReviewContext) -> None:
    from dpbench.board.verify.rerun_record import write_rerun

    (stored,) = [
        result.stored
        for result in verify_leaderboard(root, known).results
        if result.stored.path.name.startswith("class-means")
    ]
    result = Result.read(stored.path)
    record = rerun_seeds(result, None, session(registry.load()))
    write_rerun(record, stored, root)
    assert complaints(root, known) == []
    for update in ({"predictions": "0" * 64}, {"outcome": "differs"}, {"accuracy": 0.1, "predictions": "0" * 64}):
        changed_seed = record.seeds[0].model_copy(update=update)
        write_rerun(record.model_copy(update={"seeds": (changed_seed, *record.seeds[1:])}), stored, root)
        (found,) = complaints(root, known)
        assert (found.file, found.field) == (f"reruns/tiny/{stored.path.name}", "outcome")
    rerun_path(stored, root).write_text("{", encoding="utf-8")
    assert [complaint.field for complaint in complaints(root, known)] == ["file"]


def test_only_equal_predictions_are_reproduced_without_the_answers(root: Path) -> None:
    result = Result.read(boards.file_of(root, "class-means"))
    record = rerun_seeds(result, None, session(registry.load()))
    assert [seed.correct for seed in record.seeds] == [None, None] and is_reproduced(record, result)
    near = [seed.model_copy(update={"predictions": "0" * 64}) for seed in record.seeds]
    judged = judge_seeds(record.model_copy(update={"seeds": tuple(near)}), result)
    assert (judged.outcome, is_reproduced(judged, result)) == ("same within tolerance", False)
    answers = {seed.seed: seed.correct for seed in result.seeds}
    known = tuple(seed.model_copy(update={"correct": answers[seed.seed]}) for seed in near)
    assert is_reproduced(judge_seeds(record.model_copy(update={"seeds": known}), result), result)


def stored_of(root: Path, learner: str) -> ResultFile:
    return locate_result(boards.file_of(root, learner), root)


def test_a_record_from_before_is_of_one_seed_and_nothing_calls_it_reproduced(root: Path, known: ReviewContext) -> None:
    result, stored = Result.read(boards.file_of(root, "class-means")), stored_of(root, "class-means")
    seed = result.seeds[1]
    before: dict[str, Any] = {
        "schema_version": 1, "digest": result.digest, "content": result.evidence_digest, "seed": 1,
        "outcome": "same predictions", "accuracy": seed.accuracy, "predictions": seed.predictions, "agreement": 1.0,
        "tolerance": "as it was", "provenance": {"date": "2026-11-22"},
        "scores": {name: seed.metrics[name] for name in NON_ACCURACY_METRICS},
    }  # fmt: skip
    file = rerun_path(stored, root)
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({**before, "seal": compute_seal(before)}), encoding="utf-8")
    assert complaints(root, known) == []
    record = find_rerun(stored, result, root)
    assert record is not None and record.agrees and not is_reproduced(record, result)
    assert [seed.seed for seed in record.seeds] == [1]
    file.write_text(json.dumps(before), encoding="utf-8")  # without a seal it is no evidence
    assert find_rerun(stored, result, root) is None


@pytest.mark.slow
def test_other_code_reproduces_nothing_and_is_said(root: Path) -> None:
    result = Result.read(boards.file_of(root, "class-means"))
    code = {**result.provenance["code"], "learner": "0" * 16}
    other = result.model_copy(update={"provenance": {**result.provenance, "code": code, "commit": "1" * 40}})
    task = other.task.model_copy(update={"largest": 0.9})
    other = other.model_copy(update={"task": task})
    record = rerun_seeds(other, None, session(registry.load()))
    assert record.agrees and not is_reproduced(record, other)
    claim, counted = [claim for claim in record.claims if claim.verdict == "not checked"]
    assert (claim.claim, claim.said.endswith("at another commit")) == ("provenance.code.learner", True)
    assert (counted.claim, counted.said.endswith("by other code")) == ("task.largest", True)
    assert f"the code (learner), which is not that of {'1' * 40}" in summarize_rerun(record, other)


def test_seeds_are_run_again_in_another_order_than_they_had(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dpbench.harness import fit

    order: list[int] = []
    plain = fit.fit_and_score_seed

    def noted(prepared: PreparedRun, seed: int) -> SeedResult:
        order.append(seed)
        return plain(prepared, seed)

    monkeypatch.setattr(fit, "fit_and_score_seed", noted)
    rerun_seeds(Result.read(boards.file_of(root, "class-means")), None, session(registry.load()))
    assert order == [1, 0]  # the run had 0 first


def test_what_nobody_looked_up_is_the_authors_word(root: Path) -> None:
    result = Result.read(boards.file_of(root, "class-means"))
    shown = dict(describe_result(result).pairs)
    assert shown["author's word"].startswith("scores; how many images the splits share; which code made it; ")
    looked_up = {"seeds", "task.overlap", "provenance.code.learner"}
    assert list_unchecked_claims(result, looked_up) == ("time, memory, machine and date",)
