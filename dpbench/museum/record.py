"""What running the museum gave: one record an exhibit, and the matrix of who stopped what. No torch here.

`record.json` and `README.md` beside this file are made by `write`, and held to what exhibits do by the tests.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter

from dpbench.museum.exhibit import GUARDS, Exhibit, Findings, Guard

FILE = Path(__file__).parent / "record.json"
PAGE = FILE.with_name("README.md")


class Record(BaseModel):
    """One exhibit after a visit."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    name: str
    summary: str
    source: str
    claimed: float | None  # epsilon; None where it is not what is wrong, or nobody knows the true one
    true: float | None
    passed: tuple[Guard, ...]  # who was asked, and let it pass
    stopped: tuple[Guard, ...]  # who stopped it

    @property
    def epsilon(self) -> str:
        """Epsilon as claimed and as it is."""
        return "" if self.claimed is None or self.true is None else f"{_short(self.claimed)} → {_short(self.true)}"


def recorded(exhibit: Exhibit, findings: Findings) -> Record:
    """Return the record of a visit."""
    truth = exhibit.truth()
    return Record(
        name=exhibit.name, summary=exhibit.summary, source=exhibit.source,
        claimed=truth and float(f"{truth.claimed:.3g}"), true=truth and float(f"{truth.true:.3g}"),
        passed=tuple(guard for guard in GUARDS if guard in findings and not findings[guard]),
        stopped=tuple(guard for guard in GUARDS if findings.get(guard)),
    )  # fmt: skip


def read() -> tuple[Record, ...]:
    """Return the records as committed."""
    return TypeAdapter(tuple[Record, ...]).validate_json(FILE.read_bytes())


def write(records: Iterable[Record]) -> None:
    """Write records and page."""
    kept = tuple(records)
    lines = [json.loads(one.model_dump_json()) for one in kept]
    FILE.write_text(json.dumps(lines, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(page(kept), encoding="utf-8")


def page(records: Iterable[Record]) -> str:
    """Return the detection matrix as Markdown, and what each exhibit is."""
    kept = tuple(records)
    guards = [guard for guard in GUARDS if any(guard in one.stopped + one.passed for one in kept)]
    lines = [
        "# The museum",
        "",
        f"{len(kept)} bugs, of published code and a few made for the museum: `dpbench museum NAME` shows one and runs "
        "it. ● stopped it, ○ was asked and let it pass; who comes after a refusal is not asked. ε is as claimed and as "
        "it is, where that is known; ∞ where something leaves that no noise covers.",
        "",
        f"| exhibit | ε | {' | '.join(guards)} |",
        "|---|---|" + ":-:|" * len(guards),
    ]
    marks = {True: "●", False: "○", None: ""}
    for one in kept:
        cells = [marks[True if guard in one.stopped else False if guard in one.passed else None] for guard in guards]
        lines.append(f"| [{one.name}](#{one.name}) | {one.epsilon} | {' | '.join(cells)} |")
    for one in kept:
        lines += ["", f"### {one.name}", "", one.summary, "", f"Source: {one.source}"]
    return "\n".join(lines) + "\n"


def _short(epsilon: float) -> str:
    return "∞" if math.isinf(epsilon) else f"{epsilon:.3g}"
