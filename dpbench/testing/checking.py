"""Run the laws without pytest: `dpbench check`."""

from __future__ import annotations

from collections.abc import Iterator

from dpbench.errors import LawBroken, UnknownName
from dpbench.records.protocol import Component
from dpbench.registry import KINDS, Kind, Registry
from dpbench.support.messages import unknown
from dpbench.testing import DatasetLaws, ExtractorLaws, LearnerLaws
from dpbench.testing.laws import Laws

SUITES: dict[Kind, type[Laws]] = {"dataset": DatasetLaws, "extractor": ExtractorLaws, "learner": LearnerLaws}


def check(registry: Registry, text: str) -> Iterator[tuple[str, str | None]]:
    """Yield each law's name with None, or with the complaint where it is broken.

    Args:
        registry: where the component is looked up.
        text: `name` or `name:key=value`; a name that several kinds share is checked as each.
    """
    component = Component.parse(text)
    kinds = [kind for kind in KINDS if component.name in registry.components[kind]]
    if not kinds:
        names = {name for kind in KINDS for name in registry.components[kind]}
        raise UnknownName(unknown("component", component.name, names))
    for kind in kinds:
        subject = registry.build(kind, component.name, component.options)
        suite: type[Laws] = type(f"{type(subject).__name__}Laws", (SUITES[kind],), {kind: subject})
        for law in suite.laws():
            yield f"{kind} {component.name}: {_sentence(law)}", _complaint(suite, law)


def _sentence(law: str) -> str:
    return law.removeprefix("test_").replace("_", " ")


def _complaint(suite: type[Laws], law: str) -> str | None:
    try:
        getattr(suite(), law)()
    except LawBroken as error:
        return str(error)
    except Exception as error:
        return f"It raised {type(error).__name__}: {error}"
    return None
