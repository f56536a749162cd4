"""How the images of a run come to their splits."""

from __future__ import annotations

import torch

from dpbench.api import Budget, Task
from dpbench.data.units import number_units
from dpbench.harness.cutting import cut_rows, kept_rows
from dpbench.harness.private_files import FilesRead, private_files
from dpbench.harness.raw_pixels import refuse_raw_pixels, report_fallback
from dpbench.harness.source import DataSource
from dpbench.harness.split_images import SplitImages, guaranteed_units
from dpbench.harness.splits import load_public_splits, load_splits, read_labels
from dpbench.privacy.core.plan import check_budget
from dpbench.privacy.purity.audit_events import judged_by


def deal_images(source: DataSource, budget: Budget) -> SplitImages:
    """Load datasets and deal their images to the splits.

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
    parts, rule, read = source.parts, source.rule, FilesRead()
    dataset = parts.dataset
    with judged_by(read):
        splits = load_splits(parts, "dataset")
    read_labels(splits.train, "train", dataset)
    kept, owners = kept_rows(splits, "train", len(dataset.classes), rule), splits.train.units
    public, private = map(torch.from_numpy, cut_rows(kept, rule, owners))
    numbered = None if owners is None else number_units(owners[private.numpy()])
    units = guaranteed_units(numbered, splits.unit, rule.unit, dataset)
    size = units.count if units else len(private)
    check_budget(budget, Task((), len(dataset.classes), size, source.device))
    if parts.default_extractor:
        refuse_raw_pixels(splits.train.images, parts.extractor, int((public if len(public) else private)[0]))
        report_fallback(dataset, parts.extractor)
    other = load_public_splits(parts, splits)
    images = SplitImages(source, splits, other, private, public, private_files(dataset, read), size)
    return images if rule.keep_copies else images.without_copies()
