"""A fit and its predictor hold no label of the test split: the scorer alone does."""

from __future__ import annotations

import gc
import hashlib
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from dpbench_plugins.learners.class_means import ClassMeans
from torch import Tensor

from dpbench import Curator, Predict, PublicData
from dpbench.harness.fit import fit_seed
from dpbench.records.result import SeedResult
from dpbench.records.spec import make_spec
from tests.helpers.sessions import session
from tests.helpers.strangers import extend_registry

ATOMS = {str, bytes, int, float, bool, types.NoneType, types.CodeType}
"""Types of most objects of a process; none leads to an array."""


def reachable(*roots: Any) -> Iterator[Any]:
    """Yield all objects that roots refer to, through closures, attributes, containers and views."""
    seen, ends, passed = set[int](), [*roots], (types.ModuleType, type, types.FrameType)
    while ends:
        found = ends.pop()
        if type(found) in ATOMS or id(found) in seen or isinstance(found, passed):
            continue
        seen.add(id(found))
        yield found
        if isinstance(found, types.FunctionType):
            ends += [cell.cell_contents for cell in found.__closure__ or ()]
            ends += [*(found.__defaults__ or ()), *(found.__kwdefaults__ or {}).values()]
        else:
            ends += gc.get_referents(found)
        ends += [found._base] if isinstance(found, Tensor) and found._base is not None else []


def digest(labels: np.ndarray) -> str:
    return hashlib.sha256(labels.reshape(-1).astype("<i8").tobytes()).hexdigest()


def collector(private: str, test: str) -> type[ClassMeans]:
    """Return a learner whose predictor fails unless the arrays in its reach include private labels and no test labels.

    The curator behind the handle needs the private ones, so a search that misses them looks at too little.
    """

    @dataclass(frozen=True)
    class Collects(ClassMeans):
        def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
            predict = super().fit(curator, public, generator)
            held = (self, curator, public, generator, predict)

            def search(x: Tensor) -> Tensor:
                own = [vars(module) for name, module in sys.modules.items() if name.startswith("dpbench")]
                reached = [it for it in reachable(held, x, own) if isinstance(it, Tensor | np.ndarray)]
                dense = [it for it in reached if not isinstance(it, Tensor) or it.layout is torch.strided]
                arrays = [*map(np.asarray, dense)]
                found = {digest(array) for array in arrays if array.dtype == np.int64}
                if found & {private, test} != {private}:
                    raise ValueError("test labels are in reach, or private labels were not found")
                return predict(x)

            return search

    return Collects


def fit(learner: type[ClassMeans]) -> SeedResult:
    wanted = {"learner": learner.name, "dataset": "digits", "epsilon": 4.0, "seeds": 1}
    return fit_seed(session(extend_registry(learner)).prepare(make_spec(wanted, "the test")), 0).result


def test_no_object_that_a_learner_or_its_predictor_is_given_leads_to_the_labels() -> None:
    prepared = session().prepare(make_spec({"learner": "class-means", "dataset": "digits", "epsilon": 4.0}, "the test"))
    private, test = (digest(labels) for labels in (prepared.roles.private.y.numpy(), prepared.test.scorer.y))
    assert fit(collector(private, test)).accuracy > 0.5
