"""Datasets of the Hugging Face hub, from the hub or from a mirror of its layout in a data folder."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dpbench import (
    DataError,
    DataMissing,
    Dataset,
    DeclaredImages,
    Source,
    SpecError,
    Split,
    Splits,
    data_folders,
    hookimpl,
    locate,
)
from dpbench_plugins.datasets.extractors import NETWORK

if TYPE_CHECKING:
    from PIL.Image import Image

BATCH = 1_000  # rows whose images are hashed at once
PAGE = "https://huggingface.co/datasets/"
CIFAR10 = "uoft-cs/cifar10"
SHARD = re.compile(r"(?P<split>.+)-(?P<number>\d{5})-of-(?P<shards>\d{5})(-\w+)?\.parquet")  # as the hub names them

CUT = (
    "there is no other split, so the fifth whose SHA-256 of the image's stored bytes is divisible by five is the test "
    "split"
)
PROCESSING = "a row of the published Parquet files, decoded on its own"


@dataclass(frozen=True)
class Opened:
    """Rows of a repository, and a digest of what they were read from."""

    train: Any
    test: Any  # None where the repository has only one split, which is `train` then
    digest: str
    split: str = ""  # the name of the only split


@dataclass(frozen=True)
class Column:
    """The image column of a Hugging Face dataset, decoded one at a time."""

    rows: Any
    key: str

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int, /) -> Image:
        image: Image = self.rows[index][self.key]
        return image


@dataclass(frozen=True)
class Cifar10(Dataset):
    """CIFAR-10: 50,000 training and 10,000 test images, 32x32, 10 classes, as `uoft-cs/cifar10`.

    A mirror is `uoft-cs/cifar10/plain_text/{train,test}-00000-of-00001.parquet` below a data folder; without one, the
    hub is used. The digest differs between the two.
    """

    name: ClassVar[str] = "cifar10"
    default_extractor: ClassVar[str] = NETWORK
    classes: ClassVar[tuple[str, ...]] = (
        "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
    )  # fmt: skip
    licence: ClassVar[str] = "none stated; research use"
    citation: ClassVar[str] = "Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009"

    def source(self) -> Source:
        """Return the two files on the hub."""
        files = [f"plain_text/{split}-00000-of-00001.parquet" for split in ("train", "test")]
        homes, hub = [[f"{CIFAR10}/{file}" for file in files]], [(CIFAR10, file) for file in files]
        return Source(homes=homes, page=PAGE + CIFAR10, size=143_646_105, hub=hub, requires=("datasets",))

    def load(self) -> Splits:
        """Open the two splits from a mirror or from the hub."""
        opened = _open(self, CIFAR10, ("train", "test"), "plain_text")
        return Splits(_split(opened.train, "img", "label"), _split(opened.test, "img", "label"), opened.digest)


class Classes:
    """The classes of a dataset that only its files name: an instance reads them, the class has none."""

    def __get__(self, dataset: HuggingFace | None, owner: type) -> tuple[str, ...]:
        return dataset._read[1] if dataset else ()


@dataclass(frozen=True)
class HuggingFace(Dataset):
    """Any image dataset of the Hugging Face hub, by its `id`: `hf:uoft-cs/cifar10`.

    `train` and `test` are the names of its splits, `image` and `label` of its columns: by default the only image column
    and the only ClassLabel. Labels that are plain integers or strings are refused: the number of classes must be
    public, so it is taken from the description, never counted from private records. No code from the hub is run.

    A mirror is a folder `<id>` below a data folder, with all shards `<split>-00000-of-0000N.parquet` in one folder; if
    several folders have them, the one named `config`. Without a mirror, or with a `revision`, the hub is used. Images
    stay as stored, even grey or with transparency.

    If a repository or a mirror has only one split, named by `train` or `test`, dpbench cuts it: a row belongs to the
    test split if the SHA-256 of the stored bytes of its image, read as a big-endian number, is divisible by five,
    whatever other rows there are. Identical images are so in the same split. Every result states this.
    """

    name: ClassVar[str] = "hf"
    default_extractor: ClassVar[str] = NETWORK
    classes = Classes()
    licence: ClassVar[str] = "as its page states"
    citation: ClassVar[str] = "as its page states"
    shorthand: ClassVar[str] = "id"

    id: str
    config: str = ""
    image: str = ""
    label: str = ""
    train: str = "train"
    test: str = "test"
    revision: str = ""

    def __post_init__(self) -> None:
        """Refuse an id that cannot be a repository, and one split in two roles."""
        if not re.fullmatch(r"(\w[\w.-]*/)?\w[\w.-]*", self.id):
            raise SpecError(f"Expected id={self.id} of dataset 'hf' to be as on the hub, like {CIFAR10}.")
        if self.train == self.test:
            raise SpecError(f"Expected two splits of {self.id}, got train={self.train} and test={self.test}.")

    def source(self) -> Source:
        """Return the repository; only the hub knows its files."""
        hub = [(self.id, f"*{self.config}*.parquet")]
        return Source(homes=[[self.id]], page=PAGE + self.id, hub=hub, requires=("datasets",))

    def load(self) -> Splits:
        """Open the two splits from a mirror or from the hub.

        Raises:
            SpecError: the config, split or column is ambiguous or unknown; the message lists the available ones.
            DataError: a shard is missing or damaged, or an image has no label.
        """
        return self._read[0]

    @cached_property
    def _read(self) -> tuple[Splits, tuple[str, ...]]:
        """The splits, and the names of their classes."""
        import datasets

        opened = _open(self, self.id, (self.train, self.test), self.config, self.revision)
        train, test, digest = opened.train, opened.test, opened.digest
        features, edition = train.features, ""
        image = self._column("image", datasets.Image, features)
        label = self._column("label", datasets.ClassLabel, features)
        if sum(isinstance(feature, datasets.Image) for feature in features.values()) > 1:
            # Other images of the same files need their own name for their features.
            digest = hashlib.sha256(f"{digest}/{image}".encode()).hexdigest()
        if test is None:
            edition = f"{len(train):,} images of split {opened.split!r} of {self.id}, digest {digest[:12]}; {CUT}"
            train, test = _cut(train, image)
        splits = Splits(_split(train, image, label), _split(test, image, label), digest, edition=edition)
        return splits, tuple(features[label].names)

    def _column(self, option: str, kind: type, features: Mapping[str, Any]) -> str:
        """Return the column that an option names, or the only one of its type."""
        asked, fitting = getattr(self, option), [name for name, one in features.items() if isinstance(one, kind)]
        if asked in fitting or (len(fitting) == 1 and not asked):
            return asked or fitting[0]
        there = ", ".join(f"{name} ({str(feature).partition('(names')[0]})" for name, feature in features.items())
        advice = f"Name one: hf:{self.id},{option}=COLUMN."
        if not fitting:
            advice = "Copy the dataset with such a column, using cast_column and to_parquet of the package datasets."
        raise SpecError(
            f"Expected {f'{option}={asked}' if asked else 'one column'} of {self.id} to be of type {kind.__name__}; "
            f"its columns are: {there}. {advice}"
        )


def _cut(rows: Any, image: str) -> tuple[Any, Any]:
    """Return the rows for training and for testing, cut by a hash of each image's stored bytes alone."""
    import datasets

    stored = rows.cast_column(image, datasets.Image(decode=False))
    tested = [
        int.from_bytes(hashlib.sha256(one["bytes"] or Path(one["path"]).read_bytes()).digest()) % 5 == 0
        for batch in stored.select_columns(image).iter(batch_size=BATCH)
        for one in batch[image]
    ]
    return tuple(
        rows.select([place for place, test in enumerate(tested) if test is wanted]) for wanted in (False, True)
    )


