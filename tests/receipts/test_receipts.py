"""Receipts: their events against independent libraries, their check, their command line, and what is refused."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dpbench
from dpbench import SpecError, receipt
from dpbench.errors import DataError
from dpbench.receipts import (
    AuditFigures,
    Batches,
    BestOf,
    Chosen,
    Composed,
    Concentrated,
    Gaussian,
    HashedFile,
    Laplace,
    Noise,
    NonPrivate,
    Pure,
    Receipt,
    Repeated,
    Sampled,
    Search,
    SecondRelease,
    Training,
    check,
    from_dp_event,
    from_opendp,
    from_result,
    gaussian_steps,
)
from dpbench.receipts.accounting import compute_epsilons
from dpbench.receipts.events import Event, Term, flatten_to_terms
from dpbench.receipts.receipt import Adjacency
from dpbench.records.packed import list_records, read_record
from dpbench.records.result import Result
from tests.helpers.commands import call
from tests.helpers.readme import LEADERBOARD

FEW = gaussian_steps(sigma=4.0, steps=4)
ADD: Adjacency = "add-or-remove-one"


def written(event: Event = FEW, **changes: Any) -> Receipt:
    """Return a receipt that passes, with some parts changed."""
    training = Training(events=event, size=1_000)
    whole = receipt(training, epsilon=2.0, delta=1e-5, unit="image", adjacency=ADD, search=Search(runs=1))
    return whole.model_copy(update=changes)


@pytest.fixture
def compositions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note what accountants spend their time on: compositions of loss distributions, and Renyi curves of samples."""
    from dp_accounting import PoissonSampledDpEvent, SampledWithoutReplacementDpEvent, SelfComposedDpEvent
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
    from dp_accounting.rdp import RdpAccountant

    from dpbench.privacy.core.plan import Release

    noted: list[str] = []

    def note(cls: type, name: str) -> None:
        honest = getattr(cls, name)

        def counted(self: Any, *arguments: Any, **named: Any) -> Any:
            event = arguments[0].event if arguments and isinstance(arguments[0], SelfComposedDpEvent) else None
            if cls is not RdpAccountant or isinstance(event, PoissonSampledDpEvent | SampledWithoutReplacementDpEvent):
                noted.append(f"{cls.__name__}.{name}")
            return honest(self, *arguments, **named)

        monkeypatch.setattr(cls, name, counted)

    note(PrivacyLossDistribution, "compose")
    note(PrivacyLossDistribution, "self_compose")
    note(RdpAccountant, "compose")
    note(Release, "renyi")
    return noted


def upper(event: Event, delta: float = 1e-5, adjacency: Any = ADD) -> float:
    return compute_epsilons(event, delta, adjacency)[0].upper


def test_equal_events_are_one_term_and_sums_over_one_sample_are_one_sum() -> None:
    twice = Sampled(sampler="poisson", rate=0.1, event=Repeated(event=Gaussian(sigma=2.0), times=4))
    assert flatten_to_terms(Composed(events=(FEW, FEW))) == [Term(Gaussian(sigma=4.0), times=8)]
    assert flatten_to_terms(twice) == [Term(Gaussian(sigma=1.0), "poisson", 0.1, 1)]


def test_gaussian_sums_over_all_rows_cost_what_the_exact_formula_has() -> None:
    from dp_accounting import get_epsilon_gaussian

    assert upper(FEW) == pytest.approx(get_epsilon_gaussian(2.0, 1e-5))
    assert upper(FEW, adjacency="replace-one") == pytest.approx(get_epsilon_gaussian(1.0, 1e-5), rel=1e-3)


def test_a_zeroed_row_costs_what_a_removed_one_does_and_a_replaced_one_more() -> None:
    event = gaussian_steps(sigma=3.0, steps=10, rate=0.2)
    removed = upper(event)
    assert upper(event, adjacency="zero-out") == pytest.approx(removed)
    assert removed < upper(event, adjacency="replace-one") < 3 * removed


@pytest.mark.parametrize(
    ("event", "epsilon"),
    [
        (Laplace(scale=2.0), 0.5),
        (Pure(epsilon=0.3), 0.3),
        (Repeated(event=Laplace(scale=2.0, discrete=True), times=3), 1.5),
        (Chosen(epsilon=0.5, candidates=9), 0.5),
        (Composed(events=()), 0.0),
        (NonPrivate(name="a median"), float("inf")),
    ],
    ids=lambda event: getattr(event, "kind", ""),
)
def test_pure_events_need_no_delta(event: Event, epsilon: float) -> None:
    assert upper(event, 0.0) == pytest.approx(epsilon)


def test_zcdp_is_converted_as_opendp_does() -> None:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(bounds=(0, 1)))
    measurement = dp.t.make_sum(domain, dp.symmetric_distance()) >> dp.m.then_gaussian(2.0)
    read = from_opendp(measurement, size=50)
    assert read.events == Concentrated(rho=0.125)
    profile: Any = dp.c.make_zCDP_to_approxDP(measurement)
    own = profile.map(1).epsilon(1e-5)
    assert upper(read.events) == pytest.approx(own, rel=0.005)


