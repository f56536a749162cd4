"""The price of privacy, taken apart: it adds up, it says that it guarantees nothing, and no board takes it."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor

from dpbench import Blocks, Chunk, Curator, RankOne, Release, registry
from dpbench.errors import SpecError
from dpbench.records.spec import make_spec
from dpbench_lab.explain.chart import draw_explanation, list_stage_gains
from dpbench_lab.explain.command import _print_explanation
from dpbench_lab.explain.explanation import Explanation, LearnerExplanation, ReleaseSignal
from dpbench_lab.explain.ladder import _max_projection_dimensions, explain_learners
from dpbench_lab.explain.lifting import Protection, SumRecord, lift_protection, measure_signals, record_sums
from tests.helpers.commands import Output, Refusal, call
from tests.helpers.sessions import session
from tests.helpers.worlds import curator_over, private_rows


@pytest.fixture(scope="module")
def explained() -> Explanation:
    names = ("pillar:steps=10", "class-means")
    specs = [make_spec({"learner": name, "epsilon": 0.5, "seeds": 2}, "the test") for name in names]
    return explain_learners(specs, session(registry.load()))


def lifts(explanation: LearnerExplanation) -> dict[str, Any]:
    return {lift.stage: lift for lift in explanation.ladder}


def test_private_run_lifts_and_rest_add_up_to_the_ceiling(explained: Explanation) -> None:
    for learner in explained.learners:
        steps = [lift.points.mean for lift in learner.ladder if lift.points is not None]
        assert math.isclose(
            learner.private.mean + math.fsum(steps) + learner.rest.mean, explained.score.mean, abs_tol=1e-12
        )
        (*_, (last, _, top)) = list_stage_gains(learner)
        assert (last, round(top, 9)) == ("rest", round(100 * explained.score.mean, 9))


def test_the_private_rung_is_the_run_itself(explained: Explanation) -> None:
    result = session().run(explained.specs[0])
    assert explained.learners[0].private == result.metrics["accuracy"]
    assert explained.learners[0].digest == result.digest


def test_without_noise_a_run_is_the_one_at_infinite_epsilon(explained: Explanation) -> None:
    """PILLAR's steps and learning rate do not follow the budget where they are given: the plan is the same."""
    options = explained.learners[0].learner.options
    free = {"learner": {"name": "pillar", "options": options}, "epsilon": "inf", "seeds": 2}
    result = session().run(make_spec(free, "the test"))
    lift = lifts(explained.learners[0])["noise"]
    assert lift.score.mean == pytest.approx(result.metrics["accuracy"].mean, abs=0.003)


@pytest.mark.slow
def test_scores_are_in_the_metric_that_learners_aim_for(capsys: Output) -> None:
    asked = {"learner": "pillar:steps=10", "epsilon": 0.5, "seeds": 1, "imbalance": 10, "metric": "balanced_accuracy"}
    found = explain_learners([make_spec(asked, "the test")], session(registry.load()))
    (learner,) = found.learners
    result = session().run(make_spec(asked, "the test"))
    free = session().run(make_spec({**asked, "learner": "non-private", "epsilon": "inf"}, "the test"))
    assert learner.private.mean == pytest.approx(result.metrics["balanced_accuracy"].mean)
    assert learner.private.mean != pytest.approx(result.metrics["accuracy"].mean)
    assert found.score.mean == pytest.approx(free.metrics["balanced_accuracy"].mean)
    steps = [lift.points.mean for lift in learner.ladder if lift.points is not None]
    assert learner.private.mean + sum(steps) + learner.rest.mean == pytest.approx(found.score.mean)
    _print_explanation(found, [], Console())
    assert "balanced accuracy in percent" in capsys.readouterr().out
    assert draw_explanation(found).axes[0].get_xlabel() == "balanced accuracy (%)"


def test_files_from_before_scores_had_a_metric_are_read(explained: Explanation) -> None:
    older = explained.model_dump_json().replace('"score":', '"accuracy":')
    assert older.count('"accuracy":') > 5
    assert Explanation.model_validate_json(older) == explained


def test_what_a_learner_does_not_have_does_not_apply(explained: Explanation) -> None:
    pillar, means = (lifts(learner) for learner in explained.learners)
    assert means["steps"].points is None
    assert means["steps"].why == "Does not apply: class-means has no steps."
    assert pillar["steps"].why == "steps 40 instead of 10."
    assert pillar["tuning"].points is None and "--tune" in pillar["tuning"].why


