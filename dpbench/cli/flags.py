"""The flags that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dpbench.errors import SpecError
from dpbench.records.search import Search
from dpbench.records.spec import Spec, make_spec, read_toml

Learner = Annotated[str | None, typer.Option(help="Learner, like pillar or pillar:k=40,center=false.")]
Dataset = Annotated[str | None, typer.Option(help="Dataset of the private and test data. \\[default: digits]")]
Extractor = Annotated[str | None, typer.Option(help="Feature extractor. \\[default: pixels]")]
Epsilon = Annotated[float | None, typer.Option(help="Target epsilon in nats; inf for none. \\[default: 1]")]
Delta = Annotated[float | None, typer.Option(help="Target delta, below 1/n. \\[default: 1e-5]")]
Accountant = Annotated[str | None, typer.Option(help="pld, rdp or prv. \\[default: pld]")]
PublicFraction = Annotated[float | None, typer.Option(help="Share of the training split made public. \\[default: 0.1]")]
PublicDataset = Annotated[str | None, typer.Option(help="Take public data from this dataset instead.")]
PublicLabels = Annotated[bool | None, typer.Option("--public-labels", help="Let learners read public labels.")]
TrainFraction = Annotated[float | None, typer.Option(help="Share of the private split to keep. \\[default: 1]")]
SplitSeed = Annotated[int | None, typer.Option(help="Seed of the public/private split. \\[default: 0]")]
SpecFile = Annotated[Path | None, typer.Option(help="TOML file with any of these keys; flags win over it.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 ...")]
Out = Annotated[Path, typer.Option(help="Folder for the result.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Space = Annotated[
    list[str] | None,
    typer.Option(help="own, paper, or field=value,value (repeat for more fields): what to search. \\[default: own]"),
]
Tries = Annotated[int | None, typer.Option(help="At most so many settings; of more, a random draw. \\[default: 500]")]
SearchSeed = Annotated[int | None, typer.Option(help="Seed of draws and folds of the search. \\[default: 0]")]


def spec_of(flags: dict[str, Any], file: Path | None, command: str) -> Spec:
    """Return the spec that a file and flags describe; see `values_of`."""
    return make_spec(values_of(flags, file, command), origin_of(file, command))


def origin_of(file: Path | None, command: str) -> str:
    """Say where a spec comes from, for messages."""
    return f"{file} and flags" if file else f"the flags of dpbench {command}"


def values_of(flags: dict[str, Any], file: Path | None, command: str) -> dict[str, Any]:
    """Return the keys of a spec that a file and flags give; flags that are None were not given.

    The `search` of flags goes before that of the file, key by key; `default` as its rule drops both.

    Raises:
        SpecError: details of a search, and nothing that asks for one.
    """
    values = read_toml(file) if file else {}
    given = {key: value for key, value in flags.items() if value is not None and key != "search"}
    search, written = flags["search"], values.pop("search", None)
    if search.get("rule") == "default":
        search = {key: value for key, value in search.items() if key != "rule"}
        written = None
    elif command == "tune" or written is not None or "rule" in search:
        values["search"], search = {**(written or {}), **search}, {}
    if search:
        names = ", ".join(f"--{name}" for name in search)
        raise SpecError(f"Expected --tune or --selection beside {names}: nothing is searched without them.")
    return {**values, **given}


def search_of(
    rule: str | None, space: list[str] | None, tries: int | None, seed: int | None, repeats: float | None = None
) -> dict[str, Any]:
    """Return what flags say of a search, as keys of `Search`.

    Raises:
        SpecError: a rule that is no search, or a detail that this rule does not use.
    """
    rules = ("default", *getattr(Search.model_fields["rule"].annotation, "__args__", ()))
    if rule is not None and rule not in rules:
        why = " Settings from elsewhere come by --settings FILE." if rule == "transfer" else ""
        why = " The test split is not for choosing." if rule == "oracle" else why
        raise SpecError(f"Expected --selection {rule} to be one of {', '.join(rules)}.{why}")
    if rule == "private-accounted" and tries is not None:
        raise SpecError(
            "--tries does not apply to private-accounted: how many runs there are is random. Use --repeats."
        )
    if rule not in {None, "private-accounted"} and repeats is not None:
        raise SpecError(f"--repeats applies to private-accounted alone, not to {rule}. Use --tries.")
    details = {"rule": rule, "space": _space(space), "tries": tries, "seed": seed, "repeats": repeats}
    return {key: value for key, value in details.items() if value is not None}


def _space(texts: list[str] | None) -> Any:
    if not texts:
        return None
    if texts in (["own"], ["paper"]):
        return texts[0]
    space: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not values or name in space:
            raise SpecError(f"Expected --space own, paper, or field=value,value once a field, got {text!r}.")
        space[name.strip()] = tuple(value.strip() for value in values.split(","))
    return space
