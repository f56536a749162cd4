"""One result as an entry of a board: what it may be shown as, what speaks for it, and the command that repeats it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from typing import Any

from dpbench.board.index import Audited, Entry, Role, Trust
from dpbench.board.verify.checks import Checked
from dpbench.board.verify.known import Known
from dpbench.board.verify.rerun import Rerun
from dpbench.records.audit import Audit
from dpbench.records.board import Board
from dpbench.records.result import Result
from dpbench.records.search import Search


def entry_of(checked: Checked, board: Board, known: Known, again: Rerun | None, audit: Audit | None = None) -> Entry:
    """Return the entry of a result that passed every check, its rank left open."""
    result = checked.result
    assert result is not None and checked.ok
    role, why = _role(result, board, known)
    privacy, search = result.privacy, result.search
    fits, on_cpu = len(result.seeds), result.provenance.get("device") == "cpu"
    commit, dirty = result.provenance.get("commit"), result.provenance.get("dirty")
    return Entry(
        id=checked.stored.path.stem, file=checked.stored.file, role=role, rank=None, why=why,
        learner=result.spec.learner.name, settings=_settings(result), command=command_of(result, board, known),
        selection=result.selection, tried=search.tried if search else 1, status=result.status,
        reads_labels=result.task.public_labels_seen, reads_private=bool(privacy.plan),
        trust=_trust(result, again, audit), audit=_audited(audit) if audit and audit.passed else None,
        metrics=dict(sorted(result.metrics.items())), class_accuracy=_by_class(result), seeds=fits,
        epsilon=privacy.epsilon, independent=privacy.independent, sigma=privacy.sigma,
        steps=sum(release.steps for release in privacy.plan), seconds=result.seconds.get("fit", 0.0) / fits,
        cpu_seconds=result.cpu_seconds["fit"] / fits if on_cpu and "fit" in result.cpu_seconds else None,
        peak_bytes=max(result.peak_bytes.values(), default=0), plugin=result.components["learner"],
        commit=commit if isinstance(commit, str) else None, dirty=dirty if isinstance(dirty, bool) else None,
    )  # fmt: skip


def command_of(result: Result, board: Board, known: Known) -> str:
    """Return the command that repeats a result, with the options that are not the learner's defaults.

    A search with folds or a shape other than the defaults needs a TOML file: flags do not name them.
    """
    spec, words = result.spec, ["dpbench", "run"]
    unranked = spec.search is not None and spec.search.rule not in board.selection  # refused beside --board
    words += _protocol(result) if unranked else ["--board", board.name]
    here = known.installed.get(("learner", spec.learner.name))
    defaults = here.defaults if here and here.distribution == result.components["learner"].distribution else {}
    own = {name: value for name, value in spec.learner.options.items() if defaults.get(name, ...) != value}
    words += ["--learner", str(spec.learner.model_copy(update={"options": own}))]
    if spec.search is not None:
        words += _search(spec.search, here.space if here else {})
    return shlex.join(words + ["--secure-rng"] * spec.secure_rng)


def _role(result: Result, board: Board, known: Known) -> tuple[Role, str]:
    if result.status in {"disputed", "withdrawn"}:
        return "unranked", f"it is {result.status}"
    if math.isinf(result.spec.epsilon):
        here = known.installed.get(("learner", result.spec.learner.name))
        if here is not None and here.reference:
            return "ceiling", "it has no privacy: a line, not an entry"
        return "unranked", "it has no privacy, and its learner is no reference"
    if result.selection not in board.selection:
        return "unranked", f"its settings were chosen {_CHOSEN.get(result.selection, 'by ' + result.selection)}"
    if board.metric not in result.metrics:
        return "unranked", f"it has no {board.metric} for every seed"
    return "entry", ""


_CHOSEN = {
    "default": "by default, which this board does not rank",
    "by-hand": "by hand, and nobody can say on which data",
    "private-unaccounted": "on private data, outside epsilon",
    "oracle": "on the test split",
}


def _audited(audit: Audit) -> Audited:
    found, moved = audit.figures, audit.sensitivity
    return Audited(
        seed=audit.seed, noise_low=found.low, noise_high=found.high, steinke=found.steinke,
        mahloujifar=found.mahloujifar, gauss=found.gauss.epsilon if found.gauss else None,
        largest=moved.largest if moved else None, canaries=audit.attack.canaries if audit.attack else 0,
    )  # fmt: skip


def _trust(result: Result, again: Rerun | None, audit: Audit | None) -> tuple[Trust, ...]:
    """Return the badges; see `index.Trust`. Without private rows, or without privacy, epsilon has none."""
    found: list[Trust] = []
    if result.privacy.plan and not math.isinf(result.spec.epsilon):
        found.append("enforced")
        if result.privacy.independent.accountant not in {"none", result.privacy.accountant}:  # a second opinion
            found.append("derived")
    if again is not None and again.agrees:
        found.append("reproduced")
    if audit is not None and audit.passed:
        found.append("audited")
    if result.privacy.rng == "secure":
        found.append("secure-rng")
    return tuple(found)


def _settings(result: Result) -> dict[str, str]:
    search = result.search
    each = dict.fromkeys(search.space, "chosen for each seed") if search and search.chosen is None else {}
    return {name: str(value) for name, value in sorted({**result.settings, **each}.items())}


def _by_class(result: Result) -> tuple[float | None, ...]:
    columns = zip(*(seed.class_accuracy for seed in result.seeds), strict=True)
    return tuple(None if None in column else _mean(column) for column in columns)


def _mean(values: tuple[float | None, ...]) -> float:
    return math.fsum(value or 0.0 for value in values) / len(values)


def _search(search: Search, own: Mapping[str, Any]) -> list[str]:
    words = ["--selection", search.rule]
    assert isinstance(search.space, dict)
    space = {name: list(values) for name, values in search.space.items()}
    if space != own:
        for name, values in space.items():
            words += ["--space", f"{name}={','.join(map(str, values))}"]
    if search.rule == "private-accounted":
        words += ["--repeats", f"{search.repeats:g}"]
    elif search.tries != Search.model_fields["tries"].default:
        words += ["--tries", str(search.tries)]
    return words + (["--search-seed", str(search.seed)] if search.seed else [])


def _protocol(result: Result) -> list[str]:
    """Return the flags that say what a board would."""
    spec = result.spec
    public = ["--public-dataset", str(spec.public_dataset)] if spec.public_dataset else []
    words = ["--dataset", str(spec.dataset), "--extractor", str(spec.extractor), "--epsilon", str(spec.epsilon)]
    words += ["--delta", str(spec.delta), "--accountant", spec.accountant]
    words += public or ["--public-fraction", str(spec.public_fraction)]
    words += ["--public-labels"] * spec.public_labels + ["--train-fraction", str(spec.train_fraction)]
    words += ["--imbalance", str(spec.imbalance)] if spec.imbalance else []
    return [*words, "--split-seed", str(spec.split_seed), "--seeds", str(len(spec.seeds))]
