"""The guarantee that a result states: its plan with the noise, its privacy cost, and its limits."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Union, get_type_hints

from pydantic import Field, create_model

from dpbench.api import Planned
from dpbench.privacy import MECHANISM
from dpbench.privacy.core.accounting.accountant import AccountantName
from dpbench.privacy.core.accounting.crosscheck import EpsilonInterval
from dpbench.privacy.core.plan import release_sigmas
from dpbench.privacy.mechanisms.table import PLANS
from dpbench.support.validation import Record

LATER_LIMITS = (
    "the classes, public by declaration: in a folder of images they are what private labels say",
    "images that the weights of the extractor have seen",
)
"""Limits that results of schema 1 do not state."""
NOT_COVERED = (
    "the size of the private split, public by declaration",
    *LATER_LIMITS,
    "the choice of hyperparameters, where they were chosen on this private data",
    "how many images stand in two splits (overlap), counted on the data themselves",
    "timing and memory",
    "a plugin written to defeat the harness",
)
KNOWN_SEED_LIMIT = (
    "whoever knows the seed and can run this code: research noise follows from them, and --secure-rng keeps no seed"
)
KNOWN_SEARCH_SEED_LIMIT = (
    "whoever knows the seed: noise and the number of runs follow from it, and --secure-rng keeps no seed"
)
LATTICE_LIMIT = (
    "less than 1e-12 of epsilon: noise is a discrete Gaussian on a fine lattice, and that of the accountants continuous"
)


class PlannedQuestion(Record):
    """A planned question, with its noise multiplier. Each kind of question has a subclass with its fields."""

    name: str
    steps: int = Field(ge=1)
    relative_noise: float = Field(gt=0)
    sigma: float = Field(ge=0)

    @property
    def as_planned(self) -> Planned:
        """The question as the learner planned it, without the noise multiplier."""
        kind = next(kind for kind, record in USE_RECORDS.items() if isinstance(self, record))
        return kind(**self.model_dump(exclude={"sigma"}))


def _make_record_class(kind: type[Planned]) -> type[PlannedQuestion]:
    hints, name = get_type_hints(kind), kind.__name__
    own: dict[str, Any] = {
        field.name: (hints[field.name], Field(**field.metadata))
        for field in dataclasses.fields(kind)  # type: ignore[arg-type]  # each kind is a dataclass
        if field.name not in PlannedQuestion.model_fields
    }
    said = f"One {name.lower()} of the plan, with the noise multiplier it was given."
    made: type[PlannedQuestion] = create_model(
        f"Planned{name}", __base__=PlannedQuestion, __module__=__name__, __doc__=said, **own
    )
    return made


USE_RECORDS = {kind: _make_record_class(kind) for kind in PLANS}
globals().update({record.__name__: record for record in USE_RECORDS.values()})  # where other processes look for them
if TYPE_CHECKING:
    AnyUse = PlannedQuestion
else:
    AnyUse = Union[tuple(USE_RECORDS.values())]  # noqa: UP007  # of as many as there are


def make_plan_records(plan: Sequence[Planned], sigma: float) -> tuple[PlannedQuestion, ...]:
    """Return a plan as records for a result, given the base noise multiplier."""
    noise = release_sigmas(plan, sigma)
    return tuple(USE_RECORDS[type(use)](**use.record(), sigma=noise[use.name]) for use in plan)


def restore_plan(plan: Sequence[PlannedQuestion]) -> tuple[Planned, ...]:
    """Return the learner's plan from its records in a result."""
    return tuple(use.as_planned for use in plan)


class PlannedRepeats(Record):
    """Private selection: each seed is the best of a random number of runs, all covered by ε (`privacy.repeats`)."""

    mean: float = Field(gt=1)
    shape: float = Field(ge=0)


class PrivacyGuarantee(Record):
    """The privacy guarantee of a run, computed from plan and sigma."""

    epsilon: float = Field(ge=0)  # 0 where the plan is empty
    delta: float = Field(ge=0, lt=1)  # 0 where the plan is one choice, which is pure
    accountant: AccountantName
    adjacency: Literal["add-or-remove-one"]
    sigma: float = Field(ge=0)
    plan: tuple[AnyUse, ...]
    independent: EpsilonInterval  # of a second accountant, for the same plan and sigma
    rng: Literal["research", "secure"]
    repeats: PlannedRepeats | None = None
    mechanism: str  # `dpbench.privacy.MECHANISM` when it ran

    @property
    def releases(self) -> tuple[Planned, ...]:
        """The plan as the learner made it, without noise multipliers."""
        return restore_plan(self.plan)

    @property
    def uses_current_mechanism(self) -> bool:
        """Whether this code samples, sums and adds noise in the same way as the code that made the result."""
        return self.mechanism == MECHANISM


def list_guarantee_limits(
    privacy: PrivacyGuarantee, left_out: int, made_elsewhere: str | None = None
) -> tuple[str, ...]:
    """Return the limits of a guarantee, in words.

    Args:
        privacy: the guarantee; with repeats it also covers the choice of hyperparameters.
        left_out: the number of private images that were left out because a public image equals them.
        made_elsewhere: the origin of features that were computed elsewhere.
    """
    search = privacy.repeats is not None
    left = [line for line in NOT_COVERED if not (search and line.startswith("the choice of hyperparameters"))]
    left.append(LATTICE_LIMIT if privacy.rng == "secure" else KNOWN_SEARCH_SEED_LIMIT if search else KNOWN_SEED_LIMIT)
    if left_out:
        left.append(f"that {left_out:,} private images equal a public image, pixel by pixel, and were left out")
    if made_elsewhere:
        left.append(f"features made elsewhere, by {made_elsewhere}: a row may follow from several images")
    return tuple(left)
