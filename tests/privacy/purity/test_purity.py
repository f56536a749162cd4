"""What a row function can reach is the same after a question as before, or the fit ends."""

from __future__ import annotations

import array
import contextlib
import csv
import dataclasses
import enum
import functools
import io
import itertools
import math
import operator
import random
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from queue import SimpleQueue
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dpbench.api import Chunk, Release
from dpbench.errors import ComponentFailed, DpbenchError, NotPerExample, NotPure, SpecError
from dpbench.privacy.core.forms.contributions import RankOne, Scaled
from dpbench.privacy.core.forms.residual.bases import AnchorBasis
from dpbench.privacy.purity.reach import Reach
from dpbench.privacy.purity.spotchecks import MAP_INTERVALS, QUESTION_INTERVALS, CheckSchedule, make_spot_check
from tests.helpers.worlds import curator_over, note, noted, private_rows

Row = Callable[[Chunk], Any]
PLAN = [Release("sum", steps=200)]
SEEN: list[Tensor] = []
NESTED = st.recursive(
    st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)
COUNT = 0


def ask(rows: Row, times: int = 1, **keywords: Any) -> None:
    """Ask one curator the same question several times."""
    curator = curator_over(private_rows(), PLAN)
    for _ in range(times):
        curator.noisy_sum(rows, release="sum", clip=1.0, **keywords)


def refused(rows: Row, what: str, times: int = 1, **keywords: Any) -> None:
    """Expect a refusal that names what changed."""
    with pytest.raises(NotPure, match=what):
        ask(rows, times, **keywords)


def refused_as_random(rows: Row, what: str) -> None:
    """Expect a refusal that names the generator, or that names the row if a spot check saw it change first."""
    with pytest.raises((NotPure, NotPerExample), match=f"{what}|a row that changed when it was evaluated"):
        ask(rows, 1)


def test_a_list_that_a_row_function_fills() -> None:
    seen: list[Tensor] = []

    def rows(chunk: Chunk) -> Tensor:
        seen.append(chunk.x.norm(dim=1))
        return chunk.x

    refused(rows, r"closure variable `seen` of `rows` \(list, had 0 items, has 1\)")


@pytest.mark.parametrize(
    "held", [deque(), set(), {}, [None], bytearray(), array.array("d")], ids=lambda it: type(it).__name__
)
def test_any_container_that_a_row_function_changes(held: Any) -> None:
    def rows(chunk: Chunk) -> Tensor:
        found = float(chunk.x.norm())
        if isinstance(held, set):
            held.add(found)
        elif isinstance(held, dict):
            held["norm"] = found
        elif isinstance(held, bytearray):
            held.append(int(found))
        elif held:
            held[0] = found
        else:
            held.append(found)
        return chunk.x

    refused(rows, "closure variable `held` of `rows`|item 0 of closure variable `held`")


def test_a_variable_that_a_row_function_assigns() -> None:
    largest = torch.zeros(())
    steps = 0

    def assigns(chunk: Chunk) -> Tensor:
        nonlocal largest
        largest = torch.maximum(largest, chunk.x.norm())
        return chunk.x

    def counts(chunk: Chunk) -> Tensor:
        nonlocal steps
        steps += 1
        return chunk.x

    refused(assigns, r"closure variable `largest` of `assigns` \(Tensor \(\), replaced by Tensor \(\)\)")
    refused(counts, r"closure variable `steps` of `counts` \(int, replaced by int\)")


def test_a_global_that_a_row_function_assigns_or_fills() -> None:
    def assigns(chunk: Chunk) -> Tensor:
        global COUNT  # noqa: PLW0603
        COUNT += len(chunk)
        return chunk.x

    def remembers(x: Tensor) -> None:
        SEEN.append(x.mean())

    def fills(chunk: Chunk) -> Tensor:
        remembers(chunk.x)
        return chunk.x

    refused(assigns, "global `COUNT` of module `tests.privacy.purity.test_purity`")
    refused(fills, "global `SEEN` of module `tests.privacy.purity.test_purity`")


