"""The detection matrix: which guards missed each exhibit, and which caught it. Imports no torch.

`write_museum_record` writes `record.json` and `README.md` beside this file. Tests compare both with what exhibits do.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from dpbench_lab.museum.exhibit import Exhibit, Findings
from dpbench_lab.museum.record import FILE, GUARDS, ExhibitRecord

PAGE = FILE.with_name("README.md")


def make_exhibit_record(exhibit: Exhibit, findings: Findings) -> ExhibitRecord:
    """Return the record of an exhibit, from the findings of its run."""
    truth = exhibit.claimed_and_true_epsilon()
    return ExhibitRecord(
        name=exhibit.name, summary=exhibit.summary, source=exhibit.source,
        claimed=truth and float(f"{truth.claimed:.3g}"), true=truth and float(f"{truth.true:.3g}"),
        passed=tuple(guard for guard in GUARDS if guard in findings and not findings[guard]),
        stopped=tuple(guard for guard in GUARDS if findings.get(guard)),
    )  # fmt: skip


def write_museum_record(records: Iterable[ExhibitRecord]) -> None:
    """Write the records to `record.json`, and their page to `README.md`."""
    kept = tuple(records)
    lines = [json.loads(exhibit.model_dump_json()) for exhibit in kept]
    FILE.write_text(json.dumps(lines, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(format_matrix_page(kept), encoding="utf-8")


def format_matrix_page(records: Iterable[ExhibitRecord]) -> str:
    """Return the detection matrix as Markdown, with a description of each exhibit."""
    kept = tuple(records)
    guards = [guard for guard in GUARDS if any(guard in exhibit.stopped + exhibit.passed for exhibit in kept)]
    lines = [
        "# The museum",
        "",
        f"The museum contains {len(kept)} privacy bugs, from published code or made for the museum. Each exhibit is "
        "code that runs: `dpbench museum NAME` shows it and what stops it.",
        "",
        "*What stops each bug. ●: caught it. ○: ran and missed it. Blank: not run, because an earlier check had "
        "already caught the bug, or because the check does not apply. ε: claimed → actual, where the actual one is "
        "known; ∞ means that the bug releases something without noise. An audit claims a lower bound.*",
        "",
        f"| exhibit | ε | {' | '.join(guards)} |",
        "|---|---|" + ":-:|" * len(guards),
    ]
    marks = {True: "●", False: "○", None: ""}
    for exhibit in kept:
        cells = [
            marks[True if guard in exhibit.stopped else False if guard in exhibit.passed else None] for guard in guards
        ]
        lines.append(f"| [{exhibit.name}](#{exhibit.name}) | {exhibit.epsilon} | {' | '.join(cells)} |")
    for exhibit in kept:
        lines += ["", f"### {exhibit.name}", "", exhibit.summary, "", f"Source: {exhibit.source}"]
    return "\n".join(lines) + "\n"