@pytest.mark.slow
def test_every_seed_of_data_that_are_drawn_is_explained_on_its_own() -> None:
    asked = {"learner": "class-means:k=2", "dataset": "theory-lowrank:n=200,m=30,d=8,k=2,test=200", "epsilon": 1}
    spec = make_spec({**asked, "seeds": 2}, "the test")
    found = explain_learners([spec], session(registry.load()))
    (learner,) = found.learners
    free, ceiling = (
        session().run(make_spec({**asked, "seeds": 2, "epsilon": "inf", **other}, "the test")).metrics["accuracy"]
        for other in ({}, {"learner": "non-private"})
    )
    assert found.score == ceiling
    assert lifts(learner)["noise"].score.mean == pytest.approx(free.mean, abs=0.01)
    steps = [lift.points.mean for lift in learner.ladder if lift.points is not None]
    assert learner.private.mean + sum(steps) + learner.rest.mean == pytest.approx(ceiling.mean)


def test_clipping_that_never_acts_costs_nothing(explained: Explanation) -> None:
    """Contributions of class-means are as long as its clip."""
    assert lifts(explained.learners[1])["clipping"].points.mean == pytest.approx(0, abs=1e-12)


@pytest.mark.slow
def test_tuning_is_a_rung_of_its_own_where_it_is_asked_for() -> None:
    asked = {"learner": "dp-sgd:steps=5", "epsilon": 1, "seeds": 1}
    search = {"rule": "public-validation", "space": {"learning_rate": [0.01, 1.0]}}
    specs = [make_spec(asked, "the test")], [make_spec({**asked, "search": search}, "the test")]
    found = explain_learners(specs[0], session(registry.load()), specs[1])
    (learner,) = found.learners
    lift = lifts(learner)["tuning"]
    assert lift.points is not None and "learning_rate" in lift.why
    assert learner.digest == session().run(specs[0][0]).digest
    assert learner.private.mean + lift.points.mean == pytest.approx(session().run(specs[1][0]).metrics["accuracy"].mean)
    steps = [lift.points.mean for lift in learner.ladder if lift.points is not None]
    assert learner.private.mean + sum(steps) + learner.rest.mean == pytest.approx(found.score.mean)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"learner": "pillar", "metric": "auroc"}, "Expected two classes with metric auroc, and 'digits' has 10"),
        ({"learner": "public-only", "public_labels": True}, "one fit per seed, got 'public-only'"),
        ({"learner": "non-private", "epsilon": "inf"}, "a private learner with one fit per seed, got 'non-private'"),
        ({"learner": "dp-sgd", "epsilon": "inf"}, "a private learner with one fit per seed, got 'dp-sgd'"),
        ({"learner": "non-private"}, "it is the baseline that others are compared with"),
    ],
)
def test_a_run_that_has_no_price_to_explain_is_refused(values: dict[str, Any], said: str, refusal: Refusal) -> None:
    spec = make_spec({"seeds": 1, **values}, "the test")
    assert said in refusal(lambda: explain_learners([spec], session(registry.load())), SpecError)


def _curator(kept: Protection, sigma: float = 3.0, seed: int = 0) -> Curator:
    plan = [Release("sums", steps=9)]
    inner = curator_over(private_rows(), plan)
    return lift_protection(inner.handle(), {"sums": sigma}, kept, torch.Generator().manual_seed(seed))


def _rows(chunk: Chunk) -> Tensor:
    return chunk.x


def test_without_clipping_all_rows_are_scaled_alike() -> None:
    x = private_rows().x
    factor = (0.5 / x.norm(dim=1)).clamp(max=1).mean()
    found = _curator(Protection(noise=False, clipping=False)).noisy_sum(_rows, release="sums", clip=0.5)
    torch.testing.assert_close(found, factor * x.sum(0), rtol=1e-4, atol=1e-4)


def test_each_block_without_clipping_has_its_own_factor() -> None:
    x = private_rows().x

    def rows(chunk: Chunk) -> Blocks:
        return Blocks((chunk.x, RankOne(torch.ones(len(chunk), 1), chunk.x)))

    found = _curator(Protection(noise=False, clipping=False)).noisy_sum(rows, release="sums", clip=(0.5, 8.0))
    torch.testing.assert_close(found[0], (0.5 / x.norm(dim=1)).clamp(max=1).mean() * x.sum(0), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found[1], x.sum(0, keepdim=True), rtol=0, atol=0.2)  # rows in 8 bits


