"""What a result says, told once, and its numbers by one formatter."""

from __future__ import annotations

import math

import pytest

from dpbench import Choice, Planned, Release
from dpbench.analysis import describe as described
from dpbench.analysis.confusion import format_confusion_matrix
from dpbench.analysis.describe import ResultDescription, describe_result, describe_shared_facts
from dpbench.analysis.formats import format_metric_score, format_percent_rounded_up, format_upper_bound
from dpbench.analysis.risk import describe_privacy_curve, max_true_positive_rates
from dpbench.records.metrics import METRIC_FACTS, METRICS
from dpbench.records.protocol import Component
from dpbench.records.result import Interval, Result
from dpbench.records.stated_plan import LATER_LIMITS, PlannedRepeats
from tests.analysis.test_tables import DIGITS, LOW, find_result
from tests.helpers.commands import call
from tests.helpers.stated import with_accuracies


def told(result: Result) -> dict[str, str]:
    return dict(describe_result(result).pairs)


def test_one_result_is_told_whole() -> None:
    filed = find_result(LOW, "pillar")
    said = told(filed.result)
    assert said["guarantee"] == "ε 0.1 for one image by pld, 0.09799 to 0.1021 by prv-accountant"
    assert said["release gradient"] == "30 steps (all spent), each example with chance 1, σ 168.4"
    assert "k=27" in said["settings"]
    assert said["membership test"] == (
        "of one private image, by someone who knows all the others: true positives at most 0.12% at 0.1% false "
        "positives and 1.10% at 1.0% false positives"
    )
    assert filed.result.digest == said["digest"]


def test_what_the_weights_have_seen_is_told_and_an_earlier_result_does_not_state_it() -> None:
    result = find_result(LOW, "pillar").result
    assert told(result)["weights trained on"] == "not stated"
    task = result.task.model_copy(update={"trained_on": "ImageNet-1k"})
    assert told(result.model_copy(update={"task": task}))["weights trained on"] == "ImageNet-1k"
    assert {*LATER_LIMITS} < {*result.not_covered}


def test_odds_of_a_private_search_are_those_of_its_epsilon_and_delta_and_there_are_none_without_noise() -> None:
    privacy = find_result(LOW, "pillar").result.privacy
    searched = privacy.model_copy(update={"repeats": PlannedRepeats(mean=10, shape=1), "epsilon": 1.0, "delta": 1e-5})
    most = max_true_positive_rates(searched)
    assert most == {rate: pytest.approx(math.e * rate + 1e-5) for rate in (0.001, 0.01)}
    assert all(max_true_positive_rates(privacy)[rate] < bound for rate, bound in most.items())
    assert max_true_positive_rates(privacy.model_copy(update={"sigma": 0.0})) == {}


def test_the_whole_curve_is_told_from_plan_and_sigma() -> None:
    filed = find_result(LOW, "pillar")
    said, privacy = told(filed.result), filed.result.privacy
    mu = math.sqrt(30) / privacy.sigma
    assert said["Gaussian curve"] == f"μ {format_upper_bound(mu)}, exactly"
    n = filed.result.task.private
    assert said["ε at other δ"].endswith(f"at δ {n**-1.1:.2g} (1/n^1.1)")
    assert float(said["ε for replacing one"].split()[0]) == pytest.approx(0.2, rel=0.1)
    searched = privacy.model_copy(update={"repeats": PlannedRepeats(mean=10, shape=1)})
    assert not {"Gaussian curve", "ε for replacing one"} & set(
        told(filed.result.model_copy(update={"privacy": searched}))
    )


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ([Release("grad", sample_rate=0.05)], "none fits: the smallest that covers it has μ "),
        ([Choice("pick", 4, relative_noise=4.0), Release("sum", 9)], "covered by μ "),
    ],
)
def test_a_curve_that_is_not_gaussian_is_covered_or_none_fits(plan: list[Planned], said: str) -> None:
    facts = describe_privacy_curve(plan, 2.0, 1e-5, None)
    assert facts["Gaussian curve"].startswith(said)
    assert facts["ε at other δ"].endswith(" at δ 1e-06")


def test_a_forged_plan_has_no_curve_and_no_traceback() -> None:
    assert describe_privacy_curve([Release("grad", 10, 0.5)], 1e-300, 1e-5, 1_000) == {}


def test_settings_are_told_as_they_ran_and_by_whom_they_were_chosen() -> None:
    filed = find_result(LOW, "pillar")
    options = {**filed.result.spec.learner.options, "steps": None}
    spec = filed.result.spec.model_copy(update={"learner": Component(name="pillar", options=options)})
    result = filed.result.model_copy(update={"spec": spec, "settled": {"steps": 37}, "selection": "by-hand"})
    settings = told(result)["settings"]
    assert "steps=37" in settings and settings.endswith("(set by hand; steps from n, ε and δ)")
    assert told(filed.result)["settings"].endswith("(defaults; k, learning_rate, steps from n, ε and δ)")


def confused(matrix: tuple[str, ...], classes: tuple[str, ...]) -> Result:
    result = find_result(LOW, "pillar").result
    seeds = tuple(seed.model_copy(update={"confusion": matrix}) for seed in result.seeds)
    task = result.task.model_copy(update={"classes": classes})
    return result.model_copy(update={"seeds": seeds, "task": task})


def test_the_confusion_matrix_is_shown_in_percent_of_the_true_class() -> None:
    _, *rows = format_confusion_matrix(confused(("3 1", "0 0"), ("cat", "dog")))
    assert [row.split() for row in rows] == [["cat", "75.0", "25.0"], ["dog", "-", "-"]]


