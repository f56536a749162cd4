"""Learners that leak rows outside the sums: they print rows, write them to a file, or store them elsewhere."""

from __future__ import annotations

import ctypes
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpbench import Chunk, Curator, Predict, PublicData
from dpbench_lab.museum.exhibits.honest_learners import HonestLearner, gradients

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class PrintedPrivateLoss(HonestLearner):
    """Prints the loss of the private batch at every step.

    Source: the loops of most examples, including those of Opacus, which print the training loss of each epoch.
    """

    def rows(self, chunk: Chunk, head: Tensor, step: int) -> Any:
        from torch.nn.functional import cross_entropy

        if len(chunk):
            print(f"step {step}, private loss {float(cross_entropy(chunk.x @ head.T, chunk.y)):.4f}")
        return gradients(chunk, head)


@dataclass(frozen=True)
class WarningWithPrivateNorm(HonestLearner):
    """Warns about rows longer than the clip, and quotes the norm of the longest.

    Source: made for the museum, after library warnings that quote the value they warn about.
    """

    def rows(self, chunk: Chunk, head: Tensor, step: int) -> Any:
        if len(chunk):
            warnings.warn(f"private norm {float(chunk.x.norm(dim=1).max()):.3f} is above the clip", stacklevel=2)
        return gradients(chunk, head)


@dataclass(frozen=True)
class LogFileOfPrivateLosses(HonestLearner):
    """Writes the mean of each private chunk into a log file.

    Source: loggers of training frameworks, which write losses to a file beside the checkpoints.
    """

    def rows(self, chunk: Chunk, head: Tensor, step: int) -> Any:
        with (Path(tempfile.gettempdir()) / "dpbench-museum.log").open("a") as log:
            log.write(f"{step},{float(chunk.x.sum())}\n")
        return gradients(chunk, head)


@dataclass(frozen=True)
class SavedHardestExamples(HonestLearner):
    """Saves the private images that the head misclassifies, to look at them later.

    Source: made for the museum: error analysis on the training set.
    """

    def rows(self, chunk: Chunk, head: Tensor, step: int) -> Any:
        import torch

        wrong = (chunk.x @ head.T).argmax(1) != chunk.y
        if len(chunk):
            torch.save(chunk.x[wrong], Path(tempfile.gettempdir()) / "dpbench-museum.pt")
        return gradients(chunk, head)


@dataclass(frozen=True)
class NormBehindCtypes(HonestLearner):
    """Stores the largest private norm in C memory, which no Python object shows, and clips at it.

    Source: made for the museum: extensions that keep running statistics in C.
    """

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        import torch

        head, largest = torch.zeros(curator.task.classes, *curator.task.example_shape), (ctypes.c_double * 1)(1.0)

        def rows(chunk: Chunk) -> Any:
            if len(chunk):
                largest[0] = max(largest[0], float(chunk.x.norm(dim=1).max()))
            return gradients(chunk, head)

        for _ in range(self.steps):
            head -= curator.noisy_sum(rows, release="gradient", clip=largest[0]) / curator.task.size
        return lambda x: x @ head.T


@dataclass(frozen=True)
class MeanOnALibraryModule(HonestLearner):
    """Stores the private mean as an attribute of torch, and subtracts it in prediction.

    Source: made for the museum: global state on a module that everything imports.
    """

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        import torch

        head, shared = torch.zeros(curator.task.classes, *curator.task.example_shape), torch

        def rows(chunk: Chunk) -> Any:
            shared.museum_mean = chunk.x.mean(0)  # type: ignore[attr-defined]
            return gradients(chunk, head)

        for _ in range(self.steps):
            head -= curator.noisy_sum(rows, release="gradient", clip=self.clip) / curator.task.size
        return lambda x: (x - shared.museum_mean) @ head.T  # type: ignore[attr-defined]


@dataclass(frozen=True)
class DatasetLoadedInFit(HonestLearner):
    """Loads the training set again to standardise features by its mean.

    Source: scripts that fit a scaler on the training images before DP-SGD; the usual constants of CIFAR-10 were
    computed in this way.
    """

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        import torch
        from sklearn.datasets import load_digits

        mean = torch.from_numpy(load_digits().data.mean(0)).float() / 16
        predict = super().fit(curator.map(lambda x: x - mean), public, generator)
        return lambda x: predict(x - mean)


@dataclass(frozen=True)
class UninitialisedOutputBuffer(HonestLearner):
    """Writes selected rows into `torch.empty` and returns the rest as it is: rows of the previous step.

    Source: made for the museum: kernels that mask rows and leave the rest of their output unwritten.
    """

    def rows(self, chunk: Chunk, head: Tensor, step: int) -> Any:
        import torch

        kept, out = chunk.x.norm(dim=1) > 4, torch.empty_like(chunk.x)
        out[kept] = chunk.x[kept]
        return gradients(Chunk(out, chunk.y, chunk.seeds), head)


@dataclass(frozen=True)
class MixupWithinTheChunk(HonestLearner):
    """Mixes one row in ten with another row of its chunk, chosen by their seeds.

    Source: mixup (Zhang et al. 2018) as in training pipelines, between the images of a batch.
    """

    def rows(self, chunk: Chunk, head: Tensor, step: int) -> Any:
        x = chunk.x.clone()
        some = chunk.seeds % 10 == 0
        x[some] = 0.7 * x[some] + 0.3 * chunk.x.flip(0)[some]
        return gradients(Chunk(x, chunk.y, chunk.seeds), head)
