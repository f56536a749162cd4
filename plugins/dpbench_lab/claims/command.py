"""`dpbench claims`: recompute the ε of published claims, and print a verdict for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from dpbench.cli.output import Json
from dpbench.errors import SpecError
from dpbench.support.messages import format_unknown_name_message

if TYPE_CHECKING:
    from dpbench_lab.claims.catalogue import Paper
    from dpbench_lab.claims.verdict import ClaimVerdict


def claims(
    paper: Annotated[str | None, typer.Argument(help="Show only this paper's claims, with their sources.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Show only claims on this dataset, such as CIFAR-10.")] = None,
    root: Annotated[
        Path | None,
        typer.Option(help="Folder of the leaderboard; claims are in its subfolder claims/. \\[default: leaderboard]"),
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Write all verdicts to the catalogue, for the site.")] = False,
    as_json: Json = False,
) -> None:
    """Recompute the ε of published claims with two accountants, and report what the printed numbers support."""
    from dpbench_lab.claims.catalogue import find_claims_folder, read_catalogue
    from dpbench_lab.claims.verdict import judge_all_claims, write_verdicts

    if write and (paper or dataset):
        raise SpecError("Expected --write alone: it records the verdicts of the whole catalogue.")
    folder = find_claims_folder(Path("leaderboard")) if root is None else root / "claims"
    papers = _select_claims(read_catalogue(folder), paper, dataset)
    verdicts = judge_all_claims(papers)
    if write:
        write_verdicts(folder, verdicts)
    if as_json:
        _print_json(papers, verdicts)
        return
    _print_table(papers, verdicts)
    if paper:
        _print_sources(papers)


def _select_claims(papers: Sequence[Paper], key: str | None, dataset: str | None) -> list[Paper]:
    if key is not None and key not in {paper.key for paper in papers}:
        raise SpecError(format_unknown_name_message("paper", key, [paper.key for paper in papers], "the catalogue"))
    known = {claim.dataset for paper in papers for claim in paper.claims}
    if dataset is not None and dataset.lower() not in {key.lower() for key in known}:
        raise SpecError(format_unknown_name_message("dataset", dataset, known, "the catalogue"))
    found = []
    for paper in papers:
        kept = tuple(claim for claim in paper.claims if dataset is None or claim.dataset.lower() == dataset.lower())
        if kept and key in {None, paper.key}:
            found.append(paper.model_copy(update={"claims": kept}))
    return found


def _print_json(papers: Sequence[Paper], verdicts: Sequence[ClaimVerdict]) -> None:
    import json

    said = {
        (verdict.paper, verdict.claim): verdict.model_dump(mode="json", exclude={"paper", "claim"})
        for verdict in verdicts
    }
    rows = [
        {
            "paper": paper.model_dump(mode="json", exclude={"claims"}),
            "claim": claim.model_dump(exclude_unset=True),
            "verdict": said[paper.key, claim.id],
        }
        for paper in papers
        for claim in paper.claims
    ]
    print(json.dumps(rows, indent=1, ensure_ascii=False, default=float))


def _print_table(papers: Sequence[Paper], verdicts: Sequence[ClaimVerdict]) -> None:
    table = Table(
        Column("paper", no_wrap=True), Column("claim", overflow="fold"), Column("dataset", overflow="fold"), "%",
        Column("ε", justify="right"), Column("pld", justify="right"), Column("rdp", justify="right"),
        Column("verdict", min_width=len("stated with margin")), box=None,
    )  # fmt: skip
    said = iter(verdicts)
    for paper in papers:
        for claim in paper.claims:
            row = next(said)
            score = claim.accuracy if claim.accuracy is not None else claim.auc
            table.add_row(
                paper.key, claim.id, Text(claim.dataset), "" if score is None else f"{score:g}", f"{claim.epsilon:f}",
                _format_number(row.pld), _format_number(row.rdp),
                row.judgement + (f": {', '.join(row.missing)}" * bool(row.missing)),
            )  # fmt: skip
    console = Console()
    width = None if console.is_terminal else 400  # a pipe has no width that a cell would be cut to
    console.print(table, highlight=False, width=width)
    counts = Counter(verdict.judgement for verdict in verdicts)
    told = ", ".join(f"{count} {word}" for word, count in counts.most_common())
    said_of = f"{_format_count(len(verdicts), 'claim')} from {_format_count(len(papers), 'paper')}"
    console.print(f"{said_of}: {told}." if told else f"{said_of}.", highlight=False, soft_wrap=True)
    console.print(
        "A verdict says what follows from the printed numbers, assuming Poisson sampling. dpbench claims PAPER shows "
        "where to find each number.", highlight=False, soft_wrap=True,
    )  # fmt: skip


def _print_sources(papers: Sequence[Paper]) -> None:
    console = Console()
    for paper in papers:
        console.print(f"\n{paper.authors}: {paper.title} ({paper.year}). {paper.source}", markup=False, soft_wrap=True)
        for claim in paper.claims:
            places: dict[str, list[str]] = {}
            for field, place in claim.sources.items():
                places.setdefault(place, []).append(field)
            for place, fields in places.items():
                console.print(f"  {claim.id}: {', '.join(fields)}: {place}", markup=False, soft_wrap=True)


def _format_count(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"


def _format_number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
