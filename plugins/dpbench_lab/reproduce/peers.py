"""Train `dp-sgd` with another library on a board's features: same examples, steps, clip, sample rate and sigma.

`dpbench reproduce opacus-peer` and `dpbench reproduce jax-peer` measure and print the table; the folder `measured`
holds the committed measurements, which the pages of boards show.

Guarantee: none by dpbench. Private features are handed to another library in this process, without a curator and
without the guards against learners that keep rows; epsilon is what that library's accountant states. So a comparison is
a reference and no entry: no result file is written, and no board accepts one. The record holds accuracies and seconds.
"""

from __future__ import annotations

import math
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from dpbench.api import Predict
from dpbench.errors import SpecError
from dpbench.harness.fitting import fit_once
from dpbench.harness.prepare import PreparedRun
from dpbench.harness.scoring import predict_all
from dpbench.harness.session import Session
from dpbench.learning.probes import ProbeLearner
from dpbench.privacy.core.accounting import accountant
from dpbench.receipts.receipt import find_installed_version
from dpbench.records.result import Interval, mean_interval
from dpbench.records.spec import Spec, make_spec
from dpbench.support.threads import limit_threads
from dpbench.support.validation import Record
from dpbench_lab.reproduce.catalogue import PEERS
from dpbench_lab.reproduce.measurements import Measurement

