"""The page that decides whether a model may leave, by the command: what it says, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

import dpbench
from dpbench.analysis.describe import render_markdown
from dpbench.audit.figures import find_earlier_audits
from dpbench.audit.released_scores import make_roc_point
from dpbench.cli.audit_released import find_audit_of_attacked_run
from dpbench.errors import DataMissing, NotReproducible, PrivacyError
from dpbench.harness.session import Session
from dpbench.models import Model
from dpbench.models.model_run import prepare_model_run
from dpbench.models.release_page import describe_release, render_release_html
from dpbench.receipts import Receipt
from dpbench.records.audit import Audit, DerivedFigures, EarlierAudits
from dpbench.records.released import MembershipTest, ReleasedModelAttack
from dpbench.records.result import Result
from dpbench.support.files import write_json
from tests.audit.test_evidence import audit_of, noise_of
from tests.helpers.boards import edited
from tests.helpers.commands import Output, Refusal, call
from tests.helpers.models import model_folder
from tests.helpers.sessions import session

pytestmark = pytest.mark.usefixtures("telling")
LEARNER = "class-means:k=5"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a result, its model and its receipt."""
    return model_folder(tmp_path_factory)


@pytest.fixture
def model(folder: Path) -> Model:
    return Model.load(folder / "model.onnx")


def with_card(model: Model, **changes: object) -> Model:
    return dataclasses.replace(model, card=model.card.model_copy(update=changes))


def test_a_model_is_attacked_and_gets_a_page_in_two_formats(folder: Path, tmp_path: Path, capsys: Output) -> None:
    asked = ("audit", "--released", folder / "model.onnx", "--receipt", folder / "receipt.json")
    assert call(*asked, "--shadows", 32, "--device", "cpu", "--out", tmp_path) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "32 fits with the run's settings" in said and "no test finds more members" in said
    released = tmp_path / "not-private" / "released"
    page, text = ((released / f"model.{ending}").read_text(encoding="utf-8") for ending in ("html", "md"))
    model = Model.load(folder / "model.onnx")
    (record,) = released.glob("*.json")
    attack = ReleasedModelAttack.read(record)
    assert (attack.model, attack.spec.digest) == (model.digest, model.card.spec.digest)
    for words in (
        model.digest, "by pld", "states the plan and the guarantee of the model",
        "research RNG", "tuning", "classes", "sizes", "what the weights have seen", "units", "likelihood ratio (LiRA)",
        "RMIA", "planted outliers", "audit of the mechanism", "not run",
    ):  # fmt: skip
        assert words in text, words
    plain = re.sub(r"<[^>]+>", " ", page)
    assert all(section in plain for section in ("The guarantee", "What was audited and attacked", model.digest))
    assert not re.search(r"\b(src|href)=", page)


def test_what_the_page_shows_is_escaped(model: Model) -> None:
    card = model.card.model_copy(update={"classes": tuple(f"<b>{place}" for place in range(10))})
    attack = ReleasedModelAttack.model_construct(tests=(), privacy=card.privacy)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpbench.models.release_page.describe_attack", lambda _: ())
        page = render_release_html(describe_release(dataclasses.replace(model, card=card), attack, None, None))
    assert "&lt;b&gt;0" in page and "<b>0" not in page


def test_reasons_against_a_release_come_first(model: Model) -> None:
    attack = ReleasedModelAttack.model_construct(tests=(), privacy=model.card.privacy)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpbench.models.release_page.describe_attack", lambda _: ())
        first = describe_release(model, attack, None, None).sections[0].facts[0]
    assert first.name == "reasons against a release"
    assert "anyone who knows seed 0 can subtract its noise" in first.text


@pytest.mark.slow
def test_a_model_with_secure_noise_is_attacked_by_shadows_whose_noise_repeats(tmp_path: Path, capsys: Output) -> None:
    found = dpbench.run(
        LEARNER, epsilon=2, train_fraction=0.2, seeds=1, secure_rng=True, keep_models=True, out=tmp_path
    )
    file = found.model().save(tmp_path / "model.onnx")
    assert call("audit", "--released", file, "--shadows", 32, "--out", tmp_path, "--json") == 0
    attack = ReleasedModelAttack.model_validate_json(capsys.readouterr().out)
    assert attack.privacy.rng == "secure"
    text = (tmp_path / "not-private" / "released" / "model.md").read_text(encoding="utf-8")
    assert "reasons against a release**: none found by dpbench" in text
    assert "differentially private for one image" in text


def test_a_failed_audit_and_a_bound_that_is_exceeded_are_reasons_against_a_release(model: Model) -> None:
    figures = DerivedFigures.model_construct(failed=("noise: size of all noise (e 2e+05)",))
    audit = Audit.model_construct(seed=0, sensitivity=None, noise=None, attack=None, figures=figures)
    rate = make_roc_point(0.01, 60, 100, 10, 1_000, 0.02)
    test = MembershipTest(
        attack="lira", targets="average", records=10, members=100, others=1_000, auc=0.7, rates=(rate,)
    )
    tests = (test, test.model_copy(update={"targets": "planted"}))
    attack = ReleasedModelAttack.model_construct(
        tests=tests, privacy=model.card.privacy, spec=model.card.spec, shadows=110, accuracy=0.5
    )
    text = render_markdown(describe_release(model, attack, audit, ["sampler: rows take turns"]))
    assert "the guarantee is wrong" in text and "the audit failed: noise: size of all noise" in text
    assert "the receipt is wrong: sampler: rows take turns" in text
    assert "MORE MEMBERS FOUND THAN ε AND δ ALLOW: private records by likelihood ratio (LiRA) at 1%" in text
    assert "60.00% (49.72% to 69.67%), at most 2.00% under ε" in text


