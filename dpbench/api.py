"""The types that a plugin implements or receives.

Nothing here imports torch: a plugin is imported by every command, so importing must stay light (a law checks it).
Array axes in comments: n examples, c rows of a chunk, d features, k classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

if TYPE_CHECKING:
    import numpy as np
    import torch
    from PIL.Image import Image
    from torch import Tensor

    from dpbench.privacy.forms.blocks import Blocks
    from dpbench.privacy.forms.contributions import Contribution

Adjacency = Literal["add-or-remove-one"]
Predict = Callable[["Tensor"], "Tensor"]
"""(c, *example_shape) float32 -> (c, classes) scores, higher is likelier; each row on its own."""


@dataclass(frozen=True)
class PublicData:
    """Examples outside the guarantee: read them freely."""

    x: Tensor  # (n, *example_shape) float32
    y: Tensor | None  # (n,) int64; None when the protocol leaves public data unlabelled


@dataclass(frozen=True)
class Chunk:
    """Part of one private sample; it exists only while a row function runs, and is overwritten afterwards."""

    x: Tensor  # (c, *example_shape) float32; c may be 0
    y: Tensor  # (c,) int64
    seeds: Tensor  # (c,) int64: the only randomness row i may use (augmentation)

    def __len__(self) -> int:
        """Return c, the number of rows."""
        return len(self.y)


@dataclass(frozen=True)
class Task:
    """What a protocol declares public about the private data."""

    example_shape: tuple[int, ...]
    classes: int
    size: int  # n of the private split: public by declaration, see README, "Not covered"
    device: torch.device


@dataclass(frozen=True)
class Budget:
    """The guarantee to reach; fixed by the protocol. `epsilon` in nats, may be infinite."""

    epsilon: float
    delta: float
    adjacency: Adjacency = "add-or-remove-one"


@dataclass(frozen=True)
class Release:
    """One planned use of the private data: `steps` noisy sums, each over a fresh Poisson sample.

    `relative_noise` is this release's noise multiplier divided by the base sigma that the harness calibrates for
    the whole plan: 2.0 spends less of the budget here than elsewhere.
    """

    name: str
    steps: int = 1
    sample_rate: float = 1.0  # chance per example and step, in (0, 1]
    relative_noise: float = 1.0


class Curator(ABC):
    """The only door to private rows: ask it noisy questions, within the plan."""

    @property
    @abstractmethod
    def task(self) -> Task:
        """What is public about the rows behind this curator."""

    @property
    @abstractmethod
    def sigma(self) -> Mapping[str, float]:
        """The noise multiplier of each planned release (0 when epsilon is infinite)."""

    @abstractmethod
    def noisy_sum(
        self, rows: RowFn, *, release: str, clip: float | Sequence[float], chunk_size: int | None = None
    ) -> Any:
        """Return the clipped, noised sum of `rows` over one fresh Poisson sample.

        Args:
            rows: maps a `Chunk` to one contribution per row: a tensor (c, ...), `Joined`, `RankOne`, `Scaled`,
                `Residual` or `Blocks`.
                Row i may read row i of the chunk, `seeds[i]` and public values, nothing else.
            release: the name of a planned release with steps left; the step is spent before anything is read.
            clip: L2 bound on one example's contribution; for `Blocks`, one bound per block.
            chunk_size: at most this many rows at once; only memory depends on it, never the answer's distribution.

        Returns:
            A float32 tensor of a contribution's shape (a tuple of them for `Blocks`). Noise std is
            ``sigma[release] * clip``, times the root of the number of blocks.

        Raises:
            NotPlanned: the release is not in the plan, or all its steps are spent.
            NotPerExample: a row, evaluated alone, came out different.
        """

    @abstractmethod
    def map(self, transform: Callable[[Tensor], Tensor]) -> Curator:
        """Return a curator over the transformed rows, on the same ledger.

        `transform` takes (c, *example_shape) float32 to (c, *new_shape), each row on its own, from public values
        only: then a neighbouring dataset stays neighbouring, and the transform costs no privacy. It is applied
        once, so a projection makes every later step cheaper.

        Raises:
            NotPerExample: a row, transformed alone, came out different.
        """


class Learner(ABC):
    """A private learner. Subclass it as a frozen dataclass: its fields are the hyperparameters."""

    name: ClassVar[str]
    public: ClassVar[Literal["none", "unlabelled", "labelled"]] = "none"
    """What the learner needs to see of the public data."""
    reference: ClassVar[bool] = False
    """True for a ceiling without privacy: it plans for epsilon = inf alone, and a board shows it without a rank."""
    search_space: ClassVar[Mapping[str, Sequence[Any]]] = {}
    """Field -> values worth trying: what tuning walks unless it is told otherwise."""
    paper_space: ClassVar[Mapping[str, Sequence[Any]]] = {}
    """The grid that the paper walked, where it says one: `--space paper`."""

    @abstractmethod
    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        """Declare every use of the private data, before any private row is read."""

    @abstractmethod
    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Learn from noisy answers and public data; `generator` (on the CPU) is all other randomness."""


