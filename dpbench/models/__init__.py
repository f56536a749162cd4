"""A seed's predictor as a model: it predicts, is saved without pickle, and states its privacy.

`program` turns a predictor into plain data, `card` says what a model is, `model_file` writes and reads both, `model` is
the classifier.
"""

from dpbench.models.card import Card
from dpbench.models.model import Model

__all__ = ["Card", "Model"]