@pytest.mark.slow
def test_a_schedule_of_noise_is_bounded_from_both_sides_by_groups_of_similar_events() -> None:
    schedule = Composed(events=tuple(gaussian_steps(sigma=8 + step / 40, steps=1, rate=0.5) for step in range(40)))
    (best, *_) = compute_epsilons(schedule, 1e-5, ADD)
    exact = [upper(gaussian_steps(sigma=sigma, steps=40, rate=0.5)) for sigma in (9.0, 8.0)]
    assert exact[0] * 0.98 <= best.lower <= best.upper <= exact[1] * 1.01 and "groups" in best.accountant


@pytest.mark.slow
def test_a_schedule_over_all_rows_costs_what_the_exact_formula_has() -> None:
    from dp_accounting import get_epsilon_gaussian

    sigmas = [2 + step for step in range(30)]
    schedule = Composed(events=tuple(gaussian_steps(sigma=sigma, steps=1) for sigma in sigmas))
    whole = sum(sigma**-2 for sigma in sigmas) ** -0.5
    cases: list[tuple[Adjacency, int]] = [(ADD, 1), ("replace-one", 2)]
    for adjacency, sensitivity in cases:
        (best, *_) = compute_epsilons(schedule, 1e-5, adjacency)
        assert best.upper == pytest.approx(get_epsilon_gaussian(whole / sensitivity, 1e-5))
        assert best.lower == pytest.approx(best.upper, rel=0.02)


def test_the_best_of_several_runs_costs_more_than_one() -> None:
    assert upper(FEW) < upper(BestOf(mean=10, shape=1, event=FEW)) < 3 * upper(FEW)


def test_events_of_dp_accounting_are_read_with_the_neighbours_of_their_accountant() -> None:
    import dp_accounting as dp
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    accountant.compose(dp.SelfComposedDpEvent(dp.GaussianDpEvent(1.5), 3))
    read = from_dp_event(None, size=10, accountant=accountant)
    assert flatten_to_terms(read.events) == [Term(Gaussian(sigma=3.0), times=3)]  # in clips: a replaced row moves two
    assert upper(read.events, adjacency="replace-one") <= accountant.get_epsilon(1e-5)
    with pytest.raises(SpecError, match="no UnsupportedDpEvent of dp-accounting"):
        from_dp_event(dp.UnsupportedDpEvent())


def test_events_that_protect_nobody_are_answered_without_a_grid(compositions: list[str]) -> None:
    assert upper(Repeated(event=Laplace(scale=0.01), times=10**6)) > 1e7
    assert upper(gaussian_steps(sigma=0.01, steps=10**5, rate=0.1)) > 1e4
    assert {noted.partition(".")[0] for noted in compositions} <= {"RdpAccountant", "Release"}
    assert len(compositions) < 10


@pytest.mark.slow
def test_a_delta_below_what_a_grid_can_hold_is_answered(compositions: list[str]) -> None:
    assert upper(gaussian_steps(sigma=1.0, steps=100, rate=0.1), 1e-30) < 40
    assert len(compositions) < 20


CHEAP = [gaussian_steps(sigma=100.0 + number, steps=1) for number in range(20)]
COSTLY: dict[str, tuple[Event, float, Adjacency]] = {
    "samples of a fixed size, cheaper without them": (
        gaussian_steps(sigma=8.0, steps=100, rate=0.9, sampler="fixed-size"), 1e-5, "replace-one"
    ),
    "a delta below a grid": (gaussian_steps(sigma=1.0, steps=1_000, rate=0.01), 1e-14, ADD),
    "a delta far below a grid": (gaussian_steps(sigma=1.0, steps=1_000, rate=0.01), 1e-20, ADD),
    "among cheap ones": (
        Composed(events=(*CHEAP, gaussian_steps(sigma=0.7, steps=100, rate=0.1))), 1e-5, ADD
    ),
    "so much that no grid is tried": (gaussian_steps(sigma=0.3, steps=50, rate=0.5), 1e-5, ADD),
    "samples of nearly nobody": (
        gaussian_steps(sigma=1e-6, steps=10**6, rate=4e-10, sampler="fixed-size"), 1e-12, "replace-one"
    ),
}  # fmt: skip


@pytest.mark.quick(1)
@pytest.mark.parametrize("case", COSTLY)
def test_no_events_pass_at_a_fraction_of_what_they_cost(case: str) -> None:
    event, delta, adjacency = COSTLY[case]
    changes: dict[str, Any] = {
        "training": Training(events=event, size=10_000), "adjacency": adjacency, "delta": delta,
    }  # fmt: skip
    cost = upper(event, delta, adjacency)
    assert cost > 1
    for share in (0.0, 0.3, 0.75):
        wrong = check(written(**changes, epsilon=share * cost)).mismatches
        assert [mismatch.name for mismatch in wrong] == ["epsilon"], share
    assert not check(written(**changes, epsilon=cost)).mismatches


