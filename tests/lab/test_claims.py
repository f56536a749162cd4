"""The catalogue of the literature's claims: sources, verdicts, refusals, and what commands and the site make of it."""

from __future__ import annotations

import json
import math
import os
import runpy
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from dp_accounting import get_epsilon_gaussian

from dpbench.board.index import Index
from dpbench.errors import SpecError
from dpbench.registry import load
from dpbench.site.context import SiteContext
from dpbench.site.render import make_renderer
from dpbench_lab.claims.catalogue import FIELDS, Claim, Paper, find_claims_folder, read_catalogue, read_paper
from dpbench_lab.claims.page import PAGE
from dpbench_lab.claims.verdict import (
    RECORD,
    ClaimVerdict,
    digest_claim,
    judge_all_claims,
    judge_claim,
    list_accounting_remarks,
    read_verdicts,
    write_verdicts,
)
from tests.helpers.commands import Refusal, call

CATALOGUE = Path(__file__).parents[2] / "leaderboard" / "claims"
PAPERS = read_catalogue(CATALOGUE)
CLAIMS = [(paper, claim) for paper in PAPERS for claim in paper.claims]

GOOD = """
title = "A paper"
authors = "Somebody"
year = 2020
source = "title page"
claims = [{ id = "one", dataset = "MNIST", public = "nothing", accuracy = 90.0, epsilon = 1, \
delta = 1e-5, steps = 1, sigma = 3.731, sampler = "full-batch" }]

[sources]
"Table 1" = ["dataset", "public", "accuracy", "epsilon", "delta", "steps", "sigma", "sampler"]
"""


def claim(**given: Any) -> Claim:
    """Return a claim of one Gaussian release over all examples, whose epsilon at delta 1e-5 is 1."""
    values = {"dataset": "MNIST", "public": "nothing", "accuracy": 90, "epsilon": "1", "delta": 1e-5, "steps": 1,
              "sigma": "3.731", "sampler": "full-batch", **given}  # fmt: skip
    return Claim(id="one", sources=dict.fromkeys(values, "Table 1"), **values)


def verdict(**given: Any) -> ClaimVerdict:
    """Return what follows from such a claim."""
    stated = claim(**given)
    return judge_claim(
        Paper(key="paper", title="A paper", authors="Somebody", source="title page", claims=(stated,)), stated
    )


def test_every_field_of_every_claim_has_a_source() -> None:
    for paper, claim in CLAIMS:
        stated = {name for name in FIELDS if getattr(claim, name) not in (None, ())}
        assert {*claim.sources} == stated, (paper.key, claim.id)
        assert all(place.strip() for place in claim.sources.values())


def test_the_anchors_headlines_are_among_the_claims() -> None:
    found = {(paper.key, str(claim.epsilon), claim.dataset, claim.accuracy) for paper, claim in CLAIMS}
    assert {
        ("tang-2023", "1", "CIFAR-10", 72.32),
        ("pinto-2023", "0.1", "CIFAR-10", 81.21),
        ("de-2022", "8", "CIFAR-10", 81.4),
        ("hu", "0.2", "CIFAR-10", 46),
    } <= found
    rivals = [claim for paper, claim in CLAIMS if paper.key == "mokhtari-2026"]
    benchmark = {(rival.dataset, rival.public, str(rival.epsilon), rival.auc) for rival in rivals}
    assert {("CheXpert", "imagenet", "1", 78.46), ("CheXpert", "more", "1", 80.63)} <= benchmark


def test_the_claims_that_come_out_understated_are_those_of_the_central_limit_theorem() -> None:
    """Their own formula gives what is printed (Bu et al. 2019): what differs is the method, and the remark says so."""
    found = {
        (verdict.paper, verdict.claim): verdict
        for verdict in read_verdicts(CATALOGUE)
        if verdict.judgement == "understated"
    }
    for paper, claim in CLAIMS:
        if (paper.key, claim.id) in found:
            assert claim.accountant == "gdp" and claim.sigma and claim.rate and claim.rounds and claim.delta
            mu = claim.rate * math.sqrt(claim.rounds * math.expm1(float(claim.sigma) ** -2))
            assert get_epsilon_gaussian(1 / mu, claim.delta) == pytest.approx(float(claim.epsilon), rel=3e-3)
            assert any("central limit theorem" in said for said in found[paper.key, claim.id].remarks)
    assert len(found) == 2


