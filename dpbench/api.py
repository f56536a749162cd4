"""The types that a plugin implements or receives; `dpbench.privacy` defines the types that privacy depends on.

Nothing here imports torch: every command imports every plugin, so importing must stay light (a law checks it).
Array axes in comments: n examples, c rows of a chunk, d features, k classes.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, Self, TypeVar, final

from dpbench.errors import DataError
from dpbench.privacy.core.chunk import Chunk, RowFn, Teacher
from dpbench.privacy.core.plan import Adjacency, Budget, Planned, Release, Task
from dpbench.privacy.curator import Curator
from dpbench.privacy.mechanisms.choice.choice_plan import Choice
from dpbench.support.settings import Configured, check_settings, require_setting

if TYPE_CHECKING:
    import numpy as np
    import torch
    from PIL.Image import Image
    from torch import Tensor, nn

__all__ = [
    "Adjacency", "Budget", "Choice", "Chunk", "Curator", "Dataset", "Download", "Extractor", "Features", "Images",
    "Learner", "Planned", "Predict", "PublicData", "Release", "RowFn", "Source", "Split", "Splits", "Task", "Teacher",
    "require_setting",
]  # fmt: skip

Place = TypeVar("Place")
AnyLearner = TypeVar("AnyLearner", bound="Learner")
Predict = Callable[["Tensor"], "Tensor"]
"""(c, *example_shape) float32 -> (c, classes) scores, higher is more likely; each row independently."""


@dataclass(frozen=True)
class PublicData:
    """Examples that the guarantee does not cover; a learner may read them freely."""

    x: Tensor  # (n, *example_shape) float32
    y: Tensor | None  # (n,) int64; None if the protocol leaves public data unlabelled
    mirrored: Tensor | None = None
    """(n, *example_shape) float32: the features of the mirror image of each example, for learners that ask for them
    (`Learner.reads_mirrored`); None where examples are features and no images."""

    def take(self, rows: Tensor) -> PublicData:
        """Return these examples."""
        y, mirrored = (None if part is None else part[rows] for part in (self.y, self.mirrored))
        return PublicData(self.x[rows], y, mirrored)


class Learner(Configured, ABC):
    """A private learner. Subclass it as a frozen dataclass; its fields are its settings (hyperparameters).

    A setting may be left open: the method `auto` fills in a field that is None (`auto` in a spec) before the learner
    plans. A result records the setting as given and the number that was chosen, and a re-run uses the number.
    """

    name: ClassVar[str]
    public: ClassVar[Literal["none", "unlabelled", "labelled"]] = "none"
    """Which public data the learner needs."""
    reference: ClassVar[bool] = False
    """True for a ceiling without privacy: it plans for epsilon = inf only, and a board shows it without a rank."""
    logits: ClassVar[bool] = False
    """True if scores are logits of a cross-entropy loss, so that their softmax is the probability of each class.
    Results then record how well calibrated it is; for other learners they say that there are no probabilities."""
    search_space: ClassVar[Mapping[str, Sequence[Any]]] = {}
    """Setting -> values worth trying: the default grid of a search."""
    paper_space: ClassVar[Mapping[str, Sequence[Any]]] = {}
    """The grid that the paper searched, if it gives one: `--space paper`."""
    paper: ClassVar[Mapping[str, Any]] = {}
    """The paper's settings, where they differ from the defaults: `--learner NAME:paper`; other options override it."""
    rule_origin: ClassVar[str] = ""
    """Where the constants behind the defaults come from: the images that they were chosen on, or the paper. Readers
    judge by it whether a score was tuned on the data that it is stated for. Empty if it is not stated."""

    def reads_mirrored(self) -> bool:
        """Return whether `fit` also reads the features of the mirror images of public examples: `PublicData.mirrored`.

        They are extracted once and cached, like those of the images themselves.
        """
        return False

    def made_for(self) -> str:
        """Return the dataset to test this learner on, like `theory-thresholds:n=1500`; empty for ten clusters.

        Override it for learners that need fewer classes or a certain kind of features. Classes should be balanced.
        """
        return ""

    def auto(self, task: Task, budget: Budget) -> Mapping[str, Any]:
        """Return values for the settings that are None, computed from public numbers and the other settings.

        The user's own settings win. Round numbers, such as a learning rate to three digits, so that machines agree.
        """
        return {}

    def earlier_auto(self, task: Task, budget: Budget) -> Mapping[str, Mapping[str, Any]]:
        """Return what `auto` returned in earlier versions, by version and the latest first; no new run uses it.

        Override it when you change `auto`: dpbench then still checks and re-runs the results of those versions. A
        version is the last one that had these values, like "0.2.0".
        """
        return {}

    def resolve_batch(self, task: Task) -> Self:
        """Return the learner with a sample rate in place of an expected batch size, if it has such a setting."""
        return self

    @final
    def settle(self, task: Task, budget: Budget) -> Self:
        """Return the learner with every None setting filled in by `auto`; dpbench calls this before it asks for a plan.

        Raises:
            SpecError: the numbers do not fit the learner.
        """
        sampled = self.resolve_batch(task)
        return _fill_settings(sampled, sampled.auto(task, budget))

    @final
    def settle_earlier(self, task: Task, budget: Budget) -> Mapping[str, Self]:
        """Return the learner with every None setting filled in as in each earlier version, the latest first."""
        sampled = self.resolve_batch(task)
        earlier = sampled.earlier_auto(task, budget)
        return {version: _fill_settings(sampled, numbers) for version, numbers in earlier.items()}

    @abstractmethod
    def plan(self, task: Task, budget: Budget) -> Sequence[Planned]:
        """Declare every use of the private data, before any private row is read."""

    @abstractmethod
    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Learn from noisy answers and public data; the only other source of randomness is `generator`, on the CPU."""


def _fill_settings(learner: AnyLearner, numbers: Mapping[str, Any]) -> AnyLearner:
    left = {name: value for name, value in numbers.items() if getattr(learner, name) is None}
    return check_settings(dataclasses.replace(learner, **left))  # type: ignore[type-var]


INDEPENDENT_DRAWS = "drawn at random, each on its own"
"""How synthetic examples were made; equal ones do not count as copies."""


class Images(Protocol):
    """A sequence of images, each decoded when it is read; several threads may read at once."""

    def __len__(self) -> int:
        """Return the number of images."""

    def __getitem__(self, index: int, /) -> Image:
        """Decode the image at this index."""


@dataclass(frozen=True)
class Features:
    """Examples that are features instead of images; a run uses them unchanged and extracts nothing.

    Indexing returns a row as a grey image of height 1, in floating point.
    """

    x: np.ndarray  # (n, d) float32
    processing: str = ""  # what was done to each row on the way here; `INDEPENDENT_DRAWS`; empty is undeclared

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self.x)

    def __getitem__(self, index: int, /) -> Image:
        """Return a row as an image of mode F."""
        from PIL.Image import fromarray

        return fromarray(self.x[index][None])


@dataclass(frozen=True)
class Records(Generic[Place]):
    """The images of a split as records: a place for each image, and a function that reads the image at a place.

    A place identifies one image in its source: a path, a member of a zip, a line of a table, the bytes of one image. It
    is text, bytes, a whole number, or a tuple or dataclass of these. `read` is called with one place at a time, on
    several threads, and must not keep state; this is checked as for row functions. It may hold options, such as a
    mode. dpbench refuses numbers and arrays in places and options: computed from the images, they would carry the
    content of one image to the others. If places hold bytes, say in `processing` how each image was processed.

    With `reader`, cached features are found by the images alone, whatever their labels, units, order, folder or
    dataset: if a folder grows, only the new images are extracted. Without it, features are found by `Splits.digest`,
    the split and the row. An image must follow from its stored bytes and `reader`, and from nothing else.
    """

    places: Sequence[Place]
    read: Callable[[Place], Image]
    processing: str = ""  # where places hold bytes: what was done to each, as `DeclaredImages` has it
    keys: Sequence[bytes] | None = None
    """The SHA-256 of each record's stored bytes, 32 bytes each, in the order of `places`; read only when features or
    hashes are looked for. None: where places are bytes, dpbench computes it; else nobody knows."""
    reader: str = ""
    """What `read` makes of stored bytes: a name, every option that changes pixels, and a version to change with them,
    like `my-scans-RGB-1`. Records of two datasets may share it only if they read the same bytes to the same pixels."""

    def __post_init__(self) -> None:
        """Refuse keys without a reader, or a number of keys that is not the number of places."""
        if self.keys is not None and not self.reader:
            raise DataError("Expected Records with keys to name their reader, such as 'my-scans-RGB-1'; got none.")
        if self.keys is not None and len(self.keys) != len(self.places):
            raise DataError(f"Expected a key for each of {len(self.places):,} records, got {len(self.keys):,}.")

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.places)

    def __getitem__(self, index: int, /) -> Image:
        """Read the image at this index."""
        return self.read(self.places[index])


@dataclass(frozen=True)
class DeclaredImages:
    """Images in memory, with a sentence about the processing of each image since its publication.

    Nobody can check from outside how the images were made, so boards require the sentence, and results quote it.
    """

    images: Images
    processing: str

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.images)

    def __getitem__(self, index: int, /) -> Image:
        """Return the image at this index."""
        return self.images[index]


OWN_RECORD = "read from its own record"
"""How each image of `Records` comes about."""


def _holds_bytes(places: Sequence[Any]) -> bool:
    first = places[0] if len(places) else ""
    return any(isinstance(part, bytes) for part in (first if isinstance(first, tuple) else (first,)))


@dataclass(frozen=True)
class Split:
    """Images that are decoded on access, with their labels."""

    images: Images | Features
    labels: np.ndarray  # (n,) int64 in [0, classes)
    units: np.ndarray | None = None
    """(n,) int64: the unit of each example. All examples of a unit (a patient, a lesion, a track) share one number, in
    every split, and no other example has it. None: units are unknown, or each example is a unit of its own."""
    groups: Mapping[str, np.ndarray] | None = None
    """Column -> (n,) text: what is known of each example beside its class, such as sex, age band or source; an empty
    text is unknown. Read of the test split alone, to state accuracy by group; nothing that trains sees it."""

    @property
    def processing(self) -> str:
        """The processing of each example: `OWN_RECORD`, `INDEPENDENT_DRAWS` or the dataset's declaration, if any."""
        if isinstance(self.images, Records):
            return self.images.processing if _holds_bytes(self.images.places) else OWN_RECORD
        return self.images.processing if isinstance(self.images, DeclaredImages | Features) else ""


