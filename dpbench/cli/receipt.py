"""`dpbench receipt`: check a receipt, write one from a result, and print the schema."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpbench.errors import DataError, SpecError

if TYPE_CHECKING:
    from dpbench.receipts import Checked

app = typer.Typer(
    no_args_is_help=True,
    help="Check and write receipts: small files with everything that a model's epsilon is computed from.",
)


@app.command("check")
def check(
    files: Annotated[list[Path], typer.Argument(help="Receipts, made by dpbench.receipt(...).write(...).")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Recompute epsilon with two accountants and name every mismatch. Exits with 1 if there is one."""
    from dpbench.receipts import Receipt
    from dpbench.receipts import check as check_receipt

    checked: dict[str, Checked] = {}
    refused: dict[str, str] = {}
    for file in files:
        try:
            checked[str(file)] = check_receipt(Receipt.read(file), file.parent)
        except DataError as error:
            refused[str(file)] = str(error)
        except SpecError as error:
            refused[str(file)] = f"{file}: {error}"
    if as_json:
        failed: dict[str, Any] = {name: {"passed": False, "error": said} for name, said in refused.items()}
        print(json.dumps({**{name: _build_json_report(value) for name, value in checked.items()}, **failed}, indent=2))
    else:
        for name, value in checked.items():
            _print_report(name, value)
    if refused:
        raise DataError("\n".join(refused.values()))
    if not all(check.passed for check in checked.values()):
        raise typer.Exit(1)


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


def _build_json_report(checked: Checked) -> dict[str, Any]:
    return {
        "passed": checked.passed,
        "stated": checked.receipt.epsilon,
        "accountants": [
            {
                "name": opinion.accountant,
                "lower": _write_json_number(opinion.lower),
                "upper": _write_json_number(opinion.upper),
            }
            for opinion in checked.opinions
        ],
        "mismatches": [{"name": mismatch.name, "said": mismatch.said} for mismatch in checked.mismatches],
        "remarks": list(checked.remarks),
        "curve": checked.curve,
    }


def _write_json_number(value: float) -> float | str:
    return value if math.isfinite(value) else "Infinity"


def _print_report(file: str, checked: Checked) -> None:
    receipt = checked.receipt
    unit = f"per {receipt.unit}" if receipt.unit else "of an unknown unit"
    print(f"{file} states epsilon {receipt.epsilon:.4g} at delta {receipt.delta:g}, {unit}")
    for opinion in checked.opinions:
        more = opinion.upper - receipt.epsilon
        print(
            f"  {opinion.accountant}: {opinion.upper:.4g} for these events, {abs(more):.2g} "
            f"{'more' if more > 0 else 'less'}"
        )
    for named, said in checked.curve.items():
        print(f"  {named}: {said}")
    for wrong in checked.mismatches:
        print(f"  MISMATCH {wrong.name}: {wrong.said}")
    for remark in checked.remarks:
        print(f"  {remark}")
    many = len(checked.mismatches)
    found = f"{many} mismatch{'es' if many > 1 else ''}." if many else "No mismatch found."
    print(f"  {found}")
