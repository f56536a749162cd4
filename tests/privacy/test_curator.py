"""The curator spends, samples, clips, sums and adds noise, and refuses rows that are not per example."""

from __future__ import annotations

import math
import threading
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from dpbench.api import Chunk, Curator, Release
from dpbench.errors import ComponentFailed, NotPerExample, NotPlanned, NotPure, SpecError
from dpbench.privacy.core.exact.quantised import quantise
from dpbench.privacy.core.forms.blocks import Blocks
from dpbench.privacy.core.forms.contributions import RankOne, Scaled
from dpbench.privacy.core.head import HeadGradient
from dpbench.privacy.core.rows import PrivateRows
from dpbench.privacy.core.sum import SCORES, check_clips
from tests.helpers.worlds import curator_over, note, noted, private_rows

GRADIENT = Release("gradient", steps=50, sample_rate=0.3)


def _features(chunk: Chunk) -> Tensor:
    return chunk.x


def test_the_noise_of_an_answer_has_std_sigma_times_clip() -> None:
    rows = private_rows(n=10, d=100_000)
    curator = curator_over(rows, [Release("mean")], sigma=3.0)
    noiseless = curator_over(rows, [Release("mean")], sigma=0.0).noisy_sum(_features, release="mean", clip=0.5)
    answer = curator.noisy_sum(_features, release="mean", clip=0.5)
    assert isinstance(answer, Tensor)
    assert isinstance(noiseless, Tensor)
    noise = (answer - noiseless).double().numpy() / (3.0 * 0.5)
    assert stats.kstest(noise, "norm").pvalue > 1e-3
    assert noise.std() == pytest.approx(1, rel=4 / math.sqrt(2e5))


@pytest.mark.parametrize("sigma", [1e-6, 0.01, 0.4])
def test_any_sigma_above_zero_gives_noise(sigma: float) -> None:
    curator = curator_over(private_rows(n=1, d=10_000), [Release("sum")], sigma=sigma)
    answer = curator.noisy_sum(lambda chunk: torch.zeros(len(chunk), 10_000), release="sum", clip=1.0)
    assert isinstance(answer, Tensor)
    assert float(answer.std()) == pytest.approx(sigma, rel=0.05)


def test_each_of_two_blocks_gets_noise_for_the_norm_of_both_together() -> None:
    rows = private_rows(n=1, d=50_000)
    curator = curator_over(rows, [Release("both")], sigma=1.0)
    zero = torch.zeros(1, 50_000)
    answers = curator.noisy_sum(lambda chunk: Blocks((zero[: len(chunk)],) * 2), release="both", clip=(2.0, 0.5))
    assert isinstance(answers, tuple)
    assert float(answers[0].std()) == pytest.approx(math.sqrt(2) * 2.0, rel=0.02)
    assert float(answers[1].std()) == pytest.approx(math.sqrt(2) * 0.5, rel=0.02)


def test_noise_is_independent_across_classes_steps_and_releases() -> None:
    plan = [Release("first", steps=3), Release("second", steps=3)]
    curator = curator_over(private_rows(n=4), plan, sigma=1.0)

    def zeros(chunk: Chunk) -> RankOne:
        return RankOne(torch.zeros(len(chunk), 5), torch.zeros(len(chunk), 10_000))

    answers = [curator.noisy_sum(zeros, release=name, clip=1.0) for name in ("first", "second") for _ in range(3)]
    columns = torch.cat([answer for answer in answers if isinstance(answer, Tensor)])  # (30, 10000)
    correlations = np.corrcoef(columns.numpy())[np.triu_indices(30, 1)]
    assert np.abs(correlations).max() < 5 / math.sqrt(10_000)


def test_with_infinite_epsilon_rows_are_still_clipped() -> None:
    rows = PrivateRows(torch.full((3, 4), 10.0), torch.zeros(3, dtype=torch.int64), torch.arange(3))
    answer = curator_over(rows, [Release("sum")]).noisy_sum(_features, release="sum", clip=1.0)
    assert isinstance(answer, Tensor)
    assert float(answer.norm()) == pytest.approx(3.0, rel=1e-5)


def test_spending_comes_before_anything_is_read() -> None:
    curator = curator_over(private_rows(), [GRADIENT])

    def crashes(chunk: Chunk) -> Tensor:
        raise RuntimeError

    with pytest.raises(ComponentFailed, match="RuntimeError"):
        curator.noisy_sum(crashes, release="gradient", clip=1.0)
    assert curator.ledger.spent == {"gradient": 1}