@dataclass(frozen=True)
class Splits:
    """A dataset as it was published, opened on this machine."""

    train: Split
    test: Split
    digest: str
    """Of the bytes it was read from, and of options that change pixels: identifies the data in results, and features of
    images that have no keys of their own (`Records.keys`)."""
    public: Split | None = None  # examples that are public beside the public share of the training split
    unit: str = ""
    """The word for what `Split.units` numbers: `patient`, `lesion`, `track`; empty where training has no units. Only
    opening the data tells it: a copy may lack the names that units are read from."""
    edition: str = ""
    """Which copy of the data this is, where it is not the whole published data with its published split: how many of
    the images it has, its digest, and who cut it how. Every result states it, and so does `dpbench data info`."""
    ignored: Sequence[str] = ()
    """Names of files that lie among the images and were not read. dpbench says how many there are of each ending, and
    no name; results do not have it. The name of a pipe, a socket or a device ends in a slash."""


@dataclass(frozen=True)
class Download:
    """A file that anyone can download without a login."""

    url: str
    checksum: str  # "md5:..." or "sha256:..." of the file as published
    size: int  # bytes
    path: str  # below a data folder: where the file goes; for an archive, the folder to unpack it into
    unpack: bool = False  # .zip, .tar, .tar.gz, .tgz: into the folder `path`; .gz: to the file `path`