class Images(Protocol):
    """A map-style dataset of images, decoded one at a time; several threads may ask at once."""

    def __len__(self) -> int:
        """Return n."""

    def __getitem__(self, index: int, /) -> Image:
        """Decode one image."""


@dataclass(frozen=True)
class Split:
    """Lazily decoded images with their labels."""

    images: Images
    labels: np.ndarray  # (n,) int64 in [0, classes)


@dataclass(frozen=True)
class Splits:
    """A dataset as published, opened on this machine."""

    train: Split
    test: Split
    digest: str  # of the bytes it was read from: names the very data in results and in the feature cache


@dataclass(frozen=True)
class Download:
    """One file that a publisher gives to anybody, without a login."""

    url: str
    checksum: str  # "md5:..." or "sha256:..." of the file as published
    size: int  # bytes
    path: str  # below a data folder: where the file belongs; of an archive, the folder it is unpacked into
    unpack: bool = False  # .zip, .tar, .tar.gz, .tgz: into the folder `path`; .gz: to the file `path`


@dataclass(frozen=True)
class Source:
    """Where a dataset can be had, and where it lies once it is here."""

    homes: Sequence[Sequence[str]]  # below a data folder: any one is enough, all paths of it are needed
    page: str = ""  # where people read about it and download it
    size: int = 0  # bytes to download
    downloads: Sequence[Download] = ()  # what `dpbench data fetch` gets; none: by hand, then `dpbench data import`
    hub: Sequence[tuple[str, str]] = ()  # instead: (repository, file) on the Hugging Face hub, kept as repository/file
    elsewhere: Sequence[tuple[str, Sequence[Sequence[str]]]] = ()  # folders outside the data folders, with homes there
    package: str = ""  # Debian's package that brings it


class Dataset(ABC):
    """A source of labelled images. Subclass it as a frozen dataclass: its fields are the options."""

    name: ClassVar[str]
    classes: ClassVar[tuple[str, ...]]
    licence: ClassVar[str]
    citation: ClassVar[str]
    shorthand: ClassVar[str] = ""
    """The option that may be given without its name: `imagefolder:~/photos`."""

    def source(self) -> Source | None:
        """Say where the data comes from and where it lies, reading nothing; None if it comes with a Python package."""
        return None

    @abstractmethod
    def load(self) -> Splits:
        """Open the published splits.

        Raises:
            DataMissing: not on this machine; the text says what to fetch and where it looked.
        """


class Extractor(ABC):
    """A fixed map from image to features, each image on its own. Subclass it as a frozen dataclass."""

    name: ClassVar[str]
    version: ClassVar[str] = "1"
    """Raise it whenever the same image would give other features: it is part of the cache key."""
    licence: ClassVar[str] = ""
    """Of the weights; empty where there are none, or where an option decides."""
    weights_size: ClassVar[int] = 0
    """Bytes of weights to download; 0 where there are none, or where an option decides."""
    dimension: ClassVar[int | None] = None
    """How many features an image has; None where options or images decide."""
    shorthand: ClassVar[str] = ""
    """The option that may be given without its name: `timm:resnet18.a1_in1k`."""

    def present(self) -> bool:
        """Say whether the weights are on this machine, reading and importing nothing heavy."""
        return True

    def parts(self) -> Sequence[Extractor]:
        """Return the extractors whose features these are, flattened and side by side; none if they are its own."""
        return ()

    def weights(self) -> str:
        """Return a digest of the weights, empty where there are none; it is part of the cache key."""
        return ""

    @abstractmethod
    def prepare(self, image: Image) -> Tensor:
        """Turn one image into a tensor that stacks with others: resize, crop, normalise."""

    @abstractmethod
    def open(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        """Load the weights once and return the map (c, *prepared_shape) -> (c, *example_shape) float32."""


RowFn = Callable[[Chunk], "Tensor | Contribution | Blocks"]
"""One contribution per row of the chunk."""