def test_the_number_of_answers_is_the_number_of_ledger_entries() -> None:
    curator = curator_over(private_rows(), [Release("a", steps=3), Release("b", steps=1)])
    handle = curator.handle()
    for _ in range(3):
        handle.noisy_sum(_features, release="a", clip=1.0)
    handle.map(lambda x: 2 * x).noisy_sum(_features, release="b", clip=1.0)
    assert curator.ledger.spent == {"a": 3, "b": 1}
    with pytest.raises(NotPlanned):
        handle.map(lambda x: x).noisy_sum(_features, release="a", clip=1.0)


def test_an_empty_sample_still_answers_with_noise_of_the_right_shape() -> None:
    rare = Release("gradient", steps=1, sample_rate=1e-9)
    answer = curator_over(private_rows(d=5), [rare], sigma=1.0).noisy_sum(_features, release="gradient", clip=1.0)
    assert isinstance(answer, Tensor)
    assert answer.shape == (5,)
    assert bool((answer != 0).all())


@pytest.mark.parametrize("chunk_size", [1, 7, 40, 1000])
def test_the_chunk_size_changes_memory_and_not_the_answer(chunk_size: int) -> None:
    answers = [
        curator_over(private_rows(), [GRADIENT], sigma=1.0).noisy_sum(
            _features, release="gradient", clip=0.7, chunk_size=size
        )
        for size in (None, chunk_size)
    ]
    torch.testing.assert_close(answers[0], answers[1], rtol=1e-5, atol=1e-5)


def test_more_classes_make_smaller_chunks_and_the_same_answer() -> None:
    rows, classes = private_rows(n=2500, classes=1000), 1000
    release = Release("sum")
    gradient = HeadGradient(torch.randn(classes, 6, generator=torch.Generator().manual_seed(1)), bias=True)

    def gradients(chunk: Chunk) -> RankOne | Scaled:
        note(len(chunk))
        return gradient(chunk)

    answers = []
    for size in (None, len(rows)):
        curator = curator_over(rows, [release], sigma=1.0, classes=classes).map(lambda x: x)
        answer = curator.noisy_sum(gradients, release="sum", clip=1.0, chunk_size=size)
        assert isinstance(answer, Tensor)
        answers.append(answer)
    assert torch.equal(answers[0], answers[1])
    lengths = [length for length in noted() if length]
    assert max(lengths) == 2500
    assert lengths[0] == SCORES // classes < 2500


def test_a_chunks_rows_are_gone_before_the_next_are_made() -> None:
    """Also where a chunk is checked: the first is, and one of the next four."""

    def rows(chunk: Chunk) -> Tensor:
        answer = 2 * chunk.x
        assert all(note() is None for note in vars(threading.main_thread()).get("dpbench_notes", ()))
        note(weakref.ref(answer))
        return answer

    curator = curator_over(private_rows(n=40), [Release("sum", steps=3)])
    calls = []
    for _ in range(3):
        curator.noisy_sum(rows, release="sum", clip=1.0, chunk_size=9)
        calls.append(len(noted()))
    assert min(calls) >= 5  # five chunks, and some of them again
    assert max(calls) >= 7


def test_mapped_rows_are_those_that_the_transform_gives_in_8_bits() -> None:
    rows, plan = private_rows(), [Release("sum")]
    matrix = torch.randn(5, 2, generator=torch.Generator().manual_seed(1))
    kept = quantise(rows.x @ matrix).float()
    for sigma in (0.0, 1e-9):
        mapped = curator_over(rows, plan, sigma).handle().map(lambda x: x @ matrix)
        assert mapped.task.example_shape == (2,)
        answer = mapped.noisy_sum(_features, release="sum", clip=1e3)
        torch.testing.assert_close(answer, kept.sum(0), rtol=1e-4, atol=1e-3)
        assert bool(((kept - rows.x @ matrix).abs() <= kept.abs().amax(1, keepdim=True) / 253).all())


@pytest.mark.parametrize("clip", [0.0, -1.0, math.nan, math.inf, 1e-12])
def test_a_clip_that_bounds_nothing_is_refused(clip: float) -> None:
    with pytest.raises(SpecError, match="clip"):
        curator_over(private_rows(), [GRADIENT]).noisy_sum(_features, release="gradient", clip=clip)


@pytest.mark.parametrize("clip", ["1", True, None, [None], {1.0: 2.0}, np.ones((2, 2))])
def test_a_clip_that_is_no_number_is_refused(clip: Any) -> None:
    with pytest.raises(SpecError, match=r"Expected clip=.* to be a number in \[1e-09, 1e\+09\]"):
        curator_over(private_rows(), [GRADIENT]).noisy_sum(_features, release="gradient", clip=clip)