def test_tensors_changed_in_place_by_any_road() -> None:
    mean = torch.zeros(5)
    roads: dict[str, Callable[[Tensor], Any]] = {
        "a method": lambda found: mean.add_(found),
        "an index": lambda found: mean.__setitem__(0, found[0]),
        "data": lambda found: mean.data.add_(found),
        "numpy": lambda found: mean.numpy().__iadd__(found.numpy()),
        "storage": lambda found: mean.set_(found.clone()),  # type: ignore[call-overload]
        "an attribute": lambda found: setattr(mean, "seen", found),
    }
    for road in roads.values():

        def rows(chunk: Chunk, road: Callable[[Tensor], Any] = road) -> Tensor:
            road(chunk.x.sum(0))
            return chunk.x

        refused(rows, "closure variable `mean`")


def test_a_large_tensor_changed_behind_its_version_counter() -> None:
    table = torch.zeros(1_000_003)

    def rows(chunk: Chunk) -> Tensor:
        table.data[123_457] = chunk.x.sum()
        return chunk.x

    refused(rows, "closure variable `table`")


def test_an_array_that_a_row_function_changes() -> None:
    for held in (np.zeros(5), np.zeros(10**6), np.array([None])):

        def rows(chunk: Chunk, held: np.ndarray = held) -> Tensor:
            held[0] = float(chunk.x.mean())
            return chunk.x

        refused(rows, "default 0 of `rows`")


def test_gradients_that_accumulate() -> None:
    weight = torch.zeros(5, requires_grad=True)

    def rows(chunk: Chunk) -> Tensor:
        with torch.enable_grad():
            (chunk.x @ weight).sum().backward()  # type: ignore[no-untyped-call]
        return chunk.x

    refused(rows, "gradient of closure variable `weight`")


def test_buffers_of_a_module_in_training_and_not_in_evaluation() -> None:
    network = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4))
    rows: Row = lambda chunk: network(chunk.x)
    refused(rows, "`num_batches_tracked` of attribute `_buffers` of `1` of attribute `_modules` of closure variable")
    network.eval()
    ask(rows, 20)


def test_another_threads_draws_are_not_a_row_functions() -> None:
    draws, over = [], threading.Event()

    def elsewhere() -> None:
        while not over.is_set():
            draws.append(random.random())

    thread = threading.Thread(target=elsewhere)
    thread.start()
    try:
        ask(lambda chunk: chunk.x, 3)
    finally:
        over.set()
        thread.join()
    assert draws


def test_generators_that_a_row_function_draws_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: 1)  # whatever runs the tests may have threads
    own, numpys, pythons, legacy = (
        torch.Generator(),
        np.random.default_rng(0),
        random.Random(0),
        np.random.RandomState(0),
    )
    refused_as_random(lambda chunk: chunk.x + torch.randn(chunk.x.shape), "torch's global generator")
    refused_as_random(lambda chunk: chunk.x + np.random.rand(), "numpy's global generator")
    refused_as_random(lambda chunk: chunk.x + random.random(), "the global generator of `random`")
    refused_as_random(lambda chunk: chunk.x + torch.randn(chunk.x.shape, generator=own), "closure variable `own`")
    refused_as_random(lambda chunk: chunk.x + numpys.random(), "closure variable `numpys`")
    refused_as_random(lambda chunk: chunk.x + pythons.random(), "closure variable `pythons`")
    refused_as_random(lambda chunk: chunk.x + legacy.rand(), "closure variable `legacy`")


def test_iterators_are_refused_unread() -> None:
    def rows(held: Any, chunk: Chunk) -> Tensor:
        raise AssertionError

    with Path(__file__).open() as file:
        for held in (iter([1, 2]), itertools.count(), (x for x in (1, 2)), zip((1,), (2,), strict=True), file):
            refused(functools.partial(rows, held), "argument 0 of `partial` is a .* cannot be compared")


def test_a_cache_keyed_by_private_values() -> None:
    @functools.cache
    def root(value: float) -> float:
        return math.sqrt(value)

    refused(lambda chunk: chunk.x * root(float(chunk.x.sum().abs())), "closure variable `root`")


def test_an_attribute_made_when_it_is_first_asked_for_is_refused_and_one_made_before_is_not() -> None:
    @dataclasses.dataclass(frozen=True)
    class Scaling:
        by: float

        @functools.cached_property
        def half(self) -> float:
            return self.by / 2

        def rows(self, chunk: Chunk) -> Tensor:
            return chunk.x * self.half

    refused(Scaling(2.0).rows, "attribute `half` of `__self__` of `rows`")
    ready = Scaling(2.0)
    assert ready.half == 1
    ask(ready.rows, 3)


