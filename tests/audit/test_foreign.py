"""The audit of other people's training loops: Opacus' engine, and loops that are wrong on purpose."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from dpbench.audit.foreign import Claim, audit_loop
from dpbench.errors import DpbenchError, SpecError
from dpbench.receipts import AuditFigures
from tests.helpers.commands import Refusal

BATCH, RATE, STEPS, SIZE = 100, 0.1, 6, 1_000
SAMPLED = Claim(sigma=1.0, steps=STEPS, sample_rate=RATE)
WHOLE = Claim(sigma=2.0, steps=4)


def engine(x: Tensor, y: Tensor, seed: int) -> Sequence[Tensor]:
    """Opacus as its tutorials use it: the loader's length decides the sample rate and the divisor."""
    from opacus import PrivacyEngine

    layer = torch.nn.Linear(x.shape[1], 2, bias=False)
    torch.nn.init.zeros_(layer.weight)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(x, y), batch_size=BATCH, generator=torch.Generator().manual_seed(seed)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module, optimizer, drawn = PrivacyEngine(accountant="rdp").make_private(
            module=layer, optimizer=torch.optim.SGD(layer.parameters(), lr=1e-3), data_loader=loader,
            noise_multiplier=SAMPLED.sigma, max_grad_norm=SAMPLED.clip,
            noise_generator=torch.Generator().manual_seed(seed + 10**6),
        )  # fmt: skip
        return list(itertools.islice(_released(module, optimizer, drawn), STEPS))


def optimizer_alone(x: Tensor, y: Tensor, seed: int) -> Sequence[Tensor]:
    """The same library with a sample rate and a divisor that do not depend on the data."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer
    from opacus.utils.uniform_sampler import UniformWithReplacementSampler

    layer = torch.nn.Linear(x.shape[1], 2, bias=False)
    torch.nn.init.zeros_(layer.weight)
    sampler = UniformWithReplacementSampler(
        num_samples=len(x), sample_rate=RATE, generator=torch.Generator().manual_seed(seed), steps=STEPS
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = GradSampleModule(layer)
        optimizer = DPOptimizer(
            torch.optim.SGD(layer.parameters(), lr=1e-3), noise_multiplier=SAMPLED.sigma,
            max_grad_norm=SAMPLED.clip, expected_batch_size=BATCH,
            generator=torch.Generator().manual_seed(seed + 10**6),
        )  # fmt: skip
        return list(_released(module, optimizer, ((x[rows], y[rows]) for rows in sampler)))


def _released(module: Any, optimizer: Any, batches: Iterable[tuple[Tensor, Tensor]]) -> Iterator[Tensor]:
    for batch, labels in batches:
        optimizer.zero_grad()
        torch.autograd.backward(cross_entropy(module(batch), labels))
        optimizer.pre_step()
        yield optimizer.params[0].grad * BATCH
        optimizer.original_optimizer.step()


@pytest.mark.slow
def test_the_engine_of_opacus_tells_how_many_examples_there_are() -> None:
    """One example more makes 11 batches of 10: another sample rate, and int(1001 / 11) = 91 as the divisor."""
    found = audit_loop(engine, SAMPLED, size=SIZE, canaries=500)
    assert found.part_passed("sensitivity") is False
    assert found.sensitivity is not None and found.sensitivity.largest > 3


@pytest.mark.slow
def test_its_optimizer_with_a_public_batch_size_breaks_nothing_but_on_rows_that_are_not_finite() -> None:
    found = audit_loop(optimizer_alone, SAMPLED, size=SIZE, canaries=1_500)
    assert found.part_passed("noise") is True and found.part_passed("attack") is True, found.figures.failed
    assert found.sensitivity is not None and found.sensitivity.largest <= 1
    assert all("not finite" in complaint for complaint in found.sensitivity.complaints)


def loop(x: Tensor, y: Tensor, seed: int, wrong: str = "") -> list[Tensor]:
    """A loop of one's own, full batch, with one mistake or none."""
    generator = torch.Generator().manual_seed(0 if wrong == "one seed" else seed)
    weight, answers = torch.zeros(2, x.shape[1]), []
    noise = torch.randn(2, x.shape[1], generator=generator)
    for step in range(WHOLE.steps):
        if wrong != "one noise":
            noise = torch.randn(2, x.shape[1], generator=generator)
        if wrong == "one class":
            noise[1] = noise[0]
        rows = (torch.softmax(x @ weight.T, 1) - one_hot(y, 2)).nan_to_num(0, 0, 0)
        features = x.nan_to_num(0, 0, 0)
        norms = rows.norm(dim=1) * features.double().norm(dim=1)
        clip = norms.quantile(0.9) if wrong == "quantile later" and step and len(x) else WHOLE.clip
        clip = 1.05**step * clip if wrong == "growing clip" else clip
        weights = (clip / norms.clamp(min=1e-30)).clamp(max=1).float()
        if wrong == "largest coordinate" and len(x):
            weights = (WHOLE.clip / (rows.norm(dim=1) * features.abs().amax(1)).clamp(min=1e-30)).clamp(max=1)
        if wrong == "lenient":
            weights = torch.where(norms > 10 * WHOLE.clip, weights, 1.0)
        if wrong == "no clip":
            weights = torch.ones_like(weights)
        total = (rows * weights.unsqueeze(1)).T @ features
        total = total * 1000 / len(x) if wrong == "drawn divisor" else total
        if wrong == "penalised":
            total = total + 0.01 * weights.sum() * weight
        answers.append(total + (0.95 if wrong == "short noise" else 1.0) * WHOLE.sigma * noise)
        weight = weight - 1e-4 * answers[-1]
    return answers


