"""A public name that goes out of use keeps working, and says what to use instead."""

from __future__ import annotations

import pytest

import dpbench
from dpbench import SpecError, require_setting


def test_a_deprecated_name_works_and_names_its_successor() -> None:
    with pytest.warns(DeprecationWarning, match=r"settled is called require_setting.*will be removed in version 0\.4"):
        assert dpbench.settled(3) == 3


def test_a_setting_that_is_auto_still_is_refused() -> None:
    with pytest.raises(SpecError, match="Expected a number, but the setting is still auto"):
        require_setting(None)
