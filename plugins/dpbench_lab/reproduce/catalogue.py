"""Read `catalogue.toml`: the tables, figures and theorems of papers, and how each is run here. Imports stay light."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from dpbench.errors import UnknownName
from dpbench.support.messages import format_unknown_name_message
from dpbench.support.validation import Record
from dpbench.sweep import ready_made_sweeps
from dpbench_lab.reproduce.protocol import PublishedProtocol

FILE = Path(__file__).parent / "catalogue.toml"
PEERS = {
    "opacus-peer": "dpbench_lab.reproduce.opacus_fits:OpacusFits",
    "jax-peer": "dpbench_lab.reproduce.jax_fits:JaxFits",
}
"""Studies that belong to no paper: name -> class that does the same training with another library (see `peers`)."""

AxisValues = dict[str, float | str]  # axis -> value, as in `figures.literature.Point`


class OrderClaim(Record):
    """An order of results that a paper or its theorem states without numbers."""

    says: str
    higher: AxisValues
    lower: AxisValues
    at_chance: bool = False  # the claim is that the lower result is no better than chance
    loss_from: AxisValues = {}  # compares losses from the result at these values: the smaller loss is `higher`


class ReproductionStudy(Record):
    """A table or figure of a paper, or a figure of its theorem."""

    name: str = Field(pattern=r"^[a-z0-9.-]+$")
    paper: str
    place: str
    shows: str
    published: tuple[str, ...] = ()  # series of `published.json`
    other_features: tuple[str, ...] = ()  # series on features that nothing here stands for: listed, not compared
    orders: tuple[OrderClaim, ...] = ()
    rate: bool = False  # a theorem's: the bound that the sweep's [plot] draws
    protocol: PublishedProtocol | None = None  # of the paper; None for a theorem
    outside: tuple[AxisValues, ...] = ()  # cells where the theorem's conditions fail: shown, not compared
    finding: str = ""  # what was found of a theorem, in one sentence
    refutes: str = ""  # what the figure of a theorem can refute, and what it cannot
    sweep: str | None = None  # the ready-made sweep that measures it
    inspection: Literal["xi", "margin"] | None = None  # or what `dpbench inspect` measures
    differs: str = ""  # in the protocol that runs here
    missing: str = ""  # what has to be brought for what does not run here
    needs: Literal["a GPU", "weights", "data"] | None = None  # of what is missing, what nothing runs without
    because: str = ""  # why it does not hold, or holds in order only, where somebody looked
    nothing: str = ""  # why there is nothing to measure, such as a diagram

    @model_validator(mode="after")
    def _check_complete(self) -> ReproductionStudy:
        runs = self.sweep or self.inspection
        if runs and not (self.published or self.orders or self.rate):
            raise ValueError("what is measured is compared with nothing")
        if self.rate and not (self.sweep and self.finding):
            raise ValueError("a theorem's rate needs a sweep, and a sentence that says what was found")
        if bool(self.finding) != bool(self.refutes):
            raise ValueError("a theorem's figure needs both what was found and what it can refute")
        if not (runs or self.missing or self.nothing):
            raise ValueError("nothing says why it is not run")
        if self.needs and not self.missing:
            raise ValueError("what it needs is not described")
        return self


def read_studies() -> tuple[ReproductionStudy, ...]:
    """Return the catalogue in order. A study's protocol extends the paper's protocol that it names as `like`."""
    content = tomllib.loads(FILE.read_text(encoding="utf-8"))
    for fields in content["study"]:
        if own := fields.get("protocol"):
            fields["protocol"] = {**content["protocol"][own.pop("like")], **own}
    return tuple(ReproductionStudy(**fields) for fields in content["study"])


def is_sweep_without_study(name: str) -> bool:
    """Return whether a name is a sweep (a file, or a ready-made sweep) and not a study."""
    studied = name in {study.name for study in read_studies()}
    return not studied and (Path(name).is_file() or name in ready_made_sweeps.list_sweep_names())


def find_study(name: str) -> ReproductionStudy:
    """Return the study of this name.

    Raises:
        UnknownName: there is no such study; the message names known ones.
    """
    known = {study.name: study for study in read_studies()}
    if name in ready_made_sweeps.list_sweep_names() and name not in known:
        raise UnknownName(
            f"{name} is a sweep and no study of its own. Run dpbench sweep {name}, or add --chart FILE to draw it."
        )
    if name not in known:
        raise UnknownName(format_unknown_name_message("table or figure", name, known))
    return known[name]