def test_a_loop_that_is_right_passes_all_three_parts() -> None:
    found = audit_loop(loop, WHOLE, canaries=1_500)
    assert found.passed, found.figures.failed
    assert found.attack is not None and found.attack.mu == pytest.approx(1.0)
    assert found.attack.mean == pytest.approx(1.0, rel=0.25)


def test_a_step_whose_other_columns_move_is_left_out_and_said() -> None:
    found = audit_loop(lambda x, y, seed: loop(x, y, seed, "penalised"), WHOLE, canaries=100)
    assert found.part_passed("sensitivity") is True
    assert found.left_out[0].startswith("contributions to 3 of 4 steps were not")


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("wrong", "part"),
    [
        ("no clip", "sensitivity"),
        ("largest coordinate", "sensitivity"),
        ("lenient", "sensitivity"),
        ("growing clip", "sensitivity"),
        ("quantile later", "sensitivity"),
        ("drawn divisor", "sensitivity"),
        ("short noise", "noise"),
        ("one noise", "noise"),
        ("one class", "noise"),
        ("one seed", "noise"),
    ],
)
def test_a_loop_that_is_wrong_fails_in_the_part_that_looks_there(wrong: str, part: str) -> None:
    canaries = 4_000 if wrong == "short noise" else 1_000  # 5% less noise shows in many numbers alone
    found = audit_loop(lambda x, y, seed: loop(x, y, seed, wrong), WHOLE, canaries=canaries)
    assert any(line.startswith(part) for line in found.figures.failed), found.figures.failed


@pytest.mark.slow
def test_a_claim_of_a_smaller_epsilon_than_sigma_gives_fails_the_attack() -> None:
    found = audit_loop(loop, Claim(sigma=WHOLE.sigma, steps=WHOLE.steps, epsilon=0.3), canaries=2_000)
    assert found.part_passed("attack") is False


@pytest.mark.slow
def test_a_claim_below_what_its_numbers_cost_fails_where_no_attack_shows_it() -> None:
    claim = Claim(sigma=SAMPLED.sigma, steps=20, sample_rate=RATE, epsilon=0.6 * Claim(1.0, 20, RATE).cost)
    found = audit_loop(sampled_loop, claim, size=200, canaries=200)
    assert not found.passed and "statement: epsilon" in found.figures.failed[0] and len(found.figures.failed) == 1


@pytest.mark.parametrize(
    "given",
    [
        {"sigma": 0.0}, {"sigma": math.nan}, {"delta": 0.0}, {"delta": 1.0}, {"epsilon": math.inf}, {"epsilon": -1.0},
        {"clip": 0.0}, {"steps": 0}, {"sample_rate": 1.5},
    ],
)  # fmt: skip
def test_a_claim_of_numbers_that_no_loop_has_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(DpbenchError, match=next(iter(given)).replace("sample_rate", "rate")):
        Claim(**{"sigma": 1.0, **given})


def test_a_receipt_states_what_an_audit_found() -> None:
    found = audit_loop(loop, WHOLE, canaries=500)
    stated = AuditFigures.of(found)
    assert found.figures.steinke is not None and stated.epsilon_lower == found.figures.steinke.epsilon
    assert (stated.confidence, stated.delta, stated.failed) == (0.95, found.delta, ())
    failed = found.model_copy(update={"figures": found.figures.model_copy(update={"steinke": None, "failed": ("x",)})})
    assert AuditFigures.of(failed).failed == ("x",) and AuditFigures.of(failed).confidence is None


def seeded(x: Tensor, y: Tensor, seed: int) -> list[Tensor]:
    return [torch.randn(2, x.shape[1], generator=torch.Generator().manual_seed(seed))]


def unseeded_later(x: Tensor, y: Tensor, seed: int) -> list[Tensor]:
    first, *later = loop(x, y, seed)
    return [first, *(answer + 1e-3 * torch.randn(answer.shape) for answer in later)]


