"""The one place that reads pickles: those of CIFAR, limited to numpy arrays, lists, dictionaries, bytes and numbers."""

from __future__ import annotations

import io
import pickle
from typing import Any

from dpbench import DataError

ARRAYS = {"numpy.core.multiarray", "numpy._core.multiarray"}  # where numpy 1 and numpy 2 keep `_reconstruct`


class _Arrays(pickle.Unpickler):
    """Finds what rebuilds a numpy array, and nothing else: a pickle can run code only through what it finds."""

    def find_class(self, module: str, name: str, /) -> Any:
        import numpy as np

        if module in ARRAYS and name == "_reconstruct":
            return np.empty(0).__reduce__()[0]  # by whichever name this numpy has it
        if module == "numpy" and name in {"ndarray", "dtype"}:
            return {"ndarray": np.ndarray, "dtype": np.dtype}[name]
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which arrays do not need")


def read_arrays(content: bytes, origin: object) -> Any:
    """Return what a pickle of Python 2 holds, its strings as bytes.

    Raises:
        DataError: it is damaged, or asks for anything beyond arrays, which is then not looked up, let alone called.
    """
    try:
        return _Arrays(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # whatever a damaged pickle raises
        raise DataError(f"Expected a pickle of arrays in {origin}: {error}. Download the data again.") from error