def test_recorded_remarks_are_those_that_claims_have() -> None:
    kept = {(verdict.paper, verdict.claim): verdict.remarks for verdict in read_verdicts(CATALOGUE)}
    assert kept == {(paper.key, claim.id): list_accounting_remarks(claim) for paper, claim in CLAIMS}


def test_the_recorded_verdicts_are_those_of_the_claims_as_they_stand() -> None:
    recorded = [(verdict.paper, verdict.claim, verdict.digest) for verdict in read_verdicts(CATALOGUE)]
    assert recorded == [(paper.key, claim.id, digest_claim(claim)) for paper, claim in CLAIMS]


def one_by_one(papers: Sequence[Paper]) -> list[ClaimVerdict]:
    return [judge_claim(paper, claim) for paper in papers for claim in paper.claims]


@pytest.mark.parametrize("judged", [one_by_one, pytest.param(judge_all_claims, marks=pytest.mark.slow)])
def test_a_recorded_verdict_repeats_for_plans_that_take_no_time(
    judged: Callable[[Sequence[Paper]], list[ClaimVerdict]],
) -> None:
    whole = [paper for paper in PAPERS if paper.key == "tang-2023"]
    probes = [
        paper.model_copy(update={"claims": tuple(claim for claim in paper.claims if claim.rate == 1)})
        for paper in whole
    ]
    kept = {(verdict.paper, verdict.claim): verdict for verdict in read_verdicts(CATALOGUE)}
    found = judged(probes)
    assert len(found) == 11
    for verdict in found:
        known = kept[verdict.paper, verdict.claim]
        assert verdict.judgement == known.judgement and verdict.pld == pytest.approx(known.pld, rel=1e-6)


@pytest.mark.parametrize(
    ("given", "judgement"),
    [
        ({}, "reproducible"),
        ({"epsilon": "1.019"}, "reproducible"),
        ({"epsilon": "1.2"}, "stated with margin"),
        ({"epsilon": "0.95"}, "understated"),
        ({"epsilon": "1.1", "sigma": "3"}, "reproducible"),  # sigma 3.5 is printed as 3, and has 1.07
        ({"epsilon": "1.1", "sigma": "3.0"}, "understated"),  # sigma 3.05 has 1.25
        ({"steps": None}, "underspecified"),
    ],
)
def test_a_verdict_follows_from_the_printed_numbers(given: dict[str, Any], judgement: str) -> None:
    assert verdict(**given).judgement == judgement


def test_epsilon_by_renyi_orders_reproduces_a_claim_too() -> None:
    tight = verdict()
    assert tight.rdp is not None and tight.rdp > 1.03
    assert verdict(epsilon=f"{tight.rdp:.3f}").judgement == "reproducible"


def test_what_is_missing_is_named() -> None:
    assert verdict(sigma=None, delta=None).missing == ("δ", "σ")
    assert verdict(sampler=None, steps=None, epochs=3.0).missing == ("sample rate",)
    assert verdict(accountant="pate").missing == ("the teachers' votes, which a data-dependent epsilon follows from",)
    assert verdict(adjacency="replace-one").missing == ("an accountant for replace-one neighbours",)


@pytest.mark.quick(1)
@pytest.mark.parametrize(("delta", "epsilon", "judgement"), [
    (1e-25, "20", "stated with margin"), (1e-20, "8", "stated with margin"), (1e-20, "2", "understated"),
])  # fmt: skip
def test_an_accountant_without_an_answer_is_not_held_against_a_claim(
    delta: float, epsilon: str, judgement: str
) -> None:
    found = verdict(sigma="1.0", steps=1_000, sampler="poisson", sample_rate=0.01, delta=delta, epsilon=epsilon)
    assert found.judgement == judgement and found.pld is None and found.rdp


