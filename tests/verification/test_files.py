"""`dpbench verify`: what each kind of file states, what contradicts it, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import dpbench
from dpbench.audit.audit_fit import audit
from dpbench.board.verify.plan_check import check_stated_plan
from dpbench.models import Model
from dpbench.receipts import from_result
from dpbench.records.checksums import compute_seal
from dpbench.records.packed import list_records, read_record
from dpbench.records.released import ReleasedModelAttack
from dpbench.records.result import Result
from dpbench.registry import load
from dpbench.verification.models import find_stated_fit
from tests.helpers.boards import clean_commit, edited, resealed
from tests.helpers.commands import Output, Refusal, call
from tests.helpers.models import model_folder
from tests.helpers.sessions import session

LEADERBOARD = Path(__file__).parents[2] / "leaderboard"
BOARD = "digits-eps1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a result, its model, its receipt and its audit."""
    out = model_folder(tmp_path_factory)
    (file,) = out.glob("class-means-*.json")
    audit(Result.read(file), session(), canaries=1_000).write(out)
    return out


@pytest.fixture
def result(folder: Path) -> Path:
    (file,) = folder.glob("class-means-*.json")
    return file


def pick_record(part: str) -> Path:
    """Return a record of the board: its file, or its path in an archive."""
    return next(file for file in list_records(LEADERBOARD / part / BOARD) if file.name.startswith("pillar"))


def test_a_result_is_told_with_what_was_recomputed_and_what_rests_on_its_author(result: Path, capsys: Output) -> None:
    assert call("verify", result) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"ok {result}: a result\n") and "states       guarantee ε 2 for one image by pld" in said
    assert "recomputed   ε from the plan and σ, by pld and prv-accountant" in said
    assert "that of no board here" in said and "--rerun runs it again" in said and "No mismatch found." in said


def test_a_renamed_result_is_verified_as_well(result: Path, tmp_path: Path) -> None:
    assert call("verify", shutil.copy(result, tmp_path / "from-a-colleague.json")) == 0


def test_the_name_of_a_file_moves_no_terminal(result: Path, tmp_path: Path, capsys: Output) -> None:
    assert call("verify", shutil.copy(result, tmp_path / "\x1b[2J.json")) == 0
    assert capsys.readouterr().out.replace("\n", "").isprintable()


def test_a_result_of_changed_code_is_recomputed_and_no_submission(result: Path, tmp_path: Path, capsys: Output) -> None:
    content = resealed(edited(json.loads(result.read_text(encoding="utf-8")), "provenance.dirty", True))
    (tmp_path / result.name).write_text(json.dumps(content), encoding="utf-8")
    assert call("verify", tmp_path / result.name) == 0
    said = capsys.readouterr().out
    assert "recomputed   ε from the plan and σ" in said
    assert "not checked  the code that made it (provenance.dirty: expected a tree without changes" in said
    assert call("verify", "--submission", tmp_path / result.name, "--root", LEADERBOARD) == 1
    assert "MISMATCH provenance.dirty: expected a tree without changes" in capsys.readouterr().out.replace(
        str(tmp_path / result.name) + ": ", ""
    )


@pytest.mark.parametrize(
    ("edits", "field"),
    [
        ({"provenance.sources": 5, "components.learner.distribution": "stranger"}, "provenance.sources"),
        ({"components": {}, "provenance.commit": None}, "components"),
    ],
)
def test_provenance_of_another_shape_is_contradicted_and_ends_nothing(
    edits: dict[str, object], field: str, result: Path, tmp_path: Path, capsys: Output
) -> None:
    content = json.loads(result.read_text(encoding="utf-8"))
    for name, value in edits.items():
        content = edited(content, name, value)
    (tmp_path / result.name).write_text(json.dumps(resealed(content)), encoding="utf-8")
    assert call("verify", tmp_path / result.name) == 1
    assert f"MISMATCH {field}: expected" in capsys.readouterr().out


