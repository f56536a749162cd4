"""DermNet's photographs of skin diseases, as Kaggle ships them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dpbench import Dataset, Source, Splits, locate
from dpbench_plugins.datasets.extractors import NETWORK
from dpbench_plugins.datasets.image_trees import (
    ANYWHERE,
    FILE,
    Layout,
    add_checksums,
    check_class_names,
    check_image_counts,
    digest_images,
    list_images,
    open_splits,
)

PAGE = "https://www.kaggle.com/datasets/shubhamgoel27/dermnet"
LAYOUT = Layout(
    re.compile(rf"{ANYWHERE}(?P<split>train|test)/(?P<kind>[^/]+)/{FILE}"),
    split=lambda found: found["split"],
    advice=f"Download the data again from {PAGE}, and do not add or remove anything.",
)


@dataclass(frozen=True)
class DermNet(Dataset):
    """Photographs of skin diseases: 15,557 training and 4,002 test images of many sizes, RGB, 23 classes.

    Read from a data folder: from `dermnet.zip` (Kaggle's download, renamed), else from an unpacked folder `dermnet`;
    inside, {train,test}/CLASS/*.jpg with the class folders that `classes` names. Nothing is unpacked. Class folders and
    the number of images are checked. The digest covers split, class, file name, size and CRC-32 of every image, and is
    the same for the zip and the folder; a folder is read in full to compute it.

    Neighbouring datasets differ by one image: the guarantee is per image, not per patient, and a patient may have
    several images. PILLAR (Pinto et al. 2023) trains on "12,000" images of DermNet and does not say how it chose them.
    """

    name = "dermnet"
    default_extractor = NETWORK
    classes = (
        "Acne and Rosacea Photos",
        "Actinic Keratosis Basal Cell Carcinoma and other Malignant Lesions",
        "Atopic Dermatitis Photos",
        "Bullous Disease Photos",
        "Cellulitis Impetigo and other Bacterial Infections",
        "Eczema Photos",
        "Exanthems and Drug Eruptions",
        "Hair Loss Photos Alopecia and other Hair Diseases",
        "Herpes HPV and other STDs Photos",
        "Light Diseases and Disorders of Pigmentation",
        "Lupus and other Connective Tissue diseases",
        "Melanoma Skin Cancer Nevi and Moles",
        "Nail Fungus and other Nail Disease",
        "Poison Ivy Photos and other Contact Dermatitis",
        "Psoriasis pictures Lichen Planus and related diseases",
        "Scabies Lyme Disease and other Infestations and Bites",
        "Seborrheic Keratoses and other Benign Tumors",
        "Systemic Disease",
        "Tinea Ringworm Candidiasis and other Fungal Infections",
        "Urticaria Hives",
        "Vascular Tumors",
        "Vasculitis Photos",
        "Warts Molluscum and other Viral Infections",
    )
    licence = "unknown"
    citation = f"DermNet, photographs of 23 kinds of skin disease, collected on Kaggle; {PAGE}"
    counts = {"train": 15_557, "test": 4_002}

    def source(self) -> Source:
        """Return where the images come from (a login is needed) and where they are kept."""
        return Source(homes=[["dermnet.zip"], ["dermnet"]], page=PAGE, size=1_800_000_000)

    def load(self) -> Splits:
        """Open the two splits, sorted by class and file name.

        Raises:
            DataError: a class folder is missing or unknown, the number of images is wrong, or the zip is damaged.
        """
        (path,) = locate(self).paths
        listed = list_images(path, LAYOUT)
        check_class_names(listed, self.classes, path, LAYOUT.advice)
        check_image_counts(listed, self.counts, path, LAYOUT.advice)
        files = add_checksums(listed)
        return open_splits(files, self.classes, "RGB", digest_images(files), LAYOUT.advice)