def test_verdicts_that_are_damaged_are_made_anew(tmp_path: Path) -> None:
    file = write_verdicts(tmp_path, [verdict()])
    assert read_verdicts(tmp_path) == (verdict(),)
    file.write_text(file.read_text(encoding="utf-8")[:-9], encoding="utf-8")
    assert read_verdicts(tmp_path) == ()


@pytest.mark.parametrize(
    ("sigma", "steps", "rate"), [("0.01", 10**7, 0.5), ("0.3", 10**7, 1e-4), ("1", 10**7, 1.0), ("0.11", 10, 1e-3)]
)
def test_numbers_that_no_accountant_answers_for_in_seconds_are_not_asked_about(
    sigma: str, steps: int, rate: float
) -> None:
    found = verdict(sigma=sigma, steps=steps, sampler=None, sample_rate=rate)
    assert found.judgement == "underspecified" and found.missing == (
        "noise: too little for an accountant to give an answer",
    )


def test_steps_follow_from_epochs_and_the_rate_from_the_batch() -> None:
    stated = claim(sampler="shuffled", steps=None, epochs=15.0, batch=256.0, n=60_000)
    assert stated.rate == pytest.approx(256 / 60_000) and stated.rounds == 3516
    found = verdict(sampler="shuffled", steps=None, epochs=15.0, batch=256.0, n=60_000, sigma="1.3", epsilon="1.19")
    assert found.pld == pytest.approx(0.865, abs=0.002) and found.remarks == (
        "batches are shuffled; accounted as Poisson samples",
    )


def test_further_releases_are_composed_with_the_steps() -> None:
    # 1 / sigma^2 adds up: a mean at 71 and 100 steps at 43 are one Gaussian, whose epsilon test_published_plans knows.
    found = verdict(sigma="43", steps=100, delta=7.8e-7, further=({"what": "mean", "sigma": "71"},))
    assert found.pld == pytest.approx(0.9957, abs=2e-4)


def test_a_verdict_that_is_known_is_not_made_again_until_its_claim_changes() -> None:
    stated = claim()
    paper = Paper(key="paper", title="A paper", authors="Somebody", source="title page", claims=(stated,))
    known = judge_claim(paper, stated).model_copy(update={"pld": 42.0})
    assert judge_all_claims([paper], [known])[0].pld == 42.0
    changed = paper.model_copy(update={"claims": (claim(epsilon="2"),)})
    assert judge_all_claims([changed], [known])[0].pld == pytest.approx(1.0, abs=1e-3)