def test_a_result_with_another_epsilon_is_contradicted(result: Path, tmp_path: Path, capsys: Output) -> None:
    content = resealed(edited(json.loads(result.read_text(encoding="utf-8")), "privacy.epsilon", 1.0))
    (tmp_path / result.name).write_text(json.dumps(content), encoding="utf-8")
    assert call("verify", tmp_path / result.name) == 1
    said = capsys.readouterr().out
    assert said.startswith("FAILED ") and "MISMATCH privacy.epsilon: expected" in said and "recomputed" not in said


def test_a_submission_of_data_that_no_board_has_names_no_board(result: Path, tmp_path: Path, capsys: Output) -> None:
    content = edited(json.loads(result.read_text(encoding="utf-8")), "spec.dataset", {"name": "theory-thresholds"})
    content = resealed(edited(content, "components.dataset", {"plugin": "p", "distribution": "d", "version": "1"}))
    (tmp_path / result.name).write_text(json.dumps(content), encoding="utf-8")
    assert call("verify", "--submission", tmp_path / result.name, "--root", LEADERBOARD) == 1
    said = capsys.readouterr().out
    assert said.count("MISMATCH") == 1 and "no board here is of it" in said and "--board" not in said


def test_a_submission_must_fit_a_board(result: Path, capsys: Output) -> None:
    assert call("verify", "--submission", result, "--root", LEADERBOARD) == 1
    assert "as on the nearest board" in capsys.readouterr().out


def test_files_of_one_call_are_compared_with_each_other(folder: Path, result: Path, capsys: Output) -> None:
    model = folder / "model.onnx"
    assert call("verify", model) == 0
    said = capsys.readouterr().out
    assert "its result, which was not given: name it too" in said
    assert "recomputed   its plan, which learner 'class-means' was asked for again" in said
    assert call("verify", folder) == 0
    said = capsys.readouterr().out
    assert said.count("No mismatch found.") == 4
    assert f"that its guarantee and predictions are those of seed 0 of {result.name}" in said
    assert f"that it is about {result.name}; what follows" in said


def test_a_model_is_held_against_another_result_of_its_spec_and_its_receipt(
    folder: Path, result: Path, tmp_path: Path, capsys: Output
) -> None:
    content = json.loads(result.read_text(encoding="utf-8"))
    content["seeds"][0]["predictions"] = "0" * 64
    (tmp_path / "other.json").write_text(json.dumps(resealed(content)), encoding="utf-8")
    receipt = from_result(result).model_copy(update={"epsilon": 3.0})
    hashed = receipt.files["result"].model_copy(update={"sha256": Model.load(folder / "model.onnx").digest})
    receipt.model_copy(update={"files": {"model": hashed}}).write(tmp_path / "receipt.json")
    assert call("verify", folder / "model.onnx", tmp_path / "other.json", tmp_path / "receipt.json") == 1
    said = capsys.readouterr().out
    assert "MISMATCH test.predictions: expected what" in said
    assert "MISMATCH receipt: The card of the model and its receipt differ in ε" in said


def test_an_audit_alone_must_follow_from_its_own_counts(tmp_path: Path, capsys: Output) -> None:
    content = json.loads(read_record(pick_record("audits")))
    content["content"] = "0" * 64
    content["figures"]["low"] = 0.123
    file = tmp_path / "audit.json"
    file.write_text(json.dumps({**content, "seal": compute_seal(content)}), encoding="utf-8")
    assert call("verify", str(file)) == 1
    assert "figures: they do not follow from the recorded statistics" in capsys.readouterr().out


def test_a_result_and_a_model_are_run_again(folder: Path, result: Path, capsys: Output) -> None:
    assert call("verify", "--rerun", "--device", "cpu", result, folder / "model.onnx", folder / "receipt.json") == 0
    said = capsys.readouterr().out
    assert "the only seed: same predictions" in said and "fitted again: the same predictions" in said
    assert "a receipt has no run. Name its result or its model." in said


