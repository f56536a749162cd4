"""The types that a plugin implements or receives; `dpbench.privacy` defines the types that privacy depends on.

Nothing here imports torch: every command imports every plugin, so importing must stay light (a law checks it).
Array axes in comments: n examples, c rows of a chunk, d features, k classes.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar, final

from dpbench.privacy.core.chunk import Chunk, RowFn, Teacher
from dpbench.privacy.core.plan import Adjacency, Budget, Planned, Release, Task
from dpbench.privacy.curator import Curator
from dpbench.privacy.mechanisms.choice.choice_plan import Choice
from dpbench.splits import INDEPENDENT_DRAWS, DeclaredImages, Features, Images, Records, Split, Splits
from dpbench.support.settings import ComponentWithSettings, check_settings, require_setting

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image
    from torch import Tensor, nn

__all__ = [
    "INDEPENDENT_DRAWS", "Adjacency", "Budget", "Choice", "Chunk", "Curator", "Dataset", "DeclaredImages", "Download",
    "Extractor", "Features", "Images", "Learner", "Planned", "Predict", "PublicData", "Records", "Release", "RowFn",
    "Source", "Split", "Splits", "Task", "Teacher", "require_setting",
]  # fmt: skip

AnyLearner = TypeVar("AnyLearner", bound="Learner")
Predict = Callable[["Tensor"], "Tensor"]
"""Maps examples (c, *example_shape) float32 to scores (c, classes), each row independently of the others.

