"""The record of a membership attack on released models: a JSON file with counts, and the rates computed from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from dpbench.records.result import ComponentOrigin
from dpbench.records.spec import Spec
from dpbench.records.stated_plan import PrivacyGuarantee
from dpbench.records.storage import SealedRecord, make_not_private_folder
from dpbench.support.validation import FiniteNumbersRecord

AttackName = Literal["lira", "rmia"]
Targets = Literal["average", "planted"]
FOLDER = "released"
"""The folder of these records, in a leaderboard or in the `not-private` subfolder of a results folder."""
SHADOWS, FEWEST_SHADOWS = 128, 32
"""The default number of shadow models that an attack fits, and the smallest number."""
ATTACK_WORDS: dict[AttackName, str] = {"lira": "likelihood ratio (LiRA)", "rmia": "RMIA"}
TARGET_WORDS: dict[Targets, str] = {"average": "private records", "planted": "planted outliers"}


class RocPoint(FiniteNumbersRecord):
    """A point on the ROC curve of a membership test: the true positives at one false-positive rate."""

    rate: float = Field(gt=0, lt=1)  # of false positives, at most
    positives: int = Field(ge=0)  # members that the test finds
    false: int = Field(ge=0)  # records outside the data that it takes for members
    low: float = Field(ge=0, le=1)  # 95% interval of the true-positive rate (Clopper and Pearson)
    high: float = Field(ge=0, le=1)
    bound: float = Field(ge=0, le=1)  # on the true-positive rate of every test, from plan and sigma; 1 without noise
    exceeded: bool  # whether the counts contradict the bound


class MembershipTest(FiniteNumbersRecord):
    """A membership test on one kind of records, pooled over all pairs of a shadow model and a record."""

    attack: AttackName
    targets: Targets
    records: int = Field(ge=1)  # units where epsilon is stated for units
    members: int = Field(ge=1)  # pairs whose record was in the shadow's data
    others: int = Field(ge=1)  # pairs whose record was not
    auc: float = Field(ge=0, le=1)
    rates: tuple[RocPoint, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check_counts(self) -> MembershipTest:
        for rate in self.rates:
            if rate.positives > self.members or rate.false > self.others:
                raise ValueError(
                    f"expected positives among {self.members:,} members and false positives among {self.others:,} "
                    f"others, got {rate.positives:,} and {rate.false:,}"
                )
        return self


class ReleasedModelAttack(SealedRecord):
    """Membership tests on shadow models, each fitted like the released model, on a random half of the private data."""

    schema_version: Literal[1] = 1
    content: str | None  # digest of the result's evidence; None if no result was attacked
    model: str | None  # SHA-256 of the model's file; None if no model was attacked
    spec: Spec
    settings: dict[str, Any]  # of the learner as it fits
    privacy: PrivacyGuarantee  # of the run, and of each shadow
    shadows: int = Field(ge=1)
    population: int = Field(ge=1)  # test records that RMIA compares with
    accuracy: float = Field(ge=0, le=1)  # of the shadows on the test split, on average
    tests: tuple[MembershipTest, ...] = Field(min_length=1)
    seconds: float = Field(ge=0)
    components: dict[str, ComponentOrigin] = Field(default={})
    provenance: dict[str, Any] = Field(default={})
    seal: str = ""  # over all of the above, as it was written

    @property
    def digest(self) -> str:
        """The digest of the spec."""
        return self.spec.digest

    @property
    def unit(self) -> str:
        """The unit of membership in a shadow's data: an image, or the unit that epsilon is stated for."""
        return self.spec.unit or "image"

    @property
    def passed(self) -> bool:
        """Whether no count contradicts the bound that epsilon and delta give."""
        return not any(found.exceeded for test in self.tests for found in test.rates)

    def write(self, folder: Path) -> Path:
        """Write the attack as `not-private/released/<digest>.json` into `folder`, atomically, and return the file.

        Raises:
            OutputError: the folder cannot be written.
        """
        return self.write_to(make_not_private_folder(folder) / FOLDER / f"{self.digest[:16]}.json")
