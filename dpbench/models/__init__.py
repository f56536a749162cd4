"""Turn a seed's predictor into a model that predicts, is saved without pickle, and states its privacy.

`export` turns a predictor into an ONNX graph, `card` describes a model, `model_file` puts both into a file, `process`
runs a file in a process with limits (`worker`), and `model` is the classifier. `model_run` prepares the run that a
model comes from, and `release_page` lists the facts for deciding whether to release a model.
"""

from dpbench.models.card import Card
from dpbench.models.model import Model

__all__ = ["Card", "Model"]
