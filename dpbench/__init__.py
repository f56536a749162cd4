"""dpbench: a benchmark for differentially private image classification, where the harness owns privacy.

`__all__` is the contract: what a plugin may import. Importing it brings in no torch.

For a person at a notebook: `run`, `compare`, `results`, `load`, `check`, `dataset`, `figure`, `load_model`,
and the `Results` and `Model` that they return: `NOTEBOOK`. They are imported when they are first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

from dpbench.api import (
    Budget,
    Choice,
    Chunk,
    Curator,
    Dataset,
    Download,
    Extractor,
    Features,
    Images,
    Learner,
    Planned,
    Predict,
    PublicData,
    Release,
    RowFn,
    Source,
    Split,
    Splits,
    Task,
    Teacher,
    settled,
)
from dpbench.data.sources import locate
from dpbench.errors import DataError, DataMissing, DpbenchError, PlanError, SpecError
from dpbench.hooks import hookimpl
from dpbench.learning.defaults import components, effective_size, pace, travel
from dpbench.learning.linear import LinearProbe, Standardise, residuals, standardisation, unit_norm
from dpbench.learning.probes import ProbeLearner
from dpbench.learning.trainable import Trainable
from dpbench.privacy.accounting.accountant import gaussian_sigma
from dpbench.privacy.exact.elementwise import folded
from dpbench.privacy.exact.quantised import exact_linear, quantise
from dpbench.privacy.forms.blocks import Blocks
from dpbench.privacy.forms.contributions import Joined, RankOne, Scaled
from dpbench.privacy.forms.gep.bases import AnchorBasis, DenseBasis
from dpbench.privacy.forms.gep.residual import Residual
from dpbench.support.paths import data_folders

__version__ = "0.2.0"

__all__ = [
    "AnchorBasis",
    "Blocks",
    "Budget",
    "Choice",
    "Chunk",
    "Curator",
    "DataError",
    "DataMissing",
    "Dataset",
    "DenseBasis",
    "Download",
    "DpbenchError",
    "Extractor",
    "Features",
    "Images",
    "Joined",
    "Learner",
    "LinearProbe",
    "PlanError",
    "Planned",
    "Predict",
    "ProbeLearner",
    "PublicData",
    "RankOne",
    "Release",
    "Residual",
    "RowFn",
    "Scaled",
    "Source",
    "SpecError",
    "Split",
    "Splits",
    "Standardise",
    "Task",
    "Teacher",
    "Trainable",
    "components",
    "data_folders",
    "effective_size",
    "exact_linear",
    "folded",
    "gaussian_sigma",
    "hookimpl",
    "locate",
    "pace",
    "quantise",
    "residuals",
    "settled",
    "standardisation",
    "travel",
    "unit_norm",
]

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
"""What a person at a notebook calls. It needs torch, so it is looked up when it is asked for."""


def __getattr__(name: str) -> Any:
    if name in NOTEBOOK:
        return getattr(import_module("dpbench.notebook"), name)
    raise AttributeError(f"module 'dpbench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *NOTEBOOK})