BROKEN = {
    "a key twice": ("steps = 1,", "steps = 1, steps = 2,", "Cannot read the claims"),
    "steps as text": ("steps = 1,", 'steps = "one",', "claims.0.steps"),
    "a batch that is infinite": ("steps = 1,", "steps = 1, batch = inf,", "claims.0.batch"),
    "a clip that is no number": ("steps = 1,", "steps = 1, clip = nan,", "claims.0.clip"),
    "a model of two lines": ("steps = 1,", 'steps = 1, model = "a\\nb",', "claims.0.model"),
    "an id that is a path": ('id = "one"', 'id = "../one"', "claims.0.id"),
    "a table for a number": ("epsilon = 1,", "epsilon = { is = 1 },", "claims.0.epsilon"),
    "claims that are a number": ('claims = [{ id', 'claims = 3\nextra = [{ id', "[[claims]]"),
    "brackets nested deeply": ("[sources]", "deep = " + "[" * 5_000 + "\n[sources]", "Cannot read the claims"),
    "an unknown verdict on the data": ('public = "nothing"', 'public = "magic"', "claims.0.public"),
    "no title": ('title = "A paper"\n', "", "'title'"),
    "a missing field": ('dataset = "MNIST", ', "", "claims.0.dataset"),
    "sigma 0": ("sigma = 3.731", "sigma = 0", "claims.0.sigma"),
    "a rate above 1": ("steps = 1,", "steps = 1, sample_rate = 1.5,", "claims.0.sample_rate"),
    "a billion steps": ("steps = 1,", "steps = 1_000_000_000,", "claims.0.steps"),
    "an unknown accountant": ("steps = 1,", 'steps = 1, accountant = "magic",', "claims.0.accountant"),
    "a negative epsilon": ("epsilon = 1,", "epsilon = -1,", "claims.0.epsilon"),
    "an infinite epsilon": ("epsilon = 1,", "epsilon = inf,", "claims.0.epsilon"),
    "no number": ("sigma = 3.731", "sigma = nan", "claims.0.sigma"),
    "a delta of 1": ("delta = 1e-5", "delta = 1.0", "claims.0.delta"),
    "an accuracy above 100": ("accuracy = 90.0", "accuracy = 190.0", "claims.0.accuracy"),
    "a share of 1": ("accuracy = 90.0", "accuracy = 0.72", "expected percent, so 72 if this is a share of 1"),
    "an unknown key": ("steps = 1,", "steps = 1, stepz = 2,", "stepz"),
    "no source": ('"steps", ', "", "Expected a source for 'steps'"),
    "a source of nothing": ('"steps", ', '"steps", "clip", ', "Expected claims with 'clip'"),
    "a source of an unknown field": ('"steps", ', '"stepz", ', "Unknown field 'stepz'"),
    "two sources": ("[sources]", '[sources]\n"Table 2" = ["steps"]', "Expected one place for 'steps'"),
    "a batch above n": ("steps = 1,", "steps = 1, batch = 10, n = 5,", "source"),
    "no claims": ('claims = [{ id = "one"', 'claims = []\nextra = [{ id = "one"', "extra"),
    "two of one id": ("sampler = \"full-batch\" }]", "sampler = \"full-batch\" }, { id = \"one\", dataset = \"MNIST\", "
                      "public = \"nothing\", epsilon = 2, sigma = 1 }]", "an id of its own"),
    "no TOML": ("[sources]", "[sources", "Cannot read the claims"),
    "text for a table": ("[sources]", "[shared]\nsources = 3\n[sources]", "Expected sources"),
}  # fmt: skip


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_file_is_refused_in_one_sentence(fault: str, tmp_path: Path) -> None:
    old, new, said = BROKEN[fault]
    assert old in GOOD
    file = tmp_path / "paper.toml"
    file.write_text(GOOD.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(SpecError) as refused:
        read_paper(file)
    text = str(refused.value)
    assert said in text and "paper.toml" in text and "\n" not in text and len(text) < 500


def test_a_file_too_large_or_absent_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "paper.toml"
    with pytest.raises(SpecError, match="Cannot read"):
        read_paper(file)
    file.write_text("#" * 1_000_001, encoding="utf-8")
    with pytest.raises(SpecError, match="at most 1,000,000 bytes"):
        read_paper(file)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(SpecError, match="to be a regular file"):
        read_paper(file)
    file.unlink()
    with pytest.raises(SpecError, match="Expected files of claims"):
        read_catalogue(tmp_path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a leaderboard's folder with one paper."""
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "paper.toml").write_text(GOOD, encoding="utf-8")
    return tmp_path


def test_the_command_prints_a_table_and_the_sources_of_one_paper(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("claims", "paper", "--root", root) == 0
    out = capsys.readouterr().out
    assert "1 claim from 1 paper: 1 reproducible." in out and "Table 1" in out


def test_a_folder_without_claims_is_not_taken_for_that_of_the_package(tmp_path: Path, refusal: Refusal) -> None:
    assert str(tmp_path / "claims") in refusal.command("claims", "--root", tmp_path)


def test_no_verdict_is_cut_off_in_a_pipe(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = GOOD.replace('id = "one"', f'id = "{"one-" * 9}end"').replace("delta = 1e-5, ", "")
    (root / "claims" / "paper.toml").write_text(long.replace('"delta", ', ""), encoding="utf-8")
    assert call("claims", "--root", root) == 0
    out = capsys.readouterr().out
    assert "one-end" in out and "underspecified: δ" in out


def test_the_command_prints_json_with_sources_and_verdicts(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("claims", "--root", root, "--json", "--dataset", "mnist") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["verdict"]["judgement"] == "reproducible" and row["claim"]["sources"]["sigma"] == "Table 1"
    assert math.isclose(row["verdict"]["pld"], 1, rel_tol=1e-3) and row["paper"]["title"] == "A paper"


def test_the_command_records_the_verdicts_for_the_site(root: Path) -> None:
    assert call("claims", "--root", root, "--write") == 0
    (verdict,) = read_verdicts(root / "claims")
    assert verdict.judgement == "reproducible"
    assert (root / "claims" / RECORD).read_text(encoding="utf-8").endswith("]\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("papper",), "Unknown paper 'papper' of the catalogue. Did you mean 'paper'?"),
        (("--dataset", "MNST"), "Unknown dataset 'MNST'"),
        (("paper", "--write"), "Expected --write alone"),
    ],
)
def test_the_command_refuses_in_one_sentence(
    arguments: tuple[str, ...], said: str, root: Path, refusal: Refusal
) -> None:
    assert said in refusal.command("claims", *arguments, "--root", root)


def test_a_leaderboard_without_a_catalogue_gets_that_of_the_package(tmp_path: Path) -> None:
    assert find_claims_folder(tmp_path).is_dir() and find_claims_folder(tmp_path) != tmp_path / "claims"


def site_of(root: Path) -> str:
    site = SiteContext.from_index(Index(ranking="", standings=()), root, load(), docs=False)
    ((_, page),) = PAGE.files(site, make_renderer(site.settings, (PAGE.package,)))
    return page.decode()


def test_the_page_shows_every_claim_with_its_sources_and_the_counts(root: Path) -> None:
    page = site_of(root)
    assert "1 claims from 1 papers: 1 reproducible, 0 stated with margin" in page
    assert "Table 1" in page and 'name="verdict"' in page and '<option value="MNIST">' in page


def test_the_page_names_the_public_data_of_a_claim(root: Path) -> None:
    named = GOOD.replace('public = "nothing"', 'public = "more", public_data = "a billion photographs"')
    (root / "claims" / "paper.toml").write_text(named.replace('"public", ', '"public", "public_data", '), "utf-8")
    assert "public: a billion photographs" in site_of(root)


def test_a_page_of_a_hostile_claim_escapes_it(root: Path) -> None:
    file = root / "claims" / "paper.toml"
    file.write_text(
        GOOD.replace("Table 1", "<script>alert(1)</script>").replace("MNIST", "<img src=x>"), encoding="utf-8"
    )
    page = site_of(root)
    assert "<script>alert" not in page and "<img src=x>" not in page


def test_a_leaderboard_without_claims_has_a_page_that_says_so(tmp_path: Path) -> None:
    assert "no catalogue of claims" in site_of(tmp_path)


def test_the_example_of_the_documentation_is_a_file_that_fits(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "dpbench/docs/explanation/claims.md").read_text(encoding="utf-8")
    file = tmp_path / "tang-2023.toml"
    file.write_text(page.partition("```toml\n")[2].partition("```")[0], encoding="utf-8")
    (stated,) = read_paper(file).claims
    (kept,) = [known for paper, known in CLAIMS if paper.key == "tang-2023" and known.id == stated.id]
    assert (stated.sigma, stated.rate, stated.rounds, stated.epsilon) == (
        kept.sigma,
        kept.rate,
        kept.rounds,
        kept.epsilon,
    )


@pytest.mark.parametrize(
    ("changed", "refused"),
    [
        (("leaderboard/claims/de-2022.toml", "leaderboard/claims/verdicts.json"), 0),
        (("leaderboard/claims/de-2022.toml", "leaderboard/explanations/one.json"), 2),
    ],
)
def test_a_pull_request_of_claims_alone_is_no_submission(changed: tuple[str, ...], refused: int) -> None:
    complaints = runpy.run_path(str(Path(__file__).parents[2] / ".ci" / "submission.py"))["complaints"]
    assert len([*complaints([("M", path) for path in changed], str)]) == refused


def test_printed_digits_of_sigma_are_kept() -> None:
    (stated,) = [claim for paper, claim in CLAIMS if paper.key == "tramer-2021" and claim.id == "cifar10-simclr-eps2"]
    assert stated.sigma == Decimal("2.40") and str(stated.sigma) == "2.40"
