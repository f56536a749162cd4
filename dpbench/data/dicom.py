"""Decode a DICOM file to an 8-bit image, as a viewer first shows it: pydicom applies modality transform and window.

Grey values go through the modality transformation (slope and intercept, or a table) and then through the first window
or VOI table of the file; black and white are the ends of that window or table. Without either, black and white are the
smallest and the largest value that the stored bits can hold, if there are at most eight bits, else the smallest and the
largest value of the file. MONOCHROME1 is inverted, so that large values are bright. Colours stay as they are.

Nothing is remembered from one file to the next, and no statistic over several files is used.
"""

from __future__ import annotations

import io
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from dpbench.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image

INSTALL_PYDICOM = "pip install 'dpbench-vision[dicom]'"
INSTALL_DECODERS = "pip install 'pylibjpeg[all]'"
EXTREME_VALUE = 1e30  # beyond any window


def decode_dicom(content: bytes, name: str) -> Image:
    """Decode a DICOM file that holds one grey (L) or colour (RGB) image.

    Raises:
        DataError: pydicom is not installed, or this is no DICOM file, has no image or several, or is compressed in a
            way that needs another decoder.
    """
    if find_spec("pydicom") is None:
        raise DataError(f"Expected pydicom, which reads {name}, and it is not installed. Run {INSTALL_PYDICOM}.")
    from PIL.Image import fromarray
    from pydicom import dcmread
    from pydicom.errors import InvalidDicomError

    try:
        file = dcmread(io.BytesIO(content))
    except InvalidDicomError as error:
        raise _make_unreadable_error(
            name, f"its {len(content):,} bytes are not a DICOM file. Replace or remove it"
        ) from error
    except Exception as error:  # whatever a damaged header leads to
        raise _make_unreadable_error(
            name, f"its header does not decode ({type(error).__name__}). Replace it"
        ) from error
    if "PixelData" not in file:
        raise _make_unreadable_error(name, "it is a DICOM file without pixels, such as a report. Remove it")
    try:
        several = int(file.get("NumberOfFrames") or 1)
        if several == 1:
            return fromarray(_read_eight_bit_pixels(file))
    except Exception as error:  # of any decoder
        raise _make_unreadable_error(name, _describe_decoding_error(file, error)) from error
    raise _make_unreadable_error(
        name, f"it has {several:,} frames, and an image has one. Store the frame to be used on its own"
    )


def _read_eight_bit_pixels(file: Any) -> np.ndarray:
    """Return the file's pixels as uint8, (height, width) or (height, width, 3)."""
    import numpy as np
    from pydicom.pixels.processing import apply_color_lut
    from pydicom.pixels.utils import pixel_array

    pixels = pixel_array(file)
    if file.PhotometricInterpretation == "PALETTE COLOR":
        pixels = apply_color_lut(pixels, file)[..., :3]
        return np.ascontiguousarray(pixels if pixels.dtype == np.uint8 else pixels >> 8, dtype=np.uint8)
    if pixels.ndim == 2:
        return _convert_to_grey(pixels, file)
    if pixels.dtype != np.uint8:
        raise ValueError("more than 8 bits per colour")
    return pixels


def _convert_to_grey(pixels: np.ndarray, file: Any) -> np.ndarray:
    import numpy as np
    from pydicom.pixels.processing import apply_modality_lut, apply_voi_lut

    values = apply_modality_lut(pixels, file)
    with np.errstate(over="ignore"):  # a sigmoid far from its centre
        shown = apply_voi_lut(values, file)
        black, white = _read_value_limits(values, file) if shown is values else _read_window_limits(file)
    scaled = (shown.astype(np.float64) - black) / ((white - black) or 1.0)
    grey = np.rint(255 * np.clip(scaled, 0, 1)).astype(np.uint8)
    return 255 - grey if file.PhotometricInterpretation == "MONOCHROME1" else grey


def _read_value_limits(values: np.ndarray, file: Any) -> tuple[float, float]:
    """Return the values that are shown as black and white if a file has neither a window nor a table."""
    import numpy as np
    from pydicom.pixels.processing import apply_modality_lut

    bits = int(file.BitsStored)
    if bits <= 8 and not file.PixelRepresentation and not file.get("ModalityLUTSequence"):
        values = apply_modality_lut(np.array([0, 2**bits - 1]), file)
    return float(values.min()), float(values.max())


def _read_window_limits(file: Any) -> tuple[float, float]:
    """Return the outputs of the file's window or table for its smallest and its largest input."""
    import numpy as np
    from pydicom.pixels.processing import apply_voi_lut

    item: Any = next(iter(file.get("VOILUTSequence") or ()), {})
    if "LUTDescriptor" in item and "LUTData" in item:
        entries, first, _ = item.LUTDescriptor
        table = apply_voi_lut(np.arange(first, first + (entries or 2**16)), file)
        return float(table.min()), float(table.max())
    black, white = apply_voi_lut(np.array([-EXTREME_VALUE, EXTREME_VALUE]), file)
    return float(black), float(white)


def _describe_decoding_error(file: Any, error: Exception) -> str:
    syntax = getattr(getattr(file, "file_meta", None), "TransferSyntaxUID", None)
    if syntax is not None and syntax.is_compressed:
        return (
            f"its pixels are compressed ({syntax.name}), and no installed decoder reads them. Run: "
            f"{INSTALL_DECODERS}, or "
            "store it uncompressed"
        )
    return f"its pixels do not decode ({type(error).__name__}: {str(error)[:200]}). Replace it".replace("\n", " ")


def _make_unreadable_error(name: str, reason: str) -> DataError:
    return DataError(f"Expected a readable {name}: {reason}.")