def test_the_learner_of_a_model_is_asked_for_its_plan_as_that_of_a_result_is(folder: Path, tmp_path: Path) -> None:
    card = Model.load(folder / "model.onnx").card
    fit = find_stated_fit(card, load())
    assert fit is not None and check_stated_plan(fit, load()) == []
    (release,) = card.privacy.plan
    longer = card.privacy.model_copy(update={"plan": (release.model_copy(update={"steps": 9}),)})
    forged = find_stated_fit(card.model_copy(update={"privacy": longer}), load())
    assert forged is not None and [field for field, _ in check_stated_plan(forged, load()) or ()] == ["privacy.plan"]
    assert find_stated_fit(card.model_copy(update={"public_size": None}), load()) is None


@pytest.mark.parametrize(("field", "value"), [("correct", -3), ("correct", 10**9), ("members", 10**9), ("guesses", 0)])
def test_counts_that_no_audit_can_have_are_refused_as_its_record_is_read(
    field: str, value: int, tmp_path: Path, capsys: Output
) -> None:
    content = json.loads(read_record(pick_record("audits")))
    content["attack"][field] = value
    (tmp_path / "audit.json").write_text(json.dumps({**content, "seal": compute_seal(content)}), encoding="utf-8")
    assert call("verify", tmp_path / "audit.json") == 1
    said = capsys.readouterr().out
    assert "MISMATCH" in said and "attack" in said and "recomputed" not in said


def test_a_result_is_run_again_with_its_images_in_another_folder(
    tmp_path: Path, capsys: Output, refusal: Refusal
) -> None:
    there, here, draw = tmp_path / "there", tmp_path / "here", np.random.default_rng(0)
    for place in (
        f"{split}/{kind}/{n}" for split, count in (("train", 40), ("test", 9)) for kind in "ab" for n in range(count)
    ):
        (there / place).parent.mkdir(parents=True, exist_ok=True)
        grey = draw.integers(0, 128 if "/a/" in place else 256, (8, 8)).astype(np.uint8)
        Image.fromarray(grey).save(there / f"{place}.png")
    with clean_commit():
        folder = f"imagefolder:{there}"
        dpbench.run(
            "class-means", dataset=folder, extractor="pixels:size=8", public_fraction=0.3, epsilon=8, seeds=1,
            out=tmp_path,
        )  # fmt: skip
    (file,) = tmp_path.glob("class-means-*.json")
    there.rename(here)
    again = ("verify", "--rerun", "--device", "cpu", str(file))
    assert call(*again) == 1
    assert f"not run {file}: " in capsys.readouterr().out
    assert call(*again, "--dataset", f"imagefolder:{here}") == 0
    assert "the only seed: same predictions" in capsys.readouterr().out
    assert call(*again, "--dataset", f"imagefolder:{here},mode=L") == 1
    said = capsys.readouterr().out
    assert "Expected --dataset to differ from imagefolder" in said and "in where its files lie alone" in said
    assert "--dataset applies only to re-runs" in refusal.command(
        "verify", str(file), "--dataset", f"imagefolder:{here}"
    )


def test_what_another_command_makes_again_or_nothing_is_not_ok_as_a_rerun(folder: Path, capsys: Output) -> None:
    (audited,) = folder.glob("audit/*.json")
    for file, said in ((audited, "made again with dpbench audit RESULT."), (folder / "receipt.json", "has no run.")):
        assert call("verify", "--rerun", "--device", "cpu", file) == 1
        assert f"not run {file}: " in (shown := capsys.readouterr().out) and said in shown


@pytest.mark.parametrize("part", ["audits", "reruns", "challenges"])
def test_a_record_of_a_leaderboard_is_compared_with_its_result(part: str, capsys: Output) -> None:
    file = pick_record(part)
    assert call("verify", file) == 0
    assert "that it is about pillar-digits-eps1-" in capsys.readouterr().out