@dataclass(frozen=True)
class Source:
    """Where to download a dataset, and where it is stored on this machine."""

    homes: Sequence[Sequence[str]]  # alternatives below a data folder: one is enough, with all its paths
    page: str = ""  # its web page
    size: int = 0  # bytes to download
    downloads: Sequence[Download] = ()  # what `dpbench data fetch` gets; none: by hand, then `dpbench data import`
    hub: Sequence[tuple[str, str]] = ()  # or (repository, file) on the Hugging Face hub, stored as repository/file
    elsewhere: Sequence[tuple[str, Sequence[Sequence[str]]]] = ()  # other folders, each with homes there
    package: str = ""  # the Debian package that contains it
    requires: Sequence[str] = ()  # modules that reading it imports: checked before anything is downloaded or copied


class Dataset(Configured, ABC):
    """A source of labelled images. Subclass it as a frozen dataclass; its fields are the options."""

    name: ClassVar[str]
    classes: ClassVar[tuple[str, ...]]
    licence: ClassVar[str]
    citation: ClassVar[str]
    test_differs: ClassVar[str] = ""
    """How the published test split differs from the training split, where it does: why noise may beat the ceiling."""
    shorthand: ClassVar[str] = ""
    """The option that may be given without its name, as in `imagefolder:~/photos`."""
    default_extractor: ClassVar[str] = "pixels"
    """The extractor of runs that name none, as the shell takes it: `efficientnet-lite0:size=128`. Raw pixels suit
    images of up to 32 pixels a side at most."""

    def source(self) -> Source | None:
        """Return the origin and the storage place of the data, without reading it; None if a package contains it."""
        return None

    def default_unit(self) -> str:
        """Return the unit of the guarantee: a `Splits.unit`, or "image". The flag `--unit` overrides it.

        No data is read. A dataset with several images per person returns `patient`.
        """
        return "image"

    def drawn(self, seed: int) -> Self:
        """Return the dataset for the fit with this seed; a dataset that draws examples at random draws them anew.

        Sizes, shapes and classes must not depend on the seed: one plan and one sigma serve all seeds.
        """
        return self

    @abstractmethod
    def load(self) -> Splits:
        """Load the published splits.

        Raises:
            DataMissing: the data is not on this machine; the message names the files to fetch and the folders searched.
        """


