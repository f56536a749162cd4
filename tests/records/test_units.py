"""Units of test images as text: what is written is read, and nothing else is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbench.records.units import decode_units, encode_units


@given(units=st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=50))
def test_the_same_images_belong_together_afterwards(units: list[int]) -> None:
    found = decode_units(encode_units(np.array(units)), len(units))
    assert [[a == b for b in found] for a in found] == [[a == b for b in units] for a in units]
    assert found[0] == 0 and set(found.tolist()) == set(range(len({*units})))


@pytest.mark.parametrize(
    ("text", "said"),
    [("?", "expected base64"), ("AAAA", "expected 8 bytes"), ("AQAAAAAAAAA=", "numbered 0, 1, 2 ... by their first")],
)
def test_what_is_no_list_of_units_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("...", r"\.\.\.")):
        decode_units(text, 2)