def test_objects_slots_and_classes_that_remember() -> None:
    class Slotted:
        __slots__ = ("seen",)

        def __call__(self, chunk: Chunk) -> Tensor:
            self.seen = chunk.x.mean()
            return chunk.x

    class Shared:
        seen: ClassVar[list[Tensor]] = []

        def __call__(self, chunk: Chunk) -> Tensor:
            self.seen.append(chunk.x.mean())
            return chunk.x

    class Counting:
        count = 0

        def __call__(self, chunk: Chunk) -> Tensor:
            type(self).count += len(chunk)
            return chunk.x

    refused(Slotted(), "attribute `seen` of `Slotted`")
    refused(Shared(), "attribute `seen` of class `Shared`")
    refused(Counting(), "attribute `count` of class `Counting`")


def test_bound_methods_partials_defaults_and_attributes() -> None:
    seen: list[Tensor] = []
    add = seen.append

    def bound(chunk: Chunk) -> Tensor:
        add(chunk.x.mean())
        return chunk.x

    def filled(held: list[Tensor], chunk: Chunk) -> Tensor:
        held.append(chunk.x.mean())
        return chunk.x

    def default(chunk: Chunk, *, held: list[Tensor] = []) -> Tensor:  # noqa: B006
        held.append(chunk.x.mean())
        return chunk.x

    def attribute(chunk: Chunk) -> Tensor:
        vars(attribute)["seen"] = chunk.x.mean()
        return chunk.x

    refused(bound, "`__self__` of closure variable `add`")
    refused(functools.partial(filled, []), "argument 0 of `partial`")
    refused(default, "default of `held`")
    refused(attribute, "attribute `seen` of")


def test_a_helper_of_a_helper_that_remembers() -> None:
    class Inner:
        def __init__(self) -> None:
            self.layers: dict[str, list[Any]] = {"first": [torch.zeros(2)]}

        def note(self, x: Tensor) -> Tensor:
            self.layers["first"][0] = x.mean()
            return x

    inner = Inner()
    helper: Callable[[Tensor], Tensor] = lambda x: inner.note(x)
    refused(lambda chunk: helper(chunk.x), "item 0 of `first` of attribute `layers` of closure variable `inner`")


def test_what_begins_late_is_met_late() -> None:
    """A list that grows from the ninth question on, which notes count."""
    seen: list[Tensor] = []

    def rows(chunk: Chunk) -> Tensor:
        note(0)
        if len(noted_so_far()) > 30:
            seen.append(chunk.x.mean())
        return chunk.x

    def noted_so_far() -> list[Any]:
        notes = noted()
        for hook in notes:
            note(hook)
        return notes

    refused(rows, "closure variable `seen`", times=60)
    assert len(noted()) == 31


def test_refusing_is_final_even_for_who_catches_it() -> None:
    seen: list[Tensor] = []

    def rows(chunk: Chunk) -> Tensor:
        seen.append(chunk.x.mean())
        return chunk.x

    curator = curator_over(private_rows(), PLAN)
    with pytest.raises(NotPure):
        curator.noisy_sum(rows, release="sum", clip=1.0)
    with pytest.raises(NotPure, match="seen"):
        curator.noisy_sum(lambda chunk: chunk.x, release="sum", clip=1.0)
    with pytest.raises(NotPure, match="seen"):
        curator.map(lambda x: x)
    with pytest.raises(NotPure, match="seen"):
        curator.guard.raise_earlier_refusal()


def test_remembering_and_then_failing_is_refused_for_remembering() -> None:
    seen: list[Tensor] = []

    def rows(chunk: Chunk) -> Tensor:
        seen.append(chunk.x.mean())
        raise ValueError

    refused(rows, "closure variable `seen`")


def test_a_transform_given_to_map_may_not_remember_either() -> None:
    moments: dict[str, Tensor] = {}

    def standardise(x: Tensor) -> Tensor:
        moments["mean"] = x.mean(0)
        return x

    with pytest.raises(NotPure, match=r"map changed what it reaches.*`moments`"):
        curator_over(private_rows(), PLAN).map(standardise)


