"""The record of an inspection, request and findings, as a JSON file. Imports no torch."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from dpbench.errors import SpecError
from dpbench.records import storage
from dpbench.records.protocol import SMALLEST_DELTA, Component
from dpbench.records.result import ComponentOrigin
from dpbench.records.spec import Spec
from dpbench.support.files import canonical_digest
from dpbench.support.validation import Record

Values = tuple[float, ...]
Guarantee = Literal["epsilon 0: reads public data alone", "none: reads private data"]
MARK: Literal["non-private analysis"] = "non-private analysis"
SHARES = (0.99, 0.96)  # of all rows, from appendix D: for supervised and self-supervised features
DEFAULT_K = (10, 20, 40, 80, 120, 200, 400, 800)


class InspectionRequest(Record):
    """The request for an inspection: everything that decides its numbers."""

    dataset: Component
    extractor: Component
    public_fraction: float
    public_dataset: Component | None
    split_seed: int  # of the public split and the sample of pairs
    rows: Literal["public", "private"]  # the split that is analysed
    k: tuple[int, ...]  # ascending; empty for the defaults
    pairs: int = Field(ge=1)  # maximum pairs of classes
    svm_c: float = Field(gt=0)

    @property
    def spec(self) -> Spec:
        """The spec that assigns examples to their roles; its learner is never trained."""
        split = self.model_dump(include={"dataset", "extractor", "public_fraction", "public_dataset", "split_seed"})
        return Spec(**split, learner=Component(name="public-only"), delta=SMALLEST_DELTA)  # below 1/n for any n


class EigenvalueSpectrum(Record):
    """Eigenvalues of the covariance of rows of length 1."""

    eigenvalues: Values  # largest first
    explained: Values  # share of variance in the first k components, for each k
    participation_ratio: float
    entropy_rank: float


class ClassPair(Record):
    """The separability of one pair of classes (PILLAR, definition 3), for the SVM that was trained on the pair."""

    classes: tuple[str, str]
    gamma: float  # the smallest margin of an example, a cosine; negative if the SVM errs
    wrong: float  # share of examples on the wrong side
    own: Values  # ξ for each k, from the components of the pair
    shared: Values  # ξ for each k, from the components of all examples


class SeparabilityRange(Record):
    """The range of ξ over class pairs, for each k."""

    smallest: Values
    median: Values
    largest: Values


class PairSeparability(Record):
    """ξ of each analysed class pair, and its range over pairs."""

    pairs: tuple[ClassPair, ...]
    possible: int  # how many pairs exist
    own: SeparabilityRange
    shared: SeparabilityRange


class ClassMargins(Record):
    """Margins of one class against the rest."""

    name: str
    margins: tuple[Values, ...]  # for each share, for each k


class SvmMargins(Record):
    """Margins of one-versus-rest SVMs in k dimensions, for rows of length 1."""

    shares: Values = SHARES
    classes: tuple[ClassMargins, ...]
    smallest: tuple[Values, ...]  # over classes; for each share, for each k


class GainPrediction(Record):
    """Predictions of PILLAR's theorem from spectrum and separability, in two readings; see `inspect.prediction`."""

    gamma: float  # the margin that is put in
    printed: Values  # for each k, how many times as many examples the whole space needs: by the bounds as printed
    noise: Values  # and by the noise of a score
    best_printed: int  # the k that gains most
    best_noise: int
    kept: int | None  # the least k that leaves a margin whatever the row; None if no k does


class Inspection(Record):
    """A complete inspection: the request, the data that was read, and the findings."""

    schema_version: Literal[1] = 1
    digest: str
    asked: InspectionRequest  # with every option and every k spelled out
    mark: Literal["", "non-private analysis"]  # empty if only public data was read
    guarantee: Guarantee
    examples: int
    features: int
    labels_read: bool
    digests: dict[str, str]  # of the data behind the private and the public split
    licence: str
    spectrum: EigenvalueSpectrum
    separability: PairSeparability | None
    margins: SvmMargins | None
    prediction: GainPrediction | None = None  # None without labels, and in inspections from before there was one
    note: str  # why there is only the spectrum, or how many classes have no example
    seconds: dict[str, float]
    components: dict[str, ComponentOrigin]
    provenance: dict[str, Any]

    @model_validator(mode="after")
    def _check_mark(self) -> Inspection:
        private = self.asked.rows == "private"
        if (self.mark == MARK, self.guarantee == "none: reads private data") != (private, private):
            raise ValueError(f"mark and guarantee are not those of an inspection that reads {self.asked.rows} data")
        return self

    def write(self, folder: Path) -> Path:
        """Write the inspection into `folder`, or into a marked folder below it for private rows; return the file.

        Raises:
            OutputError: the folder cannot be written.
        """
        name = f"inspection-{self.asked.dataset.name}-{self.asked.extractor.name}-{self.digest[:16]}.json"
        file = (storage.make_not_private_folder(folder) if self.mark else folder) / name
        return storage.write_record(self, file)


def make_request(spec: Spec, k: Sequence[str], *, read_private: bool, pairs: int, svm_c: float) -> InspectionRequest:
    """Return the request that the flags describe; `spec` names the data, `k` holds comma-separated numbers.

    Raises:
        SpecError: a value does not fit; one sentence names the flag, the value and what was expected.
    """
    if pairs < 1:
        raise SpecError(f"Expected --pairs {pairs} >= 1: it is the maximum number of class pairs to analyse.")
    if not (svm_c > 0 and math.isfinite(svm_c)):
        raise SpecError(f"Expected --svm-c {svm_c} to be positive and finite: it weighs errors against the margin.")
    return InspectionRequest(
        dataset=spec.dataset, extractor=spec.extractor, public_fraction=spec.public_fraction,
        public_dataset=spec.public_dataset, split_seed=spec.split_seed, rows="private" if read_private else "public",
        k=tuple(sorted({_parse_dimension(part) for text in k for part in text.split(",")})), pairs=pairs, svm_c=svm_c,
    )  # fmt: skip


def complete_request(request: InspectionRequest, spec: Spec, dimensions: int) -> InspectionRequest:
    """Return the request with the options of `spec` and, if no k was requested, the default numbers of dimensions.

    The defaults are those of `DEFAULT_K` below `dimensions`, and `dimensions` itself.

    Raises:
        SpecError: a k larger than the number of dimensions.
    """
    if request.k and request.k[-1] > dimensions:
        raise SpecError(
            f"Expected --k {request.k[-1]} <= {dimensions}: there are no more components than features or "
            f"{request.rows} examples. Lower it, or leave out --k."
        )
    k = request.k or (*(dimension for dimension in DEFAULT_K if dimension < dimensions), dimensions)
    parts = {name: getattr(spec, name) for name in ("dataset", "extractor", "public_dataset")}
    return request.model_copy(update={**parts, "k": k})


def digest_request(request: InspectionRequest) -> str:
    """Return the SHA-256 of a request, as canonical JSON."""
    return canonical_digest(json.loads(request.model_dump_json()))


def _parse_dimension(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise SpecError(f"Expected --k to be numbers of dimensions >= 1, like 10,40,200, got {text.strip()!r}.")
    return int(text)
