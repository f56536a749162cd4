"""The checkpoint that comes with dpbench: what it is made of, and what it is good for."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from dpbench_plugins.datasets.cifar10 import Cifar10
from dpbench_plugins.extractors.pixels import Pixels
from dpbench_plugins.extractors.randp import RandPWRN
from dpbench_plugins.extractors.randp.checkpoints import digest_tensors
from dpbench_plugins.networks.network_checkpoint import SHIPPED, Checkpoint
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

CPU = torch.device("cpu")


def test_it_is_small_and_says_how_it_was_made_of_no_data() -> None:
    checkpoint = Checkpoint.load(SHIPPED["randp-wrn16-4"])
    assert SHIPPED["randp-wrn16-4"].stat().st_size < 8e6
    assert all(tensor.dtype == torch.float16 and bool(tensor.isfinite().all()) for tensor in checkpoint.state.values())
    assert checkpoint.about["data"] == "none: images from a random process"
    assert checkpoint.about["digest"] == digest_tensors(checkpoint.state)
    made = json.loads(checkpoint.about["recipe"])
    assert (made["network"], made["generator"]) == ("wrn-16-4", "stylegan-oriented")
    assert int(checkpoint.about["steps"]) == made["steps"]


@pytest.mark.usefixtures("real_data")
@pytest.mark.long
def test_its_features_say_more_of_cifar10_than_pixels() -> None:
    """Linear classifiers of 800 training images, scored on 400 others: at chance 0.1."""
    split = Cifar10().load().train
    chosen = np.linspace(0, len(split.labels) - 1, 1200).astype(int)
    images, y = [split.images[int(index)] for index in chosen], split.labels[chosen]
    held_out, scores = np.arange(1200) % 3 == 0, {}
    for extractor in (RandPWRN(), Pixels()):
        embed = extractor.open(CPU)
        batches = torch.split(torch.stack([extractor.prepare(image) for image in images]), 100)
        x = torch.cat([embed(batch) for batch in batches]).numpy()
        classifier = make_pipeline(StandardScaler(), LogisticRegression(C=0.003, max_iter=300))
        scores[extractor.name] = classifier.fit(x[~held_out], y[~held_out]).score(x[held_out], y[held_out])
    assert scores["randp-wrn16-4"] > scores["pixels"] + 0.08
