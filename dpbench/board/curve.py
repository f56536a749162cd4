"""Make a board's learning curve: train `public-only` on growing numbers of public labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from dpbench.board.exchange import LearningCurve
from dpbench.board.folder import read_boards
from dpbench.errors import SpecError
from dpbench.harness.fit import fit_and_score_seed
from dpbench.harness.loaded import get_component_origins
from dpbench.harness.prepare import PreparedRun
from dpbench.harness.session import Session
from dpbench.records.board import Board
from dpbench.registry.boards import make_entry_spec
from dpbench.registry.components import make_component_record
from dpbench.support import progress
from dpbench.support.messages import format_unknown_name_message

LEARNER = "public-only"
DRAW_COUNT, FEWEST_LABELS = 5, 10


def write_learning_curves(board_names: Sequence[str], root: Path, session: Session) -> Iterator[Path]:
    """Write the learning curves of the named boards and yield each file.

    Without names, all boards with public labels and results are used. Boards share fits if they differ only in settings
    that do not affect a fit without private data, such as epsilon.

    Raises:
        SpecError: a name is no board, or no board has public labels and results.
        DpbenchError: `make_learning_curve` fails.
    """
    known, made = read_boards(root), dict[str, LearningCurve]()
    for name in board_names:
        if name not in known:
            raise SpecError(format_unknown_name_message("board", name, known))
    filled = [name for name, board in known.items() if board.public_labels and any((root / "results" / name).glob("*"))]
    if not (board_names or filled):
        raise SpecError(f"Expected a board with public labels and results in {root}, found none. Name boards.")
    for name in board_names or filled:
        board = known[name]
        same = make_entry_spec(board, {"learner": LEARNER}, session.plugins, name).data_key + board.metric
        if same not in made:
            made[same] = make_learning_curve(board, session)
        yield made[same].model_copy(update={"board": name, "digest": board.digest}).write(root)


def make_learning_curve(board: Board, session: Session) -> LearningCurve:
    """Train `public-only` on 10, 20, 50, ... all public labels of a board and return the test scores as a curve.

    No private row is read and no setting is chosen, so the curve costs no privacy.

    Raises:
        SpecError: the board's public data has no labels, or too few.
        DpbenchError: preparing or fitting a run fails.
    """
    if not board.public_labels:
        raise SpecError(f"Expected labelled public data on board {board.name!r}: without labels there is no exchange.")
    prepared = session.prepare(make_entry_spec(board, {"learner": LEARNER}, session.plugins, "a learning curve"))
    sizes = list_curve_sizes(len(prepared.public.x))
    with progress.show_progress_bar(f"Learning curve of {board.name}", DRAW_COUNT * len(sizes)) as advance:
        rows = []
        for draw in range(DRAW_COUNT):
            order = _draw_public_row_order(prepared, draw)
            row = []
            for size in sizes:
                row.append(_score_labelled_subset(prepared, order[:size], board.metric))
                advance(1)
            rows.append(tuple(row))
    return LearningCurve(
        board=board.name, digest=board.digest, metric=board.metric, learner=make_component_record(prepared.learner),
        labels=sizes, scores=tuple(rows), split_digests=prepared.images.digests,
        components=get_component_origins(prepared.parts),
        provenance=prepared.loaded.provenance,
    )  # fmt: skip


def list_curve_sizes(count: int) -> tuple[int, ...]:
    """Return 10, 20, 50, 100, 200, ... below `count`, and `count` itself.

    >>> list_curve_sizes(144)
    (10, 20, 50, 100, 144)

    Raises:
        SpecError: `count` is too small for a curve.
    """
    if count <= FEWEST_LABELS:
        raise SpecError(f"Expected more than {FEWEST_LABELS} public labels for a learning curve, got {count}.")
    steps = (factor * 10**power for power in range(1, 10) for factor in (1, 2, 5))
    return (*(size for size in steps if size < count), count)


def _draw_public_row_order(prepared: PreparedRun, draw: int) -> torch.Tensor:
    """Return the row numbers of all public examples in the random order of this draw."""
    spec = prepared.spec
    random = np.random.default_rng(np.random.SeedSequence(spec.split_seed, spawn_key=(draw, 3)))
    return torch.from_numpy(random.permutation(len(prepared.public.x)))


def _score_labelled_subset(prepared: PreparedRun, rows: torch.Tensor, metric: str) -> float:
    public = prepared.public
    assert public.y is not None
    y = public.y[rows]
    if len(torch.unique(y)) < 2:  # nothing to fit: that class is always guessed
        guesses = np.zeros((len(prepared.test.scorer), prepared.roles.task.classes))
        guesses[:, int(y[0])] = 1
        return prepared.test.scorer.score(guesses).value(metric)
    roles = dataclasses.replace(prepared.roles, public=public.take(rows))
    part = dataclasses.replace(prepared, loaded=dataclasses.replace(prepared.loaded, roles=roles))
    return fit_and_score_seed(part, prepared.spec.seeds[0]).value(metric)
