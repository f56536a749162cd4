"""PatchCamelyon: the published HDF5 files, or Kaggle's archive of the same patches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dpbench import Dataset, Source, Splits, locate, setting
from dpbench_plugins.datasets.extractors import NETWORK
from dpbench_plugins.datasets.torchvision.pcam import hdf5, kaggle


@dataclass(frozen=True)
class Pcam(Dataset):
    """PatchCamelyon: 262,144 training and 32,768 test patches of lymph nodes, 96x96 RGB, with tumour or without.

    Read from a data folder, from the first of these that exists:

    - the published files as torchvision unpacks them, pcam/camelyonpatch_level_2_split_{train,test}_{x,y}.h5, 8 GB.
      Their counts must be the published ones. The published validation split, 32,768 patches more, is left out unless
      `val=train` makes it part of the training split.
    - Kaggle's archive of the same patches without repeated ones, unpacked (pcam/train/ID.tif and pcam/train_labels.csv)
      or as downloaded (pcam/histopathologic-cancer-detection.zip, which stays packed): 220,025 labelled patches. A copy
      with fewer is accepted. Kaggle publishes no labels of a test split, so this one is dpbench's own: a patch is a
      test patch if the SHA-256 of its id, read as a big-endian number, is divisible by five, regardless of other
      patches. Every result states how many patches the copy has, and its digest.

    `fraction` keeps that share of the training split (PILLAR: 0.125): the patches whose row numbers, or ids, have the
    smallest SHA-256. So a smaller fraction is part of a larger one, whatever the seed. The digest covers all labels,
    the files' names and sizes, and the bytes of 256 patches per split, and is the same for every fraction.

    Neighbouring datasets differ by one patch: the guarantee is per patch, not per slide or patient, each of which has
    many patches.
    """

    name = "pcam"
    default_extractor = NETWORK
    classes = kaggle.CLASSES
    licence = "CC0 1.0"
    citation = (
        "Veeling, Linmans, Winkens, Cohen and Welling, Rotation Equivariant CNNs for Digital Pathology, MICCAI 2018; "
        "arXiv:1806.03962"
    )
    sizes = {"train": 262_144, "valid": 32_768, "test": 32_768}
    fraction: float = setting(1.0, gt=0, le=1, says="share of the training split that is kept")
    val: Literal["leave-out", "train"] = setting(
        "leave-out", added=True, says="what happens to the published validation split"
    )

    def source(self) -> Source:
        """Return where the published files come from, and where they or Kaggle's are kept."""
        downloads = hdf5.list_downloads(self._published_split_names)
        homes = [tuple(file.path for file in downloads), *(kaggle.HOMES if self.val == "leave-out" else ())]
        size = sum(file.size for file in downloads)
        return Source(homes=homes, page=hdf5.PAGE, size=size, downloads=downloads, requires=("h5py",))

    def load(self) -> Splits:
        """Open the two splits.

        Raises:
            DataError: a file is damaged or has another size, a table does not match its images, or h5py is not
                installed.
        """
        paths = locate(self).paths
        if len(paths) <= 2:  # Kaggle's: a folder and a table, or a zip
            return kaggle.open_archive(paths[0], paths[-1], self.fraction)
        pairs = zip(self._published_split_names, paths[::2], paths[1::2], strict=True)
        *training, test = [hdf5.open_published_split(x, y, self.sizes[split]) for split, x, y in pairs]
        return hdf5.join_published_splits(training, test, self.fraction)

    @property
    def _published_split_names(self) -> tuple[str, ...]:
        """The names of the published splits to read, training first."""
        return ("train", "valid", "test") if self.val == "train" else ("train", "test")