def _open(dataset: Dataset, hub_id: str, splits: tuple[str, str], config: str, revision: str = "") -> Opened:
    """Open the splits for training and test from a mirror, else from the hub."""
    try:
        if revision:
            raise DataMissing(f"Revision {revision} of {hub_id} is only on the hub: mirrors have no revisions.")
        root = locate(dataset).folder / hub_id
    except DataMissing as missing:
        opened = _from_hub(hub_id, splits, missing, name=config or None, revision=revision or None)
    else:
        opened = _from_mirror(_shards(root, splits, config))
    if opened.test is None and not isinstance(dataset, HuggingFace):
        raise DataError(f"Expected the splits {' and '.join(splits)} of {hub_id}, got {opened.split} alone.")
    return opened


def _shards(root: Path, splits: tuple[str, str], config: str) -> dict[str, list[Path]]:
    """Return the files of both splits from the folder below `root` that has them; of several, that named `config`.

    Without such a folder, one that has one of the two splits and no other will do.
    """
    found: dict[Path, dict[str, list[re.Match[str]]]] = {}
    files = sorted(root.rglob("*.parquet"))
    for file in files:
        if shard := SHARD.fullmatch(file.name):
            found.setdefault(file.parent, {}).setdefault(shard["split"], []).append(shard)
    whole = [folder for folder, shards in found.items() if shards.keys() >= set(splits)]
    if not whole:
        whole = [folder for folder, shards in found.items() if len(shards) == 1 and shards.keys() <= set(splits)]
    wanted = " and ".join(f"{split}-00000-of-0000N.parquet" for split in splits)
    if not whole:
        there = ", ".join(dict.fromkeys(file.name for file in files[:5])) or "no such file"
        raise DataError(f"Expected {wanted} in one folder below {root}, found {there}. Copy the hub's layout.")
    named = [folder for folder in whole if config in {"", folder.name}]
    if len(named) != 1:
        there = ", ".join(folder.name for folder in whole)
        raise SpecError(f"Expected config={config or '...'} to name one folder below {root}. Available: {there}.")
    chosen = {split: found[named[0]][split] for split in splits if split in found[named[0]]}
    for shards in chosen.values():
        numbers = [(int(shard["number"]), int(shard["shards"])) for shard in shards]
        if numbers != [(number, len(shards)) for number in range(len(shards))]:
            there = ", ".join(shard.string for shard in shards)
            raise DataError(f"Expected every shard in {named[0]} once, found {there}. Copy them from the hub again.")
    return {split: [named[0] / shard.string for shard in shards] for split, shards in chosen.items()}