MEASURED = Path(__file__).parent / "measured"
HEAD = (
    "board", "ε", "rate, steps", "dpbench (%)", "{library} (%)", "agree",
    "ε by dpbench: PLD, RDP", "ε by {library}: {accountants}", "seconds: dpbench, {library}",
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


class PeerFits(ABC):
    """Fits of a prepared linear probe with another library's sampler, clipping, noise and accountants."""

    implementation: ClassVar[str]  # name of the other library
    accountants: ClassVar[tuple[str, str]]  # the keys of `epsilons`
    packages: ClassVar[tuple[str, ...]]  # whose versions the record holds

    def __init__(self, prepared: PreparedRun, learner: ProbeLearner) -> None:
        """Read the private rows, as they are before the harness rounds them to 8 bits."""
        self.learner, self.privacy, self.task = learner, prepared.privacy, prepared.roles.task
        self._public, rows = prepared.public, prepared.roles.private
        self._features = learner.features(self.task, prepared.public, torch.Generator().manual_seed(0))
        self.x, self.y = self._features(rows.held[rows.index].float()), rows.y

    @abstractmethod
    def train(self, seed: int) -> Tensor:
        """Return the weights of a trained head and, as the last column, its biases (classes, d + 1)."""

    @abstractmethod
    def epsilons(self) -> dict[str, float]:
        """Return the epsilon of the last fit from each of the library's accountants."""

    def fit(self, seed: int) -> Predict:
        """Train a head, and finish its predictor as dpbench's own learner does."""
        trained, probe = self.train(seed), self.learner.probe
        return self.learner.finish(
            lambda rows: probe.logits(trained, self._features(rows)),
            self._features, self.task, self._public, self.privacy.sigma,
        )  # fmt: skip


def load_peer(name: str) -> type[PeerFits]:
    """Return the `PeerFits` class of a study in `PEERS`.

    Raises:
        SpecError: the library is not installed.
    """
    module, _, kind = PEERS[name].partition(":")
    found: type[PeerFits] = getattr(import_module(module), kind)
    if absent := [package for package in found.packages if find_installed_version(package) is None]:
        raise SpecError(f"{name} needs {', '.join(absent)}. Install it: pip install 'dpbench-vision[peers]'.")
    return found


class LibraryFitScores(Record):
    """The fits of one library: the test accuracy of each seed, and the median seconds of a fit."""

    accuracies: tuple[float, ...]
    seconds: float

    @property
    def accuracy(self) -> Interval:
        """The mean accuracy and its interval over seeds."""
        return mean_interval(self.accuracies)


class PeerComparison(Record):
    """The same training on one board by dpbench and by another library, with accuracies and epsilons."""

    board: str
    implementation: str  # name of the other library
    epsilon: float  # target
    steps: int
    sample_rate: float
    learning_rate: float
    sigma: float
    private: int
    test: int
    epsilons: dict[str, float]  # library and accountant -> epsilon of the training
    ours: LibraryFitScores
    theirs: LibraryFitScores
    versions: dict[str, str | None]

    @property
    def difference(self) -> float:
        """The accuracy of the other library minus that of dpbench."""
        return self.theirs.accuracy.mean - self.ours.accuracy.mean

    @property
    def margin(self) -> float:
        """The largest difference that the two 95% intervals explain."""
        return math.hypot(*(_margin(side, self.test) for side in (self.ours, self.theirs)))

    @property
    def agrees(self) -> bool:
        """Whether the accuracies differ by no more than their intervals explain."""
        return abs(self.difference) <= self.margin

    @property
    def accountants(self) -> list[str]:
        """The names of the other library's accountants."""
        prefix = f"{self.implementation} "
        return [key.removeprefix(prefix) for key in self.epsilons if key.startswith(prefix)]

    @property
    def head(self) -> tuple[str, ...]:
        """The column headings of the table."""
        names = ", ".join(map(str.upper, self.accountants))
        return tuple(column.format(library=self.implementation, accountants=names) for column in HEAD)

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells of this comparison's table row, in the order of `head`."""
        sides = self.ours, self.theirs
        accuracies = (f"{100 * side.accuracy.mean:.2f} ± {100 * _margin(side, self.test):.2f}" for side in sides)
        stated = (
            ", ".join(f"{self.epsilons[f'{library} {name}']:.4f}" for name in names)
            for library, names in (("dpbench", ["pld", "rdp"]), (self.implementation, self.accountants))
        )
        return (
            self.board, f"{self.epsilon:g}", f"{self.sample_rate:g}, {self.steps}", *accuracies,
            "yes" if self.agrees else f"no: {100 * self.difference:+.2f}", *stated,
            f"{self.ours.seconds:.2f}, {self.theirs.seconds:.2f}",
        )  # fmt: skip


COMPARISONS = TypeAdapter(list[PeerComparison])


def _margin(scores: LibraryFitScores, test_count: int) -> float:
    return Measurement({}, scores.accuracy, True, tested=test_count).margin


def find_measured_file(name: str, folder: Path = MEASURED) -> Path:
    """Return the file of a study's comparisons; by default, the committed file."""
    return folder / f"{name}.json"


def read_comparisons(name: str, folder: Path = MEASURED) -> list[PeerComparison]:
    """Return the comparisons of a study in `PEERS`; by default, the committed ones.

    Raises:
        SpecError: the file is absent, or holds something else.
    """
    file = find_measured_file(name, folder)
    try:
        return COMPARISONS.validate_json(file.read_bytes())
    except (OSError, ValidationError):
        raise SpecError(f"Expected comparisons in {file}. Run: dpbench reproduce {name}") from None


def write_comparisons(found: Sequence[PeerComparison], file: Path) -> None:
    """Write comparisons to a file; create its folder if it does not exist."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(COMPARISONS.dump_json([*found], indent=1) + b"\n")


def render_peer_table(found: Sequence[PeerComparison]) -> str:
    """Return the comparisons as the Markdown table of the documentation, which has accuracies and seconds only."""
    rows = [(*row[:5], row[-1]) for row in (found[0].head, *(comparison.cells for comparison in found))]
    rows.insert(1, ("---",) * len(rows[0]))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def list_board_specs(seeds: int) -> list[tuple[str, Spec]]:
    """Return (board name, spec) for every comparison."""
    common = {"public_labels": True, "seeds": seeds, "unit": "image"}
    return [
        (board, make_spec({**data, **common, "epsilon": epsilon, "learner": learner}, "the comparison with peers"))
        for board, data in BOARDS.items()
        for epsilon in EPSILONS
        for learner in LEARNERS
    ]


def compare_with_peer(board: str, spec: Spec, session: Session, peer: type[PeerFits]) -> PeerComparison:
    """Fit every seed of a spec with the harness and with another library.

    Guarantee: none by dpbench for the other library's fits; see the module.

    Raises:
        DpbenchError: the run cannot be prepared (see `Session.prepare`), or a fit fails.
        TypeError: the learner is not a linear probe.
    """
    prepared = session.prepare(spec)
    learner, privacy = prepared.learner, prepared.privacy
    if not isinstance(learner, ProbeLearner):
        raise TypeError(f"Expected a linear probe, got {learner.name}.")
    fits = peer(prepared, learner)
    ours = _measure_fits(prepared, lambda seed: fit_once(prepared.make_fit_input(seed)).predict)
    theirs, probe = _measure_fits(prepared, fits.fit), learner.probe
    epsilons = {
        f"dpbench {name}": accountant.epsilon(privacy.releases, privacy.sigma, privacy.delta, name)
        for name in ("pld", "rdp")
    }
    epsilons |= {f"{peer.implementation} {name}": epsilon for name, epsilon in fits.epsilons().items()}
    return PeerComparison(
        board=board, implementation=peer.implementation, epsilon=spec.epsilon, steps=probe.steps,
        sample_rate=probe.sample_rate, learning_rate=probe.learning_rate, sigma=privacy.sigma, private=fits.task.size,
        test=len(prepared.test.scorer), epsilons=epsilons, ours=ours, theirs=theirs,
        versions={name: find_installed_version(name) for name in (*peer.packages, "torch")},
    )  # fmt: skip


def _measure_fits(prepared: PreparedRun, fit: Callable[[int], Predict]) -> LibraryFitScores:
    accuracies, seconds, test = [], [], prepared.test
    with limit_threads(prepared.loaded.threads):
        for seed in prepared.spec.seeds:
            began = time.perf_counter()
            predict = fit(seed)
            seconds.append(time.perf_counter() - began)
            scores = predict_all(predict, test.x, prepared.roles.task)
            accuracies.append(test.scorer.score(scores).value("accuracy"))
    return LibraryFitScores(accuracies=tuple(accuracies), seconds=statistics.median(seconds))
