"""A later version re-runs, checks and skips what an earlier one made, if it computes the same."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpbench.api import Learner
from dpbench.board.verify.plan_check import check_learner_plan
from dpbench.board.verify.rerun_record import rerun_seeds
from dpbench.errors import NotReproducible
from dpbench.harness.fingerprints import learners, taking
from dpbench.harness.fingerprints.taking import take_fingerprint
from dpbench.records.fingerprints import CodeDigests, ComponentBehaviour, read_fingerprints
from dpbench.records.packed import read_record
from dpbench.records.result import Result
from dpbench.registry import Registry, load, same_code
from dpbench.registry.same_code import FingerprintStore, compare_with_installed_code
from dpbench.support.code import code_digest, core_digest
from tests.helpers.commands import call
from tests.helpers.sessions import session

ROOT = Path(__file__).parents[2] / "leaderboard"
COMMITTED = ROOT / "results" / "digits-eps1"
IDENTITIES = json.loads((Path(__file__).parents[1] / "records" / "identities.json").read_text(encoding="utf-8"))
CELLS = """
name = "cells"
[fixed]
dataset = "digits"
seeds = 1
epsilon = 1.0
[grid]
learner = ["class-means:k=5", "class-means:k=6"]
"""


def committed(learner: str) -> Result:
    """Return the first committed result of a learner on the digits."""
    from dpbench.records.packed import list_packed_names

    name = next(name for name in list_packed_names(COMMITTED) if name.startswith(f"{learner}-digits"))
    return Result.model_validate_json(read_record(COMMITTED / name))


def at_version(version: str) -> Registry:
    """Return what is installed, as if it were of another version."""
    plugins = load()
    raised = {
        kind: {name: dataclasses.replace(item, version=version) for name, item in items.items()}
        for kind, items in plugins.components.items()
    }
    return dataclasses.replace(plugins, components=raised)


def with_code(result: Result, **digests: str) -> Result:
    made = {**result.provenance, "code": {**result.provenance["code"], **digests}}
    return result.model_copy(update={"provenance": made}).with_evidence_digest()


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["class-means", "dp-sgd"])
def test_a_committed_result_is_run_again_to_equal_numbers_by_a_later_version(learner: str) -> None:
    result = committed(learner)
    record = rerun_seeds(result, None, session(at_version("0.3.0")))
    assert record.agrees, record
    assert [seed.accuracy for seed in record.seeds] == pytest.approx([seed.accuracy for seed in result.seeds], abs=0.01)
    verdicts = {claim.claim: claim.verdict for claim in record.claims if claim.claim.startswith("provenance.code")}
    assert {*verdicts.values()} == {"same"}, record.claims


@pytest.mark.slow
def test_a_later_version_draws_the_noise_of_the_version_that_a_result_states() -> None:
    kept = IDENTITIES["digits-eps0.1"]
    result = Result.model_validate_json(read_record(ROOT / "results" / "digits-eps0.1" / kept["result"]))
    assert session(at_version("0.3.0")).rerun(result).identity == kept["identity"]


def test_a_later_version_that_computes_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learners, "SEED", 1)  # as a change of what is computed would
    monkeypatch.setattr(same_code, "core_digest", lambda: "0" * 16)  # of which no fingerprint is stored
    with pytest.raises(NotReproducible, match=r"0\.2\.0; here is dpbench-vision 0\.3\.0.*dpbench computes something"):
        session(at_version("0.3.0")).rerun(committed("class-means"))


@pytest.mark.slow
def test_a_later_version_of_code_that_nobody_knows_is_refused() -> None:
    unknown = with_code(committed("class-means"), learner="0" * 16)
    with pytest.raises(NotReproducible, match="the learner is other code without a fingerprint"):
        session(at_version("0.3.0")).rerun(unknown)


def test_a_later_version_is_refused_where_a_result_states_no_code() -> None:
    result = committed("class-means")
    silent = result.model_copy(update={"provenance": {**result.provenance, "code": {}}})
    with pytest.raises(NotReproducible, match="states no digests of its code"):
        session(at_version("0.3.0")).rerun(silent)


def test_another_distribution_is_refused_whatever_it_computes() -> None:
    result = committed("class-means")
    origins = {
        role: origin.model_copy(update={"distribution": "another-package"})
        for role, origin in result.components.items()
    }
    with pytest.raises(NotReproducible, match="here dpbench-vision"):
        session(load()).rerun(result.model_copy(update={"components": origins}))


@pytest.mark.parametrize("changed", [{"version": "0.2.0+luck"}, {"plugin": "luck"}], ids=str)
def test_a_plugin_or_a_version_that_there_never_was_chooses_no_noise(changed: dict[str, str]) -> None:
    result = committed("class-means")
    origins = {role: origin.model_copy(update=changed) for role, origin in result.components.items()}
    with pytest.raises(NotReproducible, match="luck"):
        session(load()).rerun(result.model_copy(update={"components": origins}))


@pytest.mark.parametrize(
    "code", [{"dpbench": str(core_digest())}, {"nothing": "x"}, "dpbench learner", ["dpbench"]], ids=str
)
def test_a_later_version_is_refused_where_a_result_states_the_code_of_some_roles_only(code: object) -> None:
    result = committed("class-means")
    silent = result.model_copy(update={"provenance": {**result.provenance, "code": code}})
    with pytest.raises(NotReproducible, match=r"without a fingerprint|states no digests"):
        session(at_version("0.3.0")).rerun(silent)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the arguments of a sweep whose results say that another plugin's code made them."""
    folder = tmp_path_factory.mktemp("swept")
    file = folder / "cells.toml"
    file.write_text(CELLS, encoding="utf-8")
    arguments = ["sweep", str(file), "--out", str(folder / "out"), "--workers", "1"]
    for k in (5, 6):  # what its cells ask for, in this process
        run = ("run", "--learner", f"class-means:k={k}", "--dataset", "digits", "--seeds", "1", "--epsilon", "1")
        assert call(*run, "--out", str(folder / "out")) == 0
    for result in map(Result.read, (folder / "out").glob("*.json")):
        with_code(result, learner="0" * 16).write(folder / "out")
    return arguments


