"""Datasets of the Hugging Face hub, from the hub or from a mirror of its layout in a data folder."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dpbench import Dataset, Source, SpecError, Splits, hookimpl, setting
from dpbench_plugins.datasets.cifar10 import CIFAR10, Cifar10
from dpbench_plugins.datasets.extractors import NETWORK
from dpbench_plugins.datasets.hash_cut import is_in_test_split
from dpbench_plugins.datasets.hub_files import PAGE, open_repository, open_split

BATCH = 1_000  # rows whose images are hashed at once
CUT = (
    "there is no other split, so the fifth whose SHA-256 of the image's stored bytes is divisible by five is the test "
    "split"
)


class LazyClassNames:
    """Descriptor of class names that only the data files contain: read for an instance, empty for the dataset class."""

    def __get__(self, dataset: HuggingFace | None, owner: type) -> tuple[str, ...]:
        return dataset._read[1] if dataset else ()


@dataclass(frozen=True)
class HuggingFace(Dataset):
    """Any image dataset of the Hugging Face hub, by its `id`: `hf:uoft-cs/cifar10`.

    `train` and `test` are the names of its splits, `image` and `label` of its columns: by default the only image column
    and the only ClassLabel. Labels that are plain integers or strings are refused: the number of classes must be
    public, so it is taken from the dataset's description, never counted from private records. No code from the hub is
    run.

    A mirror is a folder `<id>` below a data folder, with all shards `<split>-00000-of-0000N.parquet` in one folder; if
    several folders have them, `config` names the folder to use. Without a mirror, or with a `revision`, the hub is
    used. Images stay as stored, even grey or with transparency.

    If a repository or a mirror has only one split, named by `train` or `test`, dpbench cuts it: a row belongs to the
    test split if the SHA-256 of the stored bytes of its image, read as a big-endian number, is divisible by five,
    regardless of other rows. So identical images are in the same split. Every result states how the split was made.
    """

    name = "hf"
    default_extractor = NETWORK
    classes = LazyClassNames()
    licence = "as its page states"
    citation = "as its page states"
    shorthand = "id"

    id: str = setting(says="repository on the hub")
    config: str = setting("", says="configuration")
    image: str = setting("", says="column of the images")
    label: str = setting("", says="column of the labels")
    train: str = setting("train", says="training split")
    test: str = setting("test", says="test split")
    revision: str = setting("", says="revision on the hub")

    def __post_init__(self) -> None:
        """Check that `id` has the form of a repository name, and that `train` and `test` differ."""
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
        """Return the splits, and the names of their classes."""
        import datasets

        opened = open_repository(self, self.id, (self.train, self.test), self.config, self.revision)
        train, test, digest = opened.train, opened.test, opened.digest
        features, edition = train.features, ""
        image = self._find_column("image", datasets.Image, features)
        label = self._find_column("label", datasets.ClassLabel, features)
        if sum(isinstance(feature, datasets.Image) for feature in features.values()) > 1:
            # Other images of the same files need their own name for their features.
            digest = hashlib.sha256(f"{digest}/{image}".encode()).hexdigest()
        if test is None:
            edition = f"{len(train):,} images of split {opened.split!r} of {self.id}, digest {digest[:12]}; {CUT}"
            train, test = _split_by_image_hash(train, image)
        splits = Splits(open_split(train, image, label), open_split(test, image, label), digest, edition=edition)
        return splits, tuple(features[label].names)

    def _find_column(self, option: str, kind: type, features: Mapping[str, Any]) -> str:
        """Return the column that an option names or, if the option is empty, the only column of type `kind`."""
        asked, fitting = getattr(self, option), [name for name, column in features.items() if isinstance(column, kind)]
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


def _split_by_image_hash(rows: Any, image: str) -> tuple[Any, Any]:
    """Return the training and the test rows, split by a hash of each image's stored bytes."""
    import datasets

    stored = rows.cast_column(image, datasets.Image(decode=False))
    tested = [
        is_in_test_split(stored["bytes"] or Path(stored["path"]).read_bytes())
        for batch in stored.select_columns(image).iter(batch_size=BATCH)
        for stored in batch[image]
    ]
    return tuple(
        rows.select([place for place, test in enumerate(tested) if test is wanted]) for wanted in (False, True)
    )


@hookimpl
def dpbench_datasets() -> Sequence[type[Dataset]]:
    """Register the datasets of this module."""
    return [Cifar10, HuggingFace]
