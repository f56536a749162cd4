"""Turn a seed's predictor into a model that predicts, is saved without pickle, and states its privacy.

`program` turns a predictor into plain data, `card` describes a model, `model_file` writes and reads both, and `model`
is the classifier.
"""

from dpbench.models.card import Card
from dpbench.models.model import Model

__all__ = ["Card", "Model"]