def here(learner: str) -> CodeDigests:
    return CodeDigests(dpbench=str(core_digest()), plugin=str(code_digest(load().find("learner", learner).cls)))


def write_fingerprint(
    folder: Path, learner: str, k: int, change: Callable[[ComponentBehaviour], ComponentBehaviour]
) -> None:
    """Keep what a learner does here, and what the other code did."""
    kept, now = read_fingerprints(folder, "learner", learner), here(learner)
    found = take_fingerprint("learner", learner, {"k": k}, load())
    other = now.model_copy(update={"plugin": "0" * 16})
    kept.with_behaviour({"k": k}, change(found), other).with_behaviour({"k": k}, found, now).write(folder)


@pytest.mark.slow
def test_a_dry_run_of_a_sweep_compares_fingerprints_and_fits_nothing(
    swept: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, fits = tmp_path / "fingerprints", list[str]()
    write_fingerprint(folder, "class-means", 5, lambda found: found)
    write_fingerprint(folder, "class-means", 6, lambda found: found.model_copy(update={"task": "another"}))
    monkeypatch.setattr("dpbench.sweep.conduct.FingerprintStore", lambda: FingerprintStore(folder))
    cls: type[Learner] = load().find("learner", "class-means").cls
    fit: Any = vars(cls)["fit"]

    def counted(*given: Any) -> Any:
        fits.append("fit")
        return fit(*given)

    monkeypatch.setattr(cls, "fit", counted)
    capsys.readouterr()
    assert call(*swept, "--dry-run") == 0
    assert "1 done, 1 other code" in capsys.readouterr().out
    assert fits == []


def test_without_fingerprints_other_code_is_other_code(swept: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert call(*swept, "--dry-run") == 0
    assert "2 other code" in capsys.readouterr().out


@pytest.mark.slow
def test_a_missing_fingerprint_of_the_installed_code_is_taken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[str, str]]()
    take = taking.take_fingerprint

    def counted(kind: Any, name: str, *given: Any) -> ComponentBehaviour:
        asked.append((kind, name))
        return take(kind, name, *given)

    monkeypatch.setattr(taking, "take_fingerprint", counted)
    plugins, result = load(), committed("class-means")
    known = taking.open_fingerprint_store(plugins)
    known._read_component("learner", "class-means")
    known._read["learner", "class-means"] = without(known._read["learner", "class-means"], here("class-means"))
    for _ in range(2):
        found = compare_with_installed_code(result, plugins, known, same_data=True)
    assert found["learner"] in {"fingerprint", "digest"} and asked.count(("learner", "class-means")) == 1


def without(kept: Any, code: CodeDigests) -> Any:
    """Return fingerprints without those of one code."""
    place = kept.codes.index(code) if code in kept.codes else -1
    prints = tuple(
        code_print.model_copy(update={"codes": tuple(number for number in code_print.codes if number != place)})
        for code_print in kept.prints
    )
    return kept.model_copy(update={"prints": prints})


@pytest.mark.slow
def test_every_committed_result_has_a_fingerprint_of_the_code_that_made_it() -> None:
    """Or its settings do not fit a fixed task: of these a later version is not known to compute the same."""
    from dpbench.records.packed import list_records

    known, missing, results = FingerprintStore(ROOT / "fingerprints"), list[str](), 0
    for file in list_records(ROOT / "results"):
        result = Result.model_validate_json(read_record(file))
        results += 1
        stated = CodeDigests.from_provenance(result.provenance["code"], "learner")
        assert stated is not None
        kept = known._read_component("learner", result.spec.learner.name)
        if kept.behaviour(result.settings, stated) is None:
            missing.append(file.name)
    assert results > 1000 and missing == []


@pytest.mark.slow
def test_a_maintainer_takes_missing_fingerprints_and_keeps_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "results" / "digits-eps1").mkdir(parents=True)
    committed("class-means").write(tmp_path / "results" / "digits-eps1")
    assert call("leaderboard", "fingerprint", "--root", str(tmp_path)) == 0
    assert "learner class-means: 1 fingerprint, 1 code" in capsys.readouterr().out
    written = {file: file.read_bytes() for file in (tmp_path / "fingerprints").rglob("*.json")}
    assert {file.stem for file in written} == {"class-means", "pixels", "core"}

    def refuse(*_: object) -> ComponentBehaviour:
        raise AssertionError("it is there already")

    monkeypatch.setattr(taking, "take_fingerprint", refuse)
    assert call("leaderboard", "fingerprint", "--root", str(tmp_path)) == 0
    assert {file: file.read_bytes() for file in written} == written


def test_fingerprints_of_no_results_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("leaderboard", "fingerprint", "--root", str(tmp_path)) == 1
    assert "Expected results in" in capsys.readouterr().err


@pytest.mark.slow
def test_a_plan_is_asked_for_again_of_a_later_version_that_computes_the_same() -> None:
    result = committed("class-means")
    plan = tuple(use.model_copy(update={"relative_noise": 2.0}) for use in result.privacy.plan)
    forged = result.model_copy(update={"privacy": result.privacy.model_copy(update={"plan": plan})})
    raised = at_version("0.3.0")
    known = taking.open_fingerprint_store(load())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpbench.board.verify.plan_check.load_stored_fingerprints", lambda: known)
        assert [field for field, _ in check_learner_plan(forged, raised)] == ["privacy.plan"]
        assert [*check_learner_plan(result, raised)] == []
        for role in ("learner", "dpbench"):  # what other code settles and plans is no measure
            assert [*check_learner_plan(with_code(forged, **{role: "0" * 16}), raised)] == []
