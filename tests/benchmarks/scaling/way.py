"""The whole way from images to the accuracy of a private head: by `dpbench.run`, and by hand with torch and Opacus.

Both train the same linear head on the same network's features, in the same steps, at the same clip and epsilon. Each is
measured in a process of its own, with an empty cache.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from torch import Tensor
    from torch.utils.data import DataLoader

    from dpbench import Extractor, Split

PHASES: Mapping[str, str] = {
    "read and compute features": "load",
    "compare the splits for copies": "compare",
    "calibrate the noise, second accountant included": "calibrate",
    "fit": "fit",
    "score": "score",
}
DELTA, CLIP, RATE, LEARNING_RATE = 1e-5, 1.0, 0.1, 0.5
Found = dict[str, float]
Value = TypeVar("Value")


def ours(dataset: str, extractor: str, share: float, steps: int) -> Found:
    """Return seconds of each phase of a run of one seed with this share of the training images, and its accuracy."""
    import tempfile

    import dpbench

    options = f"steps={steps},sample_rate={RATE},learning_rate={LEARNING_RATE},momentum=0,clip={CLIP},scaling=norm"
    with tempfile.TemporaryDirectory() as folder:
        done = dpbench.run(
            f"dp-sgd:{options}", dataset, extractor, 1.0, delta=DELTA, public_fraction=0.0, train_fraction=share,
            seeds=1, out=folder, device="cpu",
        ).records[0]  # fmt: skip
    return {**done.seconds, "accuracy": done.metrics["accuracy"].mean, "n": done.task.private}


def theirs(dataset: str, extractor: str, n: int, steps: int) -> Found:
    """Return seconds of the same phases as a user of Opacus writes them, with n training images, and the accuracy."""
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    from dpbench import registry
    from dpbench.records.protocol import Component
    from dpbench.registry.components import build

    plugins, seconds = registry.load(), Found()
    data = build(plugins, "dataset", Component.parse(dataset)).load()
    network = build(plugins, "extractor", Component.parse(extractor))

    def phase(name: str, work: Callable[[], Value]) -> Value:
        begin = time.perf_counter()
        found = work()
        seconds[name] = time.perf_counter() - begin
        return found

    def read() -> tuple[TensorDataset, TensorDataset]:
        chosen = torch.randperm(len(data.train.labels), generator=torch.Generator().manual_seed(0))[:n]
        train = TensorDataset(*_compute_features(data.train, chosen.tolist(), network))
        return train, TensorDataset(*_compute_features(data.test, range(len(data.test.labels)), network))

    warnings.simplefilter("ignore")  # Opacus has advice
    train, test = phase("load", read)
    torch.manual_seed(0)
    head: Any = nn.Linear(train.tensors[0].shape[1], int(train.tensors[1].max()) + 1)
    optimiser = torch.optim.SGD(head.parameters(), lr=LEARNING_RATE)
    loader: DataLoader[Any] = DataLoader(train, batch_size=round(RATE * n))
    head, optimiser, loader = phase("calibrate", lambda: _make_private(head, optimiser, loader, steps))
    phase("fit", lambda: _train(head, optimiser, loader, steps))
    x, y = test.tensors
    with torch.inference_mode():
        right = phase("score", lambda: (head(x).argmax(1) == y).double().mean().item())
    return {**seconds, "accuracy": right, "n": n}


def _compute_features(split: Split, places: Sequence[int], extractor: Extractor) -> tuple[Tensor, Tensor]:
    """Return unit-norm features and labels of some images of a split, by torch in batches of 64."""
    import torch
    from torch.utils.data import DataLoader, Subset

    class Prepared(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return len(split.images)

        def __getitem__(self, index: int) -> Any:
            return extractor.prepare(split.images[index])

    network = extractor.open(torch.device("cpu"))
    with torch.inference_mode():
        features = [network(batch) for batch in DataLoader(Subset(Prepared(), list(places)), 64)]
    x = torch.cat(features).flatten(1)
    return torch.nn.functional.normalize(x), torch.as_tensor(split.labels)[list(places)].long()


def _make_private(head: Any, optimiser: Any, loader: Any, steps: int) -> tuple[Any, Any, Any]:
    """Return what Opacus trains with, its noise calibrated to epsilon 1."""
    from opacus import PrivacyEngine

    made = PrivacyEngine().make_private_with_epsilon(
        module=head, optimizer=optimiser, data_loader=loader, target_epsilon=1.0, target_delta=DELTA,
        epochs=round(steps * RATE), max_grad_norm=CLIP,
    )  # fmt: skip
    return made[0], made[1], made[-1]


def _train(head: Any, optimiser: Any, loader: Any, steps: int) -> None:
    import torch

    loss_of, done = torch.nn.CrossEntropyLoss(), 0
    while done < steps:
        for features, labels in loader:
            optimiser.zero_grad()
            loss_of(head(features), labels).backward()
            optimiser.step()
            done += 1