def test_honest_functions_of_every_build_pass() -> None:
    head, scale = torch.randn(3, 5), np.ones(5, dtype=np.float32)

    @dataclasses.dataclass
    class Model:
        head: Tensor
        options: dict[str, Any]
        generator: torch.Generator

        def rows(self, chunk: Chunk, power: int = 1) -> RankOne:
            return RankOne((chunk.x @ self.head.T).softmax(1), chunk.x * torch.from_numpy(scale) ** power)

    model = Model(head, {"kinds": {1, 2}, "nested": [({"a": (1, 2)},)]}, torch.Generator())
    curator = curator_over(private_rows(), PLAN)
    for step in range(40):
        curator.noisy_sum(functools.partial(model.rows, power=2), release="sum", clip=1.0)
        head.mul_(0.9)  # between questions a learner does as it likes
        model.options[str(step)] = torch.zeros(step)


def test_a_value_that_is_written_as_it_was_is_no_change() -> None:
    class Same:
        def __init__(self) -> None:
            self.size = (1, 2.5)

        def __call__(self, chunk: Chunk) -> Tensor:
            self.size = (1, float("2.5"))
            return chunk.x

    ask(Same(), 3)


@pytest.mark.slow
def test_a_reach_without_end_is_refused() -> None:
    many = [[place] for place in range(200_000)]
    refused(lambda chunk: chunk.x * len(many), "too many to compare")


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(
    st.recursive(st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)),
    st.data(),
)
def test_any_nested_list_that_grows_is_seen_wherever_it_lies(held: Any, data: st.DataObject) -> None:
    lists: list[list[Any]] = []

    def collect(thing: Any) -> None:
        if isinstance(thing, list):
            lists.append(thing)
        for inner in thing.values() if isinstance(thing, dict) else thing if isinstance(thing, list) else ():
            collect(inner)

    collect(held)
    reach = Reach(lambda: held, thorough=data.draw(st.booleans()))
    before = reach.read()
    assert reach.find_change(before, reach.read()) is None
    if lists:
        data.draw(st.sampled_from(lists)).append(0)
        assert "had" in (reach.find_change(before, reach.read()) or "")


class TestSpotChecks:
    """Rows are evaluated again at moments that are drawn."""

    def test_one_chunk_of_every_run_of_chunks_is_drawn(self) -> None:
        for lengths in (QUESTION_INTERVALS, MAP_INTERVALS):
            moments = CheckSchedule(lengths, np.random.default_rng(0))
            for length in (*lengths, lengths[-1], lengths[-1]):
                assert sum(moments.is_due() for _ in range(length)) == 1

    def test_the_moments_are_those_of_the_stream(self) -> None:
        def drawn(seed: int) -> int:
            moments = CheckSchedule((64,), np.random.default_rng(seed))
            return [moments.is_due() for _ in range(64)].index(True)

        assert len({drawn(seed) for seed in range(20)}) > 10

    @pytest.mark.parametrize("share", [1e-2, 1e-4, 1e-6])
    def test_a_small_leak_of_the_neighbours_in_every_row(self, share: float) -> None:
        def rows(chunk: Chunk) -> Tensor:
            towards = chunk.x.mean(0) / chunk.x.mean(0).norm()
            leak: Tensor = share * chunk.x.norm(dim=1, keepdim=True) * towards
            return chunk.x + leak

        with pytest.raises(NotPerExample, match="beside other rows"):
            ask(rows)

    @pytest.mark.parametrize("share", [1e-2, 1e-4])
    def test_a_small_share_of_the_drawn_size_in_every_row(self, share: float) -> None:
        with pytest.raises(NotPerExample, match="among fewer rows"):
            ask(lambda chunk: chunk.x * (1 + share * len(chunk) / 40))

    def test_a_leak_from_the_third_step_on(self) -> None:
        curator, step = curator_over(private_rows(), PLAN), 0
        rows: Row = lambda chunk: chunk.x - (step > 2) * chunk.x.mean(0)
        with pytest.raises(NotPerExample, match="beside other rows"):
            while step < 15:
                step += 1
                curator.noisy_sum(rows, release="sum", clip=1.0)
        assert step > 2

    def test_a_leak_from_the_second_chunk_on(self) -> None:
        def later(chunk: Chunk) -> bool:
            return not bool((chunk.x == first).all(1).any())

        first = private_rows().x[0]
        with pytest.raises(NotPerExample, match="beside other rows"):
            ask(lambda chunk: chunk.x - later(chunk) * chunk.x.mean(0), chunk_size=8)

    def test_a_transform_that_centres_from_its_second_chunk_on(self) -> None:
        rows = private_rows(n=40, d=100_000)  # five rows a chunk
        first = rows.x[0, :3].clone()
        with pytest.raises(NotPerExample, match="map"):
            curator_over(rows, PLAN).map(lambda x: x[:, :3] - (x[:1, :3] != first).any() * x[:, :3].mean(0))

    def test_a_leak_in_one_row_of_twenty_is_seen_in_the_first_step(self) -> None:
        def rows(chunk: Chunk) -> Tensor:
            x, some = chunk.x.clone(), chunk.seeds % 20 == 0
            x[some] = 0.7 * x[some] + 0.3 * chunk.x.flip(0)[some]
            return x

        for seed in range(10):
            with pytest.raises(NotPerExample):
                curator_over(private_rows(400), PLAN, seed=seed).noisy_sum(rows, release="sum", clip=1.0)

    def test_a_row_that_follows_the_seed_of_the_first(self) -> None:
        with pytest.raises(NotPerExample):
            ask(lambda chunk: chunk.x * (1 - 2 * (chunk.seeds[:1].sum() % 2)), 60)