@pytest.mark.parametrize("part", ["audits", "reruns", "challenges"])
def test_a_record_is_refused_if_it_was_changed_or_does_not_fit_its_result(
    part: str, tmp_path: Path, capsys: Output
) -> None:
    file = pick_record(part)
    filed = tmp_path / "result.json"
    filed.write_bytes(read_record(LEADERBOARD / "results" / BOARD / file.name))
    content = json.loads(read_record(file))
    field = {"audits": "delta", "reruns": "seeds.0.accuracy", "challenges": "seeds.0.seed"}[part]
    changed = edited(content, field, 0.5 if part != "challenges" else 7)
    alone = tmp_path / "record.json"
    for seal, mismatch in ((content["seal"], "seal: changed"), ("", "seal: missing"), (None, "")):
        changed["seal"] = compute_seal(changed) if seal is None else seal
        alone.write_text(json.dumps(changed), encoding="utf-8")
        assert call("verify", filed, alone) == 1
        assert f"MISMATCH {mismatch}" in capsys.readouterr().out
    alone.write_bytes(read_record(file))
    assert call("verify", alone) == 0
    assert "whether it fits its result, which was not found" in capsys.readouterr().out


def test_an_attack_is_compared_with_its_result(tmp_path: Path, capsys: Output) -> None:
    files = [file for file in list_records(LEADERBOARD / "released") if file.suffix == ".json"]
    if not files:
        pytest.skip("the leaderboard has no attacks")
    assert call("verify", files[0]) == 0
    assert "fits with the run's settings" in capsys.readouterr().out
    changed = edited(json.loads(read_record(files[0])), "tests.0.rates.0.positives", 1)
    (tmp_path / "attack.json").write_text(json.dumps({**changed, "seal": compute_seal(changed)}), encoding="utf-8")
    (tmp_path / "result.json").write_bytes(read_record(LEADERBOARD / "results" / files[0].parent.name / files[0].name))
    assert ReleasedModelAttack.read(tmp_path / "attack.json").seal
    assert call("verify", tmp_path) == 1
    assert "they do not follow from the counts" in capsys.readouterr().out


def test_json_has_the_texts_and_the_mismatches_by_file(folder: Path, result: Path, capsys: Output) -> None:
    assert call("verify", "--json", result, folder / "receipt.json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told[str(result)]["passed"] and told[str(result)]["kind"] == "a result"
    assert [account["name"] for account in told[str(folder / "receipt.json")]["accountants"]][1] == "prv-accountant"


def test_a_leaderboard_is_verified_as_a_whole(tmp_path: Path, capsys: Output) -> None:
    shutil.copytree(LEADERBOARD / "boards", tmp_path / "boards")
    assert call("verify", tmp_path) == 0
    assert "There are no results in" in capsys.readouterr().out


def test_what_states_nothing_is_refused_in_a_sentence(folder: Path, tmp_path: Path, refusal: Refusal) -> None:
    (tmp_path / "notes.json").write_text("{}", encoding="utf-8")
    (tmp_path / "poem.txt").write_text("a poem", encoding="utf-8")
    (tmp_path / "empty").mkdir()
    assert "which is none of these" in refusal.command("verify", tmp_path / "notes.json")
    assert "it is not JSON" in refusal.command("verify", tmp_path / "poem.txt")
    assert "which has none of these files" in refusal.command("verify", tmp_path / "empty")
    assert "is not a dpbench model" in refusal.command(
        "verify", shutil.copy(tmp_path / "poem.txt", tmp_path / "x.onnx")
    )
    assert "--by applies only to re-runs" in refusal.command("verify", folder, "--by", "me")
    assert "Expected one of --rerun and --json" in refusal.command("verify", folder, "--json", "--rerun")
    (tmp_path / "boards").mkdir()
    assert "Expected a leaderboard alone" in refusal.command("verify", tmp_path, folder)