@pytest.mark.parametrize(
    ("clip", "found"),
    [
        (2, ((2.0,), True)),
        (np.float32(2), ((2.0,), True)),
        (np.array(2), ((2.0,), True)),
        (torch.tensor(2.0), ((2.0,), True)),
        ([2], ((2.0,), False)),
        ((1.0, np.float64(2)), ((1.0, 2.0), False)),
        ([torch.tensor(2.0)], ((2.0,), False)),
        (np.array([1.0, 2.0]), ((1.0, 2.0), False)),
    ],
)
def test_a_clip_is_any_kind_of_number_or_one_a_block(clip: Any, found: tuple[tuple[float, ...], bool]) -> None:
    assert check_clips(clip) == found
    assert all(type(bound) is float for bound in check_clips(clip)[0])


def test_one_clip_per_block_is_asked_for() -> None:
    with pytest.raises(SpecError, match="one clip per block"):
        curator_over(private_rows(), [GRADIENT]).noisy_sum(_features, release="gradient", clip=(1.0, 1.0))


class TestRefusals:
    """Row functions that look beyond their own row are refused while a run goes on, not only by the laws."""

    @staticmethod
    def _ask(board_rows: object) -> None:
        curator_over(private_rows(), [GRADIENT]).noisy_sum(board_rows, release="gradient", clip=1.0)  # type: ignore[arg-type]

    def test_centring_by_the_batch(self) -> None:
        with pytest.raises(NotPerExample, match="evaluated beside other rows"):
            self._ask(lambda chunk: chunk.x - chunk.x.mean(0))

    def test_dividing_by_the_drawn_batch_size(self) -> None:
        with pytest.raises(NotPerExample, match="evaluated among fewer rows"):
            self._ask(lambda chunk: chunk.x / len(chunk))

    def test_tiny_contributions_under_a_tiny_clip_are_checked_too(self) -> None:
        rows = lambda chunk: 1e-8 * (chunk.x - chunk.x.mean(0))
        curator = curator_over(private_rows(), [Release("gradient")])
        with pytest.raises(NotPerExample, match="evaluated"):
            curator.noisy_sum(rows, release="gradient", clip=1e-8)

    def test_drawing_from_a_generator_of_its_own(self) -> None:
        with pytest.raises(NotPure, match="torch's global generator"):
            self._ask(lambda chunk: chunk.x + torch.randn(chunk.x.shape))

    @pytest.mark.parametrize("share", [0.01, 0.05])
    def test_reading_a_little_of_the_neighbours_or_of_a_generator(self, share: float) -> None:
        with pytest.raises(NotPerExample, match="evaluated"):
            self._ask(lambda chunk: chunk.x + share * chunk.x.mean(0) * len(chunk) ** 0.5)
        with pytest.raises(NotPure, match="torch's global generator"):
            self._ask(lambda chunk: chunk.x + share * torch.randn(chunk.x.shape))

    def test_returning_fewer_rows_than_examples(self) -> None:
        with pytest.raises(NotPerExample, match="one per example"):
            self._ask(lambda chunk: chunk.x.sum(0, keepdim=True))

    def test_a_transform_that_centres_by_the_batch(self) -> None:
        with pytest.raises(NotPerExample, match="map"):
            curator_over(private_rows(), [GRADIENT]).map(lambda x: x - x.mean(0))

    def test_asking_the_curator_inside_a_row_function(self) -> None:
        handle = curator_over(private_rows(), [GRADIENT]).handle()

        def nested(chunk: Chunk) -> Tensor:
            handle.noisy_sum(_features, release="gradient", clip=1.0)
            return chunk.x

        with pytest.raises(NotPerExample, match="outside row functions"):
            handle.noisy_sum(nested, release="gradient", clip=1.0)


def test_a_single_example_may_round_otherwise_than_two() -> None:
    """As a convolution does, before a ReLU whose input is 0 but for rounding: its gradient jumps."""

    def rows(chunk: Chunk) -> Tensor:
        note(len(chunk))
        return torch.cat([chunk.x, 0.03 * chunk.x[:, :1] * (len(chunk) > 1)], 1)

    for drawn, fewer in ((40, 16), (5, 4), (4, 6), (3, 2), (2, 3)):
        curator_over(private_rows(n=drawn), [Release("sum")]).noisy_sum(rows, release="sum", clip=1.0)
        assert noted() == [0, drawn, drawn, fewer]


@pytest.mark.parametrize("drawn", [2, 3, 40])
def test_a_little_of_the_chunks_length_is_refused_at_every_length(drawn: int) -> None:
    with pytest.raises(NotPerExample, match="evaluated"):
        curator_over(private_rows(n=drawn), [Release("sum")]).noisy_sum(
            lambda chunk: chunk.x * (1 + 0.05 / max(1, len(chunk))), release="sum", clip=1.0
        )


