"""Run the laws without pytest: `dpbench check`."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator

from dpbench.errors import LawBroken, UnknownName
from dpbench.records.protocol import CONCAT, Component
from dpbench.registry import KINDS, Kind, Registry
from dpbench.support.messages import unknown_name
from dpbench.support.plugin_calls import DEBUG
from dpbench.testing import DatasetLaws, ExtractorLaws, LearnerLaws
from dpbench.testing.laws import Laws

SUITES: dict[Kind, type[Laws]] = {"dataset": DatasetLaws, "extractor": ExtractorLaws, "learner": LearnerLaws}


def check_laws(registry: Registry, text: str) -> Iterator[tuple[str, str | None]]:
    """Yield each law's name with None, or with the complaint where it is broken.

    Args:
        registry: where the component is looked up.
        text: `name` or `name:key=value`; a name that several kinds share is checked as each. Of extractors joined by
            `+`, each is checked.
    """
    if not text.strip():
        raise UnknownName("Expected the name of a component, got nothing. `dpbench list` shows them.")
    joined = Component.parse_extractor(text)
    if joined.name == CONCAT and any(part.name in registry.components["extractor"] for part in joined.parts):
        subjects = [(part, registry.build("extractor", part.name, part.options)) for part in joined.parts]
        for part, subject in subjects:
            yield from _checked("extractor", str(part), subject)
        return
    component = Component.parse(text)
    kinds = [kind for kind in KINDS if component.name in registry.components[kind]]
    if not kinds:
        names = {name for kind in KINDS for name in registry.components[kind]}
        raise UnknownName(unknown_name("component", component.name, names))
    for kind in kinds:
        yield from _checked(kind, component.name, registry.build(kind, component.name, component.options))


def _checked(kind: Kind, name: str, subject: object) -> Iterator[tuple[str, str | None]]:
    suite: type[Laws] = type(f"{type(subject).__name__}Laws", (SUITES[kind],), {kind: subject})
    for law in suite.laws():
        yield f"{kind} {name}: {_sentence(law)}", _complaint(suite, law)


def _sentence(law: str) -> str:
    return law.removeprefix("test_").replace("_", " ")


def _complaint(suite: type[Laws], law: str) -> str | None:
    try:
        getattr(suite(), law)()
    except LawBroken as error:
        return _with_lines(str(error))
    except Exception as error:
        return _with_lines(f"It raised {type(error).__name__}: {error}")
    return None


def _with_lines(said: str) -> str:
    """Return a complaint, with `--debug` and the lines of the plugin that it comes from."""
    return f"{said}\n{traceback.format_exc()}" if os.environ.get(DEBUG) else said
