"""The travel and the clip of a linear head, measured on training images alone for `dpbench.learning.defaults`.

`python -m tests.helpers.travel_constant` cuts the training images of the digits and of Fashion-MNIST into public,
private and held-out images, three times, and prints the held-out accuracy of dp-sgd: for learning rates from a quarter
to four times the default, and for clips of a quarter, half and all of the norm of a row at the same distance. Names of
datasets after the command limit it to these. No test image is read.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from dpbench_plugins.datasets.sklearn import Digits
from dpbench_plugins.datasets.torchvision.fashion_mnist import FashionMnist
from dpbench_plugins.learners.dp_sgd import DPSGD

import dpbench
from dpbench import Budget, Dataset, Task, require_setting

DATASETS: tuple[tuple[Dataset, int, int], ...] = ((Digits(), 1_058, 380), (FashionMnist(), 1_000, 3_000))
"""Training images that are used, a tenth of them public, and images that are held out."""
EPSILONS, FACTORS, CLIPS, CUTS = (0.1, 0.5, 1.0, 4.0, 8.0), (0.25, 0.5, 1.0, 2.0, 4.0), (0.25, 0.5, 1.0), 3
DELTA, SEEDS = 1e-5, 2


def cut_training_split(dataset: Dataset, used: int, held: int, cut: int) -> Dataset:
    """Return a dataset whose test images are training images of another one."""
    train = dataset.load().train
    rows = np.random.default_rng(cut).permutation(len(train.labels))[: used + held]
    pixels = np.stack([np.asarray(train.images[int(row)], dtype=np.float32).reshape(-1) for row in rows])
    labels = train.labels[rows]
    return dpbench.dataset(pixels[:used], labels[:used], pixels[used:], labels[used:], name=f"{dataset.name}-cut")


def list_learners(features: int, used: int, epsilon: float) -> Iterator[DPSGD]:
    """Yield dp-sgd with each multiple of the learning rate that it has by default, then with each clip."""
    private = used - round(0.1 * used)
    task = Task((features,), 10, private, torch.device("cpu"), used - private)
    settled = DPSGD().settle(task, Budget(epsilon, DELTA))
    rate = require_setting(settled.learning_rate)
    for factor in FACTORS:
        yield replace(settled, learning_rate=factor * rate)
    for share in CLIPS:
        clip = share * features**0.5
        yield replace(settled, learning_rate=rate / clip, clip=clip)


def measure(dataset: Dataset, used: int, held: int, epsilon: float, out: str) -> np.ndarray:
    """Return the mean held-out accuracy for each factor and each clip, in percent."""
    scores = np.empty((CUTS, len(FACTORS) + len(CLIPS)))
    for cut in range(CUTS):
        data = cut_training_split(dataset, used, held, cut)
        features = data.load().train.images[0].size[0]
        for place, learner in enumerate(list_learners(features, used, epsilon)):
            found = dpbench.run(learner, data, "pixels", epsilon, delta=DELTA, seeds=SEEDS, out=out, device="cpu")
            scores[cut, place] = 100 * found.record.metrics["accuracy"].mean
    means: np.ndarray = scores.mean(0)
    return means


def main() -> None:
    """Print the table."""
    heads = [*(f"{factor:g} x" for factor in FACTORS), *(f"clip {clip:g} of a row" for clip in CLIPS)]
    print("| data | ε | " + " | ".join(heads) + " |")
    print("|" + "---|" * (2 + len(heads)))
    with tempfile.TemporaryDirectory() as out:
        for dataset, used, held in (part for part in DATASETS if part[0].name in (sys.argv[1:] or part[0].name)):
            for epsilon in EPSILONS:
                row = " | ".join(f"{score:.1f}" for score in measure(dataset, used, held, epsilon, out))
                print(f"| {dataset.name} | {epsilon:g} | {row} |", flush=True)


if __name__ == "__main__":
    main()
