"""The generated reference: every component has its settings in a table."""

from __future__ import annotations

import pytest

from dpbench import registry
from dpbench.docs.reference import render_components
from dpbench.registry import KINDS, ComponentKind
from dpbench.support.settings import list_settings


@pytest.mark.parametrize("kind", KINDS)
def test_the_reference_has_a_table_of_every_components_settings(kind: ComponentKind) -> None:
    known = registry.load().components[kind]
    page = render_components(kind, known)
    for item in known.values():
        for row in list_settings(item.cls):
            assert "\n     - ".join(row) in page
    assert page.count("list-table:: Settings") == sum(bool(list_settings(item.cls)) for item in known.values())