def test_no_accountant_is_asked_for_what_it_cannot_do() -> None:
    assert upper(Gaussian(sigma=1.0), 1e-25) < 12
    assert upper(BestOf(mean=2, shape=1, event=Composed(events=()))) == 0


def test_an_honest_receipt_has_no_mismatch() -> None:
    assert check(written()).mismatches == ()


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"epsilon": 1.0}, "epsilon"),
        ({"unit": None}, "unit"),
        ({"search": None}, "search"),
        ({"search": Search(runs=5, data="private")}, "search"),
        ({"search": Search(runs=5)}, "search"),
        ({"search": Search(runs=5, data="private", accounted="best-of")}, "search"),
        ({"adjacency": None}, "adjacency"),
        ({"delta": 0.001}, "delta"),
        ({"audit": AuditFigures(epsilon_lower=2.5, method="a paper")}, "audit"),
        ({"audit": AuditFigures(failed=("noise",), method="a paper")}, "audit"),
        ({"training": Training(events=FEW)}, "size"),
        (
            {"training": Training(events=FEW, size=1_000, batches=Batches(drawn="fixed-size-with-replacement"))},
            "sampler",
        ),
        ({"training": Training(events=NonPrivate(name="x"), size=1_000)}, "epsilon"),
    ],
)
def test_a_mismatch_is_named(changes: dict[str, Any], name: str) -> None:
    assert {mismatch.name for mismatch in check(written(**changes)).mismatches} == {name}


POISSON = gaussian_steps(sigma=2.0, steps=1_000, rate=0.01)
ONE_MORE = gaussian_steps(sigma=2.1, steps=1, rate=0.011)
NOISELESS = Repeated(event=Sampled(sampler="poisson", rate=0.01, event=Laplace(scale=1.0)), times=100)
HALF = Batches(drawn="poisson", size=500)
NOTHING = Noise(clip=1.0, std=0.01, added_to="sum")


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("name", "event", "more"),
    [
        ("rate", POISSON, {"batches": HALF}),
        ("rate", Composed(events=(POISSON, ONE_MORE)), {"batches": HALF}),
        (
            "rate",
            Composed(events=(POISSON, gaussian_steps(sigma=1e6, steps=1_000, rate=0.99))),
            {"batches": HALF},
        ),
        ("noise", POISSON, {"noise": NOTHING}),
        ("noise", Composed(events=(POISSON, ONE_MORE)), {"noise": NOTHING}),
        ("noise", NOISELESS, {"noise": NOTHING}),
        ("noise", POISSON, {"noise": Noise(clip=1.0, std=10.0, added_to="mean")}),
        ("sampler", NOISELESS, {"batches": Batches(drawn="shuffled")}),
        (
            "steps",
            Composed(events=(POISSON, Repeated(event=Pure(epsilon=1e-7), times=5_000))),
            {"batches": Batches(drawn="poisson", steps=5_000)},
        ),
    ],
)
def test_a_step_more_does_not_hide_what_a_loop_did(name: str, event: Event, more: dict[str, Any]) -> None:
    whole = written(training=Training(events=event, size=1_000, **more), epsilon=200.0)
    assert {mismatch.name for mismatch in check(whole).mismatches} == {name}
    honest = written(training=Training(events=event, size=1_000), epsilon=200.0)
    assert not check(honest).mismatches


def test_a_second_release_beside_the_sum_is_paid_for() -> None:
    count = SecondRelease(name="a noisy count", sigma=3.0)
    gradient = (2.0**-2 - 3.0**-2) ** -0.5  # so that both together cost what sigma 2 costs
    for told, wrong in ((2.0, []), (gradient, ["noise"])):
        noise = Noise(clip=1.0, std=gradient, added_to="sum", second=count)
        training = Training(events=gaussian_steps(sigma=told, steps=10, rate=0.01), size=1_000, noise=noise)
        found = check(written(training=training, epsilon=9.0)).mismatches
        assert [mismatch.name for mismatch in found] == wrong
    assert "beside a noisy count with sigma 3, is 2 clips, but the events have sigma 2.683" in found[0].said


@pytest.mark.parametrize(("dtype", "step"), [("bfloat16", "4"), ("float16", "0.5"), ("float32", None)])
def test_noise_in_numbers_of_16_bits_is_lost(dtype: Any, step: str | None) -> None:
    noise = Noise(clip=1.0, std=2.0, added_to="sum", dtype=dtype)
    training = Training(events=gaussian_steps(sigma=2.0, steps=10, rate=0.01), size=1_000, noise=noise)
    said = [mismatch.said for mismatch in check(written(training=training, epsilon=9.0)).mismatches]
    assert bool(said) == bool(step)
    assert all(f"added in {dtype}" in line and f"rounded to steps of {step}," in line for line in said)


def test_a_receipt_has_the_whole_curve_where_a_plan_has_it() -> None:
    sampled = Training(events=gaussian_steps(sigma=2.0, steps=10, rate=0.1), size=1_000)
    found = check(written(training=sampled, epsilon=9.0)).curve
    assert set(found) == {"Gaussian curve", "ε at other δ", "ε for replacing one"}
    assert "1/n^1.1" in found["ε at other δ"]
    assert not check(written(training=sampled, epsilon=9.0, adjacency="replace-one")).curve
    assert not check(written(training=Training(events=Pure(epsilon=1.0), size=1_000), epsilon=9.0)).curve


