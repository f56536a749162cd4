"""dpbench: a benchmark for differentially private image classification, where the harness owns privacy.

`__all__` is the contract: the names that a plugin may import. They are imported when first used; this does not import
torch. `import dpbench` alone imports nothing, because it runs before the command line decides what Ctrl-C does.

`NOTEBOOK` lists the names for notebooks: `run`, `compare`, `results`, `load`, `check`, `dataset`, `figure`,
`load_model`, and the classes that they return, such as `Results` and `Model`. They are imported when first used.

`RECEIPTS` lists the names for training loops other than dpbench's. The parts of a receipt and the exporters are in
`dpbench.receipts`.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take it for true; `typing` would take as long as all the rest
if TYPE_CHECKING:
    from typing import Any

    from dpbench.contract import *  # noqa: F403, which lists what it exports
    from dpbench.contract import __all__ as __all__
    from dpbench.notebook import Comparison as Comparison
    from dpbench.notebook import Model as Model
    from dpbench.notebook import Results as Results
    from dpbench.notebook import check as check
    from dpbench.notebook import compare as compare
    from dpbench.notebook import dataset as dataset
    from dpbench.notebook import figure as figure
    from dpbench.notebook import load as load
    from dpbench.notebook import load_model as load_model
    from dpbench.notebook import results as results
    from dpbench.notebook import run as run
    from dpbench.receipts import Receipt as Receipt
    from dpbench.receipts import receipt as receipt

__version__ = "0.3.0"

NOTEBOOK = (
    "Comparison",
    "Model",
    "Results",
    "check",
    "compare",
    "dataset",
    "figure",
    "load",
    "load_model",
    "results",
    "run",
)
"""The names for use in a notebook. They need torch, so they are imported when they are first used."""

RECEIPTS = ("Receipt", "receipt")
"""The names for training loops other than dpbench's. They need no torch, and are imported when they are first used."""


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in RECEIPTS:
        return getattr(import_module("dpbench.receipts"), name)
    if name in NOTEBOOK:
        import_module("dpbench.support.threads").let_idle_threads_sleep()  # as in commands, before torch is imported
        return getattr(import_module("dpbench.notebook"), name)
    if name == "__all__" or not name.startswith("__"):
        names = _load_contract_names()
        if name in names:
            return names[name]
    raise AttributeError(f"module 'dpbench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_load_contract_names(), *NOTEBOOK, *RECEIPTS})


def _load_contract_names() -> dict[str, Any]:
    """Import the contract and add its names to this module; return the names and values of the whole module.

    Returns {} while the contract is being imported.
    """
    from importlib import import_module

    contract = import_module("dpbench.contract")
    names = {name: getattr(contract, name) for name in getattr(contract, "__all__", ())}
    globals().update(names and {**names, "__all__": contract.__all__})
    return globals() if names else {}
