"""The only code that reads pickles: those of CIFAR, limited to numpy arrays, lists, dictionaries, bytes and numbers."""

from __future__ import annotations

import io
import pickle
from typing import Any

from dpbench import DataError

ARRAYS = {"numpy.core.multiarray", "numpy._core.multiarray"}  # where numpy 1 and numpy 2 keep `_reconstruct`


class _ArrayUnpickler(pickle.Unpickler):
    """Resolves only names that rebuild a numpy array; a pickle can run code only through names that are resolved."""

    def find_class(self, module: str, name: str, /) -> Any:
        import numpy as np

        if module in ARRAYS and name == "_reconstruct":
            return np.empty(0).__reduce__()[0]  # under whichever name this numpy has it
        if module == "numpy" and name in {"ndarray", "dtype"}:
            return {"ndarray": np.ndarray, "dtype": np.dtype}[name]
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which arrays do not need")


def read_arrays(content: bytes, origin: object) -> Any:
    """Return the content of a Python 2 pickle, with strings as bytes.

    Raises:
        DataError: the pickle is damaged, or names anything but arrays; such a name is not looked up.
    """
    try:
        return _ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # damaged pickles raise many kinds
        raise DataError(f"Expected a pickle of arrays in {origin}: {error}. Download the data again.") from error
