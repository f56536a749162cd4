"""Train `dp-sgd` with Opacus on a board's features: same examples, steps, clip, sample rate and sigma; other code.

`dpbench reproduce opacus-peer` measures and prints the table; `opacus_peer.json` is the committed measurement.

Covered: nothing. Private features are handed to another library in this process, without a curator and without the
guards against learners that keep rows; epsilon is what that library's accountant states. So it is a reference and no
entry: no result file is written, and no board takes it. The record holds accuracies and seconds.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError

from dpbench.api import Predict
from dpbench.errors import SpecError
from dpbench.harness.fitting import fit_once
from dpbench.harness.prepare import PreparedRun
from dpbench.harness.scoring import predict_all
from dpbench.harness.session import Session
from dpbench.learning.probes import ProbeLearner
from dpbench.privacy.core.accounting import accountant
from dpbench.receipts.receipt import find_version
from dpbench.records.result import Interval, mean_interval
from dpbench.records.spec import Spec, make_spec
from dpbench.support.threads import limit_threads
from dpbench.support.validation import Record
from dpbench_lab.reproduce.measurements import Measurement

FILE = Path(__file__).parent / "opacus_peer.json"
HEAD = (
    "board", "ε", "rate, steps", "dpbench (%)", "Opacus (%)", "agree",
    "ε by dpbench: PLD, RDP", "ε by Opacus: PRV, RDP", "seconds: dpbench, Opacus",
)  # fmt: skip
BOARDS: Mapping[str, Mapping[str, Any]] = {
    "digits": {"dataset": {"name": "digits"}, "extractor": {"name": "pixels"}},
    "pneumonia-lite0": {"dataset": {"name": "pneumonia"}, "extractor": {"name": "efficientnet-lite0"}},
    "cifar10-10000-lite0": {
        "dataset": {"name": "cifar10"}, "extractor": {"name": "efficientnet-lite0"}, "train_fraction": 0.222222,
    },
}  # fmt: skip
EPSILONS = 1.0, 8.0
LEARNERS = {"name": "dp-sgd"}, {"name": "dp-sgd", "options": {"sample_rate": 0.1, "steps": 100}}


class Training(Record):
    """The fits of one library: the test accuracy of each seed, and the median seconds of a fit."""

    accuracies: tuple[float, ...]
    seconds: float

    @property
    def accuracy(self) -> Interval:
        """The mean accuracy and its interval over seeds."""
        return mean_interval(self.accuracies)


class PeerComparison(Record):
    """The same training by dpbench and by Opacus."""

    board: str
    epsilon: float  # target
    steps: int
    sample_rate: float
    learning_rate: float
    sigma: float
    private: int
    test: int
    epsilons: dict[str, float]  # accountant -> epsilon of the training
    ours: Training
    opacus: Training
    versions: dict[str, str | None]

    @property
    def difference(self) -> float:
        """The accuracy of Opacus minus that of dpbench."""
        return self.opacus.accuracy.mean - self.ours.accuracy.mean

    @property
    def margin(self) -> float:
        """The difference that the two 95% intervals explain."""
        return math.hypot(*(_margin(side, self.test) for side in (self.ours, self.opacus)))

    @property
    def agrees(self) -> bool:
        """Whether the accuracies differ by no more than their intervals explain."""
        return abs(self.difference) <= self.margin

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells of its row, under `HEAD`."""
        sides = self.ours, self.opacus
        accuracies = (f"{100 * side.accuracy.mean:.2f} ± {100 * _margin(side, self.test):.2f}" for side in sides)
        stated = (
            ", ".join(f"{self.epsilons[f'{library} {name}']:.4f}" for name in names)
            for library, names in (("dpbench", ("pld", "rdp")), ("Opacus", ("prv", "rdp")))
        )
        return (
            self.board, f"{self.epsilon:g}", f"{self.sample_rate:g}, {self.steps}", *accuracies,
            "yes" if self.agrees else f"no: {100 * self.difference:+.2f}", *stated,
            f"{self.ours.seconds:.2f}, {self.opacus.seconds:.2f}",
        )  # fmt: skip


def _margin(side: Training, tested: int) -> float:
    return Measurement({}, side.accuracy, True, tested=tested).margin


def read_comparisons(file: Path = FILE) -> list[PeerComparison]:
    """Return the comparisons in a file; by default, the committed ones.

    Raises:
        SpecError: the file is absent, or holds something else.
    """
    try:
        return COMPARISONS.validate_json(file.read_bytes())
    except (OSError, ValidationError):
        raise SpecError(f"Expected comparisons with Opacus in {file}. Run: dpbench reproduce opacus-peer") from None


def write_comparisons(found: Sequence[PeerComparison], file: Path) -> None:
    """Write comparisons to a file, in a new folder if need be."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(COMPARISONS.dump_json([*found], indent=1) + b"\n")


def write_markdown(found: Sequence[PeerComparison]) -> str:
    """Return the table of the documentation."""
    rows = (HEAD, ("---",) * len(HEAD), *(comparison.cells for comparison in found))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def list_specs(seeds: int) -> list[tuple[str, Spec]]:
    """Return each board's name and each spec that is compared on it."""
    common = {"public_labels": True, "seeds": seeds, "unit": "image"}
    return [
        (board, make_spec({**data, **common, "epsilon": epsilon, "learner": learner}, "opacus-peer"))
        for board, data in BOARDS.items()
        for epsilon in EPSILONS
        for learner in LEARNERS
    ]


