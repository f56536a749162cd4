"""Linear probes trained by the `PrivacyEngine` of Opacus."""

from __future__ import annotations

import itertools
import math
import warnings

import torch
from opacus import PrivacyEngine
from opacus.accountants import PRVAccountant, RDPAccountant
from torch import Tensor

from dpbench.harness.prepare import PreparedRun
from dpbench.learning.probes import ProbeLearner
from dpbench_lab.reproduce.peers import PeerFits


class OpacusFits(PeerFits):
    """Fits with Opacus: per-example gradients from its hooks, noise from its optimizer, batches from its loader."""

    implementation = "Opacus"
    accountants = "prv", "rdp"
    packages = ("opacus",)

    def __init__(self, prepared: PreparedRun, learner: ProbeLearner) -> None:
        """Read the private rows, and start with an empty accountant."""
        super().__init__(prepared, learner)
        self._spent = PRVAccountant()

    def train(self, seed: int) -> Tensor:
        """Train a head from zero weights. Opacus divides by an integer batch size, which the learning rate corrects."""
        probe = self.learner.probe
        size, expected = len(self.x), probe.sample_rate * len(self.x)
        head = torch.nn.Linear(self.x.shape[1], self.task.classes)
        for weights in head.parameters():
            torch.nn.init.zeros_(weights)
        rate = probe.learning_rate * int(expected) / expected
        loader = torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(self.x, self.y), batch_size=math.ceil(expected),
            generator=torch.Generator().manual_seed(seed),
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            engine = PrivacyEngine(accountant="prv")
            model, optimizer, loader = engine.make_private(
                module=head, optimizer=torch.optim.SGD(head.parameters(), lr=rate, momentum=probe.momentum),
                data_loader=loader, noise_multiplier=self.privacy.sigma, max_grad_norm=probe.clip,
                noise_generator=torch.Generator().manual_seed(size + seed),
            )  # fmt: skip
            batches = itertools.chain.from_iterable(itertools.repeat(loader))
            for x, y in itertools.islice(batches, probe.steps):
                optimizer.zero_grad()
                torch.autograd.backward(torch.nn.functional.cross_entropy(model(x), y))
                optimizer.step()
        self._spent = engine.accountant
        return torch.cat([head.weight, head.bias[:, None]], 1).detach()

    def epsilons(self) -> dict[str, float]:
        """Return epsilon of the steps that the engine recorded, from the PRV and the RDP accountant."""
        found = {}
        for kind in (PRVAccountant, RDPAccountant):
            counted = kind()
            counted.history = self._spent.history
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found[kind.mechanism()] = float(counted.get_epsilon(self.privacy.delta))
        return found
