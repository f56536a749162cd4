"""The contract for plugins: the names that a plugin may import from `dpbench`. Importing it does not import torch."""

from dpbench.api import (
    INDEPENDENT_DRAWS,
    Budget,
    Choice,
    Chunk,
    Curator,
    Dataset,
    DeclaredImages,
    Download,
    Extractor,
    Features,
    Images,
    Learner,
    Planned,
    Predict,
    PublicData,
    Records,
    Release,
    RowFn,
    Source,
    Split,
    Splits,
    Task,
    Teacher,
    require_setting,
)
from dpbench.data.decoding import decode_image
from dpbench.data.packs import FeaturePack
from dpbench.data.resizing.resize import resize_pixels
from dpbench.data.sources import locate
from dpbench.errors import DataError, DataMissing, DpbenchError, PlanError, SpecError
from dpbench.hooks import hookimpl
from dpbench.learning.defaults import components, effective_size, pace, travel
from dpbench.learning.linear import GaussianPrior, LinearProbe, Standardise, residuals, standardisation, unit_norm
from dpbench.learning.optimisers import AdamBC
from dpbench.learning.probabilities import aimed, calibrated, choose_temperature, label_temperature, plan_temperature
from dpbench.learning.probes import ProbeLearner
from dpbench.learning.subspaces import PrincipalComponents, subspace_iteration
from dpbench.learning.trainable import Trainable
from dpbench.privacy.core.accounting.accountant import gaussian_sigma
from dpbench.privacy.core.exact.elementwise import folded
from dpbench.privacy.core.exact.quantised import exact_linear, quantise
from dpbench.privacy.core.forms.blocks import Blocks
from dpbench.privacy.core.forms.contributions import Joined, RankOne, Scaled
from dpbench.privacy.core.forms.residual.bases import AnchorBasis, DenseBasis
from dpbench.privacy.core.forms.residual.form import Residual
from dpbench.support.paths import data_folders
from dpbench.support.settings import setting, settled

__all__ = [
    "INDEPENDENT_DRAWS",
    "AdamBC",
    "AnchorBasis",
    "Blocks",
    "Budget",
    "Choice",
    "Chunk",
    "Curator",
    "DataError",
    "DataMissing",
    "Dataset",
    "DeclaredImages",
    "DenseBasis",
    "Download",
    "DpbenchError",
    "Extractor",
    "FeaturePack",
    "Features",
    "GaussianPrior",
    "Images",
    "Joined",
    "Learner",
    "LinearProbe",
    "PlanError",
    "Planned",
    "Predict",
    "PrincipalComponents",
    "ProbeLearner",
    "PublicData",
    "RankOne",
    "Records",
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
    "aimed",
    "calibrated",
    "choose_temperature",
    "components",
    "data_folders",
    "decode_image",
    "effective_size",
    "exact_linear",
    "folded",
    "gaussian_sigma",
    "hookimpl",
    "label_temperature",
    "locate",
    "pace",
    "plan_temperature",
    "quantise",
    "require_setting",
    "residuals",
    "resize_pixels",
    "setting",
    "settled",
    "standardisation",
    "subspace_iteration",
    "travel",
    "unit_norm",
]
