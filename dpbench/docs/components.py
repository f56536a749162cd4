"""Learners, datasets and extractors -> a reference page each kind: docstring, settings, and what it reads."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dpbench.docs.prose import escaped

if TYPE_CHECKING:
    from dpbench.registry import Kind, Registration

SAID: Mapping[str, str] = {
    "learner": "Settings are written after the name: ``pillar:k=20,center=false``. ``auto`` follows the budget, see "
    ":doc:`/how-to/tune`.",
    "dataset": "Options are written after the name: ``imagefolder:photos``. How to get the data: :doc:`/how-to/data`.",
    "extractor": "Options are written after the name: ``pixels:flat=false``. Which to take: :doc:`/how-to/features`.",
}


def components(kind: Kind, known: Mapping[str, Registration]) -> str:
    """Return the page of one kind as reStructuredText, which docstrings are written in."""
    title = f"{kind.capitalize()}s"
    parts = [f"{title}\n{'=' * len(title)}\n\n{SAID[kind]}\n"]
    parts += [_section(name, item) for name, item in sorted(known.items())]
    return "\n".join(parts)


def _section(name: str, item: Registration) -> str:
    said = escaped(inspect.cleandoc(item.cls.__doc__ or ""))
    brought = f"*From* ``{item.distribution}``, *plugin* ``{item.plugin}``.{_reads(item.cls)}"
    return "\n".join([name, "-" * len(name), "", said, "", brought, "", *_settings(item.cls)])


def _reads(cls: type) -> str:
    reads = getattr(cls, "public", None)
    said = {"none": "nothing", "unlabelled": "features", "labelled": "features and labels"}
    return f" *Reads of the public data:* {said[reads]}." if reads in said else ""


def _settings(cls: Any) -> Iterator[str]:
    """Yield a table of the fields, if there are any."""
    fields = [field for field in dataclasses.fields(cls) if field.init]
    if not fields:
        return
    yield from (".. list-table::", "   :header-rows: 1", "", "   * - setting", "     - default", "     - type")
    for field in fields:
        yield f"   * - ``{field.name}``"
        yield f"     - ``{_default(field)}``"
        yield f"     - ``{_type(field)}``"
    yield ""


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is field.default_factory is dataclasses.MISSING:
        return "required"
    value = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    if value is None:
        return "auto"
    return str(value).lower() if isinstance(value, bool) else str(value) or "empty"


def _type(field: dataclasses.Field[Any]) -> str:
    return str(field.type) if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))