def test_noise_that_is_kept_has_the_scale_of_the_private_run() -> None:
    quiet = _curator(Protection(noise=False, clipping=True)).noisy_sum(_rows, release="sums", clip=0.5)
    draws = [_curator(Protection(noise=True, clipping=True), seed=seed) for seed in range(200)]
    noise = torch.stack([draw.noisy_sum(_rows, release="sums", clip=0.5) - quiet for draw in draws])
    assert float(noise.std()) == pytest.approx(3.0 * 0.5, rel=0.1)


def test_a_lifted_curator_says_the_sigma_of_the_private_run_however_it_is_mapped() -> None:
    curator = _curator(Protection(noise=False, clipping=True))
    assert curator.map(lambda x: 2 * x).sigma == curator.sigma == {"sums": 3.0}


def _observed(
    clip: float | tuple[float, ...], rows: Any, rate: float, steps: int
) -> tuple[list[Tensor], ReleaseSignal]:
    plan, seen = [Release("sums", steps=steps, sample_rate=rate)], list[SumRecord]()
    curator = record_sums(curator_over(private_rows(), plan).handle(), seen)
    sums = [curator.noisy_sum(rows, release="sums", clip=clip) for _ in range(steps)]
    (found,) = measure_signals(seen, plan, {"sums": 3.0}, len(private_rows().x))
    return sums, found


def test_signal_and_noise_of_a_step_are_those_of_its_clipped_rows() -> None:
    x = private_rows().x
    (total,), found = _observed(0.5, _rows, 1.0, 1)
    norms = x.norm(dim=1)
    mean = (x * (0.5 / norms).clamp(max=1).unsqueeze(1)).mean(0)
    torch.testing.assert_close(total, mean * len(x), rtol=1e-4, atol=1e-4)
    assert found.first == found.last == pytest.approx(float(mean.norm()) / 0.5, rel=1e-4)
    assert found.clipped == pytest.approx(float((norms > 0.5).double().mean()))
    assert (found.steps, found.entries) == (1, x.shape[1])
    assert found.noise == pytest.approx(3.0 * x.shape[1] ** 0.5 / len(x))


def test_the_signal_of_blocks_is_in_the_clip_of_each() -> None:
    x = private_rows().x
    _, found = _observed((0.5, 1e6), lambda chunk: Blocks((chunk.x, 1e6 * torch.ones(len(chunk), 1))), 1.0, 1)
    mean = (x * (0.5 / x.norm(dim=1)).clamp(max=1).unsqueeze(1)).mean(0)
    assert found.first == pytest.approx(math.hypot(float(mean.norm()) / 0.5, 1.0), rel=1e-4)
    assert found.noise == pytest.approx(3.0 * (2 * (x.shape[1] + 1)) ** 0.5 / len(x))


def test_what_sampling_adds_is_no_signal() -> None:
    """The rows cancel, so all that a sample's sum holds comes from who is in it."""

    def rows(chunk: Chunk) -> Tensor:
        return torch.where(chunk.x[:, :1] > private_rows().x[:, 0].median(), 1.0, -1.0)

    plan, seen = [Release("sums", steps=400, sample_rate=0.25)], list[SumRecord]()
    curator = record_sums(curator_over(private_rows(), plan).handle(), seen)
    for _ in range(400):
        curator.noisy_sum(rows, release="sums", clip=1.0)
    mean = float(rows(Chunk(private_rows().x, private_rows().y, private_rows().y)).mean())
    count = len(private_rows().x)
    squares = [step.squared - 0.75 * step.kept for step in seen]
    spread = 3 * float(torch.tensor(squares).std()) / 400**0.5
    assert sum(squares) / 400 == pytest.approx((0.25 * count * mean) ** 2, abs=spread)
    assert sum(step.squared for step in seen) / 400 > (0.25 * count * mean) ** 2 + spread


def test_a_projection_of_activations_has_what_their_network_pools_to() -> None:
    tail = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    task = SimpleNamespace(example_shape=(4, 3, 3), tail=lambda: tail)
    base: Any = SimpleNamespace(
        roles=SimpleNamespace(task=task),
        learner=SimpleNamespace(public="unlabelled"),
        public=SimpleNamespace(x=torch.zeros(50, 4, 3, 3)),
    )
    assert _max_projection_dimensions(base) == 4
    task.tail = None
    assert _max_projection_dimensions(base) == 36