@pytest.mark.parametrize(
    ("answers", "claim", "said"),
    [
        (lambda x, y, seed: loop(x, y, seed)[:1], WHOLE,
         "Expected 4 answers of shape (2, 1065) from the loop, one a step, got 1"),
        (lambda *_: None, Claim(sigma=1.0), "Expected a list of tensors from the loop, one a step, got NoneType"),
        (lambda x, y, seed: [answer.numpy() for answer in loop(x, y, seed)], WHOLE,
         "Expected tensors of torch from the loop, got ndarray"),
        (lambda x, y, seed: [torch.full_like(answer, math.nan) for answer in loop(x, y, seed)], WHOLE,
         "finite answers from the loop on finite examples, got others in step 1"),
        (lambda x, y, seed: [torch.randn(2, x.shape[1]) for _ in range(4)], WHOLE,
         "the same answers for the same data and seed"),
        (unseeded_later, WHOLE, "the same answers for the same data and seed"),
    ],
)  # fmt: skip
def test_what_a_loop_has_to_give_is_said_in_a_sentence(answers: Any, claim: Claim, said: str, refusal: Refusal) -> None:
    assert said in refusal(lambda: audit_loop(answers, claim), SpecError)


def test_too_few_examples_are_refused(refusal: Refusal) -> None:
    assert "at least 20 canaries, got 2" in refusal(lambda: audit_loop(loop, WHOLE, canaries=2), SpecError)
    rare = Claim(sigma=1.0, sample_rate=1e-3)
    said = refusal(lambda: audit_loop(seeded, rare, size=20, canaries=20), SpecError)  # none of the last rows is drawn
    assert "it did for none. Audit it with a larger size or a larger rate" in said


def sampled_loop(x: Tensor, y: Tensor, seed: int, wrong: str = "") -> list[Tensor]:
    """Poisson samples of a tenth, 20 steps, with one mistake or none."""
    sampler, noise = (torch.Generator().manual_seed(seed + offset) for offset in (0, 10**6))
    x, answers = x.nan_to_num(0, 0, 0), []
    if "anew" in wrong:  # Poisson too, but with one more row others are drawn
        sampler.manual_seed(seed * 10**4 + len(x))
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    for step in range(20):
        drawn = torch.rand(len(x), generator=sampler) < RATE
        if wrong == "shuffled":
            drawn = (torch.argsort(order) * 10 // len(x)) == step % 10
        rows = 0.5 - one_hot(y[drawn], 2).float()
        norms = rows.norm(dim=1) * x[drawn].double().norm(dim=1)
        clip = float(torch.quantile(norms, 0.9)) if "quantile" in wrong and len(norms) else 1.0
        weights = (1 / norms.clamp(min=1e-30)).clamp(max=1 / max(clip, 1e-30)).float()  # and scaled to a clip of 1
        if "outliers" in wrong and len(norms) > 1:
            weights = weights * (norms <= norms.mean() + 2 * norms.std())
        weights = torch.ones_like(weights) if "no clip" in wrong else weights
        total = (rows * weights.unsqueeze(1)).T @ x[drawn]
        total = total * len(x) * RATE / max(1, int(drawn.sum())) if "divisor" in wrong else total
        answers.append(total + SAMPLED.sigma * torch.randn(total.shape, generator=noise))
    return answers


def failures(wrong: str, seed: int) -> str:
    claim = Claim(sigma=1.0, steps=20, sample_rate=RATE, epsilon=5.0)
    found = audit_loop(lambda x, y, seed: sampled_loop(x, y, seed, wrong), claim, size=200, canaries=200, seed=seed)
    return ", ".join(found.figures.failed)


@pytest.mark.quick(1)
@pytest.mark.parametrize("wrong", ["", "anew"])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_sampled_loop_that_is_right_passes_by_whatever_seed(wrong: str, seed: int) -> None:
    assert failures(wrong, seed) == ""


@pytest.mark.quick(1)
@pytest.mark.parametrize("wrong", ["no clip", "drawn divisor", "clip at a quantile", "without outliers"])
@pytest.mark.parametrize("draws", ["", "anew and "])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_fault_shows_by_whatever_seed_a_loop_samples(wrong: str, draws: str, seed: int) -> None:
    last = torch.rand(201, generator=torch.Generator().manual_seed(seed))[-2:]
    assert not (last < RATE).any(), "the first sample has one of the last rows: no luck is needed"
    assert "sensitivity: a row moved a sum by" in failures(draws + wrong, seed)


def test_shuffled_batches_are_no_poisson_samples() -> None:
    assert "samples of 'gradient'" in failures("shuffled", 0)
