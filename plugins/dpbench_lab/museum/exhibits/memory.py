"""Row functions that store what they see of private rows, and learners that use it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dpbench import Chunk, Curator, Predict, PublicData
from dpbench_lab.museum.exhibits.honest_learners import HonestLearner, gradients

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class ClipAtPrivateQuantile(HonestLearner):
    """Clips at the median of the private norms of the previous step.

    Source: the code of Tramèr and Boneh, "Differentially Private Learning Needs Better Features" (2021), which reads
    the clip of the data normalisation off the private norms: "technically a small privacy leak".
    """

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        import torch

        head, norms, clip = torch.zeros(curator.task.classes, *curator.task.example_shape), list[Any](), self.clip

        def rows(chunk: Chunk) -> Any:
            found = gradients(chunk, head)
            norms.append(found.left.norm(dim=1) * chunk.x.norm(dim=1))
            return found

        for _ in range(self.steps):
            head -= curator.noisy_sum(rows, release="gradient", clip=clip) / curator.task.size
            clip = float(torch.cat(norms).median())
        return lambda x: x @ head.T


@dataclass(frozen=True)
class ClipFromTheEnvironment(HonestLearner):
    """Passes the mean private norm to the learner through an environment variable.

    Source: made for the museum.
    """

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        import torch

        head = torch.zeros(curator.task.classes, *curator.task.example_shape)

        def rows(chunk: Chunk) -> Any:
            os.environ["DPBENCH_MUSEUM"] = str(1 + float(chunk.x.norm(dim=1).sum()) / max(1, len(chunk)))
            return gradients(chunk, head)

        for _ in range(self.steps):
            clip = float(os.environ.get("DPBENCH_MUSEUM", "1"))
            head -= curator.noisy_sum(rows, release="gradient", clip=clip) / curator.task.size
        os.environ.pop("DPBENCH_MUSEUM")
        return lambda x: x @ head.T


@dataclass(frozen=True)
class StandardisationByPrivateMoments(HonestLearner):
    """Collects mean and deviation in `map`, and uses them only in training.

    Source: the code of De et al. (2022), of Tang et al. (2023) and of most others normalises CIFAR-10 by the mean and
    deviation of the training set that it then protects.
    """

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        import torch

        head = torch.zeros(curator.task.classes, *curator.task.example_shape)
        seen: list[Any] = []

        def keep_rows(x: Tensor) -> Tensor:
            seen.append(x.clone())
            return x

        mapped = curator.map(keep_rows)
        mean, deviation = torch.cat(seen).mean(0), torch.cat(seen).std(0) + 1

        def rows(chunk: Chunk) -> Any:
            return gradients(Chunk((chunk.x.float() - mean) / deviation, chunk.y, chunk.seeds), head)

        for _ in range(self.steps):
            head -= mapped.noisy_sum(rows, release="gradient", clip=1.0) / curator.task.size
        return lambda x: x @ head.T


@dataclass(frozen=True)
class RowCounterInMap(HonestLearner):
    """Numbers rows as they pass through a transform, so a row's features depend on the rows before it.

    Source: augmentation pipelines that cycle through their policies by call, like data loaders whose samplers keep
    state.
    """

    calls: list[int] = field(default_factory=lambda: [0])

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        return super().fit(curator.map(self._count_rows), public, generator)

    def _count_rows(self, x: Tensor) -> Tensor:
        self.calls[0] += len(x)
        return x


@dataclass(frozen=True)
class ProjectionOnPrivateComponents(HonestLearner):
    """Sums the second moment of private rows in a tensor, and projects on its leading directions.

    Source: pipelines that fit scikit-learn's StandardScaler and PCA on the training split before DP-SGD. PILLAR (Pinto
    et al. 2023) takes this step on public data instead.
    """

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        import torch

        features = torch.Size(curator.task.example_shape).numel()
        head, moment = torch.zeros(curator.task.classes, features), torch.zeros(features, features)

        def rows(chunk: Chunk) -> Any:
            x = chunk.x.flatten(1)
            moment.addmm_(x.T, x)
            return gradients(chunk, head)

        for _ in range(self.steps):
            noisy_gradient = curator.noisy_sum(rows, release="gradient", clip=1.0) / curator.task.size
            components = torch.linalg.eigh(moment).eigenvectors[:, -20:]
            head -= noisy_gradient @ components @ components.T
        return lambda x: x.flatten(1) @ head.T


@dataclass(frozen=True)
class PreconditioningByPrivateMoments(HonestLearner):
    """Divides noisy gradients by the root of a running mean of squared private gradients.

    Source: RMSprop or Adam applied to clipped gradients before noise is added. AdaDPS (Li et al. 2022) fixes this by
    taking these moments from public examples.
    """

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        import torch

        head = torch.zeros(curator.task.classes, *curator.task.example_shape)
        state = {"square": torch.zeros_like(head)}

        def rows(chunk: Chunk) -> Any:
            found = gradients(chunk, head)
            state["square"] = 0.9 * state["square"] + found.left.square().T @ chunk.x.square()
            return found

        for _ in range(self.steps):
            noisy_gradient = curator.noisy_sum(rows, release="gradient", clip=1.0) / curator.task.size
            head -= noisy_gradient / (state["square"].sqrt() + 1)
        return lambda x: x @ head.T


@dataclass(frozen=True)
class ClassWeightsByPrivateCounts(HonestLearner):
    """Weights classes by their number of private examples.

    Source: `class_weight="balanced"` of scikit-learn, and class-weighted samplers, on the training labels (Opacus,
    issue 813).
    """

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        import torch

        head = torch.zeros(curator.task.classes, *curator.task.example_shape)
        counts = torch.zeros(curator.task.classes).numpy()

        def rows(chunk: Chunk) -> Any:
            if counts.sum() < curator.task.size:
                counts[:] += torch.bincount(chunk.y, minlength=len(counts)).numpy()
            weights = torch.from_numpy(counts).clamp(min=1).reciprocal()[chunk.y, None]
            return gradients(chunk, head, weights * curator.task.size / len(counts))

        for _ in range(self.steps):
            head -= curator.noisy_sum(rows, release="gradient", clip=1.0) / curator.task.size
        return lambda x: x @ head.T


@dataclass(frozen=True)
class LearningRateByPrivateLoss(HonestLearner):
    """Halves the learning rate when the private loss stops falling.

    Source: torch's ReduceLROnPlateau, or early stopping, with the training loss, as in tutorials.
    """

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        import torch
        from torch import nn

        head, rate, best, loss = torch.zeros(curator.task.classes, *curator.task.example_shape), 2.0, 1e9, 0.0

        def rows(chunk: Chunk) -> Any:
            nonlocal loss
            loss += float(nn.functional.cross_entropy(chunk.x @ head.T, chunk.y, reduction="sum"))
            return gradients(chunk, head)

        for _ in range(self.steps):
            loss = 0.0
            head -= rate * curator.noisy_sum(rows, release="gradient", clip=1.0) / curator.task.size
            best, rate = min(best, loss), rate / 2 if loss > best else rate
        return lambda x: x @ head.T


@dataclass(frozen=True)
class TailTaughtByPrivateAnswers(HonestLearner):
    """Trains a network on a private head's answers to private images, which are no post-processing of the head.

    Source: made for the museum, after self-training. `self-tail` asks the head about public images: the images and the
    answers are then free to use. Here both belong to private images.
    """

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        import torch
        from torch import nn

        predict, lessons = super().fit(curator, public, generator), list[Any]()

        def keep_answers(x: Tensor) -> Tensor:
            lessons.append((x.clone(), predict(x).softmax(1)))
            return x

        curator.map(keep_answers)
        x, answers = (torch.cat(parts) for parts in zip(*lessons, strict=True))
        tail = nn.Sequential(nn.Linear(x.shape[1], 64), nn.ReLU(), nn.Linear(64, curator.task.classes))
        adam = torch.optim.Adam(tail.parameters(), lr=0.01)
        with torch.enable_grad():
            for _ in range(100):
                adam.zero_grad()
                nn.functional.cross_entropy(tail(x), answers).backward()  # type: ignore[no-untyped-call]
                adam.step()
        return tail.requires_grad_(False)


@dataclass(frozen=True)
class BatchNormInTraining(HonestLearner):
    """Puts batch normalisation in training mode before the head: rows see each other, and buffers keep them.

    Source: networks passed to DP-SGD unchanged. Opacus refuses BatchNorm for this reason; pyvacy and others did not.
    """

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        import torch
        from torch import nn

        head = torch.zeros(curator.task.classes, *curator.task.example_shape)
        norm = nn.BatchNorm1d(head.shape[1], affine=False)

        def rows(chunk: Chunk) -> Any:
            return gradients(Chunk(norm(chunk.x), chunk.y, chunk.seeds), head)

        for _ in range(self.steps):
            head -= curator.noisy_sum(rows, release="gradient", clip=1.0) / curator.task.size
        norm.eval()
        return lambda x: norm(x) @ head.T