def test_sampled_units_of_several_images_have_no_signal() -> None:
    """What sampling adds to them is the square of a mean over rows, which no row function sees."""
    sampled, whole = Release("sampled", steps=1, sample_rate=0.5), Release("whole", steps=1)
    seen = [SumRecord(release.name, 5, 1, 9.0, 4.0, 1.0, 20.0) for release in (sampled, whole)]
    first, second = measure_signals(seen, [sampled, whole], {"sampled": 3.0, "whole": 3.0}, 40, units=True)
    assert (first.first, first.last) == (None, None) and first.noise > 0
    assert second.first == second.last == pytest.approx(3 / 40)


def test_what_is_observed_is_answered_as_it_is_otherwise() -> None:
    def rows(chunk: Chunk) -> Blocks:
        return Blocks((chunk.x, RankOne(torch.ones(len(chunk), 1), chunk.x)))

    sums, found = _observed((0.5, 8.0), rows, 0.5, 3)
    plain = curator_over(private_rows(), [Release("sums", steps=3, sample_rate=0.5)]).handle()
    for tensor in sums:
        for part, other in zip(tensor, plain.noisy_sum(rows, release="sums", clip=(0.5, 8.0)), strict=True):
            torch.testing.assert_close(part, other, rtol=0, atol=0)
    assert found.steps == 3


def test_an_explanation_has_a_signal_for_each_release(explained: Explanation) -> None:
    (pillar,), (means,) = (learner.signals for learner in explained.learners)
    assert (pillar.release, pillar.steps, pillar.entries) == ("gradient", 10, 310)
    assert pillar.first is not None and pillar.last is not None
    assert pillar.clipped > 0.8 and pillar.first > pillar.last > 0  # it learns, so gradients shrink
    assert (means.steps, means.clipped) == (1, 0.0)


def _command(out: Path, *more: str) -> Sequence[str]:
    return ("explain", "--learner", "class-means", "--device", "cpu", "--out", str(out), *more)


@pytest.mark.slow
def test_the_command_writes_a_file_and_a_plot_and_no_board_takes_the_file(capsys: Output, tmp_path: Path) -> None:
    plot = tmp_path / "price.svg"
    assert call(*_command(tmp_path, "--seeds", "1", "--plot", str(plot))) == 0
    said = capsys.readouterr().out
    assert "none: reads private data without noise" in " ".join(said.split())
    assert "no board accepts them" in said.replace("\n", " ")
    assert "±" not in said
    (file,) = (tmp_path / "not-private").glob("explanation-digits-*.json")
    assert not [*tmp_path.glob("*.json")]
    assert "without noise" in (tmp_path / "not-private" / "NOT-PRIVATE.txt").read_text(encoding="utf-8")
    assert Explanation.model_validate_json(file.read_bytes()).learners[0].learner.name == "class-means"
    drawn = plot.read_text(encoding="utf-8")
    assert "class-means" in drawn
    assert "Guarantee of all runs except the private ones: none: reads private data without noise" in drawn
    assert call("leaderboard", "add", str(file)) == 1
    assert call("leaderboard", "verify", str(file)) == 1


def test_all_tables_name_every_learner_in_full(explained: Explanation) -> None:
    shown = io.StringIO()
    _print_explanation(explained, [], Console(file=shown, width=80))
    lines = shown.getvalue().splitlines()
    first = [line.split()[0] for line in lines if line.startswith((" pillar ", " class-means "))]
    assert first == ["pillar", "class-means"] * 3


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--epsilon", "inf"), "a private learner with one fit per seed"),
        (("--tries", "3"), "--tries needs --tune"),
        (("--plot", "price.gif"), "Expected --plot price.gif to end in .png, .svg or .pdf"),
        (("--board", "digits-eps1", "--epsilon", "1"), "Expected no epsilon"),
        (("--learner", "pilar"), "Unknown learner 'pilar'"),
        (("--seeds", "0"), "at least one"),
    ],
)
def test_a_bad_flag_is_refused_in_one_sentence(
    refusal: Refusal, tmp_path: Path, more: tuple[str, ...], said: str
) -> None:
    assert said in refusal.command(*_command(tmp_path, *more))


def test_a_learner_has_to_be_named(refusal: Refusal) -> None:
    assert "Expected --learner: name one, or several" in refusal.command("explain")


@pytest.mark.slow
def test_the_numbers_of_several_seeds_have_intervals(capsys: Output, tmp_path: Path) -> None:
    assert call(*_command(tmp_path, "--seeds", "2")) == 0
    (row, *_) = [line for line in capsys.readouterr().out.splitlines() if line.split()[:1] == ["class-means"]]
    assert re.match(r" *class-means +\d\d\.\d\d ± +", row)
