"""A seed's predictor as a model: asked for predictions, saved without pickle, and saying what privacy it has.

`program` turns a predictor into plain data, `card` says what a model is, `model_file` writes and reads both, `model` is
the classifier.
"""

from dpbench.models.card import Card
from dpbench.models.model import Model

__all__ = ["Card", "Model"]
