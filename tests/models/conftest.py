"""Many models are exported in one session."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session", autouse=True)
def translations(surroundings: None) -> Iterator[None]:
    """Let torch read onnxscript's translations of operations once, and not for every export."""
    try:
        from torch.onnx._internal import _lazy_import
    except ImportError:  # of a later version: then each export reads them
        yield
        return
    apis: Any = vars(_lazy_import)["onnxscript_apis"]  # a proxy, which imports onnxscript when it is asked
    with pytest.MonkeyPatch.context() as patch:
        read = functools.cache(lambda: type(apis).__getattr__(apis, "get_torchlib_ops")())
        patch.setitem(vars(apis), "get_torchlib_ops", read)
        yield
