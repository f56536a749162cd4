"""`dpbench audit`: the fit it listens to is that of the run, what it refuses, and what it writes."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from dpbench.api import PublicData
from dpbench.audit.audit_fit import audit, audit_prepared_run
from dpbench.audit.auditing_curator import _test_choice_counts
from dpbench.audit.figures import compute_figures
from dpbench.errors import NotReproducible, PrivacyError, SpecError
from dpbench.harness.fit import fit_and_score_seed
from dpbench.harness.prepare import PreparedRun
from dpbench.privacy.binding import bind
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.core.witness import AuditWitness, Canaries, SumObservation
from dpbench.privacy.mechanisms.choice.replay import ChoiceCounts
from dpbench.records.audit import Audit
from dpbench.records.result import Result
from dpbench.records.spec import Spec, make_spec
from tests.helpers.commands import Refusal, call
from tests.helpers.sessions import session
from tests.helpers.worlds import private_rows

CANARIES = 3_000


def spec_of(learner: str, **more: Any) -> Spec:
    return make_spec({"learner": learner, "dataset": "digits", "public_labels": True, "seeds": 1, **more}, "a test")


@functools.cache
def prepared(learner: str) -> PreparedRun:
    return session().prepare(spec_of(learner))


@functools.cache
def result() -> Result:
    return session().run(spec_of("pillar:k=10,steps=5"))


@pytest.mark.quick("class-means")
@pytest.mark.parametrize("learner", ["dp-sgd:steps=5,sample_rate=0.2", "gep:steps=3,k=10", "class-means"])
def test_the_learner_is_answered_as_in_a_plain_run(learner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from dpbench.audit import audit_fit as auditing

    found: list[torch.Tensor] = []
    plain = auditing._fit_with_evidence

    def kept(*arguments: Any) -> Any:
        fitted = plain(*arguments)
        found.append(fitted.predict(prepared(learner).test.x))
        return fitted

    monkeypatch.setattr(auditing, "_fit_with_evidence", kept)
    audit_prepared_run(prepared(learner), 3, CANARIES)
    again = fit_and_score_seed(prepared(learner), 3)
    from dpbench.harness import scoring

    made = scoring.score_predictions(found[0].double().numpy(), prepared(learner).test.scorer.y)
    assert made.predictions == again.predictions


def test_an_audit_of_a_result_repeats_the_result() -> None:
    found = audit(result(), session(), canaries=CANARIES)
    assert found.passed and found.repeats is True
    assert (found.digest, found.epsilon, found.sigma) == (
        result().digest, result().privacy.epsilon, result().privacy.sigma,
    )  # fmt: skip


@pytest.mark.slow
def test_an_audit_of_another_seed_than_those_of_a_result_repeats_nothing() -> None:
    other = audit(result(), session(), seed=7, canaries=CANARIES)
    assert other.passed and other.repeats is None


@pytest.mark.slow
def test_audits_of_several_seeds_draw_noise_of_other_seeds_that_no_two_of_them_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second audit is how an honest run that failed one by chance is told from a broken one."""
    research, drawn = Randomness.research, dict[int, set[int]]()
    for seed in (0, 1):
        drawn[seed] = set()
        kept = lambda number, identity, into=drawn[seed]: into.add(number) or research(number, identity)
        monkeypatch.setattr(Randomness, "research", kept)
        audit_prepared_run(prepared("class-means"), seed, CANARIES)
    assert min(map(len, drawn.values())) > 2
    assert not drawn[0] & drawn[1]


@pytest.mark.quick(1)
@pytest.mark.parametrize("chances", [(0.9997, 1.5e-4, 1.5e-4), (0.5, 0.3, 0.2)])
def test_honest_choices_are_doubted_no_more_often_than_stated(chances: tuple[float, ...]) -> None:
    """Of candidates that are hardly ever chosen, too: by chi-square, two draws where 0.2 are expected had p = 6e-5."""
    found = np.random.default_rng(0).multinomial(600, chances, size=4_000)
    ps = np.array([_test_choice_counts("law", ChoiceCounts("", choices, np.array(chances))).p for choices in found])
    for level in (0.1, 0.01, 1e-3):
        assert (ps < level).mean() <= level + 3 * math.sqrt(level / len(ps))
    assert _test_choice_counts("law", ChoiceCounts("", np.array([300, 300, 0]), np.array([0.8, 0.1, 0.1]))).p < 1e-9


@pytest.mark.slow
def test_figures_follow_from_the_statistics_in_the_file(tmp_path: Path) -> None:
    found = audit_prepared_run(prepared("class-means"), 0, CANARIES)
    read = Audit.read(found.write(tmp_path))
    assert read.seal and read.model_copy(update={"seal": ""}) == found
    assert read.figures == compute_figures(
        read.epsilon, read.delta, read.sensitivity, read.noise, read.attack, read.own
    )
    assert (tmp_path / "audit" / f"{found.digest[:16]}.json").exists()
    other = found.model_copy(update={"seed": 9}).write(tmp_path)
    assert other.name == f"{found.digest[:16]}-seed-9.json", "an audit of another seed replaces none"


@pytest.mark.slow
def test_releases_of_a_plan_are_attacked_together() -> None:
    found = audit_prepared_run(prepared("dp-raft:steps=4,private_mean=true"), 0, 40_000)
    assert found.attack is not None and found.attack.mu is not None
    precision = sum(use.steps / use.sigma**2 for use in found.plan)
    assert found.attack.mu == pytest.approx(math.sqrt(precision))
    assert found.passed


