"""The README's picture: how far each learner is behind the best entry of each board, as SVG from the index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dpbench.board.index import Standing
from dpbench.board.rows import EntryRow, board_rows

COLUMN, ROW, LEFT, TOP = 13, 20, 108, 62  # pixels
STEPS = (1, 2, 4, 8, 16)  # points behind the best: each a paler colour
SHADES = ("#124e78", "#5384a6", "#83a8c1", "#adc6d7", "#d2e0e9", "#eaf1f5")
PAPER, INK = "#ffffff", "#1a1c1f"
TITLE = "Points behind the best comparable entry of each board, for each learner at its default settings"


@dataclass(frozen=True)
class Group:
    """Boards that differ in epsilon alone, in its order, under a heading of two lines."""

    heading: tuple[str, str]
    standings: tuple[Standing, ...]


def draw(groups: Iterable[Group]) -> str:
    """Return the picture: a row a learner, a column a board, and the name of the family above."""
    kept = tuple(groups)
    learners = _learners(standing for group in kept for standing in group.standings)
    height = TOP + ROW * len(learners) + 44
    parts: list[str] = []
    left = LEFT
    for group in kept:
        parts += _group(group, left, learners)
        left += COLUMN * len(group.standings) + 12
    parts.append(_text(LEFT - 8, TOP - 6, "ε", "end", 9))
    for place, name in enumerate(learners):
        parts.append(_text(LEFT - 8, TOP + ROW * place + 14, name, "end"))
    parts += _legend(TOP + ROW * len(learners) + 18)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left} {height}" role="img" aria-labelledby="title" '
        f"""font-family="system-ui, -apple-system, 'Segoe UI', sans-serif" font-size="11">\n"""
        f'<title id="title">{TITLE}</title>\n<rect width="{left}" height="{height}" fill="{PAPER}"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _learners(standings: Iterable[Standing]) -> list[str]:
    """Return the learners by how far they are behind on average, the closest first."""
    gaps: dict[str, list[float]] = {}
    for standing in standings:
        for row in _defaults(standing):
            gaps.setdefault(row.facts.learner, []).append(row.behind or 0.0)
    return sorted(gaps, key=lambda name: sum(gaps[name]) / len(gaps[name]))


def _group(group: Group, left: int, learners: list[str]) -> Iterator[str]:
    for line, heading in enumerate(group.heading):
        yield _text(left, TOP - 40 + 13 * line, heading)
    for column, standing in enumerate(group.standings):
        x, rows = left + COLUMN * column, {row.facts.learner: row for row in _defaults(standing)}
        yield _text(x + COLUMN / 2, TOP - 6, f"{standing.board.epsilon:g}".lstrip("0"), "middle", 7)
        for place, name in enumerate(learners):
            if name in rows:
                yield _cell(x, TOP + ROW * place, rows[name])


def _cell(x: int, y: int, row: EntryRow) -> str:
    gap = 100 * (row.behind or 0.0)
    shade = SHADES[sum(gap > step for step in STEPS)]
    box = f'<rect x="{x}" y="{y}" width="{COLUMN - 1}" height="{ROW - 1}" fill="{shade}"/>'
    dot = PAPER if gap <= STEPS[1] else INK
    return box + (f'<circle cx="{x + 6}" cy="{y + 9.5}" r="2" fill="{dot}"/>' if row.standing.tied else "")


def _legend(y: int) -> Iterator[str]:
    x = LEFT
    for shade, said in zip(SHADES, [*(f"up to {step}" for step in STEPS), "more points behind"], strict=True):
        yield f'<rect x="{x}" y="{y}" width="12" height="12" fill="{shade}"/>' + _text(x + 17, y + 10, said)
        x += 68
    x += 66
    yield f'<circle cx="{x}" cy="{y + 6}" r="2" fill="{INK}"/>' + _text(x + 8, y + 10, "rank 1, alone or tied")


def _text(x: float, y: float, said: str, anchor: str = "start", size: int = 11) -> str:
    return f'<text x="{x:g}" y="{y}" text-anchor="{anchor}" font-size="{size}" fill="{INK}">{said}</text>'


def _defaults(standing: Standing) -> list[EntryRow]:
    return [row for row in board_rows(standing) if row.standing.role == "entry" and row.facts.selection == "default"]
