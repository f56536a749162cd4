"""A linear classifier on features, scored on held-out images to monitor a pre-training; it decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from PIL.Image import Image
from torch import Tensor

from dpbench import Splits
from dpbench_plugins.datasets.cifar10 import Cifar10
from dpbench_plugins.datasets.digits import open_digits

DATASETS: Mapping[str, Callable[[], Splits]] = {"digits": open_digits, "cifar10": lambda: Cifar10().load()}
EXAMPLES = 1500  # of the training split, every third held out; the test split is not used
_AT_ONCE = 100


class AccuracyProbe:
    """Fits a linear classifier on features and returns its accuracy on held-out images."""

    def __init__(self, dataset: str, prepare: Callable[[Image], Tensor]) -> None:
        """Read training images of `dataset` and convert them to (3, size, size) with `prepare`.

        Raises:
            DataMissing: the dataset is not on this machine.
        """
        split = DATASETS[dataset]().train
        chosen = np.linspace(0, len(split.labels) - 1, min(EXAMPLES, len(split.labels))).astype(int)
        self._images = torch.stack([prepare(split.images[int(index)]) for index in chosen])
        self._labels = split.labels[chosen]

    def __call__(self, features: Callable[[Tensor], Tensor]) -> float:
        """Return the accuracy in [0, 1]; the classifier is fitted and scored on different images."""
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        with torch.no_grad():
            x = torch.cat([features(part).cpu() for part in torch.split(self._images, _AT_ONCE)]).double().numpy()
        held_out = np.arange(len(self._labels)) % 3 == 0
        classifier = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=500))
        classifier.fit(x[~held_out], self._labels[~held_out])
        return float(classifier.score(x[held_out], self._labels[held_out]))
