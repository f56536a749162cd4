"""What several tests of boards share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dpbench import registry
from dpbench.registry import Registry
from tests.helpers import boards


@pytest.fixture(scope="module")
def plugins() -> Registry:
    """Return the installed plugins."""
    return registry.load()


@pytest.fixture(scope="module")
def clean_commit() -> Iterator[None]:
    """Let results and records state a commit without changes, as submissions do."""
    with boards.clean_commit():
        yield