def test_of_many_classes_the_most_frequent_errors_are_shown() -> None:
    names = tuple(f"class {number}" for number in range(30))
    matrix = tuple(" ".join("8" if a == b else "2" if (a, b) == (3, 7) else "0" for b in range(30)) for a in range(30))
    assert list(format_confusion_matrix(confused(matrix, names)))[1:] == ["  class 3 taken for class 7: 20.0"]


def test_of_a_result_from_before_it_was_kept_no_matrix_is_shown_and_probabilities_are_said_to_be_missing() -> None:
    filed = find_result(LOW, "pillar")
    before = with_accuracies(filed.result, 0.5, 0.6)
    assert list(format_confusion_matrix(before)) == []
    assert "did not record them" in told(before)["probabilities"]


@pytest.mark.parametrize(
    ("metric", "score", "said"),
    [
        ("accuracy", (0.7231, 0.72, 0.7262), "72.31% ± 0.31"),
        ("accuracy", (0.95, 0.85, 1.05), "95.00% (85.00 to 100)"),
        ("class_gap", (0.02, -0.1, 0.14), "2.00% (0 to 14.00)"),
        ("accuracy", (0.5, None, None), "50.00%"),
        ("nll", (4.043, 1.639, 6.447), "4.043 ± 2.404"),
        ("nll", (0.5, -0.25, 1.25), "0.500 (0 to 1.250)"),
        ("brier", (1.9, 1.7, 2.1), "1.900 (1.700 to 2)"),
        ("brier", (0.5, 0.5, 0.5), "0.500"),
    ],
)
def test_a_score_is_written_as_its_metric_says_and_never_beyond_its_bounds(
    metric: str, score: tuple[float, float | None, float | None], said: str
) -> None:
    mean, low, high = score
    assert format_metric_score(metric, Interval(mean=mean, low=low, high=high), unit=True) == said


def test_every_metric_is_told_by_its_title_with_its_unit() -> None:
    result = find_result(DIGITS, "pillar").result
    said = told(result)
    for metric in METRICS:
        if metric in result.metrics:
            assert said[METRIC_FACTS[metric].inline_title] == format_metric_score(
                metric, result.metrics[metric], unit=True
            )
            assert said[METRIC_FACTS[metric].inline_title].split(" ")[0].endswith("%") is METRIC_FACTS[metric].share


def test_the_summary_has_score_guarantee_settings_and_notes_and_is_part_of_the_whole() -> None:
    result = find_result(LOW, "pillar").result
    found = describe_result(result)
    names = [name for name, _ in found.brief]
    assert {"accuracy", "guarantee", "δ", "noise", "settings", "split", "time"} <= set(names)
    assert len(found.brief) < len(found.pairs) / 2
    assert set(found.brief) <= set(found.pairs)
    noted = result.model_copy(update={"seeds": result.seeds[:2]})
    assert ("warning", noted.remarks[-1]) in describe_result(noted).brief


def test_without_noise_there_is_no_guarantee_and_nothing_that_only_noise_has() -> None:
    said = told(find_result(DIGITS, "non-private").result)
    assert said["guarantee"] == "none: no noise was added"
    assert not {"δ", "neighbours", "noise", "membership test"} & set(said)
    assert told(find_result(DIGITS, "public-only").result)["guarantee"].startswith("ε 0")


def test_steps_that_a_seed_did_not_spend_are_told() -> None:
    result = find_result(LOW, "pillar").result
    first, *rest = result.seeds
    less = first.model_copy(update={"spent": {**first.spent, "gradient": 12}})
    said = told(result.model_copy(update={"seeds": (less, *rest)}))["release gradient"]
    assert said.startswith("30 steps (12 to 30 spent), each example")


def test_several_results_are_told_together_by_what_each_says_of_its_protocol() -> None:
    results = [find_result(DIGITS, name).result for name in ("pillar", "prototypes", "thrift")]
    found = describe_shared_facts(results, lambda _, part: part.name)
    data = {fact.name: fact.texts for fact in found.section("data")}
    assert data["split"] == ("1,294 private, 144 public, 359 test examples of 10 classes",)
    guarantee = {fact.name: fact.texts for fact in found.section("guarantee")}
    assert set(guarantee["δ"]) == {"1e-05", "0 (pure)"}
    largest = max(max_true_positive_rates(result.privacy)[0.001] for result in results)
    assert f"at most {format_percent_rounded_up(largest)} at 0.1%" in guarantee["membership test"][0]
    assert not {"accuracy", "digest", "time"} & {fact.name for fact in found.facts}


def test_a_result_in_markdown_has_every_fact_and_hides_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    filed = find_result(LOW, "pillar")
    assert call("results", "show", str(filed.file), "--markdown") == 0
    text = capsys.readouterr().out
    found = describe_result(filed.result)
    assert all(f"- **{name}**: " in text for name, _ in found.pairs)
    assert text.startswith("# pillar on pneumonia (")
    assert "\n```text\nConfusion over all seeds" in text


def test_a_strangers_words_are_no_markup() -> None:
    said = ResultDescription(
        "<b>*x*</b>", (described.FactSection("notes", (described.ResultFact("note", ("a_b\n# c",)),)),)
    )
    assert described.render_markdown(said) == "# &lt;b>\\*x\\*&lt;/b>\n\n## Notes\n\n- **note**: a\\_b # c\n"
    assert described.render_html([("<i>", "<b>")]) == "<table><tr><th>&lt;i&gt;</th><td>&lt;b&gt;</td></tr></table>"