def test_composed_runs_are_among_the_events() -> None:
    search = Search(runs=3, data="private", accounted="composed")
    for times, wrong in ((2, ["search"]), (3, [])):
        training = Training(
            events=Repeated(event=FEW, times=times), size=1_000, batches=Batches(drawn="everything", steps=4)
        )
        assert [
            mismatch.name for mismatch in check(written(training=training, search=search, epsilon=9.0)).mismatches
        ] == wrong


@pytest.mark.slow
def test_rows_that_take_turns_are_in_fewer_steps_of_a_larger_rate() -> None:
    turns = Batches(drawn="cyclic-poisson", size=10, steps=1_000, cycle=10)
    cases: list[tuple[Event, Batches, list[str]]] = [
        (gaussian_steps(sigma=2.0, steps=100, rate=0.1), turns, []),
        (gaussian_steps(sigma=2.0, steps=1_000, rate=0.01), turns, ["rate"]),
        (gaussian_steps(sigma=2.0, steps=99, rate=0.1), turns, ["steps"]),
        (gaussian_steps(sigma=2.0, steps=1_000, rate=0.01), turns.model_copy(update={"cycle": None}), ["sampler"]),
        (gaussian_steps(sigma=20.0, steps=100), turns.model_copy(update={"drawn": "everything"}), ["steps"]),
    ]
    for event, batches, names in cases:
        whole = written(training=Training(events=event, size=1_000, batches=batches), epsilon=20.0)
        assert [mismatch.name for mismatch in check(whole).mismatches] == names


def test_a_unit_of_several_rows_needs_a_clip_of_its_own() -> None:
    for noise, wrong, remark in (
        (Noise(clip=1.0, std=4.0, added_to="sum"), ["unit"], 0),
        (Noise(clip=1.0, std=4.0, added_to="sum", clipped_per="patient"), [], 0),
        (None, [], 1),
    ):
        found = check(written(unit="patient", training=Training(events=FEW, size=1_000, noise=noise)))
        assert [mismatch.name for mismatch in found.mismatches] == wrong
        assert sum("bounded together" in remark for remark in found.remarks) == remark


def test_what_a_receipt_leaves_out_is_named() -> None:
    batches = Batches(drawn="everything", steps=4)
    found = check(written(training=Training(events=FEW, size=1_000, batches=batches)))
    assert "Not stated, and so not checked: noise, batches.size, batches.normalised_by." in found.remarks


def test_an_audit_that_found_nothing_is_no_audit() -> None:
    audited = AuditFigures(epsilon_lower=0.4, confidence=0.95, method="a paper")
    for audit, said in ((None, 1), (AuditFigures(method="trust me"), 1), (audited, 0)):
        assert sum("No audit" in remark for remark in check(written(audit=audit)).remarks) == said
    (wrong,) = check(
        written(audit=audited, epsilon=0.3, training=Training(events=Pure(epsilon=0.3), size=9))
    ).mismatches
    assert "at least 0.4 at a confidence of 0.95" in wrong.said


def test_shuffled_batches_are_told_what_they_cost() -> None:
    from dp_accounting import get_epsilon_gaussian

    training = Training(
        events=gaussian_steps(sigma=3.0, steps=10, rate=0.1),
        size=1_000,
        batches=Batches(drawn="shuffled", size=100, steps=10),
    )
    (wrong,) = check(written(training=training)).mismatches
    whole = get_epsilon_gaussian(1.5, 1e-5)  # a row more displaces another: two clips
    said = f"epsilon is {whole:.4g} under 'replace-one', because an extra row displaces another."
    assert wrong.name == "sampler" and said in wrong.said


@pytest.mark.quick(1)
@pytest.mark.parametrize("drawn", ["shuffled", "fixed-size", "truncated-poisson", "balls-in-bins", "everything"])
def test_a_row_more_displaces_another_in_batches_of_a_fixed_size(drawn: Any) -> None:
    """At n = 1,001, one batch of 1,000 and sigma 1, delta at epsilon 4.377 is 0.06 and not 1e-5."""
    batches = Batches(drawn=drawn, size=1_000, steps=1)
    training = Training(events=Gaussian(sigma=1.0), size=1_001, batches=batches)
    displaced = ["adjacency"] if drawn in {"shuffled", "fixed-size", "truncated-poisson"} else []
    assert [mismatch.name for mismatch in check(written(training=training, epsilon=4.38)).mismatches] == displaced
    for other, epsilon in (("zero-out", 4.38), ("replace-one", 10.998)):
        assert not check(written(training=training, epsilon=epsilon, adjacency=other)).mismatches


ZEROS = Composed(events=())
PLAIN = Repeated(event=Gaussian(sigma=40.0), times=10)
AGAIN: Any = "fixed-size-with-replacement"
MEAN = Noise(clip=1.0, std=0.002, added_to="mean", divisor=50_000)


