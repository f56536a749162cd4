"""Read the catalogue of claims: one file per paper, with its claims and a source for every field.

::

    title = "..."                          title, authors, year, url and source of the paper
    [shared]                               fields that all claims of this file have
    [sources]                              place = ["field", ...]: where fields of all claims can be read
    [[claims]]                             one claim: its own fields, and its own `sources` if they differ

A field that nobody can look up is left out. Nothing has a default: what is absent is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from dpbench.errors import SpecError
from dpbench.support.messages import format_unknown_name_message
from dpbench.support.paths import PACKAGE
from dpbench.support.untrusted import read_toml
from dpbench.support.validation import FiniteNumbersRecord, describe_validation_error

HERE = Path(__file__).parent
PublicData = Literal["nothing", "unlabelled", "imagenet", "labels", "more"]
Sampler = Literal["poisson", "shuffled", "fixed-size", "full-batch"]
Adjacency = Literal["add-or-remove-one", "replace-one"]
PaperAccountant = Literal["moments", "rdp", "prv", "pld", "gdp", "gaussian", "pate"]
PUBLIC_DATA_WORDS: Mapping[PublicData, str] = {
    "nothing": "nothing",
    "unlabelled": "unlabelled data of the same task",
    "imagenet": "ImageNet",
    "labels": "labelled data of the same task",
    "more": "other or more data",
}
"""The public data of a claim in words; random processes and handcrafted features count as nothing."""

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,79}$")]
Text = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f-\x9f]+$", max_length=500)]
Noise = Annotated[Decimal, Field(ge=Decimal("0.01"), le=10_000_000)]
Steps = Annotated[int, Field(ge=1, le=10_000_000)]
Share = Annotated[float, Field(gt=0, le=1)]


def _check_percent(value: float) -> float:
    if 0 < value <= 1:
        raise ValueError(f"expected percent, so {100 * value:.4g} if this is a share of 1")
    return value


Percent = Annotated[float, Field(ge=0, le=100), AfterValidator(_check_percent)]


class AdditionalRelease(FiniteNumbersRecord):
    """Another Gaussian release of the private data in the same run, such as noisy means for normalisation."""

    what: Text
    sigma: Noise
    steps: Steps = 1
    sample_rate: Share = 1.0


class Claim(FiniteNumbersRecord):
    """A number that a paper or its code states: an accuracy at an epsilon, with the facts that determine epsilon."""

    id: Name
    model: Text | None = None
    dataset: Text
    public: PublicData
    public_data: Text | None = None
    accuracy: Percent | None = None
    auc: Percent | None = None
    epsilon: Annotated[Decimal, Field(ge=Decimal("0.000001"), le=10_000)]
    delta: Annotated[float, Field(gt=0, lt=1)] | None = None
    n: Annotated[int, Field(ge=1, le=10**12)] | None = None
    batch: Annotated[float, Field(gt=0)] | None = None
    sample_rate: Share | None = None
    steps: Steps | None = None
    epochs: Annotated[float, Field(gt=0, le=1_000_000)] | None = None
    sigma: Noise | None = None
    further: tuple[AdditionalRelease, ...] = ()
    clip: Annotated[float, Field(gt=0)] | None = None
    sampler: Sampler | None = None
    adjacency: Adjacency | None = None
    accountant: PaperAccountant | None = None
    search: Text | None = None
    code: Text | None = None
    sources: Mapping[str, str]  # place by field

    @property
    def rate(self) -> float | None:
        """The sample rate: as stated, 1 for full batches, or batch / n; None if unknown."""
        if self.sample_rate or self.sampler == "full-batch":
            return self.sample_rate or 1.0
        if self.batch is None or self.n is None or self.batch > self.n:
            return None
        return self.batch / self.n

    @property
    def rounds(self) -> int | None:
        """The number of steps: as stated, or epochs divided by the sample rate; None if unknown."""
        if self.steps is not None or self.epochs is None or self.rate is None:
            return self.steps
        return max(1, round(self.epochs / self.rate))


class Paper(FiniteNumbersRecord):
    """A paper and its claims."""

    key: Name
    title: Text
    authors: Text
    year: Annotated[int, Field(ge=1990, le=2100)] | None = None
    url: Text | None = None
    source: Text  # where title, authors and year can be read
    claims: tuple[Claim, ...] = Field(min_length=1)


FIELDS = tuple(name for name in Claim.model_fields if name not in {"id", "sources"})
TABLES: Mapping[str, type[BaseModel]] = {"": Paper, "claims": Claim, "further": AdditionalRelease}


def read_catalogue(folder: Path) -> tuple[Paper, ...]:
    """Return the papers of a folder, by file name.

    Raises:
        SpecError: there is no file, or a file does not fit; the message names the file and the field.
    """
    files = sorted(folder.glob("*.toml"))
    if not files:
        raise SpecError(f"Expected files of claims, PAPER.toml, in {folder}. Use --root for another leaderboard.")
    return tuple(read_paper(file) for file in files)


def find_claims_folder(root: Path) -> Path:
    """Return the folder of a leaderboard's claims, or that of the package if the leaderboard has none."""
    places = (root / "claims", HERE / "papers", PACKAGE.parent / "leaderboard" / "claims")
    return next((place for place in places if place.is_dir()), places[0])