def test_rows_may_use_their_own_seed() -> None:
    def flipped(chunk: Chunk) -> Tensor:
        return chunk.x * (1 - 2 * (chunk.seeds % 2)).unsqueeze(1)

    curator_over(private_rows(), [GRADIENT]).noisy_sum(flipped, release="gradient", clip=1.0)


def test_a_chunk_kept_beyond_its_row_function_holds_no_private_row() -> None:
    def keeps(chunk: Chunk) -> Tensor:
        note(chunk)
        return chunk.x.clone()

    curator_over(private_rows(), [Release("sum")]).noisy_sum(keeps, release="sum", clip=1.0)
    for chunk in noted():
        assert bool(chunk.x.isnan().all())
        assert not chunk.y.any()
        assert not chunk.seeds.any()


def test_the_memory_around_a_chunk_holds_no_row_of_the_chunk_before() -> None:
    def looks(chunk: Chunk) -> Tensor:
        whole = torch.empty(0).set_(chunk.x.untyped_storage())
        others = whole.reshape(-1, 5)[len(chunk) :]
        assert bool(others.isnan().all())
        note(len(others))
        return chunk.x

    curator = curator_over(private_rows(n=40), [Release("sum", steps=9, sample_rate=0.5)])
    for _ in range(9):
        curator.noisy_sum(looks, release="sum", clip=1.0, chunk_size=7)
    assert max(noted()) > 0


def test_nothing_done_to_a_chunk_reaches_the_data() -> None:
    rows = private_rows()
    before = rows.x.clone()

    def destroys(chunk: Chunk) -> Tensor:
        return chunk.x.mul_(2)

    curator_over(rows, [Release("sum")]).noisy_sum(destroys, release="sum", clip=1.0)
    assert torch.equal(rows.x, before)


def test_an_answer_carries_no_graph_that_leads_back_to_private_rows() -> None:
    weight = torch.ones(5, requires_grad=True)

    def tracked(chunk: Chunk) -> Tensor:
        with torch.enable_grad():
            return chunk.x * weight

    answer = curator_over(private_rows(), [Release("sum")]).noisy_sum(tracked, release="sum", clip=1.0)
    assert isinstance(answer, Tensor)
    assert not answer.requires_grad
    assert answer.grad_fn is None


def test_no_attribute_of_the_handle_leads_to_a_private_row() -> None:
    rows = private_rows()
    handle = curator_over(rows, [GRADIENT]).handle()
    assert isinstance(handle, Curator)
    seen: set[int] = set()
    open_ends: list[object] = [handle]
    while open_ends:
        thing = open_ends.pop()
        if id(thing) in seen or isinstance(thing, (str, int, float, tuple, type)):
            continue
        seen.add(id(thing))
        assert not (isinstance(thing, Tensor) and thing.shape[:1] == (len(rows),))
        names = [*getattr(thing, "__dict__", {}), *getattr(type(thing), "__slots__", ()), "__self__"]
        open_ends += [getattr(thing, name) for name in names if hasattr(thing, name)]
    assert len(seen) > 3


@pytest.mark.parametrize("magnitude", [1e-30, 1e-8, 1.0, 1e8, 1e30, math.nan, math.inf])
@pytest.mark.parametrize("label", [0, 1, 2])
def test_one_example_moves_the_sum_by_at_most_the_clip(magnitude: float, label: int) -> None:
    """Sensitivity by replay: the same sampled rows with and without one adversarial example, before noise."""
    rows = private_rows(n=30)
    draw = torch.Generator().manual_seed(label)
    evil = torch.randn(1, 5, generator=draw) * magnitude
    joined = PrivateRows(torch.cat([rows.x, evil]), torch.cat([rows.y, torch.tensor([label])]), torch.arange(31))
    weights = torch.randn(3, 5, generator=draw)

    def gradient(chunk: Chunk) -> Scaled:
        residual = (chunk.x @ weights.T).softmax(1) - torch.nn.functional.one_hot(chunk.y, 3)
        return Scaled(RankOne(residual, chunk.x, bias=True), torch.linspace(0.1, 2, 18).reshape(3, 6))

    sums = [
        curator_over(world, [Release("sum")]).noisy_sum(gradient, release="sum", clip=0.3) for world in (rows, joined)
    ]
    assert isinstance(sums[0], Tensor)
    assert isinstance(sums[1], Tensor)
    assert float((sums[0] - sums[1]).double().norm()) <= 0.3 * (1 + 1e-5)
