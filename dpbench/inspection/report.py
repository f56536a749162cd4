"""What was asked of a representation and what was found: one JSON file. No torch here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dpbench.errors import SpecError
from dpbench.records.protocol import Component
from dpbench.records.result import Brought
from dpbench.records.spec import Spec, make_spec
from dpbench.support.files import canonical_digest, write_json

Values = tuple[float, ...]
Guarantee = Literal["epsilon 0: reads public data alone", "none: reads private data"]
MARK: Literal["non-private analysis"] = "non-private analysis"
SHARES = (0.99, 0.96)  # of all rows: those of appendix D, for supervised and self-supervised features
USUAL = (10, 20, 40, 80, 120, 200, 400, 800)


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Asked(_Frozen):
    """Everything that decides the numbers."""

    dataset: Component
    extractor: Component
    public_fraction: float
    public_dataset: Component | None
    split_seed: int  # of the public split, and of the draw of pairs
    rows: Literal["public", "private"]  # the split that is analysed
    k: tuple[int, ...]  # ascending; empty for the usual ones
    pairs: int = Field(ge=1)  # at most so many pairs of classes
    svm_c: float = Field(gt=0)

    @property
    def spec(self) -> Spec:
        """The spec by which examples get their roles; its learner is never trained."""
        split = self.model_dump(include={"dataset", "extractor", "public_fraction", "public_dataset", "split_seed"})
        return Spec(**split, learner=Component(name="public-only"), delta=1e-300)  # promised to nobody: fits any n


class Spectrum(_Frozen):
    """Eigenvalues of the centred covariance, in squared lengths of rows of length 1."""

    eigenvalues: Values  # largest first
    explained: Values  # share of the variance in the first k components, for each k
    participation_ratio: float
    entropy_rank: float


class Pair(_Frozen):
    """One pair of classes: definition 3 of PILLAR, for an SVM trained on it."""

    classes: tuple[str, str]
    gamma: float  # the smallest margin of an example, a cosine; negative if the SVM errs
    wrong: float  # share of examples on the wrong side
    own: Values  # ξ for each k, by the components of the pair
    shared: Values  # ξ for each k, by the components of all examples


class Spread(_Frozen):
    """Values over class pairs, for each k."""

    smallest: Values
    median: Values
    largest: Values


class Separability(_Frozen):
    """ξ over class pairs."""

    pairs: tuple[Pair, ...]
    possible: int  # how many pairs there are
    own: Spread
    shared: Spread


class ClassMargins(_Frozen):
    """Margins of one class against the rest."""

    name: str
    margins: tuple[Values, ...]  # for each share, for each k


class Margins(_Frozen):
    """Margins of one-versus-rest SVMs in k dimensions, in lengths of rows of length 1."""

    shares: Values = SHARES
    classes: tuple[ClassMargins, ...]
    smallest: tuple[Values, ...]  # over classes; for each share, for each k


class Inspection(_Frozen):
    """One inspection, whole: what was asked, what it read, what it found."""

    schema_version: Literal[1] = 1
    digest: str
    asked: Asked  # with every option and every k spelled out
    mark: Literal["", "non-private analysis"]  # on table and plot; empty where public data alone was read
    guarantee: Guarantee
    examples: int
    features: int
    labels_read: bool
    digests: dict[str, str]  # of the data behind the private and the public split
    licence: str
    spectrum: Spectrum
    separability: Separability | None
    margins: Margins | None
    note: str  # why there is the spectrum alone, or how many classes have no example
    seconds: dict[str, float]
    components: dict[str, Brought]
    provenance: dict[str, Any]

    @model_validator(mode="after")
    def _honest(self) -> Inspection:
        private = self.asked.rows == "private"
        if (self.mark == MARK, self.guarantee == "none: reads private data") != (private, private):
            raise ValueError(f"mark and guarantee are not those of an inspection that reads {self.asked.rows} data")
        return self

    def write(self, folder: Path) -> Path:
        """Write the inspection into `folder`, atomically, and return the file.

        Raises:
            OutputError: the folder cannot be written.
        """
        name = f"inspection-{self.asked.dataset.name}-{self.asked.extractor.name}-{self.digest[:16]}.json"
        write_json(folder / name, self.model_dump(mode="json"))
        return folder / name


def ask(values: dict[str, Any], k: Sequence[str], *, read_private: bool, pairs: int, svm_c: float) -> Asked:
    """Return what flags ask for; `values` are keys of `Spec`, `k` numbers or lists of them with commas.

    Raises:
        SpecError: one sentence that names the flag, what came and what was expected.
    """
    if pairs < 1:
        raise SpecError(f"Expected --pairs {pairs} >= 1: it is how many pairs of classes are looked at, at most.")
    if not (svm_c > 0 and math.isfinite(svm_c)):
        raise SpecError(f"Expected --svm-c {svm_c} to be positive and finite: it weighs errors against the margin.")
    spec = make_spec({**values, "learner": "public-only"}, "the flags of dpbench inspect")
    return Asked(
        dataset=spec.dataset, extractor=spec.extractor, public_fraction=spec.public_fraction,
        public_dataset=spec.public_dataset, split_seed=spec.split_seed, rows="private" if read_private else "public",
        k=tuple(sorted({_dimension(one) for text in k for one in text.split(",")})), pairs=pairs, svm_c=svm_c,
    )  # fmt: skip


def spelled_out(asked: Asked, spec: Spec, dimensions: int) -> Asked:
    """Return what was asked with the options of `spec`, and the k for so many dimensions: the usual ones and all.

    Raises:
        SpecError: a k that is larger.
    """
    if asked.k and asked.k[-1] > dimensions:
        raise SpecError(
            f"Expected --k {asked.k[-1]} <= {dimensions}: there are no more components than features, nor than "
            f"{asked.rows} examples. Lower it, or leave --k out."
        )
    k = asked.k or (*(one for one in USUAL if one < dimensions), dimensions)
    parts = {name: getattr(spec, name) for name in ("dataset", "extractor", "public_dataset")}
    return asked.model_copy(update={**parts, "k": k})


def digest_of(asked: Asked) -> str:
    """Return the SHA-256 of what was asked, as canonical JSON."""
    return canonical_digest(asked.model_dump(mode="json"))


def _dimension(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise SpecError(f"Expected --k to be numbers of dimensions from 1 on, like 10,40,200, got {text.strip()!r}.")
    return int(text)