def read_paper(file: Path) -> Paper:
    """Read one file and check it.

    Raises:
        SpecError: the file cannot be read, a value does not fit, or a field has no source; the message is one sentence.
    """
    raw = read_toml(file, "claims of", parse_float=Decimal)  # printed digits are kept
    shared, places = raw.pop("shared", {}), raw.pop("sources", {})
    claims = raw.get("claims", [])
    if (
        not isinstance(shared, dict)
        or not isinstance(claims, list)
        or not all(isinstance(claim, dict) for claim in claims)
    ):
        raise SpecError(f"Expected [shared] as a table and [[claims]] as tables in {file}.")
    whole = [{**shared, **claim} for claim in claims]
    stated: set[str] = set()
    for table in whole:
        own = _invert_sources(table.get("sources", {}), file)
        table["sources"] = {
            name: place for name, place in {**_invert_sources(places, file), **own}.items() if name in table
        }
        stated |= {*table}
    try:
        paper = Paper(**{"key": file.stem, **raw, "claims": whole})
    except ValidationError as error:
        raise SpecError(describe_validation_error(error, str(file), TABLES)) from None
    _check_paper(paper, {*_invert_sources(places, file)} - stated, file)
    return paper


def _invert_sources(sources: object, file: Path) -> dict[str, str]:
    """Invert the mapping from sources to fields: return the one source of each field, or raise `SpecError`."""
    found: dict[str, str] = {}
    if not isinstance(sources, dict) or not all(isinstance(fields, list) for fields in sources.values()):
        raise SpecError(f'Expected sources in {file} as place = ["field", ...], got {str(sources)[:100]}.')
    for place, fields in sources.items():
        for name in fields:
            if name not in FIELDS:
                raise SpecError(format_unknown_name_message("field", str(name), FIELDS, f"sources of {file}"))
            if name in found:
                raise SpecError(f"Expected one place for {name!r} in {file}, got {found[name]!r} and {place!r}.")
            found[name] = place
    return found


def _check_paper(paper: Paper, unused_fields: set[str], file: Path) -> None:
    """Check that ids are unique, fields and sources match, each claim states a result, and no batch exceeds n."""
    if unused_fields:
        raise SpecError(f"Expected claims with {min(unused_fields)!r} in {file}, as its sources name a place for it.")
    if len({claim.id for claim in paper.claims}) < len(paper.claims):
        raise SpecError(f"Expected an id of its own for each claim of {file}.")
    for claim in paper.claims:
        if lacking := claim.model_fields_set - {"id"} - {*claim.sources, "sources"}:
            raise SpecError(
                f"Expected a source for {min(lacking)!r} of claim {claim.id!r} in {file}: where it can be read."
            )
        if claim.accuracy is None and claim.auc is None and claim.sigma is None:
            raise SpecError(f"Expected accuracy, auc or sigma in claim {claim.id!r} of {file}: it claims nothing else.")
        if claim.batch is not None and claim.n is not None and claim.batch > claim.n:
            raise SpecError(f"Expected batch={claim.batch:g} up to n={claim.n} in claim {claim.id!r} of {file}.")