def test_the_page_shows_the_audit_of_most_seeds_or_one_that_failed_and_none_that_was_edited(
    model: Model, tmp_path: Path
) -> None:
    first = audit_of(0, noise_of(0.5))
    second = audit_of(1, noise_of(0.5), find_earlier_audits([first], 1))
    failed = audit_of(2, noise_of(1e-9))
    assert second.passed and not failed.passed
    attack = ReleasedModelAttack.model_construct(spec=model.card.spec, components={})
    start = attack.digest[:16]
    forged = first.model_copy(update={"earlier": EarlierAudits(seeds=(5, 6, 7), stakes={})})
    write_json(tmp_path / "audit" / f"{start}-edited.json", json.loads(forged.model_dump_json()))
    forged.model_copy(update={"components": model.card.components}).write_to(
        tmp_path / "audit" / f"{start}-of-other-code.json"
    )
    shown = []
    for audit in (first, second, failed):
        audit.write_to(tmp_path / "audit" / f"{start}-seed-{audit.seed}.json")
        found = find_audit_of_attacked_run(attack, tmp_path)
        shown.append(found and found.seeds)
    assert shown == [(0,), (0, 1), (2,)]
    assert find_audit_of_attacked_run(attack, tmp_path / "other") is None


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("epsilon", 1.5, "ε (1.99995 and 1.5)"),
        ("delta", 1e-6, "δ (1e-05 and 1e-06)"),
        ("adjacency", "replace-one", "neighbours ("),
        ("unit", "patient", "the unit (image and patient)"),
        ("training.events.events.0.event.sigma", 9.0, "the plan"),
        ("files", {"model": {"path": "model.onnx", "sha256": "0" * 64}}, "the model's file"),
    ],
)
def test_a_card_that_states_another_guarantee_than_its_receipt_is_one_sentence(
    field: str, value: object, said: str, folder: Path, tmp_path: Path, refusal: Refusal
) -> None:
    content = json.loads((folder / "receipt.json").read_text(encoding="utf-8"))
    Receipt.model_validate(edited(content, field, value)).write(tmp_path / "other.json")
    told = refusal.command("audit", "--released", folder / "model.onnx", "--receipt", tmp_path / "other.json")
    assert "The card of the model and its receipt differ in" in told and said in told


def test_a_model_without_the_private_data_is_one_sentence(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise DataMissing("No digits here.")

    monkeypatch.setattr(Session, "prepare", missing)
    with pytest.raises(NotReproducible, match=r"^The shadows of a model need its private data. No digits here.$"):
        prepare_model_run(model, session())


def test_a_model_on_other_data_is_refused(model: Model) -> None:
    with pytest.raises(NotReproducible, match="fitted on 7 private records, but here are"):
        prepare_model_run(with_card(model, private_size=7), session())
    test = model.card.test.model_copy(update={"accuracy": 0.01})
    with pytest.raises(NotReproducible, match="The data here are not those of the model"):
        prepare_model_run(with_card(model, test=test), session())


def test_a_card_with_a_plan_that_the_learner_would_not_make_is_refused(model: Model) -> None:
    (use,) = model.card.privacy.plan
    privacy = model.card.privacy.model_copy(update={"plan": (use.model_copy(update={"steps": 2}),)})
    with pytest.raises(PrivacyError, match="makes a different plan here than the model's card"):
        prepare_model_run(with_card(model, privacy=privacy), session())


def test_shadows_have_the_sigma_of_the_card(model: Model) -> None:
    privacy = model.card.privacy.model_copy(update={"sigma": 12.5})
    prepared = prepare_model_run(with_card(model, privacy=privacy), session())
    assert prepared.make_fit_input(0).sigma == 12.5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("model.onnx",), "use dpbench audit --released model.onnx"),
        (("--released", "missing.onnx"), "missing.onnx"),
        (("--released", "spec.toml", "--receipt", "r.json"), "Expected --receipt beside one model"),
        (("--released", "spec.toml", "--canaries", "2000"), "Expected no --canaries beside --released"),
        (("spec.toml", "--shadows", "64"), "Expected no --shadows beside an audit without --released"),
    ],
)
def test_flags_that_do_not_go_together_are_one_sentence(
    arguments: tuple[str, ...], said: str, refusal: Refusal
) -> None:
    assert said in refusal.command("audit", *arguments)


@pytest.mark.slow
def test_the_command_attacks_a_result(folder: Path, tmp_path: Path, capsys: Output) -> None:
    (result,) = folder.glob("class-means-*.json")
    assert call("audit", "--released", result, "--shadows", 32, "--out", tmp_path, "--json") == 0
    found = ReleasedModelAttack.model_validate_json(capsys.readouterr().out)
    assert (found.content, found.shadows) == (Result.read(result).evidence_digest, 32)
