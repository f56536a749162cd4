"""Run the laws without pytest: `dpbench check`."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from dpbench.errors import LawBroken, SpecError, UnknownName
from dpbench.records.protocol import CONCAT, Component
from dpbench.registry import KINDS, ComponentKind, Registry
from dpbench.support.messages import format_unknown_name_message
from dpbench.support.plugin_calls import DEBUG
from dpbench.testing import DatasetLaws, ExtractorLaws, LearnerLaws
from dpbench.testing.laws import Laws, NotTested

if TYPE_CHECKING:
    from torch import nn

SUITES: dict[ComponentKind, type[Laws]] = {"dataset": DatasetLaws, "extractor": ExtractorLaws, "learner": LearnerLaws}


def _make_small_network() -> nn.Module:
    """Return a network that maps activations (4, 6, 6) to 16 features."""
    import torch
    from torch import nn

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = nn.Conv2d(4, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 16)
    return nn.Sequential(*layers).eval().requires_grad_(False)


EXAMPLES_BY_NAME: Mapping[str, Mapping[str, Any]] = {
    "": {},
    " on images": {"example_shape": (3, 8, 8)},
    " on activations": {"example_shape": (4, 6, 6), "tail": staticmethod(_make_small_network)},
}
"""Kinds of examples to check a learner on; the first kind that the learner plans for is used."""


class LawOutcome(NamedTuple):
    """The outcome of a law: it holds, it is broken, or it was not tested."""

    law: str
    complaint: str | None = None
    untested: str | None = None  # why there was nothing to compare


def check_laws(registry: Registry, text: str) -> Iterator[LawOutcome]:
    """Look up a component and yield the outcome of each law for it.

    Args:
        registry: where the component is looked up.
        text: `name` or `name:key=value`. If components of several kinds have the name, each is checked. Extractors
            joined by `+` are checked one by one.

    Raises:
        UnknownName: no component has the name, or `text` is empty.
    """
    if not text.strip():
        raise UnknownName("Expected the name of a component, got nothing. `dpbench list` shows them.")
    joined = Component.parse_extractor(text)
    if joined.name == CONCAT and any(part.name in registry.components["extractor"] for part in joined.parts):
        subjects = [(part, registry.build("extractor", part.name, part.options)) for part in joined.parts]
        for part, subject in subjects:
            yield from check_instance("extractor", subject, str(part))
        return
    component = Component.parse(text)
    kinds = [kind for kind in KINDS if component.name in registry.components[kind]]
    if not kinds:
        names = {name for kind in KINDS for name in registry.components[kind]}
        raise UnknownName(format_unknown_name_message("component", component.name, names))
    for kind in kinds:
        yield from check_instance(kind, registry.build(kind, component.name, component.options), component.name)


def check_instance(kind: ComponentKind, subject: object, name: str) -> Iterator[LawOutcome]:
    """Yield the outcome of each law for a built component."""
    kinds = EXAMPLES_BY_NAME if kind == "learner" else {"": {}}
    suites = {said: _make_law_suite(kind, {kind: subject, **world}) for said, world in kinds.items()}
    said = next((said for said, suite in suites.items() if kind != "learner" or _accepts_suite_examples(suite)), "")
    for law in suites[said].laws():
        yield _test_law(suites[said], law, f"{kind} {name}{said}: {_format_law_sentence(law)}")


def _make_law_suite(kind: ComponentKind, class_members: dict[str, Any]) -> type[Laws]:
    suite: type[Laws] = type(f"{type(class_members[kind]).__name__}Laws", (SUITES[kind],), class_members)
    return suite


def _accepts_suite_examples(suite: type[Laws]) -> bool:
    """Return whether the learner plans for the examples of a suite; errors other than a refusal count as yes."""
    try:
        suite().test_the_plan_repeats()  # type: ignore[attr-defined]
    except SpecError:
        return False
    except Exception:
        return True
    return True


def _format_law_sentence(law: str) -> str:
    return law.removeprefix("test_").replace("_", " ")


def _test_law(suite: type[Laws], law: str, sentence: str) -> LawOutcome:
    try:
        getattr(suite(), law)()
    except NotTested as reason:
        return LawOutcome(sentence, untested=str(reason))
    except LawBroken as error:
        return LawOutcome(sentence, _add_traceback(str(error)))
    except Exception as error:
        return LawOutcome(sentence, _add_traceback(f"It raised {type(error).__name__}: {error}"))
    return LawOutcome(sentence)


def _add_traceback(complaint: str) -> str:
    """Return a complaint; with `--debug`, add the traceback of the plugin's code."""
    return f"{complaint}\n{traceback.format_exc()}" if os.environ.get(DEBUG) else complaint