def compare_with_opacus(board: str, spec: Spec, session: Session) -> PeerComparison:
    """Fit every seed of a spec with the harness and with Opacus.

    Covered: nothing by the fits of Opacus; see the module.

    Raises:
        DpbenchError: as `Session.prepare` and a fit do.
    """
    prepared = session.prepare(spec)
    learner, privacy = prepared.learner, prepared.privacy
    if not isinstance(learner, ProbeLearner):
        raise TypeError(f"Expected a linear probe, got {learner.name}.")
    peer = OpacusFits(prepared, learner)
    ours = _measure(prepared, lambda seed: fit_once(prepared.fit_input(seed)).predict)
    theirs, epsilons = _measure(prepared, peer.fit), peer.epsilons()
    for name in ("pld", "rdp"):
        epsilons[f"dpbench {name}"] = accountant.epsilon(privacy.releases, privacy.sigma, privacy.delta, name)
    probe = learner.probe
    return PeerComparison(
        board=board, epsilon=spec.epsilon, steps=probe.steps, sample_rate=probe.sample_rate,
        learning_rate=probe.learning_rate, sigma=privacy.sigma, private=prepared.roles.task.size,
        test=len(prepared.test.scorer), epsilons=epsilons, ours=ours, opacus=theirs,
        versions={name: find_version(name) for name in ("opacus", "torch")},
    )  # fmt: skip


def _measure(prepared: PreparedRun, fit: Callable[[int], Predict]) -> Training:
    accuracies, seconds, test = [], [], prepared.test
    with limit_threads(prepared.loaded.threads):
        for seed in prepared.spec.seeds:
            began = time.perf_counter()
            predict = fit(seed)
            seconds.append(time.perf_counter() - began)
            scores = predict_all(predict, test.x, prepared.roles.task)
            accuracies.append(test.scorer.score(scores).value("accuracy"))
    return Training(accuracies=tuple(accuracies), seconds=statistics.median(seconds))


COMPARISONS = TypeAdapter(list[PeerComparison])


class OpacusFits:
    """Fits of a prepared linear probe by the `PrivacyEngine` of Opacus: its sampler, clipping, noise and accountant."""

    def __init__(self, prepared: PreparedRun, learner: ProbeLearner) -> None:
        """Read the private rows, as they are before the harness rounds them to 8 bits."""
        from opacus.accountants import PRVAccountant

        self._prepared, self._learner = prepared, learner
        rows, task = prepared.roles.private, prepared.roles.task
        self._features = learner.features(task, prepared.public, torch.Generator().manual_seed(0))
        self._x, self._y = self._features(rows.held[rows.index].float()), rows.y
        self._spent = PRVAccountant()

    def fit(self, seed: int) -> Predict:
        """Train a head with Opacus, and finish its predictor as the harness does."""
        from opacus import PrivacyEngine

        probe, privacy, task = self._learner.probe, self._prepared.privacy, self._prepared.roles.task
        size, expected = len(self._x), probe.sample_rate * len(self._x)
        head = torch.nn.Linear(self._x.shape[1], task.classes)
        for weights in head.parameters():
            torch.nn.init.zeros_(weights)
        rate = probe.learning_rate * int(expected) / expected  # Opacus divides by whole batches
        loader = torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(self._x, self._y), batch_size=math.ceil(expected),
            generator=torch.Generator().manual_seed(seed),
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            engine = PrivacyEngine(accountant="prv")
            model, optimizer, loader = engine.make_private(
                module=head, optimizer=torch.optim.SGD(head.parameters(), lr=rate, momentum=probe.momentum),
                data_loader=loader, noise_multiplier=privacy.sigma, max_grad_norm=probe.clip,
                noise_generator=torch.Generator().manual_seed(size + seed),
            )  # fmt: skip
            batches = itertools.chain.from_iterable(itertools.repeat(loader))
            for x, y in itertools.islice(batches, probe.steps):
                optimizer.zero_grad()
                torch.autograd.backward(torch.nn.functional.cross_entropy(model(x), y))
                optimizer.step()
        self._spent = engine.accountant
        trained = torch.cat([head.weight, head.bias[:, None]], 1).detach()
        return self._learner.finish(
            lambda rows: probe.logits(trained, self._features(rows)),
            self._features, task, self._prepared.public, privacy.sigma,
        )  # fmt: skip

    def epsilons(self) -> dict[str, float]:
        """Return the epsilon of the last fit by Opacus' accountants, from what its engine counted."""
        from opacus.accountants import PRVAccountant, RDPAccountant

        found = {}
        for kind in (PRVAccountant, RDPAccountant):
            counted = kind()
            counted.history = self._spent.history
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found[f"Opacus {kind.mechanism()}"] = float(counted.get_epsilon(self._prepared.privacy.delta))
        return found
