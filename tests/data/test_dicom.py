"""DICOM files: grey through their own window, in 8 bits, each by itself; what cannot be shown is one sentence."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pydicom import dcmread
from pydicom.uid import JPEG2000, JPEGBaseline8Bit, JPEGLosslessSV1, RLELossless

from dpbench import DataError, decode_image
from tests.helpers.dicoms import dicom
from tests.helpers.trees import picture

STORED = np.arange(0, 4096, 16, dtype=np.uint16).reshape(16, 16)


def shown(content: bytes) -> np.ndarray:
    found: np.ndarray = np.asarray(decode_image(content, "1.dcm")).astype(int)
    return found


def ramp(values: np.ndarray, black: float, white: float) -> np.ndarray:
    found: np.ndarray = np.rint(255 * ((values.astype(float) - black) / (white - black)).clip(0, 1)).astype(int)
    return found


def test_a_window_goes_from_black_to_white() -> None:
    found = shown(dicom(STORED, WindowCenter=2048, WindowWidth=1025))
    assert (found == ramp(STORED, 2047.5 - 512, 2047.5 + 512)).all()


def test_the_modality_comes_before_the_window() -> None:
    plain = dicom(STORED, WindowCenter=2048, WindowWidth=1025)
    rescaled = dicom(STORED, WindowCenter=1024, WindowWidth=1025, RescaleSlope=1, RescaleIntercept=-1024)
    assert (shown(rescaled) == shown(plain)).all()


def test_a_negative_slope_does_not_invert_the_window() -> None:
    found = shown(dicom(STORED, WindowCenter=-2048, WindowWidth=1025, RescaleSlope=-1, RescaleIntercept=0))
    assert (found == ramp(-STORED.astype(float), -2048.5 - 512, -2048.5 + 512)).all()


def test_the_first_of_several_windows_counts() -> None:
    several = dicom(STORED, WindowCenter=[2048, 100], WindowWidth=[1025, 50])
    assert (shown(several) == shown(dicom(STORED, WindowCenter=2048, WindowWidth=1025))).all()


def test_a_table_goes_from_its_smallest_to_its_largest_entry() -> None:
    from pydicom.dataset import Dataset

    item, levels = Dataset(), np.arange(4096, dtype=np.uint16) // 2  # of 16 bits, of which it uses 11
    item.add_new("LUTDescriptor", "US", [4096, 0, 16])
    item.add_new("LUTData", "OW", levels.tobytes())
    assert (shown(dicom(STORED, VOILUTSequence=[item])) == ramp(STORED // 2, 0, 2047)).all()


def test_without_a_window_deep_images_are_shown_from_their_own_smallest_to_their_largest_value() -> None:
    assert (shown(dicom(STORED + 5)) == ramp(STORED, 0, 4080)).all()


def test_without_a_window_eight_bits_stay_as_they_are() -> None:
    dim = (STORED // 64).astype(np.uint8)
    assert (shown(dicom(dim)) == dim).all()


def test_what_is_white_where_values_are_small_is_inverted() -> None:
    window: dict[str, Any] = {"WindowCenter": 2048, "WindowWidth": 1025}
    inverted = shown(dicom(STORED, PhotometricInterpretation="MONOCHROME1", **window))
    assert (inverted == 255 - shown(dicom(STORED, **window))).all()


def test_colours_stay_as_they_are() -> None:
    colours = np.random.default_rng(0).integers(0, 256, (5, 4, 3), dtype=np.uint8)
    image = decode_image(dicom(colours), "1.DCM")
    assert (image.mode, image.tobytes()) == ("RGB", colours.tobytes())


def test_bytes_decide_what_is_dicom_and_not_the_name() -> None:
    assert (np.asarray(decode_image(dicom(STORED), "scan")) == shown(dicom(STORED))).all()
    with pytest.raises(DataError, match="bytes are not a DICOM file"):
        decode_image(picture(7), "photo.dcm")


def test_one_image_of_one_grey_is_black() -> None:
    assert not shown(dicom(np.full((4, 4), 900, np.uint16))).any()


def test_what_pydicom_and_pillow_decompress_is_read() -> None:
    file = dcmread(io.BytesIO(dicom(STORED, WindowCenter=2048, WindowWidth=1025)))
    file.compress(RLELossless)
    written = io.BytesIO()
    file.save_as(written)
    assert (shown(written.getvalue()) == shown(dicom(STORED, WindowCenter=2048, WindowWidth=1025))).all()
    grey, jpeg = (STORED // 16).astype(np.uint8), io.BytesIO()
    Image.fromarray(grey).save(jpeg, "JPEG")
    assert (shown(dicom(grey, JPEGBaseline8Bit, PixelData=jpeg.getvalue())) == np.asarray(Image.open(jpeg))).all()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (dicom(None), "it is a DICOM file without pixels, such as a report. Remove it."),
        (dicom(np.zeros((3, 4), np.uint8), NumberOfFrames=3), "it has 3 frames, and an image has one."),
        (b"a poem", "its 6 bytes are not a DICOM file."),
        (dicom(STORED)[:-100], "its pixels do not decode"),
        (dicom(STORED, Rows=99), "its pixels do not decode"),
        (dicom(np.zeros((4, 4, 3), np.uint16)), "more than 8 bits per colour"),
        (dicom(STORED, WindowCenter=5, WindowWidth=0), "Window Width must be greater than or equal to 1"),
        (dicom(STORED, JPEGLosslessSV1), "no installed decoder reads them. Run: pip install 'pylibjpeg[all]'"),
        (dicom(STORED, JPEG2000), "its pixels are compressed (JPEG 2000 Image Compression)"),
    ],
)
def test_what_cannot_be_shown_is_one_sentence(content: bytes, said: str) -> None:
    with pytest.raises(DataError) as caught:
        decode_image(content, "1.dcm", "train image ill/1.dcm")
    assert said in str(caught.value)
    assert str(caught.value).startswith("Expected a readable train image ill/1.dcm: ")
    assert "\n" not in str(caught.value) and "a person" not in str(caught.value)
