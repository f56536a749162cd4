"""The list of broken cores: each patch applies, the tests that it names exist, and audits reject it."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpbench.audit import auditing_curator
from dpbench.audit.audit_fit import audit_prepared_run
from dpbench.audit.sensitivity import QuestionReplayer
from dpbench.harness.prepare import PreparedRun
from dpbench.records.spec import make_spec
from dpbench_lab.museum.cores import CORES
from dpbench_lab.museum.cores.broken_core import AuditCase, BrokenCore, edit, find_stale_patches
from dpbench_lab.museum.cores.patch import Replacement, SourceEdit, find_privacy_function
from tests.helpers.sessions import session

TESTS = Path(__file__).parents[2]
PLAN = "privacy/core/plan.py"


def audits() -> Iterator[object]:
    for core in CORES:
        for case in core.audits:
            marks = () if case.quick else pytest.mark.long
            crowd = "" if case.canaries else ", as many canaries as a run has room for"
            yield pytest.param(core, case, id=f"{core.name}: {case.learner}{crowd}", marks=marks)


@functools.cache
def prepared(learner: str) -> PreparedRun:
    values = {"learner": learner, "dataset": "digits", "public_labels": True, "seeds": 1}
    return session().prepare(make_spec(values, "a test"))


@pytest.mark.quick(1)
@pytest.mark.parametrize(("core", "case"), [*audits()])
def test_an_audit_rejects_a_broken_core(core: BrokenCore, case: AuditCase, monkeypatch: pytest.MonkeyPatch) -> None:
    """If an audit that is to pass turns red, the page on audits says too little."""
    run = prepared(case.learner)
    assert isinstance(core.patch, Replacement)
    monkeypatch.setattr(auditing_curator, "FEATURE_REPLAYS", 2)  # of a release that are asked again: enough, and quick
    for name in ("replay", "probe") if case.part != "sensitivity" else ():
        monkeypatch.setattr(QuestionReplayer, name, lambda *_: None)
    with core.patch.apply():
        found = audit_prepared_run(run, 0, case.canaries)
    assert found.passed == (case.part is None), found.figures.failed
    assert case.part is None or found.part_passed(case.part) is False, found.figures.failed


def test_every_patch_still_applies() -> None:
    """Whoever changes code that a patch changes makes the same bug in the code as it is then."""
    assert find_stale_patches(CORES) == {}


@pytest.mark.parametrize(
    ("stale", "said"),
    [
        (edit(PLAN, "gone", "", "no [-such-]{+other+} words", tests=""),
         "'gone' no longer applies: Expected once in dpbench/privacy/core/plan.py, found 0 times: 'no such words'. "
         "Make the same bug in the code as it is."),
        (edit(PLAN, "often", "", "[-return-]{+yield+}", tests=""), "found [0-9]+ times: 'return'"),
        (BrokenCore("moved", Replacement({"core.sum:Sum.gone": max})), "Expected a function dpbench.privacy.core.sum:"),
        (BrokenCore("deleted", Replacement({"core.gone:name": max})), "No module named 'dpbench.privacy.core.gone'"),
    ],
)  # fmt: skip
def test_a_patch_that_no_longer_applies_is_told(stale: BrokenCore, said: str) -> None:
    (complaint,) = find_stale_patches([stale]).values()
    assert re.search(said, complaint)


def test_marks_say_what_goes_and_what_comes() -> None:
    patch = SourceEdit(PLAN, ("if [-not a-]{+False+}:", "b{+ + 1+}", "[-c, -]d"))
    assert patch.edit_source("if not a:\n  b\n  c, d[-1]\n") == "if False:\n  b + 1\n  d[-1]\n"


def test_every_broken_core_has_a_name_of_its_own_and_somebody_who_must_notice_it() -> None:
    assert [name for name, count in Counter(core.name for core in CORES).items() if count > 1] == []
    assert [core.name for core in CORES if not (core.exhibit or core.audits or core.tests)] == []


def test_the_tests_that_must_fail_on_a_broken_core_exist() -> None:
    for core in CORES:
        for test in core.tests:
            file, _, name = test.partition("::")
            defined = re.sub(r"\[.*", "", name).rpartition("::")[2]
            assert f"def {defined}(" in (TESTS / file).read_text(encoding="utf-8") or not name, test


def test_a_core_is_whole_again_after_an_audit() -> None:
    for core in CORES:
        if isinstance(core.patch, Replacement):
            before = [find_privacy_function(place)[-1] for place in core.patch.functions]
            with core.patch.apply():
                assert not {*before} & {find_privacy_function(place)[-1] for place in core.patch.functions}
            assert before == [find_privacy_function(place)[-1] for place in core.patch.functions]