@pytest.mark.parametrize(
    ("name", "event", "more"),
    [
        ("rate", PLAIN, {"batches": Batches(drawn="cyclic-poisson", size=1_000, steps=1_000, cycle=100)}),
        ("noise", ZEROS, {"noise": NOTHING}),
        ("noise", Pure(epsilon=1e-3), {"noise": NOTHING}),
        ("noise", Concentrated(rho=1e-9), {"noise": NOTHING}),
        (
            "noise",
            POISSON,
            {"noise": MEAN, "batches": Batches(drawn="poisson", size=10, normalised_by="expected-size")},
        ),
        ("noise", POISSON, {"noise": MEAN, "batches": Batches(drawn="poisson", size=10, normalised_by="nothing")}),
        ("sampler", Laplace(scale=40.0), {"batches": Batches(drawn=AGAIN, size=100_000)}),
        ("epsilon", Sampled(sampler=AGAIN, rate=1.0, event=Gaussian(sigma=5.0)), {}),
        ("epsilon", Sampled(sampler=AGAIN, rate=1.0, event=Concentrated(rho=0.1)), {}),
    ],
)
def test_what_a_loop_did_is_compared_with_events_that_count_no_sampling(
    name: str, event: Event, more: dict[str, Any]
) -> None:
    adjacency: Any = "replace-one" if isinstance(event, Sampled) else ADD
    found = check(written(training=Training(events=event, size=1_000, **more), epsilon=200.0, adjacency=adjacency))
    assert [mismatch.name for mismatch in found.mismatches] == [name]


@pytest.mark.slow
def test_cheap_events_do_not_hide_costly_ones() -> None:
    """Sums of 13 kinds or more are grouped; the floor under a statement is also what the costliest twelve cost."""
    kinds = [(1.0, 1_999), (1.1, 1), *((1e3 * 3**power, 1) for power in range(12))]
    event = Composed(events=tuple(gaussian_steps(sigma=sigma, steps=steps, rate=0.02) for sigma, steps in kinds))
    for epsilon, wrong in ((5.24, ["epsilon"]), (6.2, ["epsilon"]), (6.323, [])):
        made = written(training=Training(events=event, size=100_000), epsilon=epsilon, delta=1e-6)
        assert [mismatch.name for mismatch in check(made).mismatches] == wrong


def test_many_pure_events_may_cost_less_than_their_sum_and_nobody_knows_how_little() -> None:
    event = Composed(events=tuple(Pure(epsilon=0.05 + number / 1e4) for number in range(13)))
    (wrong,) = check(written(training=Training(events=event, size=1_000), epsilon=0.6)).mismatches
    assert wrong.name == "epsilon" and "no accountant here can show less than 0.6578" in wrong.said


def test_best_of_one_is_not_a_million_runs() -> None:
    event = BestOf(mean=1.5, shape=1.0, event=Gaussian(sigma=5.0))
    for runs, wrong in ((10, []), (1_000_000, ["search"])):
        search = Search(runs=runs, data="private", accounted="best-of")
        made = written(training=Training(events=event, size=1_000), search=search, epsilon=2.0)
        assert [mismatch.name for mismatch in check(made).mismatches] == wrong


def test_samples_with_replacement_keep_their_name_when_they_are_exported() -> None:
    dp_accounting = pytest.importorskip("dp_accounting")
    from dpbench.receipts import from_dp_event

    for rows in (1, 1_000):
        event = dp_accounting.SampledWithReplacementDpEvent(rows, 50_000, dp_accounting.GaussianDpEvent(5.0))
        made = from_dp_event(event, size=rows).events
        assert isinstance(made, Sampled) and (made.sampler, made.rate) == (AGAIN, 1.0)


def test_a_receipt_comes_back_as_it_was_written_and_follows_the_schema(tmp_path: Path) -> None:
    import jsonschema

    (tmp_path / "model.pt").write_bytes(b"weights")
    made = receipt(Training(events=FEW, size=9), epsilon=1.0, delta=0.0, files={"model": tmp_path / "model.pt"})
    file = made.write(tmp_path / "model.receipt.json")
    back = Receipt.read(file)
    assert back.files["model"].path == "model.pt"
    assert back.model_copy(update={"files": made.files}) == made
    jsonschema.validate(json.loads(file.read_text(encoding="utf-8")), Receipt.model_json_schema())


def test_every_field_has_a_sentence_in_the_schema() -> None:
    schema = Receipt.model_json_schema()
    for name, part in {**schema["$defs"], "Receipt": schema}.items():
        assert part["description"], name
        bare = [key for key, value in part["properties"].items() if "description" not in value]
        assert {*bare} <= {"kind"}, name


