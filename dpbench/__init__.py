"""dpbench: a benchmark for differentially private image classification, where the harness owns privacy.

`__all__` is the contract: what a plugin may import. Importing it brings in no torch.
"""

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
from dpbench.registry.hookspecs import hookimpl
from dpbench.support.paths import data_folders

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