class Extractor(Configured, ABC):
    """A fixed map from images to features; it maps each image independently. Subclass it as a frozen dataclass."""

    name: ClassVar[str]
    version: ClassVar[str] = "1"
    """Change it whenever the same image would give other features, for example because an option's default changed. It
    is part of the cache key; options are part of it only where they differ from their defaults."""
    licence: ClassVar[str] = ""
    """Licence of the weights; empty if there are none or an option decides."""
    weights_size: ClassVar[int] = 0
    """Bytes of weights to download; 0 if there are none or an option decides."""
    trained_on: ClassVar[str] = ""
    """What the weights have seen, such as `ImageNet-1k`; `nothing` without training; empty if it is not known. Results
    state it, because epsilon covers no image that the weights have seen."""
    made_elsewhere: ClassVar[str] = ""
    """The origin of features that were not computed on this machine, such as `dinov2 (pack 3f2a...)`; empty for all
    others. Results state it, because nobody can check here that each row follows from one image alone."""
    dimension: ClassVar[int | None] = None
    """Number of features per image; None if options or images decide."""
    shorthand: ClassVar[str] = ""
    """The option that may be given without its name, as in `timm:resnet18.a1_in1k`."""
    identity: ClassVar[bool] = False
    """True where it leaves numbers as they are: the one extractor that fits a dataset of features."""

    def present(self) -> bool:
        """Return whether the weights are on this machine, without reading large files or importing large packages."""
        return True

    def weights(self) -> str:
        """Return a digest of the weights, which is part of the cache key; empty if there are no weights."""
        return ""

    @abstractmethod
    def prepare(self, image: Image) -> Tensor:
        """Convert an image to a tensor that can be stacked with others: resize, crop and normalise it."""

    @abstractmethod
    def open(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        """Load the weights and return the map (c, *prepared_shape) -> (c, *example_shape) float32.

        Several threads call the map at once, and also `prepare`. Features that the map returns as float16 are cached in
        half precision; learners still receive float32.
        """

    def as_module(self) -> nn.Module | None:
        """Return the map of `open` on the CPU as a module that torch can export; None if there is none.

        It is in evaluation mode, with float32 weights. dpbench runs it with onnxruntime on splits of 1,024 images or
        more, if it gives the same features as `open`.
        """
        return None

    def layers(self) -> Mapping[str, tuple[int, ...]]:
        """Return the values of the option `layer`: each layer's name, with the shape of its activations for an image.

        In the order of the network; empty without that option. It reads no large file and imports no large package.
        """
        return {}

    def tail(self) -> Callable[[], nn.Module] | None:
        """Return a function that loads the layers after the activations; None if features are the network's output.

        The module maps activations (c, *example_shape) to pooled features (c, d). It is on the CPU, in evaluation mode,
        a new one at each call, with the published weights: public values. Stored batch statistics are folded into the
        convolutions before them, so that no module looks at a batch. Global generators stay as they are. Learners find
        it as `Task.tail`.
        """
        return None