def test_the_command_exits_with_one_where_a_receipt_does_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = written().write(tmp_path / "a.json")
    bad = written(unit=None).write(tmp_path / "b.json")
    assert call("verify", str(good)) == 0
    assert "No mismatch found." in capsys.readouterr().out
    assert call("verify", str(good), str(bad)) == 1
    assert "MISMATCH unit: missing" in capsys.readouterr().out
    assert call("verify", "--json", str(bad)) == 1
    (told,) = json.loads(capsys.readouterr().out).values()
    (tmp_path / "empty.json").touch()
    assert call("verify", "--json", str(good), str(tmp_path / "empty.json")) == 1
    both = json.loads(capsys.readouterr().out)
    assert [check["passed"] for check in both.values()] == [True, False] and "empty.json" in [*both.values()][1][
        "error"
    ]
    assert [mismatch["name"] for mismatch in told["mismatches"]] == ["unit"] and len(told["accountants"]) == 2
    assert call("receipt", "check", str(good)) == 0
    said = "receipt check is deprecated and will be removed in version 0.4. Use dpbench verify."
    assert said in capsys.readouterr().err
    assert call("receipt", "schema") == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Receipt"


def _nested(depth: int) -> str:
    inside = '{"kind": "repeated", "times": 1000, "event": '
    return inside * depth + '{"kind": "gaussian", "sigma": 1}' + "}" * depth


ONE = '{"kind": "gaussian", "sigma": 1}'


def _training(events: str) -> str:
    return f'{{"epsilon": 1, "delta": 1e-5, "training": {{"size": 100, "events": {events}}}}}'


