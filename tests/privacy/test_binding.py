"""The one constructor: noise, sample rates and ledger all follow from the plan and sigma that were handed in."""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import dpbench
import dpbench.privacy
from dpbench.api import Chunk, Release
from dpbench.errors import NotPlanned, PlanError, PrivacyError
from dpbench.privacy.core.closed import is_defined_by_dpbench
from dpbench.privacy.core.forms.blocks import Blocks
from dpbench.privacy.core.forms.contributions import Contribution
from dpbench.privacy.core.ledger_curator import LedgerCurator, Question
from dpbench.privacy.core.plan import Planned, check_plan
from dpbench.privacy.core.rows import PrivateRows
from dpbench.privacy.core.sum import Sum
from dpbench.privacy.mechanisms.table import PLANS, mechanisms
from tests.helpers.worlds import curator_over, private_rows

PLAN = (Release("mean", 2, 1.0, 1.0), Release("gradient", 3, 0.1, 4.0), Release("scale", 1, 0.5, 0.25))
WIDTH = 40_000


def nothing(chunk: Chunk) -> Tensor:
    return torch.zeros(len(chunk), WIDTH)


@pytest.mark.parametrize("release", PLAN, ids=lambda release: release.name)
def test_each_release_has_the_base_sigma_times_its_own_relative_noise(release: Release) -> None:
    curator = curator_over(private_rows(n=4), PLAN, sigma=3.0)
    expected = 3.0 * release.relative_noise
    assert curator.sigma[release.name] == curator.handle().sigma[release.name] == expected
    answer = curator.noisy_sum(nothing, release=release.name, clip=0.5)
    assert isinstance(answer, Tensor)
    assert float(answer.std()) == pytest.approx(expected * 0.5, rel=5 / math.sqrt(2 * WIDTH))


@pytest.mark.parametrize("release", PLAN, ids=lambda release: release.name)
def test_each_release_is_sampled_at_its_own_rate(release: Release) -> None:
    n = 20_000
    curator = curator_over(private_rows(n=n, d=1), PLAN)
    drawn = curator.noisy_sum(lambda chunk: torch.ones(len(chunk), 1), release=release.name, clip=2.0)
    rate = release.sample_rate
    assert isinstance(drawn, Tensor)
    assert float(drawn) == pytest.approx(n * rate, abs=5 * math.sqrt(n * rate * (1 - rate)) + 0.5)


@pytest.mark.parametrize("release", PLAN, ids=lambda release: release.name)
def test_each_release_answers_as_often_as_planned_and_no_more(release: Release) -> None:
    curator = curator_over(private_rows(n=4), PLAN)
    for _ in range(release.steps):
        curator.noisy_sum(lambda chunk: chunk.x, release=release.name, clip=1.0)
    with pytest.raises(NotPlanned, match=f"All {release.steps} planned steps of release '{release.name}' are spent"):
        curator.noisy_sum(lambda chunk: chunk.x, release=release.name, clip=1.0)
    assert curator.ledger.spent == {planned.name: planned.steps * (planned == release) for planned in PLAN}


def test_what_is_not_in_the_plan_is_not_answered() -> None:
    curator = curator_over(private_rows(n=4), PLAN[:1])
    with pytest.raises(NotPlanned, match="Release 'gradient' is not in the plan, which has: mean"):
        curator.noisy_sum(lambda chunk: chunk.x, release="gradient", clip=1.0)
    assert set(curator.sigma) == {"mean"}


@pytest.mark.parametrize("block", range(3))
def test_every_block_is_clipped_to_its_own_bound(block: int) -> None:
    rows = PrivateRows(torch.full((5, 4), 100.0), torch.zeros(5, dtype=torch.int64), torch.arange(5))
    bounds = (3.0, 0.5, 7.0)
    curator = curator_over(rows, [Release("sum")])
    answers = curator.noisy_sum(lambda chunk: Blocks((chunk.x, -chunk.x, 2 * chunk.x)), release="sum", clip=bounds)
    assert float(answers[block].norm()) == pytest.approx(5 * bounds[block], rel=1e-5)


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=4), st.floats(0, 1e6))
def test_the_noise_is_that_of_the_plan_whatever_the_plan(relative: list[float], sigma: float) -> None:
    plan = [Release(f"r{index}", relative_noise=value) for index, value in enumerate(relative)]
    curator = curator_over(private_rows(n=2), plan, sigma=sigma)
    assert curator.sigma == {f"r{index}": sigma * value for index, value in enumerate(relative)}


@pytest.mark.parametrize("sigma", [-1.0, math.nan, math.inf])
def test_a_sigma_that_is_none_is_refused(sigma: float) -> None:
    with pytest.raises(PrivacyError, match="Expected sigma="):
        curator_over(private_rows(), PLAN, sigma=sigma)


ROOT = Path(dpbench.__file__).parent
SOURCES = [file for folder in (ROOT, ROOT.parent / "plugins", ROOT.parent / "tests") for file in folder.rglob("*.py")]


