"""Assign images to splits from the spec alone, and compare the images of the splits for the result."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from dpbench.api import Budget, Dataset, Features, Split, Splits, Task
from dpbench.data import duplicates
from dpbench.data.duplicates import ImageHashes
from dpbench.data.groups import select_group_values
from dpbench.data.units import append_units, count_shared_units, renumber_units
from dpbench.errors import SpecError
from dpbench.harness.cutting import cut_rows, select_rows_of_split
from dpbench.harness.private_files import FileAccessLog, PrivateDatasetFiles, find_private_files
from dpbench.harness.raw_pixels import refuse_raw_pixels, report_pixel_fallback
from dpbench.harness.scoring import TestScorer
from dpbench.harness.source import DataSource
from dpbench.harness.splits import find_engine_of_split, load_features, load_public_splits, load_splits, read_labels
from dpbench.privacy.core.plan import check_budget
from dpbench.privacy.core.rows import PrivacyUnits
from dpbench.privacy.purity.audit_events import judge_audit_events
from dpbench.records.overlap import MAX_LEFT_OUT, AlteredCopyCounts, CopyCounts, OverlapCounts

SplitName = Literal["private", "public", "test"]
PUBLIC_IN_PRIVATE = "public in private"
USE_OTHER_PUBLIC_DATA = (
    "Epsilon does not cover what is learned from public data. Use other public data, or set allow_overlap "
    "(--allow-overlap); no board accepts the result then."
)
SPLIT_PAIRS: Mapping[str, tuple[SplitName, SplitName]] = {
    "test in private": ("test", "private"), "test in public": ("test", "public"),
    PUBLIC_IN_PRIVATE: ("public", "private"),
}  # fmt: skip


@dataclass(frozen=True)
class TestSplit:
    """The test split: the examples, which a fitted predictor reads, and the scorer, which alone has their labels."""

    x: Tensor  # (n, *example_shape) float32, or float16 as cached
    scorer: TestScorer


@dataclass(frozen=True)
class SplitComparison:
    """Facts about the splits, computed from the images, for the result."""

    overlap: dict[str, OverlapCounts]  # "test in private" ...
    sketch: str  # of the public images
    looks: str  # of the public images
    copies: CopyCounts  # within the private split
    altered: AlteredCopyCounts | None  # between public and private images; None without public images


@dataclass(frozen=True)
class SplitImages:
    """The images of each split; facts about them are computed on request."""

    source: DataSource
    splits: Splits
    other: Splits  # whose training split is public: the same, or those of the public dataset
    private: Tensor  # (n,) int64, places in the training split
    public: Tensor  # the same, where the public images come from it
    files: PrivateDatasetFiles  # of the private split: no fit opens them
    private_count_with_copies: int  # private units before copies of public images were left out
    left_out: int = 0  # private images that were left out, as a public image equals each

    @property
    def provided_public(self) -> Split | None:
        """The public examples that the dataset itself provides, in addition to those from its training split."""
        return self.splits.public if self.other is self.splits else None

    @property
    def has_public(self) -> bool:
        """Whether there is any public image."""
        return bool(len(self.public) or self.provided_public or self.other is not self.splits)

    @property
    def digests(self) -> dict[str, str]:
        """Digests of the data, equal for all seeds: `private` is of private and test data, `public` of public data."""
        named = self.source.distribution
        return {"private": named or self.splits.digest, "public": named or self.other.digest}

    @property
    def identity(self) -> dict[str, str]:
        """The part of the fit's identity that describes the data; leaving rows out changes it."""
        return {**self.digests, **({"left out": str(self.left_out)} if self.left_out else {})}

    @property
    def editions(self) -> dict[str, str]:
        """The editions of the data by role, as in `digests`; see `Splits.edition`."""
        said = {"private": self.splits.edition, "public": self.other.edition}
        return {role: edition for role, edition in said.items() if edition}

    @property
    def processing_by_split(self) -> dict[str, str]:
        """The processing of the images, by split (`Split.processing`); empty if a part of the split states none."""
        public = "" if self.provided_public and not self.provided_public.processing else self.other.train.processing
        return {"private": self.splits.train.processing, "public": public, "test": self.splits.test.processing}

    @property
    def engines(self) -> dict[str, str]:
        """The engine that computed the features, by split; splits without a known engine are left out."""
        extractor = self.source.parts.extractor
        found = {name: find_engine_of_split(self.splits, name, extractor) for name in ("train", "test", "public")}
        if self.other is not self.splits:
            found["public"] = find_engine_of_split(self.other, "train", extractor)
        return {name: engine for name, engine in found.items() if engine}

    @property
    def mode(self) -> str:
        """The mode of the images in PIL's terms; images to predict are converted to it."""
        mode: str = self.splits.test.images[0].mode
        return mode

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and number of channels of the first training image; zeros if there are features instead."""
        images = self.splits.train.images
        if isinstance(images, Features):
            return 0, 0, 0
        first = images[0]
        return first.height, first.width, len(first.getbands())

    @property
    def unit(self) -> str:
        """The word for the unit of the examples; empty if the dataset has no units."""
        return self.splits.unit

    @property
    def private_units(self) -> np.ndarray | None:
        """The unit of each private row, (n,) int64, numbered 0, 1, 2 ...; None if units are unknown."""
        return renumber_units(self.units["private"])

    @property
    def units(self) -> dict[SplitName, np.ndarray | None]:
        """The unit of each image by split, numbered as in the datasets; None for a split whose units are unknown."""
        train, test = self.splits.train, self.splits.test
        public = _select_units(self.other.train, self.public if self.other is self.splits else slice(None))
        if self.provided_public:
            public = append_units(public, self.provided_public.units, len(self.provided_public.labels), train.units)
        kept = None if test.units is None else _select_units(test, self._kept_test_rows)
        return {"private": _select_units(train, self.private), "public": public, "test": kept}

    @property
    def shared_units(self) -> dict[str, int]:
        """The number of images of the first split with a unit of the second, for each pair that numbers units alike."""
        units = self.units
        numbered = set(units) if self.other is self.splits else {"private", "test"}
        pairs = {pair: names for pair, names in SPLIT_PAIRS.items() if numbered >= set(names)}
        counts = {pair: count_shared_units(units[of], units[among]) for pair, (of, among) in pairs.items()}
        return {pair: count for pair, count in counts.items() if count is not None}

    @property
    def guaranteed_units(self) -> PrivacyUnits | None:
        """The unit of each private row if epsilon is stated per unit; None if it is stated per image."""
        return make_guaranteed_units(self.private_units, self.unit, self.source.rule.unit, self.source.parts.dataset)

    def load_test_split(self) -> TestSplit:
        """Return the test split; it is extracted at the first call and then kept."""
        return self._test_split

    def compare(self) -> SplitComparison:
        """Compare the images of all splits; the comparison is made at the first call and then kept."""
        return self._split_comparison

    def count_public_copies(self) -> tuple[OverlapCounts, AlteredCopyCounts | None]:
        """Count the public images that are copies or near-copies of private images, and count altered copies.

        The second count is that of `duplicates.count_altered_copies`, which may be None.
        """
        private, public = self.hash_splits("private", "public")
        overlap = _measure_overlap(public, private, self.shared_units.get(PUBLIC_IN_PRIVATE))
        return overlap, duplicates.count_altered_copies(public, private)

    def hash_split(self, name: SplitName) -> ImageHashes:
        """Return the hashes of all images of a split; every image is read."""
        return self.hash_splits(name)[0]

    def hash_splits(self, *names: SplitName) -> list[ImageHashes]:
        """Return the hashes of all images of these splits; those of the training split are read from the cache once."""
        train = cache(lambda: duplicates.compute_hashes(self.splits.train, self.splits.digest, "train"))
        return [self._select_hashes_of_split(name, train) for name in names]

    def _select_hashes_of_split(self, name: SplitName, train: Callable[[], ImageHashes]) -> ImageHashes:
        if name == "test":
            return duplicates.compute_hashes(self.splits.test, self.splits.digest, "test").take(self._kept_test_rows)
        if name == "private":
            return train().take(self.private)
        if self.other is not self.splits:
            return duplicates.compute_hashes(self.other.train, self.other.digest, "train")
        if self.provided_public is None:
            return train().take(self.public)
        provided = duplicates.compute_hashes(self.provided_public, self.other.digest, "public")
        return train().take(self.public).join(provided)

    def leave_out_public_copies(self) -> SplitImages:
        """Return the splits without the private images that equal a public image.

        Raises:
            SpecError: more than a tenth of the private images would be left out.
        """
        if not self.has_public:
            return self
        private, public = self.hash_splits("private", "public")
        copied = np.isin(private.exact, public.exact)
        if copied.mean() > MAX_LEFT_OUT:
            raise SpecError(
                f"{PUBLIC_IN_PRIVATE.capitalize()}: expected at most {MAX_LEFT_OUT:.0%} of the {len(copied):,} "
                f"private images to equal a public image, got {int(copied.sum()):,}. {USE_OTHER_PUBLIC_DATA}"
            )
        kept = self.private[torch.from_numpy(~copied)]
        return dataclasses.replace(self, private=kept, left_out=int(copied.sum()))

    @property
    def _kept_test_rows(self) -> np.ndarray:
        return select_rows_of_split(self.splits, "test", len(self.source.parts.dataset.classes), self.source.rule)

    @cached_property
    def _test_split(self) -> TestSplit:
        source, test = self.source, self.splits.test
        classes = len(source.parts.dataset.classes)
        labels = read_labels(test, "test", source.parts.dataset)
        x = load_features(self.splits, "test", source.parts.extractor, source.device)
        if source.rule.imbalance is None:
            return TestSplit(x, TestScorer(labels.numpy(), classes, select_group_values(test.groups)))
        rows = self._kept_test_rows
        scorer = TestScorer(labels.numpy()[rows], classes, select_group_values(test.groups, rows))
        return TestSplit(x[torch.from_numpy(rows)], scorer)

    @cached_property
    def _split_comparison(self) -> SplitComparison:
        names: tuple[SplitName, ...] = get_args(SplitName)
        hashes, shared = dict(zip(names, self.hash_splits(*names), strict=True)), self.shared_units
        overlap = {
            pair: _measure_overlap(hashes[of], hashes[among], shared.get(pair))
            for pair, (of, among) in SPLIT_PAIRS.items()
        }
        owners = self.private_units if self.source.rule.unit else None
        private, public = hashes["private"], hashes["public"]
        copies, altered = (
            duplicates.count_copies_within_split(private, owners),
            duplicates.count_altered_copies(public, private),
        )
        return SplitComparison(overlap, public.sketch, public.looks, copies, altered)


def _measure_overlap(hashes: ImageHashes, other_hashes: ImageHashes, shared_units: int | None) -> OverlapCounts:
    return duplicates.count_overlap(hashes, other_hashes).model_copy(update={"units": shared_units})


def _select_units(split: Split, rows: Tensor | np.ndarray | slice) -> np.ndarray | None:
    return None if split.units is None else split.units[rows if isinstance(rows, slice) else np.asarray(rows)]


def make_guaranteed_units(
    owners: np.ndarray | None, known_unit: str, wanted_unit: str | None, dataset: Dataset
) -> PrivacyUnits | None:
    """Return the unit of each private row if epsilon is stated per unit; None if it is stated per image.

    Args:
        owners: (n,) int64, the unit of each row, from 0 without a gap; None if units are unknown.
        known_unit: the dataset's word for a unit.
        wanted_unit: the unit that epsilon is stated for; None is an image.
        dataset: the dataset to name in the error message.

    Raises:
        SpecError: the dataset does not know these units.
    """
    if wanted_unit is None:
        return None
    if owners is None or wanted_unit != known_unit:
        knows = f"it knows {known_unit}s" if known_unit else "it does not say whose its images are"
        raise SpecError(
            f"Expected unit={wanted_unit!r} to be the unit that dataset {dataset.name!r} numbers, but {knows}. Use "
            f"--unit {known_unit or 'image'}."
        )
    return PrivacyUnits(owners)


def assign_images(source: DataSource, budget: Budget) -> SplitImages:
    """Load the datasets and assign their images to the splits.

    The published training split, or the part that `imbalance` keeps, is divided with the rule's seed into public
    examples (`public_fraction`) and private ones, of which `train_fraction` is kept. Public examples that the dataset
    itself provides are added to the public ones. With a public dataset, all of its training split is public instead.
    The test split is whole, or the part that `imbalance` keeps. If the dataset knows the unit of each example, units
    are never divided, and fractions count units.

    Private images that equal a public image, pixel by pixel, are left out unless the rule keeps them. Whether an image
    is left out depends only on its own pixels and on public ones, not on other private images. If more than a tenth of
    the private images would be left out, the run is refused.

    Raises:
        DataError, DataMissing: the data is malformed or not on this machine.
        SpecError: nothing private or public is left, delta is too large for the private split, or too many private
            images equal public images.
    """
    parts, rule, read = source.parts, source.rule, FileAccessLog()
    dataset = parts.dataset
    with judge_audit_events(read):
        splits = load_splits(parts, "dataset")
    read_labels(splits.train, "train", dataset)
    kept, owners = select_rows_of_split(splits, "train", len(dataset.classes), rule), splits.train.units
    public, private = map(torch.from_numpy, cut_rows(kept, rule, owners))
    numbered = None if owners is None else renumber_units(owners[private.numpy()])
    units = make_guaranteed_units(numbered, splits.unit, rule.unit, dataset)
    size = units.count if units else len(private)
    check_budget(budget, Task((), len(dataset.classes), size, source.device))
    if parts.default_extractor:
        refuse_raw_pixels(splits.train.images, parts.extractor, int((public if len(public) else private)[0]))
        report_pixel_fallback(dataset, parts.extractor)
    other = load_public_splits(parts, splits)
    images = SplitImages(source, splits, other, private, public, find_private_files(dataset, read), size)
    return images if rule.keep_copies else images.leave_out_public_copies()