class TestFailures:
    """An exception of a row function may hold private values, and is told of without its text."""

    def test_the_type_and_the_line_are_told_and_nothing_else(self) -> None:
        def rows(chunk: Chunk) -> Tensor:
            if not len(chunk):
                return chunk.x
            raise KeyError(f"label {chunk.y.tolist()} at {chunk.x.tolist()}")

        with pytest.raises(ComponentFailed, match=r"KeyError in test_purity.py, line \d+") as caught:
            ask(rows)
        told: BaseException | None = caught.value
        assert "label" not in str(told)
        while told is not None:
            assert not isinstance(told, KeyError)
            told = told.__context__

    @pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt, GeneratorExit])
    def test_what_ends_a_program_is_final_too_and_tells_nothing(self, end: type[BaseException]) -> None:
        curator = curator_over(private_rows(), PLAN)

        def rows(chunk: Chunk) -> Tensor:
            if len(chunk):
                raise end(*chunk.y.tolist())
            return chunk.x

        told = KeyboardInterrupt if end is KeyboardInterrupt else ComponentFailed
        with pytest.raises(told) as caught:
            curator.noisy_sum(rows, release="sum", clip=1.0)
        assert caught.value.args == () or str(caught.value).startswith("A row function of release 'sum' failed: ")
        with pytest.raises(ComponentFailed):
            curator.noisy_sum(lambda chunk: chunk.x, release="sum", clip=1.0)
        with pytest.raises(ComponentFailed):
            curator.guard.raise_earlier_refusal()

    def test_over_no_rows_all_of_it_is_told_for_nothing_is_private(self) -> None:
        def rows(chunk: Chunk) -> Tensor:
            return chunk.x @ torch.zeros(4, 3)  # they have five features

        with pytest.raises(ComponentFailed, match="on an empty chunk, which holds nothing private") as caught:
            ask(rows)
        assert "return chunk.x @ torch.zeros(4, 3)" in str(caught.value)
        assert "mat1 and mat2 shapes cannot be multiplied (0x5 and 4x3)" in str(caught.value)

    def test_what_a_scale_holds_is_not_told_for_it_may_be_made_of_rows(self) -> None:
        def rows(chunk: Chunk) -> Scaled:
            scale = torch.full((3, 5), 1.0 + 1e10 * len(chunk))
            return Scaled(RankOne(nn.functional.one_hot(chunk.y, 3).float(), chunk.x), scale)

        with pytest.raises(ComponentFailed, match="SpecError in test_purity") as caught:
            ask(rows)
        assert "e+11" not in str(caught.value)

    def test_a_failure_is_final_for_no_noise_covers_whether_a_row_fails(self) -> None:
        curator = curator_over(private_rows(), PLAN)

        def rows(chunk: Chunk) -> Tensor:
            raise ValueError("a label of five")

        for function in (rows, lambda chunk: chunk.x):
            with pytest.raises(ComponentFailed, match="ValueError"):
                curator.noisy_sum(function, release="sum", clip=1.0)
        with pytest.raises(ComponentFailed, match="ValueError"):
            curator.guard.raise_earlier_refusal()

    @pytest.mark.parametrize("error", [MemoryError, lambda: RuntimeError("can't allocate memory")])
    def test_so_is_too_little_memory_for_a_row_may_ask_for_much(self, error: Any) -> None:
        curator = curator_over(private_rows(), PLAN)

        def rows(chunk: Chunk) -> Tensor:
            raise error()

        with pytest.raises(MemoryError, match="release 'sum'"):
            curator.noisy_sum(rows, release="sum", clip=1.0)
        with pytest.raises(ComponentFailed, match="MemoryError"):
            curator.noisy_sum(lambda chunk: chunk.x, release="sum", clip=1.0)
        with pytest.raises(ComponentFailed, match="MemoryError"):
            curator.guard.raise_earlier_refusal()

    def test_after_a_failure_no_chunk_is_left_whoever_holds_the_traceback(self) -> None:
        rows, held = private_rows(), []

        def fails(chunk: Chunk) -> Tensor:
            raise ValueError

        try:
            curator_over(rows, PLAN).noisy_sum(fails, release="sum", clip=1.0)
        except ComponentFailed as error:
            held.append(error)
        assert held
        assert curator_over(rows, PLAN).noisy_sum(lambda chunk: chunk.x, release="sum", clip=1.0) is not None

    def test_a_refusal_that_a_plugin_writes_itself_is_withheld_too(self) -> None:
        def rows(chunk: Chunk) -> Tensor:
            if not len(chunk):
                return chunk.x
            raise SpecError(f"label {chunk.y.tolist()}")

        with pytest.raises(ComponentFailed, match="SpecError") as caught:
            ask(rows)
        assert "label" not in str(caught.value)

    def test_what_dpbench_refuses_is_told(self) -> None:
        with pytest.raises(SpecError, match="RankOne"):
            ask(lambda chunk: RankOne(chunk.x, chunk.x.flatten()))

    def test_the_name_of_a_plugins_exception_is_withheld(self) -> None:
        def rows(chunk: Chunk) -> Tensor:
            if not len(chunk):
                return chunk.x
            raise type("Secret" + "".join(map(str, chunk.y.tolist())), (ValueError,), {})

        curator = curator_over(private_rows(), PLAN)
        with pytest.raises(ComponentFailed, match=r"an exception of the plugin in test_purity\.py, line") as caught:
            curator.noisy_sum(rows, release="sum", clip=1.0)
        assert "Secret" not in str(caught.value) and caught.value.__context__ is None
        with pytest.raises(ComponentFailed) as caught:
            curator.guard.raise_earlier_refusal()
        assert "Secret" not in str(caught.value)

    @pytest.mark.parametrize(
        "write",
        [
            lambda secret: RankOne(torch.zeros(2, 10**6 + 1), torch.zeros(3)),  # dpbench quotes the shape
            lambda secret: exec(compile("raise ValueError", secret, "exec")),
            lambda secret: exec(compile("\n" * 10**6 + "raise ValueError", __file__, "exec")),
        ],
    )
    def test_a_plugin_writes_no_text_into_what_is_said_of_a_failure(self, write: Callable[[str], Any]) -> None:
        def rows(chunk: Chunk) -> Tensor:
            if not len(chunk):
                return chunk.x
            write(f"Secret{chunk.y.tolist()}")
            return chunk.x

        with pytest.raises(ComponentFailed) as caught:
            ask(rows)
        assert "Secret" not in str(caught.value) and "1000001" not in str(caught.value)

    def test_notes_causes_and_exit_codes_are_withheld(self) -> None:
        def rows(chunk: Chunk) -> Tensor:
            if not len(chunk):
                return chunk.x
            try:
                raise ValueError(f"Secret{chunk.y.tolist()}")
            except ValueError as cause:
                cause.add_note("Secret")
                raise SystemExit(int(chunk.y[0]) + 10) from cause

        with pytest.raises(ComponentFailed, match="SystemExit") as caught:
            ask(rows)
        found = caught.value
        assert (found.__cause__, found.__context__, getattr(found, "__notes__", None)) == (None, None, None)
        assert not {"Secret", str(private_rows().y[0].item() + 10)} & set(str(found).split())

    def test_too_little_memory_is_told_as_such(self) -> None:
        def rows(chunk: Chunk) -> Tensor:
            raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory")

        with pytest.raises(MemoryError, match="release 'sum'"):
            ask(rows)

    def test_for_debugging_everything_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DPBENCH_DEBUG", "1")

        def rows(chunk: Chunk) -> Tensor:
            raise KeyError("label")

        with pytest.raises(KeyError, match="label"):
            ask(rows)


