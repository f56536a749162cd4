"""Which example plays which role: private, public or test. Decided by the spec alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from dpbench.api import Budget, Dataset, Extractor, Features, Learner, PublicData, Split, Splits, Task
from dpbench.data import cache, duplicates
from dpbench.data.concat import Concat
from dpbench.data.duplicates import Hashes
from dpbench.data.groups import keep_test_groups, take_groups
from dpbench.data.ignored import report_ignored_by
from dpbench.data.keys import identify_images
from dpbench.data.units import check_units, join_units, number_units, shared_units
from dpbench.errors import DataError, SpecError
from dpbench.harness.cutting import cut_rows
from dpbench.harness.imbalance import subsample
from dpbench.harness.private_files import FilesRead, PrivateFiles, private_files
from dpbench.harness.raw_pixels import refuse_raw_pixels, report_fallback
from dpbench.privacy.core.plan import check_budget
from dpbench.privacy.core.rows import PrivateRows, Units
from dpbench.privacy.purity.audit_events import judged_by
from dpbench.records.overlap import MOST_LEFT_OUT, Copies, Overlap, find_excess
from dpbench.records.protocol import SplitRule
from dpbench.registry.components import Parts
from dpbench.support.fields import changed_fields
from dpbench.support.plugin_calls import call_plugin

SplitName = Literal["private", "public", "test"]
Sharing = Literal["board", "none", "any"]
"""Which splits a run takes: those that a board takes, those whose public images are not private ones, or any."""
PUBLIC_IN_PRIVATE = "public in private"
PAIRS: Mapping[str, tuple[SplitName, SplitName]] = {
    "test in private": ("test", "private"), "test in public": ("test", "public"),
    PUBLIC_IN_PRIVATE: ("public", "private"),
}  # fmt: skip


@dataclass(frozen=True)
class TestSplit:
    """The test split: met by a predictor only, after fitting."""

    x: Tensor  # (n, *example_shape) float32, or float16 as cached
    y: np.ndarray  # (n,) int64
    groups: Mapping[str, np.ndarray] = field(default_factory=dict)  # column -> (n,) text: scores are counted by it


@dataclass(frozen=True)
class SplitComparison:
    """What the images themselves tell, for the record."""

    overlap: dict[str, Overlap]  # "test in private" ...
    sketch: str  # of the public images
    looks: str  # of the public images
    copies: Copies  # within the private split


@dataclass(frozen=True)
class Roles:
    """One dataset, each example in its role."""

    task: Task
    private: PrivateRows
    public: PublicData  # with labels, whatever the protocol allows a learner to see
    test: Callable[[], TestSplit]  # reads the test split: nothing has touched it before
    digests: dict[str, str]  # of the data behind private and test, and behind public
    processing: dict[str, str]  # how the images were made, see `Split.processing`
    images: Callable[[SplitName], Hashes]  # reads every image of a split, for the record alone
    compared: Callable[[], SplitComparison]  # and of all three
    mode: Callable[[], str]  # of the images, as PIL names it: what an image to be predicted is converted to
    unit: str = ""  # the word for whose each example is; empty where the dataset does not know
    private_units: np.ndarray | None = None  # (n,) int64, whose each private row is, numbered from 0 without a gap
    public_units: np.ndarray | None = None  # (n,) int64, the same of the public examples, with numbers of their own
    shared_units: Mapping[str, int] = field(default_factory=dict)  # "test in private": images of a unit in both
    files: PrivateFiles = field(default_factory=PrivateFiles)  # of the private split: no fit opens them
    editions: Mapping[str, str] = field(default_factory=dict)  # by role, like `digests`: see `Splits.edition`
    dealt: int = 0  # private units before copies of public images were left out
    left_out: int = 0  # private images that were left out, as a public image equals each

    @property
    def identity(self) -> dict[str, str]:
        """What research noise is derived from of the data: rows without some are other rows, and get other noise."""
        return {**self.digests, **({"left out": str(self.left_out)} if self.left_out else {})}


def assign(parts: Parts, rule: SplitRule, budget: Budget, device: torch.device) -> Roles:
    """Load, split and extract.

    The published training split, or what `imbalance` keeps of it, is cut by the rule's seed into public
    (`public_fraction`) and private, of which `train_fraction` is kept; what the dataset itself gives as public comes
    beside that share. With a public dataset, all of its training split is public instead. The test split is whole, or
    what `imbalance` keeps of it. Where the dataset knows whose each example is, both cuts take whole units, and
    fractions are those of units.

    Private images that equal a public one, pixel by pixel, are left out unless the rule keeps them: each because of its
    own pixels and public ones, so that removing another image moves none. If they are more than a tenth, the run is
    refused.

    Raises:
        DataError, DataMissing: the data is malformed or not here.
        SpecError: nothing private or public is left, delta is too large for the private split, or too many private
            images equal public ones.
    """
    dataset, extractor = parts.dataset, parts.extractor
    read = FilesRead()
    with judged_by(read):
        splits = _loaded(parts, "dataset")
    labels = _labels(splits.train, "train", dataset)
    public_rows, private_rows = cut(_kept(splits, "train", dataset, rule), rule, splits.train.units)
    _, dealt_units = _owners(splits, private_rows, rule, dataset)
    units = dealt_units.count if dealt_units else len(private_rows)
    check_budget(budget, Task((), len(dataset.classes), units, device))
    if parts.default_extractor:
        refuse_raw_pixels(splits.train.images, extractor, int((public_rows if len(public_rows) else private_rows)[0]))
        report_fallback(dataset, extractor)
    other = _public_splits(parts, splits)
    dealt = _Dealt(dataset, rule, splits, other, private_rows, public_rows)
    if not rule.keep_copies:
        dealt = dealt.without_copies()
    left_out, private_rows = len(private_rows) - len(dealt.private), dealt.private
    owners, units_of_rows = _owners(splits, private_rows, rule, dataset)
    size = units_of_rows.count if units_of_rows else len(private_rows)
    declared = Task((), len(dataset.classes), size, device, same_source=parts.public_dataset is None)
    train = _features(splits, "train", extractor, device)
    if parts.public_dataset is None:
        public = _beside(PublicData(train[public_rows], labels[public_rows]), splits, parts, device)
    else:
        public = _load_public_dataset(other, parts, parts.public_dataset, train, device)
    tail = None if isinstance(extractor, Concat) else extractor.tail()
    task = dataclasses.replace(declared, example_shape=tuple(train.shape[1:]), tail=tail)
    public = PublicData(public.x.to(device, torch.float32), None if public.y is None else public.y.to(device))
    of_splits = dealt.units()
    shared = _shared(of_splits, set(of_splits) if other is splits else {"private", "test"})
    return Roles(
        task,
        PrivateRows(train, labels[private_rows], private_rows, units_of_rows),
        public,
        lambda: _test(splits, parts, rule, device),
        {"private": splits.digest, "public": other.digest},
        dealt.processing(),
        dealt.hashes,
        lambda: _compared(dealt.hashes, shared, owners if rule.unit else None),
        lambda: splits.test.images[0].mode,
        splits.unit,
        owners,
        number_units(of_splits["public"]),
        shared,
        private_files(dataset, read),
        {role: said for role, said in (("private", splits.edition), ("public", other.edition)) if said},
        units,
        left_out,
    )


@dataclass(frozen=True)
class _Dealt:
    """Which images of which source each split has: what is asked of them for the record."""

    dataset: Dataset
    rule: SplitRule
    splits: Splits
    other: Splits  # whose training split is public: the same, or those of the public dataset
    private: Tensor  # places in the training split
    public: Tensor  # the same, where the public images come from it

    @property
    def given(self) -> Split | None:
        """What the dataset itself gives as public, beside the share of its training split."""
        return self.splits.public if self.other is self.splits else None

    def hashes(self, name: SplitName) -> Hashes:
        if name == "test":
            whole = duplicates.compute_hashes(self.splits.test, self.splits.digest, "test")
            return whole.take(_kept(self.splits, "test", self.dataset, self.rule))
        of = self.splits if name == "private" else self.other
        hashed = duplicates.compute_hashes(of.train, of.digest, "train")
        if name == "private":
            return hashed.take(self.private)
        if of is not self.splits:
            return hashed
        public = hashed.take(self.public)
        return public.join(duplicates.compute_hashes(self.given, of.digest, "public")) if self.given else public

    def without_copies(self) -> _Dealt:
        """Return the same without private images that equal a public one.

        Raises:
            SpecError: they are more than a tenth.
        """
        if not (len(self.public) or self.given or self.other is not self.splits):
            return self
        copied = np.isin(self.hashes("private").exact, self.hashes("public").exact)
        if copied.mean() > MOST_LEFT_OUT:
            raise SpecError(
                f"{PUBLIC_IN_PRIVATE.capitalize()}: expected at most {MOST_LEFT_OUT:.0%} of the {len(copied):,} "
                f"private images to equal a public image, got {int(copied.sum()):,}. Epsilon does not cover what is "
                "learned from public data. Use other public data, or set allow_overlap (--allow-overlap); no board "
                "accepts the result then."
            )
        return dataclasses.replace(self, private=self.private[torch.from_numpy(~copied)])

    def units(self) -> dict[SplitName, np.ndarray | None]:
        train, test = self.splits.train, self.splits.test
        public = _units(self.other.train, self.public if self.other is self.splits else slice(None))
        if self.given:
            public = join_units(public, self.given.units, len(self.given.labels), train.units)
        kept = None if test.units is None else _units(test, _kept(self.splits, "test", self.dataset, self.rule))
        return {"private": _units(train, self.private), "public": public, "test": kept}

    def processing(self) -> dict[str, str]:
        """Return how the images of each split were made: "" where a part of them is not declared."""
        public = "" if self.given and not self.given.processing else self.other.train.processing
        return {"private": self.splits.train.processing, "public": public, "test": self.splits.test.processing}


def _compared(
    images: Callable[[SplitName], Hashes], shared: Mapping[str, int], owners: np.ndarray | None
) -> SplitComparison:
    hashes = {name: images(name) for name in get_args(SplitName)}
    overlap = {pair: _overlap(hashes[of], hashes[among], shared.get(pair)) for pair, (of, among) in PAIRS.items()}
    private, public = hashes["private"], hashes["public"]
    return SplitComparison(overlap, public.sketch, public.looks, duplicates.copies_within(private, owners))


def _overlap(of: Hashes, among: Hashes, shared: int | None) -> Overlap:
    return duplicates.overlap_of(of, among).model_copy(update={"units": shared})


def check_sharing(roles: Roles, sharing: Sharing) -> None:
    """Refuse public images that are private ones; for a board, all splits that it would not take.

    What is learned from public data is outside epsilon. Images of the test split are read for a board alone.

    Raises:
        SpecError: says which splits, and how many of their images are copies, or near copies.
    """
    if sharing == "board":
        _check_for_board(roles)
    elif sharing == "none" and len(roles.public.x):
        shared = roles.shared_units.get(PUBLIC_IN_PRIVATE)
        overlap = {PUBLIC_IN_PRIVATE: _overlap(roles.images("public"), roles.images("private"), shared)}
        for pair, said in find_excess(overlap, len(roles.private)):
            raise SpecError(
                f"{pair.capitalize()}: {said}. Epsilon does not cover what is learned from public data. Use other "
                "public data, or set allow_overlap (--allow-overlap); no board accepts the result then."
            )


def _check_for_board(roles: Roles) -> None:
    if undeclared := sorted({name for name, said in roles.processing.items() if not said}):
        raise SpecError(
            f"No board accepts this run: the dataset does not say how its {' and '.join(undeclared)} images were made. "
            "List them as Records, hand them over as DeclaredImages with a sentence on what was done to each, or run "
            "without --board."
        )
    compared = roles.compared()
    wrong = [f"{pair.capitalize()}: {said}" for pair, said in find_excess(compared.overlap, len(roles.private))]
    if (many := compared.copies.too_many) is not None:
        wrong.append(f"Private split: {many}")
    if wrong:
        raise SpecError(f"No board accepts this run. {wrong[0]}. Run it without --board.")


def select_public(public: PublicData, learner: Learner) -> PublicData:
    """Return the part of public data that a learner declares to read."""
    return PublicData(
        public.x if learner.public != "none" else public.x[:0], public.y if learner.public == "labelled" else None
    )


def _test(splits: Splits, parts: Parts, rule: SplitRule, device: torch.device) -> TestSplit:
    labels, x = _labels(splits.test, "test", parts.dataset), _features(splits, "test", parts.extractor, device)
    if rule.imbalance is None:
        return TestSplit(x, labels.numpy(), take_groups(splits.test.groups))
    rows = _kept(splits, "test", parts.dataset, rule)
    return TestSplit(x[torch.from_numpy(rows)], labels.numpy()[rows], take_groups(splits.test.groups, rows))


def _kept(splits: Splits, name: Literal["train", "test"], dataset: Dataset, rule: SplitRule) -> np.ndarray:
    labels = (splits.train if name == "train" else splits.test).labels
    return subsample(labels, len(dataset.classes), rule.imbalance, rule.seed, 1 if name == "train" else 2)


def _loaded(parts: Parts, role: Literal["dataset", "public_dataset"]) -> Splits:
    dataset: Dataset = getattr(parts, role)
    splits = call_plugin(parts.who(role, "load"), dataset.load)
    if not (isinstance(splits, Splits) and isinstance(splits.train, Split) and isinstance(splits.test, Split)):
        who = parts.who(role, "load")
        raise DataError(f"Expected Splits of a train and a test Split from {who}, got {splits!r:.100}.")
    check_units(splits, len(dataset.classes), f"dataset {dataset.name!r}")
    report_ignored_by(dataset, splits)
    return keep_test_groups(splits, f"dataset {dataset.name!r}")


def cut(rows: np.ndarray, rule: SplitRule, units: np.ndarray | None) -> tuple[Tensor, Tensor]:
    """Return which of these training rows are public and which are private, each ascending; whole units go to one side.

    Raises:
        SpecError: nothing private is left.
    """
    public, private = cut_rows(rows, rule, units)
    return torch.from_numpy(public), torch.from_numpy(private)


def _owners(
    splits: Splits, private: Tensor, rule: SplitRule, dataset: Dataset
) -> tuple[np.ndarray | None, Units | None]:
    """Return whose each private row is, numbered from 0, and the same where epsilon is stated for that unit."""
    owners = number_units(_units(splits.train, private))
    return owners, _guaranteed(owners, splits.unit, rule.unit, dataset)


def _guaranteed(owners: np.ndarray | None, known: str, wanted: str | None, dataset: Dataset) -> Units | None:
    """Return whose each private row is, where epsilon is to be stated for more than an image.

    Raises:
        SpecError: the dataset does not know these units.
    """
    if wanted is None:
        return None
    if owners is None or wanted != known:
        knows = f"it knows {known}s" if known else "it does not say whose its images are"
        raise SpecError(
            f"Expected unit={wanted!r} to be the unit that dataset {dataset.name!r} numbers, but {knows}. Use --unit "
            f"{known or 'image'}."
        )
    return Units(owners)


def _units(split: Split, rows: Tensor | np.ndarray | slice) -> np.ndarray | None:
    return None if split.units is None else split.units[rows if isinstance(rows, slice) else np.asarray(rows)]


def _shared(units: Mapping[SplitName, np.ndarray | None], numbered: Set[SplitName]) -> dict[str, int]:
    """Count for pairs of splits, of those `numbered` alike, the examples of the first whose unit is in the second."""
    pairs = {pair: names for pair, names in PAIRS.items() if numbered >= set(names)}
    counts = {pair: shared_units(units[of], units[among]) for pair, (of, among) in pairs.items()}
    return {pair: count for pair, count in counts.items() if count is not None}


def _labels(split: Split, name: str, dataset: Dataset) -> Tensor:
    _check_labels(split, f"{name} split of dataset {dataset.name!r}", len(dataset.classes))
    return torch.from_numpy(np.ascontiguousarray(split.labels))


def _check_labels(split: Split, where: str, classes: int) -> None:
    labels = split.labels
    if not len(split.images):
        raise DataError(f"The {where} has no images.")
    if not isinstance(labels, np.ndarray) or labels.dtype != np.int64 or labels.shape != (len(split.images),):
        found = f"{labels.dtype} {labels.shape}" if isinstance(labels, np.ndarray) else f"a {type(labels).__name__}"
        raise DataError(
            f"Expected an array of {len(split.images)} int64 labels in the {where}, one per image, got {found}."
        )
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        raise DataError(
            f"Expected labels in 0..{classes - 1} in the {where}, got {labels[wrong[0]]} at index {wrong[0]}. "
            "Labels count classes from 0."
        )


def _beside(public: PublicData, splits: Splits, parts: Parts, device: torch.device) -> PublicData:
    """Return public data with the examples that the dataset itself gives as public."""
    if splits.public is None:
        return public
    assert public.y is not None
    labels = _labels(splits.public, "public", parts.dataset)
    x = _features(splits, "public", parts.extractor, device)
    return PublicData(torch.cat([public.x, x]), torch.cat([public.y, labels]))


def _features(splits: Splits, name: str, extractor: Extractor | Concat, device: torch.device) -> Tensor:
    split = {"train": splits.train, "test": splits.test, "public": splits.public}[name]
    assert split is not None
    if isinstance(split.images, Features):
        return _as_they_are(split.images, extractor)
    return cache.load_features(split, identify_images(split, splits.digest, name), extractor, device)


def _as_they_are(features: Features, extractor: Extractor | Concat) -> Tensor:
    if isinstance(extractor, Concat) or not extractor.identity or changed_fields(extractor):
        raise SpecError("This dataset holds features, not images: expected the extractor pixels, without options.")
    if features.x.dtype != np.float32 or features.x.ndim != 2 or not np.isfinite(features.x).all():
        raise DataError(f"Expected finite features (n, d) float32, got {features.x.dtype} {features.x.shape}.")
    return torch.from_numpy(features.x)


def _refuse_same(public: str, private: str, dataset: Dataset) -> None:
    if public == private:
        raise SpecError(
            f"The public dataset {dataset.name!r} is the private one: every private example would be public. "
            "Name another dataset, or use public_fraction."
        )


def _public_splits(parts: Parts, splits: Splits) -> Splits:
    """Return the splits whose training split is public: those of the public dataset, or the private dataset's own."""
    if parts.public_dataset is None:
        return splits
    if splits.public is not None:
        raise SpecError(
            f"Dataset {parts.dataset.name!r} has public examples of its own, so you cannot combine it with another "
            "public dataset."
        )
    found = _loaded(parts, "public_dataset")
    _refuse_same(found.digest, splits.digest, parts.public_dataset)
    return found


def _load_public_dataset(
    splits: Splits, parts: Parts, dataset: Dataset, train: Tensor, device: torch.device
) -> PublicData:
    labels = _labels(splits.train, "train", dataset)
    x = _features(splits, "train", parts.extractor, device)
    if x.shape[1:] != train.shape[1:]:
        raise DataError(
            f"Public dataset {dataset.name!r} gives features of shape {tuple(x.shape[1:])}, the private one "
            f"{tuple(train.shape[1:])}; expected the same. Use an extractor that resizes, such as pixels:size=32."
        )
    return PublicData(x, labels)
