"""`dpbench budget`: find sigma for an epsilon, or epsilon for a sigma, with every accountant."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from dpbench.api import Choice, Planned, Release
from dpbench.errors import PlanError, SpecError
from dpbench.records.protocol import EPSILON_RANGE, SMALLEST_DELTA

SIGMA_RANGE = (1e-2, 1e7)
ADJACENCIES = ("add-or-remove-one", "replace-one")


def budget(
    release: Annotated[
        list[str] | None,
        typer.Option(help="A release, like steps=1000,sample_rate=0.02,relative_noise=1; repeat for several."),
    ] = None,
    choice: Annotated[
        list[str] | None,
        typer.Option(help="A private choice, like candidates=100,relative_noise=2; repeat for several."),
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Find sigma for this epsilon.")] = None,
    sigma: Annotated[float | None, typer.Option(help="Find epsilon for this sigma.")] = None,
    delta: Annotated[float, typer.Option(help="Delta of the guarantee.")] = 1e-5,
    adjacency: Annotated[
        str, typer.Option(help="What neighbours differ by: add-or-remove-one or replace-one (by `pld` only).")
    ] = ADJACENCIES[0],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find sigma for an epsilon, or epsilon for a sigma, with every accountant. Exits with 1 if none can answer."""
    if (epsilon is None) == (sigma is None):
        raise SpecError("Expected exactly one of --epsilon (to find sigma) and --sigma (to find epsilon).")
    if adjacency not in ADJACENCIES:
        raise SpecError(f"Expected --adjacency {adjacency} to be {' or '.join(ADJACENCIES)}.")
    plan = _parse_plan(release or [], choice or [])
    rows = _query_accountants(plan, epsilon, sigma, delta, replaced=adjacency == ADJACENCIES[1])
    if as_json:
        print(json.dumps(rows, indent=2))
    else:
        table = Table("accountant", "epsilon", "sigma", "note", box=None)
        for row in rows:
            table.add_row(row["accountant"], _format_number(row["epsilon"]), _format_number(row["sigma"]), row["note"])
        Console().print(table)
    if all(row["epsilon"] is None for row in rows):
        raise typer.Exit(1)


def _query_accountants(
    plan: list[Planned], epsilon: float | None, sigma: float | None, delta: float, *, replaced: bool
) -> list[dict[str, Any]]:
    from dpbench.api import Budget
    from dpbench.privacy.core.accounting import accountant, replacement
    from dpbench.privacy.core.plan import check_plan

    if not SMALLEST_DELTA <= delta < 1:
        raise SpecError(f"Expected --delta {delta:g} to be from {SMALLEST_DELTA:g} to 1, the range of the accountants.")
    for name, value, (low, high) in (("--epsilon", epsilon, EPSILON_RANGE), ("--sigma", sigma, SIGMA_RANGE)):
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise SpecError(f"Expected {name} {value} to be positive and finite.")
        if value is not None and not low <= value <= high:
            raise SpecError(f"Expected {name} {value:g} to be from {low:g} to {high:g}, the range of the accountants.")
    check_plan(plan, "this budget")
    rows: list[dict[str, Any]] = []
    wanted = Budget(epsilon or 0.0, delta)
    for name in accountant.ACCOUNTANTS[: 1 if replaced else None]:
        try:
            if replaced:
                found = sigma or replacement.calibrate(plan, wanted)
                stated = replacement.epsilon(plan, found, delta)
            else:
                found = sigma or accountant.calibrate(plan, wanted, name)
                stated = max(0.0, accountant.epsilon(plan, found, delta, name))  # prv's error may take it below
            rows.append({"accountant": name, "epsilon": stated, "sigma": found, "note": ""})
        except PlanError as error:
            rows.append({"accountant": name, "epsilon": None, "sigma": None, "note": str(error)})
    return rows


def _parse_plan(releases: list[str], choices: list[str]) -> list[Planned]:
    from dpbench.records.protocol import Component
    from dpbench.registry import convert_fields
    from dpbench.support.fields import is_required_field

    if not releases and not choices:
        raise SpecError("Expected a plan. Give at least one --release or --choice.")
    plan: list[Planned] = []
    for kind, texts in ((Release, releases), (Choice, choices)):
        word = kind.__name__.lower()
        for number, text in enumerate(texts):
            if "=" not in text:
                raise SpecError(
                    f"Expected --{word} as pairs like steps=100,sample_rate=0.05, got {text!r}. To name a {word}, "
                    f"write name={text or 'NAME'}."
                )
            given = {"name": f"{word} {number + 1}", **Component.parse(f"{word}:{text}").options}
            if lacking := [
                field.name for field in fields(kind) if field.name not in given and is_required_field(field)
            ]:
                raise SpecError(f"Expected {' and '.join(lacking)} in --{word} {text}, as in {lacking[0]}=10.")
            plan.append(kind(**convert_fields(kind, given, word)))
    return plan


def _format_number(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"
