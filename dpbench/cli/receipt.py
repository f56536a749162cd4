"""`dpbench receipt`: write a receipt from a result, and print the schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dpbench.cli.output import Json
from dpbench.cli.verify import LEADERBOARD, print_deprecation, print_verification_reports

app = typer.Typer(
    no_args_is_help=True,
    help="Write receipts: small files with everything that a model's epsilon is computed from.",
)


@app.command("check", hidden=True)
def check(
    files: Annotated[list[Path], typer.Argument(help="Receipts, made by dpbench.receipt(...).write(...).")],
    as_json: Json = False,
) -> None:
    """Recompute epsilon of receipts. Deprecated: use dpbench verify."""
    print_deprecation("receipt check", "verify")
    print_verification_reports(files, LEADERBOARD, as_json=as_json)


@app.command("from")
def from_result(
    result: Annotated[Path, typer.Argument(help="A result of dpbench.")],
    out: Annotated[Path | None, typer.Option(help="The file to write. \\[default: receipt/ beside it]")] = None,
) -> None:
    """Write the receipt of a result."""
    from dpbench.receipts import from_result as convert

    made = convert(result)
    print(made.write(out or result.parent / "receipt" / result.name))


@app.command("schema")
def schema() -> None:
    """Print the JSON schema of receipts, with a description of each field."""
    from dpbench.receipts import Receipt

    print(json.dumps(Receipt.model_json_schema(), indent=2, ensure_ascii=False))
