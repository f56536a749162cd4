"""Decode image files, including DICOM; every reader of image files uses this module."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from dpbench.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

DICOM_ENDING = ".dcm"
"""Ending of DICOM files, which pydicom reads."""


def decode_image(content: bytes, name: str, where: str = "") -> Image:
    """Decode an image file, with pydicom if it is DICOM, else with Pillow. The image depends on the bytes alone.

    Grey DICOM images are shown through their own window and have 8 bits; see `dpbench.data.dicom`.

    Args:
        content: the bytes of the file.
        name: the file's name; a file that ends in .dcm but is not DICOM is refused.
        where: what messages call the file, if not `name`.

    Raises:
        DataError: the file cannot be decoded; one sentence says why, and what to do.
    """
    if content[128:132] == b"DICM" or name.lower().endswith(DICOM_ENDING):
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