def test_an_object_in_c_that_may_keep_state_is_refused() -> None:
    def use(held: Any) -> None:
        with pytest.raises(NotPure, match="whose state cannot be compared"):
            ask(lambda chunk: chunk.x if held else chunk.x[:0])

    use(csv.writer(io.StringIO()))
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        use(database)


@pytest.mark.parametrize("held", [operator.itemgetter(0), operator.attrgetter("x"), math.sqrt, np.add])
def test_functions_in_c_are_taken(held: Any) -> None:
    ask(lambda chunk: chunk.x if held else chunk.x[:0])


@pytest.mark.parametrize("size", [2**12, 2**17, 2**21])
def test_a_large_array_that_is_written_in_the_last_step_is_seen(size: int) -> None:
    kept = np.zeros(size)
    steps = 64
    curator = curator_over(private_rows(), [Release("sum", steps)])

    def ask_once(last: bool) -> None:
        def rows(chunk: Chunk) -> Tensor:
            if last:
                kept[-1] += float(chunk.x.sum())
            return chunk.x

        curator.noisy_sum(rows, release="sum", clip=1.0)

    for _ in range(steps - 1):
        ask_once(last=False)
    with pytest.raises(NotPure, match="kept"):
        ask_once(last=True)


def test_every_refusal_says_what_to_do() -> None:
    seen: list[Tensor] = []
    with pytest.raises(DpbenchError, match="Make caches, buffers and generators before asking"):
        ask(lambda chunk: seen.append(chunk.x) or chunk.x)  # type: ignore[func-returns-value]


