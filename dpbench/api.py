"""The types that a plugin implements or receives.

Nothing here imports torch: every command imports every plugin, so importing must stay light (a law checks it).
Array axes in comments: n examples, c rows of a chunk, d features, k classes.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, TypeVar, final

from dpbench.errors import SpecError

if TYPE_CHECKING:
    import numpy as np
    import torch
    from PIL.Image import Image
    from torch import Tensor

    from dpbench.privacy.core.exact.quantised import Quantised
    from dpbench.privacy.core.forms.blocks import Blocks
    from dpbench.privacy.core.forms.contributions import Contribution

Adjacency = Literal["add-or-remove-one"]
T = TypeVar("T")
Predict = Callable[["Tensor"], "Tensor"]
"""(c, *example_shape) float32 -> (c, classes) scores, higher is more likely; each row independently."""


@dataclass(frozen=True)
class PublicData:
    """Examples outside the guarantee, free to read."""

    x: Tensor  # (n, *example_shape) float32
    y: Tensor | None  # (n,) int64; None if the protocol leaves public data unlabelled


@dataclass(frozen=True)
class Chunk:
    """Part of one private sample. It exists only while a row function runs and is overwritten afterwards."""

    rows: Tensor | Quantised  # (c, *example_shape) float32, in 8 bits once mapped; c may be 0
    y: Tensor  # (c,) int64
    seeds: Tensor  # (c,) int64: the only randomness row i may use (augmentation)

    def __len__(self) -> int:
        """Return c, the number of rows."""
        return len(self.y)

    @property
    def x(self) -> Tensor:
        """The rows as a float32 tensor; of mapped rows a copy, where `RankOne` and `exact_linear` take `rows`."""
        return self.rows.float()

    def take(self, rows: Tensor) -> Chunk:
        """Return a copy of the rows with these indices."""
        return Chunk(self.rows.index_select(0, rows), self.y.index_select(0, rows), self.seeds.index_select(0, rows))


@dataclass(frozen=True)
class Task:
    """What the protocol declares public about the private data."""

    example_shape: tuple[int, ...]
    classes: int
    size: int  # n of the private split: public by declaration, see README, "Not covered"
    device: torch.device
    public: int = 0  # examples of public data that the learner sees
    same_source: bool = True  # whether they are of the private data's own dataset, not of another (`--public-dataset`)


@dataclass(frozen=True)
class Budget:
    """The target guarantee, fixed by the protocol. `epsilon` is in nats and may be infinite."""

    epsilon: float
    delta: float
    adjacency: Adjacency = "add-or-remove-one"


@dataclass(frozen=True)
class Release:
    """One planned use of the private data: `steps` noisy sums, each over a fresh Poisson sample.

    `relative_noise` is this release's noise multiplier divided by the base sigma, which the harness calibrates for the
    whole plan: at 2.0 this release spends less of the budget than one at 1.0.
    """

    name: str
    steps: int = 1
    sample_rate: float = 1.0  # probability per example and step, in (0, 1]
    relative_noise: float = 1.0


@dataclass(frozen=True)
class Choice:
    """One planned use of the private data: the exponential mechanism, asked `steps` times over all examples.

    A candidate j is chosen with chance proportional to exp(-eps0 L_j), where L_j adds up what each example loses by it,
    in [0, 1], and eps0 = 2 / (base sigma * relative_noise): as zero-concentrated as a `Release` of that noise. A plan
    of one choice alone is pure: eps0 is the whole epsilon, and delta is 0. `parts` choices, each among `candidates`,
    cost what one does, where each example touches one part alone.
    """

    sample_rate: ClassVar[float] = 1.0
    """Every example is in every question."""

    name: str
    candidates: int  # at most: how many there are may follow from public data
    parts: int = 1
    steps: int = 1
    relative_noise: float = 1.0


Planned = Release | Choice


class Curator(ABC):
    """The only access to private rows: it answers noisy questions within the plan."""

    __slots__ = ()

    @property
    @abstractmethod
    def task(self) -> Task:
        """What is public about the private data."""

    @property
    @abstractmethod
    def sigma(self) -> Mapping[str, float]:
        """The noise multiplier of each planned release (0 when epsilon is infinite)."""

    @abstractmethod
    def noisy_sum(
        self, rows: RowFn, *, release: str, clip: float | Sequence[float], chunk_size: int | None = None
    ) -> Any:
        """Return the noisy sum of clipped `rows` over one fresh Poisson sample.

        Args:
            rows: maps a `Chunk` to one contribution per row: a tensor (c, ...), `Joined`, `RankOne`, `Scaled`,
                `Residual` or `Blocks`. Row i may read row i of the chunk, `seeds[i]` and public values, nothing else.
                It is called over no rows first (c = 0): shape and grid of the answer are those.
            release: the name of a planned release with steps left; a step is spent before any private row is read.
            clip: L2 bound on one example's contribution; for `Blocks`, one bound per block.
            chunk_size: maximum rows per chunk; it affects memory only, never the distribution of the answer.

        Returns:
            A float32 tensor with the shape of one contribution (a tuple of them for `Blocks`). The noise has std
            ``sigma[release] * clip``, times the square root of the number of blocks.

        Raises:
            NotPlanned: the release is not in the plan, or all its steps are spent.
            SpecError: a clip or a chunk size that is none, or a number of clips that is not that of the blocks.
            NotPerExample: a row differs when it is evaluated beside other rows, or among fewer; or what a chunk
                contributes has another form, shape or scale than what no rows contribute.
            NotPure: `rows` changed what it can reach, or reaches what cannot be compared, such as an iterator.
            ComponentFailed: `rows` failed; type and line are told, its text may hold private values.
        """

    @abstractmethod
    def noisy_choice(
        self, losses: RowFn, *, release: str, project: Tensor | None = None, chunk_size: int | None = None
    ) -> int:
        """Return a candidate j in [0, N), with chance proportional to exp(-eps0 L_j) and eps0 = 2 / sigma[release].

        Args:
            losses: maps a `Chunk` to what each row loses by each candidate, (c, N) float32, N as over no rows (c = 0).
                An entry is clamped to [0, 1] and rounded to 2^-20; NaN counts as 0. With `project` it returns the cell
                of each row instead, (c,) int64, and a row in no cell of the matrix loses nothing by any candidate.
            release: the name of a planned `Choice` of one part, with steps left; a step is spent first.
            project: a public matrix (cells, N) in [0, 1]: what a row in each cell loses by each candidate.
            chunk_size: as in `noisy_sum`.

        Raises:
            NotPlanned: the choice is not in the plan, or all its steps are spent.
            SpecError: more candidates than planned, or none; a matrix or a row function's answer that does not fit.
            NotPerExample, NotPure, ComponentFailed: as `noisy_sum` does.
        """

    @abstractmethod
    def noisy_choices(self, votes: RowFn, *, release: str, chunk_size: int | None = None) -> Tensor:
        """Return a candidate for each part, (parts,) int64 in [0, candidates), each part chosen on its own.

        Part p becomes v with chance proportional to exp(eps0 * votes for v of p), eps0 = 2 / sigma[release]: the
        exponential mechanism over all combinations, where a row loses 1 by each that is not what it voted for.

        Args:
            votes: maps a `Chunk` to what each row votes for, (c,) int64: p * candidates + v, or any other number, such
                as -1, for nothing. Each row touches one part, so that all parts together cost one choice.
            release: the name of a planned `Choice` with steps left; a step is spent first.
            chunk_size: as in `noisy_sum`.

        Raises:
            NotPlanned, SpecError, NotPerExample, NotPure, ComponentFailed: as `noisy_choice` does.
        """

    @abstractmethod
    def noisy_votes(
        self, teacher: Teacher, queries: Tensor, *, release: str, shards: int, confident: str | None = None,
        threshold: float = 0.0,
    ) -> Tensor:  # fmt: skip
        """Return noisy counts of teachers' votes, float32 (m, classes): PATE (Papernot et al. 2017, 2018).

        Each example belongs to one of `shards` shards, by a hash of its content, so equal examples share one. The
        curator calls `teacher` with each shard that is not empty, and adds up one vote per shard and query.

        Args:
            teacher: maps a shard and the queries to labels, (m,) int64; one outside [0, classes) is no vote. It may fit
                whatever it likes on the shard, remembers nothing, and draws from nothing but what it makes itself, say
                a generator seeded by `shard.seeds`. Gradients are off around it.
            queries: public examples (m, *query_shape).
            release: a planned `Release` of sample rate 1, with steps left. Noise has std sigma[release] * sqrt(2 m).
            shards: how many, at most one per private example.
            confident: another such release. A query is answered if its largest count, with noise of std
                sigma[confident] * sqrt(m), reaches `threshold`; the others are rows of NaN. With a answered the noise
                of the counts has std sigma[release] * sqrt(2 a).
            threshold: in votes; with `confident` alone.

        Raises:
            NotPlanned: a release is not in the plan, or all its steps are spent.
            SpecError: a number of shards or queries that cannot be, labels of another shape or kind, or mapped rows,
                whose last bits may follow their place: a teacher maps its own shard.
            NotPerExample: the teacher answers differently over the same shard.
            NotPure, ComponentFailed: as `noisy_sum` does, of the teacher.
        """

    @abstractmethod
    def map(self, transform: Callable[[Tensor], Tensor]) -> Curator:
        """Return a curator over the transformed rows, on the same ledger.

        `transform` maps (c, *example_shape) float32 to (c, *new_shape), each row independently and using public values
        only: neighbouring datasets stay neighbouring, so the transform costs no privacy. It is applied once, so that a
        projection makes every later step cheaper. Beside noise, mapped rows are kept in 8 bits, each with a scale of
        its own (`Chunk.rows`): a quarter of the memory, and integers to add up. A library's product may round a row
        otherwise where it stands elsewhere in a chunk: use `exact_linear`.

        Raises:
            NotPerExample, NotPure, ComponentFailed: as `noisy_sum` does, of `transform`.
        """


class Learner(ABC):
    """A private learner. Subclass it as a frozen dataclass, whose fields are its settings (hyperparameters).

    A setting may be left to the budget: a field that is None, `auto` in a spec, becomes what `auto` makes of it before
    the learner plans. A result states both, and a re-run takes the number.
    """

    name: ClassVar[str]
    public: ClassVar[Literal["none", "unlabelled", "labelled"]] = "none"
    """Which public data the learner needs."""
    reference: ClassVar[bool] = False
    """True for a ceiling without privacy: it plans for epsilon = inf alone, and a board shows it without a rank."""
    logits: ClassVar[bool] = False
    """True where scores are the logits of a cross-entropy: their softmax is then the learner's own class shares."""
    search_space: ClassVar[Mapping[str, Sequence[Any]]] = {}
    """Setting -> values worth trying: the default grid of a search."""
    paper_space: ClassVar[Mapping[str, Sequence[Any]]] = {}
    """The grid that the paper searched, if it gives one: `--space paper`."""
    paper: ClassVar[Mapping[str, Any]] = {}
    """A setting of the paper, where the defaults differ: `--learner NAME:paper`; further options override it."""

    def made_for(self) -> str:
        """Name the dataset on which the laws hold it, like `theory-thresholds:n=1500`; by default ten clusters.

        For a learner that takes no ten classes, or features of a certain kind alone. Labels are to be even.
        """
        return ""

    def auto(self, task: Task, budget: Budget) -> Mapping[str, Any]:
        """Return what settings become that are None: a function of public numbers and of the settings that are given.

        What somebody set is kept, whatever this returns for it. Numbers are rounded (a learning rate to three digits),
        so that every machine settles for the same.
        """
        return {}

    @final
    def settle(self, task: Task, budget: Budget) -> Self:
        """Return the learner with every setting that is None as `auto` has it; whoever asks for a plan settles first.

        Raises:
            SpecError: the numbers do not fit the learner.
        """
        numbers = {name: value for name, value in self.auto(task, budget).items() if getattr(self, name) is None}
        return dataclasses.replace(self, **numbers)  # type: ignore[type-var]

    @abstractmethod
    def plan(self, task: Task, budget: Budget) -> Sequence[Planned]:
        """Declare every use of the private data, before any private row is read."""

    @abstractmethod
    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Learn from noisy answers and public data; `generator` (on the CPU) is the only other source of randomness."""


def settled(setting: T | None) -> T:
    """Return a setting that was left to the budget, and is a number by now.

    Raises:
        SpecError: it is None still.
    """
    if setting is None:
        raise SpecError("Expected a number, got a setting that is auto still. Call learner.settle(task, budget) first.")
    return setting


class Images(Protocol):
    """A map-style dataset of images, decoded one at a time; several threads may read at once."""

    def __len__(self) -> int:
        """Return n."""

    def __getitem__(self, index: int, /) -> Image:
        """Decode one image."""


@dataclass(frozen=True)
class Features:
    """Examples that are features already, in place of images: a run takes them as they are and extracts nothing.

    Whoever looks at a single one sees a grey image of one line, in floating point.
    """

    x: np.ndarray  # (n, d) float32

    def __len__(self) -> int:
        """Return n."""
        return len(self.x)

    def __getitem__(self, index: int, /) -> Image:
        """Return one row, as an image of mode F."""
        from PIL.Image import fromarray

        return fromarray(self.x[index][None])


@dataclass(frozen=True)
class Split:
    """Lazily decoded images with their labels."""

    images: Images | Features
    labels: np.ndarray  # (n,) int64 in [0, classes)


@dataclass(frozen=True)
class Splits:
    """A dataset as published, opened on this machine."""

    train: Split
    test: Split
    digest: str  # of the bytes it was read from: identifies the data in results and in the feature cache
    public: Split | None = None  # examples that are public beside the public share of the training split


@dataclass(frozen=True)
class Download:
    """One file that anyone can download without a login."""

    url: str
    checksum: str  # "md5:..." or "sha256:..." of the file as published
    size: int  # bytes
    path: str  # below a data folder: where the file goes; for an archive, the folder to unpack it into
    unpack: bool = False  # .zip, .tar, .tar.gz, .tgz: into the folder `path`; .gz: to the file `path`


@dataclass(frozen=True)
class Source:
    """Where a dataset can be obtained, and where it is once it is on this machine."""

    homes: Sequence[Sequence[str]]  # alternatives below a data folder: one is enough, with all its paths
    page: str = ""  # its web page
    size: int = 0  # bytes to download
    downloads: Sequence[Download] = ()  # what `dpbench data fetch` gets; none: by hand, then `dpbench data import`
    hub: Sequence[
        tuple[str, str]
    ] = ()  # or instead (repository, file) on the Hugging Face hub, stored as repository/file
    elsewhere: Sequence[tuple[str, Sequence[Sequence[str]]]] = ()  # other folders, each with homes there
    package: str = ""  # the Debian package that contains it


class Dataset(ABC):
    """A source of labelled images. Subclass it as a frozen dataclass: its fields are the options."""

    name: ClassVar[str]
    classes: ClassVar[tuple[str, ...]]
    licence: ClassVar[str]
    citation: ClassVar[str]
    test_differs: ClassVar[str] = ""
    """How the published test split differs from the training split, where it does: why noise may beat the ceiling."""
    shorthand: ClassVar[str] = ""
    """The option that may be given without its name, as in `imagefolder:~/photos`."""

    def source(self) -> Source | None:
        """Say where the data comes from and where it is kept, reading nothing; None if a Python package contains it."""
        return None

    def drawn(self, seed: int) -> Self:
        """Return the dataset as the fit with this seed sees it: where examples are drawn, a draw of its own.

        Sizes, shapes and classes are those of every other seed: one plan and one sigma serve them all.
        """
        return self

    @abstractmethod
    def load(self) -> Splits:
        """Open the published splits.

        Raises:
            DataMissing: not on this machine; the message says what to fetch and where it was looked for.
        """


class Extractor(ABC):
    """A fixed map from image to features, each image independently. Subclass it as a frozen dataclass."""

    name: ClassVar[str]
    version: ClassVar[str] = "1"
    """Change it whenever the same image would give other features, also by another default of an option: it is part of
    the cache key, as are the options that are not at their default."""
    licence: ClassVar[str] = ""
    """Licence of the weights; empty if there are none or an option decides."""
    weights_size: ClassVar[int] = 0
    """Bytes of weights to download; 0 if there are none or an option decides."""
    dimension: ClassVar[int | None] = None
    """Number of features per image; None if options or images decide."""
    shorthand: ClassVar[str] = ""
    """The option that may be given without its name, as in `timm:resnet18.a1_in1k`."""
    identity: ClassVar[bool] = False
    """True where it leaves numbers as they are: the one extractor that fits a dataset of features."""

    def present(self) -> bool:
        """Say whether the weights are on this machine, without heavy reading or imports."""
        return True

    def weights(self) -> str:
        """Return a digest of the weights, or an empty string without weights; it is part of the cache key."""
        return ""

    @abstractmethod
    def prepare(self, image: Image) -> Tensor:
        """Turn one image into a tensor that stacks with others: resize, crop, normalise."""

    @abstractmethod
    def open(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        """Load the weights once and return the map (c, *prepared_shape) -> (c, *example_shape) float32.

        Several threads call the map at once, as they do `prepare`.
        """


RowFn = Callable[[Chunk], "Tensor | Contribution | Blocks"]
"""One contribution per row of the chunk."""
Teacher = Callable[[Chunk, "Tensor"], "Tensor"]
"""A shard and public queries (m, ...) -> a label for each query, (m,) int64."""
