"""From the bytes of one image file to an image, DICOM included: whatever reads image files reads them here."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from dpbench.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

DICOM = ".dcm"
"""Ending of DICOM files, which pydicom reads."""


def decode_image(content: bytes, name: str, where: str = "") -> Image:
    """Decode an image file: by pydicom if it is DICOM, else by Pillow. The image follows from the bytes alone.

    Grey DICOM images are shown through their own window and have 8 bits; see `dpbench.data.dicom`.

    Args:
        content: of the file.
        name: of the file; one that ends in .dcm and is no DICOM file is refused.
        where: how messages name it, if not by `name`.

    Raises:
        DataError: it cannot be decoded; one sentence says why, and what to do.
    """
    if content[128:132] == b"DICM" or name.lower().endswith(DICOM):
        from dpbench.data.dicom import decode_dicom

        return decode_dicom(content, where or name)
    from PIL import Image

    try:
        image = Image.open(io.BytesIO(content))
        image.load()
    except Exception as error:  # decoders raise many kinds
        raise DataError(
            f"Expected a readable {where or name}: its {len(content):,} bytes do not decode as an image."
        ) from error
    return image