@pytest.mark.slow
def test_one_run_of_a_private_search_is_audited_and_it_says_so() -> None:
    spec = spec_of(
        "pillar:steps=4,k=10", accountant="rdp", public_fraction=0.3,
        search={"rule": "private-accounted", "space": {"learning_rate": (0.1, 0.3)}, "repeats": 3},
    )  # fmt: skip
    found = audit(spec, session(), canaries=CANARIES)
    assert found.passed and found.repeats is None
    assert "one of its runs" in found.left_out[0]
    assert found.epsilon < session().prepare(spec).privacy.epsilon


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"learner": "public-only"}, "asks nothing of the private data"),
        ({"learner": "class-means", "epsilon": math.inf}, "adds no noise and states no guarantee"),
        ({"learner": "class-means", "secure_rng": True}, "leaves no way to compute that noise again"),
    ],
)
def test_what_has_nothing_to_audit_is_refused_in_one_sentence(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        audit(spec_of(**asked), session())


def test_results_of_other_randomness_or_other_code_are_refused() -> None:
    secure = result().privacy.model_copy(update={"rng": "secure"})
    with pytest.raises(SpecError, match="leaves no way"):
        audit(result().model_copy(update={"privacy": secure}), session())
    before = result().privacy.model_copy(update={"mechanism": "exact-sums-0"})
    with pytest.raises(NotReproducible, match="made by the code before"):
        audit(result().model_copy(update={"privacy": before}), session())


def test_a_learner_that_plans_and_never_asks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made = prepared("class-means")
    monkeypatch.setattr(type(made.learner), "fit", lambda *_: lambda x: torch.zeros(len(x), 10))
    with pytest.raises(SpecError, match="planned questions but asked none"):
        audit_prepared_run(made, 0, CANARIES)


def test_a_witness_never_stands_beside_secure_randomness() -> None:
    rows, seen = private_rows(), list[SumObservation]()
    task = prepared("class-means").roles.task
    with pytest.raises(PrivacyError, match="research randomness"):
        bind(rows, task, (), 1.0, Randomness.secure(0), AuditWitness(seen.append))


@pytest.mark.slow
@pytest.mark.usefixtures("telling")
def test_canaries_take_no_part_in_what_is_public() -> None:
    made = prepared("class-means")
    sizes: list[int] = []

    class Counting(type(made.learner)):  # type: ignore[misc]
        def fit(self, curator: Any, public: PublicData, generator: torch.Generator) -> Any:
            sizes.append(curator.task.size)
            return super().fit(curator, public, generator)

    learner = Counting(**vars(made.learner))
    audit_prepared_run(dataclasses.replace(made, learner=learner), 0, CANARIES)
    assert sizes == [made.roles.task.size]


def test_a_canary_asks_for_more_than_its_clip_and_is_weighed_down_to_it() -> None:
    import numpy as np

    canaries = Canaries(np.array([True, False, True]))
    found = canaries.clipped_sum(np.array([2]), 0.3, torch.device("cpu")).value()
    assert found.tolist() == pytest.approx([0.0, 0.0, 0.3], rel=1e-5)
    assert float(found.max()) <= 0.3


@pytest.mark.slow
def test_an_audit_is_blind_to_public_data_that_was_made_of_private_rows() -> None:
    """It finds bugs of the mechanism; what was fitted to private rows before it never passes through it."""
    made = prepared("pillar:k=10,steps=5")
    private = PublicData(made.roles.private.x, None)
    roles = dataclasses.replace(made.roles, public=private)
    leaky = dataclasses.replace(made, loaded=dataclasses.replace(made.loaded, roles=roles))
    assert audit_prepared_run(leaky, 0, CANARIES).passed


@pytest.mark.slow
def test_the_command_audits_a_result_and_its_exit_code_says_what_came_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = result().write(tmp_path)
    asked = ("audit", file, "--canaries", CANARIES, "--out", tmp_path)
    assert call(*asked) == 0
    said = capsys.readouterr().out
    assert "the predictions of the result" in said and said.count("passed") == 3
    assert "Evidence against the guarantee: none (e = " in said
    monkeypatch.setattr("dpbench.privacy.core.sum.math", SimpleNamespace(sqrt=lambda blocks: 0.5))
    assert call(*asked, "--json") == 1
    written = json.loads((tmp_path / "audit" / f"{result().digest[:16]}.json").read_text(encoding="utf-8"))
    assert any("noise" in line for line in written["figures"]["failed"])
    capsys.readouterr()
    assert call(*asked, "--seed", 1) == 1, "looking again with another seed does not undo an alarm"
    assert "Evidence against the guarantee of seeds 0, 1: alarm (e = " in capsys.readouterr().out
    assert call(*asked, "--seed", 0)
    assert "already includes the evidence of seed 0" in capsys.readouterr().err


def test_the_command_audits_a_spec(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "spec.toml"
    file.write_text('learner = "class-means"\ndataset = "digits"\nextractor = "pixels"\n', encoding="utf-8")
    assert call("audit", file, "--canaries", CANARIES, "--out", tmp_path) == 0
    assert "class-means" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("no-such-board", "Unknown board with results"),
        ("missing.json", "Cannot read result"),
        ("missing.toml", "Cannot read the spec"),
    ],
)
def test_a_target_that_is_nothing_is_one_sentence(target: str, said: str, refusal: Refusal, tmp_path: Path) -> None:
    assert said in refusal.command("audit", target, "--root", tmp_path)
