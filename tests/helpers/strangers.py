"""Learners, datasets and extractors that no package brings, run as a person would run them."""

from __future__ import annotations

from typing import Any

from dpbench.api import Dataset, Extractor, Learner
from dpbench.records.result import Result
from dpbench.records.spec import make_spec
from dpbench.registry import KINDS, ComponentKind, Registration, Registry, load
from tests.helpers.sessions import session


def extend_registry(*brought: type[Dataset] | type[Extractor] | type[Learner]) -> Registry:
    """Return what is installed, and these beside it, in place of those of the same name."""
    components = {kind: dict(items) for kind, items in load().components.items()}
    for cls in brought:
        kind: ComponentKind = next(kind for kind, base in KINDS.items() if issubclass(cls, base))
        components[kind][cls.name] = Registration(cls, "tiny-plugin", "tiny-wheel", "0.1")
    return Registry(components)


def run_learner(learner: type[Learner], **values: Any) -> Result:
    """Run a learner on the digits once, at ε 4 unless another is given."""
    wanted = {"learner": learner.name, "dataset": "digits", "epsilon": 4.0, "seeds": 1, **values}
    return session(extend_registry(learner)).run(make_spec(wanted, "the test"))