def _from_mirror(shards: Mapping[str, Sequence[Path]]) -> Opened:
    """Open the shards of both splits, training first, or of the only one."""
    import datasets

    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # failures are reported below, in one sentence
    names, paths = ("train", "test"), [file for files in shards.values() for file in files]
    files = {name: list(map(str, files)) for name, files in zip(names, shards.values(), strict=False)}
    try:
        data = datasets.load_dataset("parquet", data_files=files)
    except (OSError, ValueError, datasets.exceptions.DatasetGenerationError) as error:
        every, cause = ", ".join(map(str, paths)), error.__cause__ or error
        raise DataError(f"Expected Parquet files of {every}: {cause}. Copy them again from the hub.") from error
    total = hashlib.sha256()
    for file in paths:
        with file.open("rb") as content:
            total.update(hashlib.file_digest(content, "sha256").digest())
    return Opened(data["train"], data.get("test"), total.hexdigest(), "" if "test" in data else min(shards))


def _from_hub(hub_id: str, splits: tuple[str, str], missing: DataMissing, **which: str | None) -> Opened:
    """Load from the hub, with `which` config and revision; if that fails, report what is `missing`."""
    import datasets

    datasets.config.HF_DATASETS_TRUST_REMOTE_CODE = False  # versions before 4 could run a repository's script
    _go_offline_unless_reachable(hub_id)
    try:
        data = datasets.load_dataset(hub_id, **which)
    except Exception as error:  # the hub's client raises many kinds
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        folder = data_folders()[0] / hub_id
        raise DataMissing(
            f"{missing} The Hugging Face hub failed too ({reason}); a copy of its folder would go to {folder}."
        ) from error
    named = [split for split in splits if split in data]
    if len(named) < 2 and (len(data) > 1 or not named):
        lacking = next(split for split in splits if split not in data)
        raise SpecError(f"Expected a split {lacking!r} in {hub_id}. Available: {', '.join(data)}.")
    fingerprints = "".join(data[split]._fingerprint for split in named)  # the hub's own: they identify the revision
    digest = hashlib.sha256(fingerprints.encode()).hexdigest()
    if len(named) < 2:
        return Opened(data[named[0]], None, digest, named[0])
    return Opened(data[named[0]], data[named[1]], digest)


def _go_offline_unless_reachable(hub_id: str) -> None:
    """Contact the hub once, briefly; if that fails, use earlier downloads only, without further waiting."""
    import datasets
    import huggingface_hub

    try:
        huggingface_hub.HfApi().dataset_info(hub_id, timeout=5)
    except Exception:  # the hub's client raises many kinds
        huggingface_hub.constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True


def _split(rows: Any, image: str, label: str) -> Split:
    import numpy as np

    try:
        return Split(DeclaredImages(Column(rows, image), PROCESSING), np.asarray(rows[label], dtype=np.int64))
    except (TypeError, ValueError) as error:
        raise DataError(f"Expected a label for every image in {label!r}: {error}. Leave out the others.") from error


@hookimpl
def dpbench_datasets() -> Sequence[type[Dataset]]:
    """Register the datasets of this module."""
    return [Cifar10, HuggingFace]