BROKEN: dict[str, tuple[str | bytes, str]] = {
    "nothing": ("", "not JSON"),
    "cut": ('{"epsilon": 1, "del', "not JSON"),
    "a list": ("[]", "none of these"),
    "no epsilon": ('{"delta": 0, "training": {"events": {"kind": "gaussian", "sigma": 1}}}', "epsilon"),
    "no events": ('{"epsilon": 1, "delta": 0, "training": {}}', "training.events"),
    "infinite epsilon": ('{"epsilon": 1e999, "delta": 0, "training": {}}', "epsilon"),
    "sigma 0": (_training('{"kind": "gaussian", "sigma": 0}'), "sigma"),
    "negative steps": (_training('{"kind": "repeated", "times": -1, "event": ' + ONE + "}"), "times"),
    "a rate above 1": (
        _training('{"kind": "sampled", "sampler": "poisson", "rate": 64, "event": ' + ONE + "}"), "rate",
    ),
    "a billion steps": (
        _training('{"kind": "repeated", "times": 1000000000, "event": ' + ONE + "}"), "1,000,000,000",
    ),
    "an unknown mechanism": (_training('{"kind": "magic", "sigma": 1}'), "magic"),
    "an unknown sampler": (
        _training('{"kind": "sampled", "sampler": "hope", "rate": 0.1, "event": ' + ONE + "}"), "sampler",
    ),
    "an unknown key": (_training('{"kind": "gaussian", "sigma": 1, "q": 2}'), "q"),
    "a billion nested events": (_training(_nested(3)), "1,000,000,000"),
    "events nested deeply": (_training(_nested(60)), "nested at most 50 deep"),
    "events nested far too deeply": (_training(_nested(5_000)), "nested too deeply"),
    "no JSON but text in UTF-16": (_training(ONE).encode("utf-16"), "file:"),
    "a byte order mark": (b"\xef\xbb\xbf" + _training(ONE).encode(), "file:"),
    "bytes that are no text": (bytes(range(256)), "not JSON"),
    "a key twice": ('{"epsilon": 9, ' + _training(ONE)[1:], "the key 'epsilon' appears twice"),
    "a key twice inside": (_training('{"kind": "gaussian", "sigma": 9, "sigma": 1}'), "the key 'sigma' appears twice"),
    "a sigma that is no number": (_training('{"kind": "gaussian", "sigma": NaN}'), "sigma"),
    "a sigma too small to square": (_training('{"kind": "gaussian", "sigma": 1e-300}'), "sigma"),
    "epsilon as text": (_training(ONE).replace('"epsilon": 1', '"epsilon": "1"'), "epsilon"),
    "steps as truth": (_training('{"kind": "repeated", "times": true, "event": ' + ONE + "}"), "times"),
    "steps of 400 digits": (
        _training('{"kind": "repeated", "times": 1' + "0" * 400 + ', "event": ' + ONE + "}"), "times",
    ),
    "n of 500 digits": (_training(ONE).replace('"size": 100', '"size": 1' + "0" * 500), "training.size"),
    "infinite batches": (
        _training(ONE).replace('"size": 100', '"batches": {"drawn": "poisson", "size": "Infinity"}'), "batches.size",
    ),
    "a unit of two lines": (_training(ONE)[:-1] + ', "unit": "image\\n  Nothing contradicts it."}', "unit"),
    "a unit that clears the screen": (_training(ONE)[:-1] + ', "unit": "image\\u001b[2J"}', "unit"),
    "a unit of nothing": (_training(ONE)[:-1] + ', "unit": " "}', "unit"),
    "a hash that is too short": (
        _training(ONE)[:-1] + ', "files": {"model": {"path": "model.pt", "sha256": "abc"}}}', "files.model.sha256",
    ),
    "a path with a zero byte": (
        _training(ONE)[:-1] + ', "files": {"model": {"path": "a\\u0000", "sha256": "' + "0" * 64 + '"}}}', "model.path",
    ),
    "20 million bytes": (" " * 20_000_001, "at most 20,000,000 bytes"),
    "events by the 100,000": (
        _training('{"kind": "composed", "events": [' + ", ".join([ONE] * 100_000) + "]}"), "at most 10000 items",
    ),
    "a tree with events by the million": (
        _training('{"kind": "composed", "events": [' + ", ".join(['{"kind": "composed", "events": ['
        + ", ".join([ONE] * 500) + "]}"] * 21) + "]}"), "at most 10,000 events",
    ),
    "samples of samples": (
        _training('{"kind": "sampled", "sampler": "poisson", "rate": 0.1, "event": {"kind": "sampled", "sampler": '
        '"poisson", "rate": 0.1, "event": ' + ONE + "}}"), "within 'sampled'",
    ),
    "another version": ('{"schema_version": 2, "epsilon": 1, "delta": 0, "training": {}}', "schema_version"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_receipt_is_refused_in_a_sentence_before_anything_is_composed(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], compositions: list[str]
) -> None:
    text, named = BROKEN[name]
    file = tmp_path / "broken.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert call("verify", str(file)) == 1
    assert not compositions
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("dpbench: ") and named in said and len(said) < 600


def test_what_is_no_regular_file_is_refused_and_not_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    for place in (tmp_path, tmp_path / "pipe", tmp_path / "loop", Path("/dev/zero")):
        assert call("verify", str(place)) == 1
        assert len(capsys.readouterr().err.splitlines()) == 1
    for place in (tmp_path, tmp_path / "pipe", tmp_path / "loop", Path("/dev/zero")):
        listed = {"model": HashedFile(path=str(place), sha256="0" * 64)}
        (wrong,) = check(written(files=listed), tmp_path).mismatches
        assert wrong.name == "hash" and "cannot be read" in wrong.said


def test_one_receipt_that_cannot_be_read_does_not_hide_what_others_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = written(unit=None).write(tmp_path / "b.json")
    assert call("verify", str(tmp_path / "gone.json"), str(bad)) == 1
    said = capsys.readouterr()
    assert "MISMATCH unit" in said.out and "gone.json" in said.err and "b.json" not in said.err


def schedule(count: int, sampler: Any = "poisson", rate: float = 0.01, sigma: float = 1.0) -> tuple[Event, ...]:
    return tuple(
        Sampled(sampler=sampler, rate=rate + index / 1e6, event=Gaussian(sigma=sigma + index / 1_000))
        for index in range(count)
    )


MANY: dict[str, tuple[Callable[[], Event], Adjacency]] = {  # made where they are checked: collecting costs nothing
    "a short schedule of much noise": (lambda: Composed(events=schedule(199, rate=0.3, sigma=16.0)), ADD),
    "a short schedule of noise and rates": (lambda: Composed(events=schedule(199)), ADD),
    "a schedule of noise and rates": (lambda: Composed(events=schedule(9_999)), ADD),
    "the same, with rows replaced": (lambda: Composed(events=schedule(9_999)), "replace-one"),
    "samples of a fixed size": (lambda: Composed(events=schedule(9_999, "fixed-size")), "replace-one"),
    "a schedule with a Laplace sum": (lambda: Composed(events=(*schedule(9_998), Laplace(scale=30))), ADD),
    "choices": (
        lambda: Composed(events=tuple(Chosen(epsilon=1e-3 + index / 1e6, candidates=3) for index in range(9_999))),
        ADD,
    ),
    "the best of many": (lambda: BestOf(mean=10, shape=1, event=Composed(events=schedule(9_999))), ADD),
    "the best of many, with little noise": (
        lambda: BestOf(mean=1e6, shape=0, event=gaussian_steps(sigma=0.3, steps=10**6, rate=0.3)), ADD,
    ),
    "nothing done to a sample": (
        lambda: Sampled(sampler="poisson", rate=0.1, event=Composed(events=())), ADD,
    ),
}  # fmt: skip


@pytest.mark.quick("a short schedule of much noise", "choices")
@pytest.mark.parametrize("name", MANY)
def test_many_different_events_are_answered_or_refused_after_few_compositions(
    name: str, compositions: list[str]
) -> None:
    make, adjacency = MANY[name]
    check(written(make(), adjacency=adjacency))
    # At most 12 groups, on a grid that two accountants refine. Without groups: one for each event or more, and hours.
    assert len(compositions) <= (100 if "short" in name else 200)


def test_what_no_accountant_can_show_does_not_pass() -> None:
    drawn: Any = {"sampler": "fixed-size-with-replacement", "rate": 0.01}
    event = Repeated(event=Sampled(**drawn, event=Gaussian(sigma=2.0)), times=100)
    found = check(written(event, adjacency="replace-one"))
    assert [mismatch.name for mismatch in found.mismatches] == ["epsilon"]
    assert "No accountant answers for gaussian over a fixed-size-with-replacement sample" in str(found)


@pytest.mark.parametrize("batches", [None, Batches(drawn="fixed-size-with-replacement", size=1_000, steps=1)])
def test_a_row_that_is_drawn_twice_moves_a_sum_by_two_clips(batches: Batches | None) -> None:
    """At n = m = 1,000, sigma 2 and replace-one the true epsilon is at least 6.85; without sampling it is 4.38."""
    drawn: Any = {"sampler": "fixed-size-with-replacement", "rate": 1 - (1 - 1 / 1_000) ** 1_000}
    event = Sampled(**drawn, event=Gaussian(sigma=2.0))
    made = receipt(
        Training(events=event, size=1_000, batches=batches), epsilon=4.4, delta=1e-5, unit="image",
        adjacency="replace-one", search=Search(runs=1),
    )  # fmt: skip
    assert {mismatch.name for mismatch in check(made).mismatches} == {"epsilon"}


@pytest.mark.parametrize(("delta", "contradicts"), [(None, True), (1e-5, True), (1e-3, True), (1e-12, False)])
def test_an_audits_bound_is_held_against_epsilon_where_its_delta_is_no_smaller(
    delta: float | None, contradicts: bool
) -> None:
    """What is (epsilon, 1e-5)-DP is (epsilon, 1e-3)-DP as well, and may cost more at 1e-7."""
    audit = AuditFigures(epsilon_lower=2.5, delta=delta, method="a paper")
    found = check(written(audit=audit))
    assert ("audit" in {mismatch.name for mismatch in found.mismatches}) is contradicts
    far = check(written(audit=audit.model_copy(update={"epsilon_lower": 50.0})))
    assert "audit" in {
        mismatch.name for mismatch in far.mismatches
    }  # it is more than the events cost at that delta as well


def test_an_audits_bound_at_a_delta_that_no_accountant_has_is_said_not_to_be_compared() -> None:
    found = check(written(audit=AuditFigures(epsilon_lower=2.5, delta=0.0, method="a paper")))
    assert not found.mismatches and any("they were not compared" in remark for remark in found.remarks)


def test_a_hash_that_does_not_fit_and_a_file_that_is_gone_are_said(tmp_path: Path) -> None:
    model = tmp_path / "model.pt"
    model.write_bytes(b"one")
    made = Receipt.read(
        receipt(
            Training(events=FEW, size=100), epsilon=3, delta=1e-5, unit="image", adjacency=ADD, search=Search(runs=1),
            files={"model": model},
        ).write(tmp_path / "receipt.json")
    )  # fmt: skip
    assert check(made, tmp_path).passed
    model.write_bytes(b"two")
    assert [mismatch.name for mismatch in check(made, tmp_path).mismatches] == ["hash"]
    model.unlink()
    assert "cannot be read" in check(made, tmp_path).mismatches[0].said


def test_a_receipt_of_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="A receipt hashes the files"):
        receipt(Training(events=FEW), epsilon=1, delta=0, files={"model": tmp_path / "none"})
    with pytest.raises(SpecError, match="epsilon"):
        receipt(Training(events=FEW), epsilon=-1, delta=0)