The class with a higher score is more likely.
"""


@dataclass(frozen=True)
class PublicData:
    """Examples that the guarantee does not cover; a learner may read them freely."""

    x: Tensor  # (n, *example_shape) float32
    y: Tensor | None  # (n,) int64; None if the protocol leaves public data unlabelled
    mirrored: Tensor | None = None
    """(n, *example_shape) float32: the features of each example's mirror image, for learners that request them
    (`Learner.reads_mirrored`); otherwise None, and also None if examples are features instead of images."""

    def take(self, rows: Tensor) -> PublicData:
        """Return the public data of these rows."""
        y, mirrored = (None if part is None else part[rows] for part in (self.y, self.mirrored))
        return PublicData(self.x[rows], y, mirrored)


class Learner(ComponentWithSettings, ABC):
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
    Results then record the calibration; results of other learners state that there are no probabilities."""
    search_space: ClassVar[Mapping[str, Sequence[Any]]] = {}
    """Setting -> values worth trying: the default grid of a search."""
    paper_space: ClassVar[Mapping[str, Sequence[Any]]] = {}
    """The grid that the learner's paper searched, for `--space paper`; empty if the paper gives none."""
    paper: ClassVar[Mapping[str, Any]] = {}
    """Those settings of the learner's paper that differ from the defaults, for `--learner NAME:paper`. Other options
    override them."""
    rule_origin: ClassVar[str] = ""
    """The origin of the constants in the default settings: the images that they were chosen on, or the paper. It shows
    readers whether a score was obtained with settings tuned on the same data. Empty if it is not stated."""

    def reads_mirrored(self) -> bool:
        """Return whether `fit` also reads the features of public examples' mirror images (`PublicData.mirrored`).

        These features are extracted once and cached, like the features of the images themselves.
        """
        return False

    def made_for(self) -> str:
        """Return the dataset to test this learner on, like `theory-thresholds:n=1500`; empty for ten Gaussian clusters.

        Override it for learners that need fewer classes or a certain kind of features. Classes should be balanced.
        """
        return ""

    def auto(self, task: Task, budget: Budget) -> Mapping[str, Any]:
        """Return values for the settings that are None, computed from public numbers and the other settings.

        The user's own settings win. Round each value (a learning rate to three digits, say), so that machines agree.
        """
        return {}

    def earlier_auto(self, task: Task, budget: Budget) -> Mapping[str, Mapping[str, Any]]:
        """Return the values that `auto` returned in each earlier version, latest version first; no new run uses them.

        Override it when you change `auto`: dpbench then still checks and re-runs the results of those versions. Each
        key is the last version that had these values, like "0.2.0".
        """
        return {}

    def resolve_batch(self, task: Task) -> Self:
        """Return the learner with a sample rate in place of an expected batch size, if it has such a setting."""
        return self

    @final
    def settle(self, task: Task, budget: Budget) -> Self:
        """Return the learner with every None setting filled in by `auto`; dpbench calls this before it asks for a plan.

        Raises:
            SpecError: a value that `auto` returns does not fit the learner.
        """
        sampled = self.resolve_batch(task)
        return _fill_auto_settings(sampled, sampled.auto(task, budget))

    @final
    def settle_earlier(self, task: Task, budget: Budget) -> Mapping[str, Self]:
        """Return the learner as each earlier version would settle it (`earlier_auto`), latest version first."""
        sampled = self.resolve_batch(task)
        earlier = sampled.earlier_auto(task, budget)
        return {version: _fill_auto_settings(sampled, numbers) for version, numbers in earlier.items()}

    @abstractmethod
    def plan(self, task: Task, budget: Budget) -> Sequence[Planned]:
        """Declare every use of the private data, before any private row is read."""

    @abstractmethod
    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Train on noisy answers and public data, and return the predictor.

        Besides the curator's noise and samples, `generator` (on the CPU) is the only source of randomness.
        """


def _fill_auto_settings(learner: AnyLearner, values: Mapping[str, Any]) -> AnyLearner:
    left = {name: value for name, value in values.items() if getattr(learner, name) is None}
    return check_settings(dataclasses.replace(learner, **left))  # type: ignore[type-var]


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


class Dataset(ComponentWithSettings, ABC):
    """A source of labelled images. Subclass it as a frozen dataclass; its fields are the options."""

    name: ClassVar[str]
    classes: ClassVar[tuple[str, ...]]
    licence: ClassVar[str]
    citation: ClassVar[str]
    test_differs: ClassVar[str] = ""
    """How the published test split differs from the training split, if it does; a learner may then beat the ceiling."""
    shorthand: ClassVar[str] = ""
    """The option that may be given without its name, as in `imagefolder:~/photos`."""
    default_extractor: ClassVar[str] = "pixels"
    """The extractor of runs that name none, written as for the flag: `efficientnet-lite0:size=128`. Raw pixels suit
    only images of at most 32 pixels a side."""

    def source(self) -> Source | None:
        """Return where to get the data and where it is stored, without reading it; None if a package contains it."""
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


class Extractor(ComponentWithSettings, ABC):
    """A fixed map from images to features; it maps each image independently. Subclass it as a frozen dataclass."""

    name: ClassVar[str]
    version: ClassVar[str] = "1"
    """Change it whenever the same image would give other features, for example because an option's default changed. The
    cache key contains this version, and only those options that differ from their defaults."""
    licence: ClassVar[str] = ""
    """Licence of the weights; empty if there are none or an option decides."""
    weights_size: ClassVar[int] = 0
    """Bytes of weights to download; 0 if there are none or an option decides."""
    trained_on: ClassVar[str] = ""
    """The training data of the weights, such as `ImageNet-1k`; `nothing` without training; empty if unknown. Results
    state it, because epsilon does not cover the images that the weights were trained on."""
    made_elsewhere: ClassVar[str] = ""
    """The origin of features that were not computed on this machine, such as `dinov2 (pack 3f2a...)`; empty for all
    others. Results state it, because nobody can check here that each row depends on one image alone."""
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

        Several threads call `prepare` and the map at once. Features that the map returns as float16 are cached in half
        precision; learners still receive float32.
        """

    def as_module(self) -> nn.Module | None:
        """Return the map of `open` on the CPU as a module that torch can export; None if there is none.

        It is in evaluation mode, with float32 weights. dpbench runs it with onnxruntime on splits of 1,024 images or
        more, if it gives the same features as `open`.
        """
        return None

    def layers(self) -> Mapping[str, tuple[int, ...]]:
        """Map each value of the option `layer` to the shape of that layer's activations for one image.

        The layers are in the order of the network; the mapping is empty if the extractor has no such option. Read no
        large file and import no large package.
        """
        return {}

    def tail(self) -> Callable[[], nn.Module] | None:
        """Return a function that loads the layers after the extracted one; None if features are the network's output.

        Each call returns a new module that maps activations (c, *example_shape) to pooled features (c, d). The module
        is on the CPU, in evaluation mode, and has the published weights, which are public. Stored batch statistics are
        folded into the preceding convolutions, so that no module reads a batch. The function leaves global random
        generators unchanged. Learners find it as `Task.tail`.
        """
        return None