def test_a_librarys_cached_property_is_no_memory() -> None:
    anchors = RankOne(torch.eye(3), torch.eye(3, 5))
    basis = AnchorBasis(anchors, torch.eye(3))

    def rows(chunk: Chunk) -> Tensor:
        return chunk.x * basis.spread

    vars(basis).pop("spread", None)
    ask(rows, 3)
    assert "spread" in vars(basis)


def test_constants_that_carry_attributes_and_objects_that_nobody_can_read() -> None:
    class Kind(enum.Enum):
        FIRST = 1

    class Folder(PurePosixPath):
        pass

    kind, folder, failure, queue = Kind.FIRST, Folder("a"), ValueError(), SimpleQueue[Tensor]()
    roads: dict[str, Callable[[Tensor], None]] = {
        "attribute `seen` of closure variable `kind`": lambda x: setattr(kind, "seen", x),
        "attribute `seen` of closure variable `folder`": lambda x: setattr(folder, "seen", x),
        "`args` of closure variable `failure`": lambda x: setattr(failure, "args", (x,)),
        "is a SimpleQueue, whose state cannot be compared": queue.put,
    }
    for what, road in roads.items():

        def rows(chunk: Chunk, road: Callable[[Tensor], None] = road) -> Tensor:
            road(chunk.x)
            return chunk.x

        refused(rows, what)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0")  # torch says so of that version
def test_a_module_that_was_compiled_before_asking_passes() -> None:
    compiled = torch.compile(nn.Linear(5, 5), backend="eager")
    with torch.no_grad():
        for length in (40, 16):  # a chunk, and the fewer rows of a check
            compiled(torch.zeros(length, 5))
    ask(lambda chunk: compiled(chunk.x), 3)


def test_a_shared_scale_that_each_chunk_writes_anew_is_seen_by_the_spot_check_itself() -> None:
    """Whatever else may miss it: the rows that were kept hold the very tensor that is written in."""
    scale = torch.ones(3, 4)
    chunk = Chunk(torch.rand(20, 4), torch.arange(20) % 3, torch.arange(20))

    def rows(chunk: Chunk) -> Scaled:
        scale.copy_(chunk.x.std(0).expand(3, 4))
        return Scaled(RankOne(nn.functional.one_hot(chunk.y, 3).float(), chunk.x), scale)

    probe = make_spot_check(chunk, (1.0,), np.random.default_rng(0))
    assert probe is not None
    probe.keep([rows(chunk)])
    with pytest.raises(NotPerExample, match="changed when it was evaluated"):
        probe.compare(rows, "A row function")


def test_objects_that_raise_for_attributes_they_lack_are_read_all_the_same() -> None:
    class MakesUp:
        __slots__ = ("held", "missing")

        def __init__(self) -> None:
            self.held = [1.0]

        def __getattr__(self, name: str) -> object:
            raise RuntimeError(name)

    thing = MakesUp()
    reach = Reach(lambda: thing, thorough=True, own_package="tests")
    before = reach.read()
    thing.held.append(2.0)
    assert "held" in (reach.find_change(before, reach.read()) or "")