@pytest.mark.slow
def test_committed_results_are_receipts_that_pass() -> None:
    """One of each learner and kind of plan: sums of all rows, of samples, of both, and choices."""
    tried: set[tuple[str, frozenset[tuple[type, bool]]]] = set()
    for folder in ("results/digits-eps1", "figures/fine-tuning", "figures/theory-pillar-xi"):
        for file in list_records(LEADERBOARD / folder):
            result = Result.model_validate_json(read_record(file))
            asked = frozenset((type(release), release.sample_rate < 1) for release in result.privacy.releases)
            kind = result.spec.learner.name, asked
            if not math.isfinite(result.privacy.epsilon) or kind in tried:
                continue
            tried.add(kind)
            checked = check(from_result(file), file.parent)
            allowed = {"search"} if result.selection == "by-hand" else set()  # nobody knows how they were chosen
            assert {mismatch.name for mismatch in checked.mismatches} <= allowed, (kind, checked.mismatches)
    assert len(tried) > 12 and max(len(asked) for _, asked in tried) > 1


def test_a_receipt_of_a_result_lies_apart_from_results_and_finds_its_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = next(file for file in list_records(LEADERBOARD / "results" / "digits-eps1") if file.name[:6] == "pillar")
    copy = tmp_path / file.name
    copy.write_bytes(read_record(file))
    assert call("receipt", "from", str(copy)) == 0
    made = tmp_path / "receipt" / file.name
    assert capsys.readouterr().out.strip() == str(made)
    assert Receipt.read(made).files["result"].path == f"../{file.name}"
    assert call("verify", str(made)) == 0
    assert call("receipt", "from", str(made)) == 1
    assert "which is a receipt already" in capsys.readouterr().err
    copy.write_bytes(b"{}")
    assert call("verify", str(made)) == 1


def test_the_names_of_receipts_stand_at_the_root() -> None:
    assert dpbench.receipt is receipt and dpbench.Receipt is Receipt
    assert {*dpbench.RECEIPTS} <= {*dir(dpbench)}
