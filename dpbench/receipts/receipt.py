"""A receipt: a JSON file beside a model with all facts that the model's epsilon is computed from. Imports no torch."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

from pydantic import Field, ValidationError

from dpbench.errors import DataError, SpecError
from dpbench.receipts.events import LARGEST_COUNT, Event, Text
from dpbench.records import storage
from dpbench.records.packed import hash_record
from dpbench.support.untrusted import read_regular_file
from dpbench.support.validation import FiniteNumbersRecord, first_schema_violation

if TYPE_CHECKING:
    from dpbench.records.audit import Audit

Adjacency: TypeAlias = Literal["add-or-remove-one", "replace-one", "zero-out"]
BatchSampling: TypeAlias = Literal[
    "everything",
    "poisson",
    "truncated-poisson",
    "cyclic-poisson",
    "shuffled",
    "balls-in-bins",
    "fixed-size",
    "fixed-size-with-replacement",
]
Divisor: TypeAlias = Literal["nothing", "constant", "expected-size", "drawn-size"]

MAX_FILE_BYTES = 20_000_000  # bytes: five times the most events that a receipt may have


NumberType: TypeAlias = Literal["bfloat16", "float16", "float32", "float64", "integers"]


class SecondRelease(FiniteNumbersRecord):
    """A second value that each step releases from the same rows, such as a count that is used to adapt the clip."""

    name: Text = Field(description="what it is")
    sigma: float = Field(gt=0, description="standard deviation of its noise, relative to how far one row moves it")


class Noise(FiniteNumbersRecord):
    """The noise of a step and the clip, in the units of the released numbers."""

    clip: float = Field(gt=0, description="bound on the norm of what one row adds")
    std: float = Field(gt=0, description="standard deviation of the noise, as it was added")
    added_to: Literal["sum", "mean"] = Field(description="whether it was added before the division or after it")
    divisor: float | None = Field(default=None, gt=0, description="what the sum was divided by before noise was added")
    clipped_per: Text | None = Field(default=None, description="whose contribution was clipped: image, patient ...")
    dtype: NumberType | None = Field(default=None, description="in which numbers it was added")
    second: SecondRelease | None = Field(default=None, description="what each step releases beside the noisy sum")

    @property
    def sum_sigma(self) -> float | None:
        """The noise on the sum in units of the clip; None if the divisor is unknown."""
        if self.added_to == "sum":
            return self.std / self.clip
        return None if self.divisor is None else self.std * self.divisor / self.clip

    @property
    def sigma(self) -> float | None:
        """The sigma of a single Gaussian sum that costs as much as a step; None if `sum_sigma` is None."""
        if self.second is None or self.sum_sigma is None:
            return self.sum_sigma
        return 1 / math.sqrt(self.sum_sigma**-2 + self.second.sigma**-2)


class Batches(FiniteNumbersRecord):
    """The batches as the loop drew them, and the divisor of their sums."""

    drawn: BatchSampling = Field(description="how the loop drew its batches")
    size: float | None = Field(default=None, gt=0, le=LARGEST_COUNT, description="rows in a batch, on average")
    steps: int | None = Field(default=None, ge=0, le=LARGEST_COUNT, description="steps that the loop took")
    cycle: int | None = Field(
        default=None,
        ge=1,
        le=LARGEST_COUNT,
        description="cyclic-poisson: into how many groups rows are divided that take turns",
    )
    normalised_by: Divisor | None = Field(default=None, description="what sums were divided by")

    @property
    def groups(self) -> int:
        """The number of groups that cyclic Poisson sampling cycles through; 1 for other samplers."""
        return (self.cycle or 1) if self.drawn == "cyclic-poisson" else 1


class Accountant(FiniteNumbersRecord):
    """The accountant that computed the stated epsilon."""

    name: Text = Field(description="rdp, pld, prv ...")
    library: Text = Field(description="the package that has it")
    version: Text | None = Field(default=None, description="of the package")
    adjacency: Adjacency | None = Field(default=None, description="the neighbours that it assumes")


class Training(FiniteNumbersRecord):
    """The mechanisms and facts of a training loop, read by an exporter or written by you."""

    events: Event = Field(description="the mechanisms, as a tree")
    size: int | None = Field(default=None, ge=1, le=LARGEST_COUNT, description="rows of the private data")
    noise: Noise | None = Field(default=None, description="what the noise was relative to")
    batches: Batches | None = Field(default=None, description="what the loop really did with its batches")
    accountant: Accountant | None = Field(default=None, description="who computed the stated epsilon")
    libraries: dict[Text, Text] = Field(default={}, max_length=1_000, description="versions of what trained")


class Search(FiniteNumbersRecord):
    """The search for settings, and whether epsilon covers it."""

    runs: int = Field(ge=1, le=LARGEST_COUNT, description="how many settings were tried, the chosen one included")
    data: Literal["none", "public", "private"] = Field(
        default="none", description="whose scores decided; none if nothing was compared"
    )
    accounted: Literal["no", "composed", "best-of"] = Field(
        default="no", description="whether epsilon covers the search: all its runs composed, or private selection"
    )


class HashedFile(FiniteNumbersRecord):
    """A file that the receipt is about, with the hash of its content."""

    path: Text = Field(description="relative to the receipt's folder, or absolute")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="of its content")


class AuditFigures(FiniteNumbersRecord):
    """The results of an audit."""

    epsilon_lower: float | None = Field(default=None, ge=0, description="a lower bound on epsilon, by attack")
    delta: float | None = Field(default=None, ge=0, lt=1, description="of the lower bound; the receipt's if left out")
    confidence: float | None = Field(default=None, gt=0, lt=1, description="of the lower bound")
    method: Text = Field(description="what audited: dpbench.audit.foreign, or a paper")
    failed: tuple[Text, ...] = Field(default=(), description="tests that contradicted the statement")

    @classmethod
    def of(cls, audit: Audit) -> Self:
        """Return the figures of a dpbench audit in the form that receipts have.

        The lower bound on epsilon is the bound that holds for every mechanism (Steinke et al. 2023, theorem 5.2). An
        audit without an attack has none.

        Args:
            audit: the audit of a loop (`dpbench.audit.foreign.audit_loop`), or of a result.
        """
        from dpbench.audit.bounds import SIGNIFICANCE

        bound, failed = audit.figures.steinke, audit.figures.failed
        if bound is None:
            return cls(method="an audit by dpbench, without an attack", failed=failed)
        sure = 1 - SIGNIFICANCE
        return cls(
            epsilon_lower=bound.epsilon, delta=audit.delta, confidence=sure, method="an audit by dpbench", failed=failed
        )


class Receipt(FiniteNumbersRecord):
    """All facts that a model's epsilon is computed from; `dpbench verify` recomputes it."""

    schema_version: Literal[1] = Field(default=1, description="of this schema")
    epsilon: float = Field(ge=0, description="as stated, in nats")
    delta: float = Field(ge=0, lt=1, description="as stated")
    adjacency: Adjacency | None = Field(default=None, description="which datasets are neighbours, as stated")
    unit: Text | None = Field(default=None, description="what is added, removed or replaced: image, patient ...")
    training: Training = Field(description="what was done to the private data")
    search: Search | None = Field(default=None, description="how settings were chosen")
    files: dict[Text, HashedFile] = Field(default={}, max_length=1_000, description="by role: model, code, result ...")
    audit: AuditFigures | None = Field(default=None, description="what an audit found, if there was one")

    def write(self, file: Path | str) -> Path:
        """Write the receipt atomically and return its path. Paths in `files` become relative to the receipt's folder.

        Raises:
            OutputError: the file cannot be written.
        """
        place = Path(file)
        named = {
            role: value.model_copy(update={"path": _make_path_relative(place, value.path)})
            for role, value in self.files.items()
        }
        return storage.write_record(self.model_copy(update={"files": named}), place)

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a receipt and check it against the schema.

        Raises:
            DataError: names the file and the first field that does not fit.
        """
        try:
            text = read_regular_file(file, MAX_FILE_BYTES)
            found = cls.model_validate_json(text, strict=True)
            json.loads(text, object_pairs_hook=_check_unique_keys)
        except OSError as error:
            raise DataError(f"Cannot read receipt {file}: {error.strerror}.") from error
        except ValidationError as error:
            raise DataError(f"Receipt {file} does not fit the schema at {first_schema_violation(error)}.") from error
        except ValueError as error:
            raise DataError(f"Receipt {file} does not fit the schema: {error}.") from error
        return found


def _check_unique_keys(pairs: list[tuple[str, object]]) -> None:
    """Raise ValueError if an object has a duplicate key, because readers differ on which value counts."""
    keys = set()
    for key, _ in pairs:
        if key in keys:
            raise ValueError(f"the key {key!r} appears twice")
        keys.add(key)


def receipt(
    training: Training,
    *,
    epsilon: float,
    delta: float,
    unit: str | None = None,
    adjacency: Adjacency | None = None,
    search: Search | None = None,
    files: Mapping[str, Path | str] | None = None,
    audit: AuditFigures | None = None,
) -> Receipt:
    """Return the receipt of a privately trained model, from any training loop.

    >>> from dpbench.receipts import Search, Training, gaussian_steps
    >>> done = Training(events=gaussian_steps(sigma=1.0, steps=100, rate=0.01), size=10_000)
    >>> receipt(done, epsilon=0.9, delta=1e-5, unit="image", search=Search(runs=1)).epsilon
    0.9

    Args:
        training: the facts of the loop, from an exporter (`dpbench.receipts.from_opacus` ...) or written by you.
        epsilon: the epsilon that you state.
        delta: the delta that you state.
        unit: the unit that is added, removed or replaced: "image", "patient". The check fails without it.
        adjacency: which datasets are neighbours; without it, what the accountant assumes.
        search: how settings were chosen; `Search(runs=1)` if nothing was tried.
        files: the files that the receipt is about, by role: {"model": "model.pt", "code": __file__}. They are hashed
            now.
        audit: the figures of an audit, if there was one.

    Raises:
        SpecError: a value is not valid.
        DataError: a file cannot be read.
    """
    assumed = training.accountant.adjacency if training.accountant else None
    try:
        return Receipt(
            epsilon=epsilon, delta=delta, unit=unit, adjacency=adjacency or assumed, training=training, search=search,
            files={role: hash_file(Path(path)) for role, path in (files or {}).items()}, audit=audit,
        )  # fmt: skip
    except ValidationError as error:
        raise SpecError(f"The values of this receipt are not valid: {first_schema_violation(error)}.") from error


def hash_file(path: Path) -> HashedFile:
    """Return a file's path and its SHA-256.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        return HashedFile(path=str(path.absolute()), sha256=hash_record(path))
    except OSError as error:
        raise DataError(
            f"Cannot read {path}: {error.strerror}. A receipt hashes the files that it is about."
        ) from error


def find_installed_version(distribution: str) -> str | None:
    """Return the version of an installed distribution; None if it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _make_path_relative(receipt_file: Path, path: str) -> str:
    """Return a path relative to the receipt's folder, so that a published receipt reveals no folder above it."""
    return Path(os.path.relpath(path, receipt_file.absolute().parent)).as_posix()