def test_loops_are_compiled_before_rows_are_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling reads pickles and says a line: neither happens while private rows are at hand."""
    monkeypatch.setattr("dpbench.privacy.core.exact.kernels.compile_all_kernels", lambda: pytest.fail("compiled"))
    with pytest.raises(pytest.fail.Exception, match="compiled"):
        curator_over(private_rows(n=4), PLAN)


def test_nothing_but_bind_makes_a_curator_or_changes_its_noise_and_ledger() -> None:
    makers, changers = [], []
    for file in SOURCES:
        text = file.read_text(encoding="utf-8")
        if "LedgerCurator" not in text and ("replace" not in text or not re.search("sigma|ledger", text)):
            continue  # parsing all files would take most of the time
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call):
                called = getattr(node.func, "attr", getattr(node.func, "id", None))
                if called == "LedgerCurator":
                    makers.append(file.relative_to(ROOT.parent).as_posix())
                if called == "replace" and {keyword.arg for keyword in node.keywords} & {"sigma", "ledger"}:
                    changers.append(f"{file.relative_to(ROOT.parent)}: {ast.unparse(node)}")
    assert makers == ["dpbench/privacy/binding.py"]
    before_bind = (
        "plugins/dpbench_lab/explain/ladder.py",
        "tests/harness/test_fitting.py",
        "tests/audit/test_released.py",
    )  # what is to be bound
    assert [changer for changer in changers if not changer.startswith(before_bind)] == []


def _claims() -> list[tuple[str, ...]]:
    """Return the rows of the page: claim, modules, tests."""
    lines = str(dpbench.privacy.__doc__).splitlines()
    (first, second, last) = (number for number, line in enumerate(lines) if line.startswith("==="))
    starts = [0, *(at + 1 for at, letter in enumerate(lines[first]) if letter == " "), None]
    listed = [
        tuple(line[start:end].strip() for start, end in itertools.pairwise(starts)) for line in lines[second + 1 : last]
    ]
    of_mechanisms = [
        (claim.text, f"{mechanism.module}.{claim.module}".rstrip("."), ", ".join(claim.tests))
        for mechanism in mechanisms()
        for claim in mechanism.claims
    ]
    return [*listed, *of_mechanisms]


def test_the_page_of_claims_names_every_module_and_tests_that_exist() -> None:
    folder, tests = ROOT / "privacy", {file.stem for file in Path(__file__).parents[1].rglob("test_*.py")}
    named = {module for _, modules, _ in _claims() for module in modules.split(", ")}
    assert {test for *_, names in _claims() for test in names.split(", ")} <= tests
    every = {".".join(file.relative_to(folder).with_suffix("").parts) for file in folder.rglob("*.py")}
    assert {module for module in every if not module.endswith("__init__")} == named


def test_every_mechanism_of_the_closed_table_has_its_claims() -> None:
    named = {module for _, modules, _ in _claims() for module in modules.split(", ")}
    for mechanism in mechanisms():
        assert any(module == mechanism.module or module.startswith(f"{mechanism.module}.") for module in named), (
            mechanism.module
        )


def _defined(base: Any) -> set[Any]:
    """Return what dpbench defines of a kind, whatever tests define beside it."""
    below = base.__subclasses__()
    return {cls for cls in below if is_defined_by_dpbench(cls) and not inspect.isabstract(cls)}.union(
        *map(_defined, below)
    )


def test_the_closed_table_names_all_plans_questions_and_forms_there_are() -> None:
    for module in ROOT.joinpath("privacy").rglob("*.py"):
        importlib.import_module(
            ".".join(module.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
        )
    assert _defined(Planned) == set(PLANS) == {mechanism.planned for mechanism in mechanisms() if mechanism.planned}
    assert _defined(Question) == {question for mechanism in mechanisms() for question in mechanism.questions}
    assert _defined(Contribution) == {form for mechanism in mechanisms() for form in mechanism.forms}


def test_a_question_or_a_plan_of_somebody_elses_is_refused() -> None:
    class Peek(Sum):
        def compute_answer(self, curator: LedgerCurator, spent: Sequence[Any]) -> Tensor:
            return curator.rows.x

    class Cheap(Release):
        def event(self, noise: float) -> Any:
            return super().event(100 * noise)

    for made in (Peek, type("Sum", (Sum,), {"__module__": Sum.__module__})):
        with pytest.raises(PrivacyError, match="Expected a question that dpbench defines"):
            curator_over(private_rows(), PLAN).handle().answer(made(nothing, "mean", 1.0))
    with pytest.raises(PlanError, match="Expected Release or Choice in the plan of a test, got a Cheap"):
        check_plan([Cheap("sum")], "a test")


def test_core_names_no_mechanism() -> None:
    """The middle ring imports the core, and never the other way round."""
    above = ("from dpbench.privacy.mechanisms", "from dpbench.privacy.curator", "import dpbench")
    sources = [file for ring in ("core", "purity") for file in (ROOT / "privacy" / ring).rglob("*.py")]
    lines = [(file.name, line.strip()) for file in sources for line in file.read_text().splitlines()]
    assert [(name, line) for name, line in lines if line.startswith(above)] == []
