"""dpbench: a benchmark for differentially private image classification, where the harness owns privacy.

`__all__` is the contract: what a plugin may import. Importing it brings in no torch.
"""

from dpbench.api import (
    Budget,
    Chunk,
    Curator,
    Dataset,
    Extractor,
    Images,
    Learner,
    Predict,
    PublicData,
    Release,
    RowFn,
    Split,
    Splits,
    Task,
)
from dpbench.errors import DataError, DataMissing, DpbenchError, PlanError, SpecError
from dpbench.hookspecs import hookimpl
from dpbench.linear import LinearProbe, Standardise, residuals, standardisation, unit_norm
from dpbench.paths import data_folders
from dpbench.privacy.bases import AnchorBasis, DenseBasis
from dpbench.privacy.blocks import Blocks
from dpbench.privacy.contributions import Joined, RankOne, Scaled
from dpbench.privacy.residual import Residual
from dpbench.probes import ProbeLearner
from dpbench.registry import build_extractor
from dpbench.sources import Download, Source, locate
from dpbench.trainable import Trainable

__all__ = [
    "AnchorBasis",
    "Blocks",
    "Budget",
    "Chunk",
    "Curator",
    "DataError",
    "DataMissing",
    "Dataset",
    "DenseBasis",
    "Download",
    "DpbenchError",
    "Extractor",
    "Images",
    "Joined",
    "Learner",
    "LinearProbe",
    "PlanError",
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
    "Trainable",
    "build_extractor",
    "data_folders",
    "hookimpl",
    "locate",
    "residuals",
    "standardisation",
    "unit_norm",
]
