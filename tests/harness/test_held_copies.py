"""A learner that reaches a copy of the private data, as in a notebook, is refused before a fit."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from dpbench_plugins.learners.class_means import ClassMeans
from sklearn.datasets import load_digits, load_wine

from dpbench import Curator, Predict, PublicData
from dpbench.errors import PrivacyError
from dpbench.harness.prepare import PreparedRun
from dpbench.records.spec import make_spec
from tests.helpers.sessions import session
from tests.helpers.strangers import extend_registry

HELD: Any = None  # as a notebook holds its data
DIGITS: np.ndarray = load_digits().data  # (1797, 64): its own learners below do not name it


def quantise(x: torch.Tensor) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces that these tensors will go
        return torch.quantize_per_tensor(x, 1.0, 0, torch.quint8)


COPIES: dict[str, Callable[[], Any]] = {
    "rows": lambda: DIGITS,
    "scaled and shifted": lambda: (DIGITS / 16 - 0.5).astype(np.float32),
    "whole numbers": lambda: DIGITS.astype(np.uint8),
    "a part": lambda: DIGITS[400:600],
    "images": lambda: DIGITS.reshape(-1, 8, 8),
    "with a channel": lambda: DIGITS.reshape(-1, 1, 8, 8),
    "in colour": lambda: np.repeat(DIGITS.reshape(-1, 8, 8, 1), 3, 3),
    "enlarged": lambda: DIGITS.reshape(-1, 8, 8).repeat(4, 1).repeat(4, 2),
    "a tensor": lambda: torch.from_numpy(DIGITS),
    "quantised": lambda: quantise(torch.from_numpy(DIGITS).float()),
    "a list of rows": lambda: [*DIGITS],
    "a table": lambda: pytest.importorskip("pandas").DataFrame(DIGITS),
    "beside labels": lambda: {"x": DIGITS, "y": load_digits().target},
}


@dataclass(frozen=True)
class NamesGlobal(ClassMeans):
    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        return super().fit(curator, public, generator) if len(HELD) else lambda x: x


@dataclass(frozen=True)
class Keeps(ClassMeans):
    kept: ClassVar[Any] = None


def with_default(held: Any) -> type[ClassMeans]:
    @dataclass(frozen=True)
    class Defaults(ClassMeans):
        def fit(
            self, curator: Curator, public: PublicData, generator: torch.Generator, held: Any = held
        ) -> Predict:  # fmt: skip
            return super().fit(curator, public, generator)

    return Defaults


def with_closure(held: Any) -> type[ClassMeans]:
    @dataclass(frozen=True)
    class Closes(ClassMeans):
        def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
            return super().fit(curator, public, generator) if len(held) else lambda x: x

    return Closes


def prepare(learner: type[ClassMeans], **values: Any) -> PreparedRun:
    wanted = {"learner": learner.name, "dataset": "digits", "epsilon": 4.0, "seeds": 1, **values}
    return session(extend_registry(learner)).prepare(make_spec(wanted, "the test"))


@pytest.mark.parametrize("form", COPIES)
def test_a_learner_that_names_a_global_copy_is_refused(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "HELD", COPIES[form]())
    with pytest.raises(PrivacyError, match=r"reaches a copy of the private data: .*global `HELD` of module"):
        prepare(NamesGlobal)


def test_so_is_one_whose_class_default_or_closure_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Keeps, "kept", DIGITS)
    for learner in (Keeps, with_default(DIGITS), with_closure(DIGITS)):
        with pytest.raises(PrivacyError, match="reaches a copy of the private data"):
            prepare(learner)


def test_a_search_without_a_run_refuses_it_too() -> None:
    learner = with_closure(DIGITS)
    search = {"rule": "public-validation", "space": {"k": (5, 10)}}
    wanted = {"learner": learner.name, "dataset": "digits", "public_fraction": 0.1, "public_labels": True}
    with pytest.raises(PrivacyError, match="reaches a copy of the private data"):
        session(extend_registry(learner)).tune(make_spec({**wanted, "seeds": 1, "search": search}, "the test"))


@pytest.mark.parametrize("extractor", ["pixels", "pixels:size=4"])
def test_a_copy_of_the_images_is_found_whatever_the_extractor(extractor: str) -> None:
    with pytest.raises(PrivacyError, match="reaches a copy of the private data"):
        prepare(with_closure(DIGITS), extractor=extractor)


@pytest.mark.parametrize(
    "held",
    [
        load_wine().data, np.eye(64), np.zeros((100, 64)), np.zeros((100, 8, 8)), DIGITS[:15], np.arange(640.0),
        np.random.default_rng(0).normal(size=(1797, 64)), np.random.default_rng(0).normal(size=(99, 8, 8)),
        np.full((20, 64), np.nan), np.array(["a"] * 20), np.zeros((20, 0, 3)), torch.zeros(20, 0, 0, 3),
        torch.zeros(20, 64).to(torch.complex64).real, torch.eye(64).to_sparse(),
    ],
)  # fmt: skip
def test_other_arrays_are_taken(held: np.ndarray | torch.Tensor) -> None:
    assert prepare(with_closure(held)).privacy.epsilon
