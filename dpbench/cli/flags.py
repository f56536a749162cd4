"""The flags that several commands share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from dpbench.cli.spec_file import RunOptions
from dpbench.errors import SpecError
from dpbench.records.search import Search

Learner = Annotated[str | None, typer.Option(help="Learner, like pillar or pillar:k=40,center=false.")]
Dataset = Annotated[str | None, typer.Option(help="Dataset with the private and test data. \\[default: digits]")]
Extractor = Annotated[
    str | None, typer.Option(help="Feature extractor; join several with +: A+B. \\[default: the dataset's own]")
]
Epsilon = Annotated[float | None, typer.Option(help="Target epsilon in nats; inf for no privacy. \\[default: 1]")]
Delta = Annotated[
    str | None,
    typer.Option(help="Target delta, or auto: 1e-5, or the largest power of ten of at most 1/(2n). \\[default: auto]"),
]
Accountant = Annotated[str | None, typer.Option(help="Accountant: pld, rdp or prv. \\[default: pld]")]
PublicFraction = Annotated[float | None, typer.Option(help="Share of the training split made public. \\[default: 0.1]")]
PublicDataset = Annotated[str | None, typer.Option(help="Dataset to use as public data instead.")]
PublicLabels = Annotated[bool | None, typer.Option("--public-labels", help="Let the learner read public labels.")]
TrainFraction = Annotated[float | None, typer.Option(help="Share of the private split to keep. \\[default: 1]")]
Imbalance = Annotated[
    float | None,
    typer.Option(
        help="Make classes unequal: 20 keeps 20 images of the first class for every image of the last, with a "
        "constant ratio from class to class. Does not change --public-dataset."
    ),
]
Metric = Annotated[
    str | None,
    typer.Option(
        help="Metric that learners aim for and results are ranked by: accuracy, balanced_accuracy ... "
        "\\[default: accuracy]"
    ),
]
Unit = Annotated[
    str | None,
    typer.Option(
        help="Unit of the guarantee: image, or a unit that the dataset identifies, such as patient. "
        "\\[default: the dataset's own]"
    ),
]
SplitSeed = Annotated[int | None, typer.Option(help="Seed of the public/private split. \\[default: 0]")]
Learners = Annotated[
    list[str] | None, typer.Option("--learner", help="Learner, like pillar:k=40,center=false; or several: pillar,jl.")
]
Datasets = Annotated[
    list[str] | None,
    typer.Option("--dataset", help="Dataset with the private and test data; or several. \\[default: digits]"),
]
Extractors = Annotated[
    list[str] | None,
    typer.Option("--extractor", help="Feature extractor; joined: A+B; several: A,B. \\[default: the dataset's own]"),
]
Epsilons = Annotated[
    list[str] | None,
    typer.Option("--epsilon", help="Target epsilon in nats, or several: 0.1,1; inf for no privacy. \\[default: 1]"),
]
TrainFractions = Annotated[
    list[str] | None,
    typer.Option("--train-fraction", help="Share of the private split to keep, or several. \\[default: 1]"),
]
AllowOverlap = Annotated[
    bool | None,
    typer.Option("--allow-overlap", help="Allow public images that are also private. No board accepts the result."),
]
SpecFile = Annotated[
    Path | None, typer.Option(help="TOML file with the same keys as these flags; flags take precedence.")
]
Device = Annotated[str, typer.Option(help="Device: auto, cpu, cuda, cuda:1 ...")]
Out = Annotated[Path, typer.Option(help="Results folder.")]
DeviceGiven = Annotated[
    str | None, typer.Option("--device", help="Device: auto, cpu, cuda, cuda:1 ... \\[default: auto]")
]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1024,
        help="Compute threads, per worker where there are several. \\[default: 1 for small heads, else all cores]",
    ),
]
OutGiven = Annotated[Path | None, typer.Option("--out", help="Results folder. \\[default: dpbench-results]")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Space = Annotated[
    list[str] | None,
    typer.Option(
        help="Search space: own (the learner's), paper, or setting=value,value (repeat for several). \\[default: own]"
    ),
]
Tries = Annotated[
    int | None, typer.Option(help="Maximum number of settings to try; larger grids are sampled. \\[default: 500]")
]
SearchSeed = Annotated[
    int | None, typer.Option(help="Seed of the search, for sampled settings and folds. \\[default: 0]")
]


def origin_of(file: Path | None, command: str) -> str:
    """Say where a spec comes from, for messages."""
    return f"{file} and flags" if file else f"the flags of dpbench {command}"


def values_of(flags: Mapping[str, Any], written: Mapping[str, Any], command: str) -> dict[str, Any]:
    """Return the keys of a spec that a file, `written`, and flags give; a flag that is None was not given.

    The `search` of the flags overrides that of the file, key by key; the rule `default` drops both.

    Raises:
        SpecError: search flags without a search.
    """
    values = dict(written)
    given = {key: value for key, value in flags.items() if value is not None and key != "search"}
    search, before = flags["search"], values.pop("search", None)
    if before is not None and not isinstance(before, Mapping):
        raise SpecError(f"Expected search as a table, like search = {{rule = 'public-validation'}}, got {before!r}.")
    if search.get("rule") == "default":
        search = {key: value for key, value in search.items() if key != "rule"}
        before = None
    elif command == "tune" or before is not None or "rule" in search:
        values["search"], search = {**(before or {}), **search}, {}
    if search:
        names = ", ".join(f"--{name}" for name in search)
        raise SpecError(f"Use {names} with --tune or --selection: without either, nothing is searched.")
    return {**values, **given}


def rule_of(tune: bool, selection: str | None, also: RunOptions) -> str | None:
    """Return the rule of selection that flags give, else a file.

    Raises:
        SpecError: both ways of saying it at once.
    """
    for wanted, rule, how in (
        (tune, selection, "--tune means --selection"),
        (also.tune, also.selection, "tune means selection"),
    ):
        if wanted and rule is not None:
            raise SpecError(f"{how} public-validation: use only one of them.")
        if wanted or rule is not None:
            return "public-validation" if wanted else rule
    return None


def search_of(
    rule: str | None,
    space: list[str] | None,
    tries: int | None,
    seed: int | None,
    repeats: float | None,
    also: RunOptions,
) -> dict[str, Any]:
    """Return the keys of `Search` that flags give, and a file, `also`, where they do not.

    Raises:
        SpecError: an unknown rule, or a flag that does not apply to this rule.
    """
    if rule != "default":  # which drops what a file says of a search
        tries, repeats = tries if tries is not None else also.tries, repeats if repeats is not None else also.repeats
        seed = seed if seed is not None else also.search_seed
    rules = ("default", *getattr(Search.model_fields["rule"].annotation, "__args__", ()))
    if rule is not None and rule not in rules:
        why = " For settings found elsewhere, use --settings FILE." if rule == "transfer" else ""
        why = " Settings are never chosen on the test split." if rule == "oracle" else why
        raise SpecError(f"Expected --selection {rule} to be one of {', '.join(rules)}.{why}")
    if rule == "private-accounted" and tries is not None:
        raise SpecError(
            "--tries does not apply to private-accounted, where the number of runs is random. Use --repeats."
        )
    if rule not in {None, "private-accounted"} and repeats is not None:
        raise SpecError(f"--repeats applies only to private-accounted, not to {rule}. Use --tries.")
    details = {
        "rule": rule,
        "space": _space(space) or (None if rule == "default" else _written_space(also)),
        "tries": tries,
        "seed": seed,
        "repeats": repeats,
    }
    return {key: value for key, value in details.items() if value is not None}


def _written_space(also: RunOptions) -> Any:
    written = [also.space] if isinstance(also.space, str) else also.space
    return _space(written) if isinstance(written, list) else written


def _space(texts: list[str] | None) -> Any:
    if not texts:
        return None
    if texts in (["own"], ["paper"]):
        return texts[0]
    space: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not values or name in space:
            raise SpecError(f"Expected --space own, paper or setting=value,value, once per setting; got {text!r}.")
        space[name.strip()] = tuple(value.strip() for value in values.split(","))
    return space
