"""DICOM files as machines write them, in small."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import UID, CTImageStorage, ExplicitVRLittleEndian


def dicom(pixels: np.ndarray | None, syntax: str = ExplicitVRLittleEndian, **elements: Any) -> bytes:
    """Return a file with these pixels, (height, width) or (height, width, 3), and with other elements by keyword."""
    file = Dataset()
    file.file_meta = FileMetaDataset()
    file.file_meta.MediaStorageSOPClassUID = file.SOPClassUID = CTImageStorage
    file.file_meta.MediaStorageSOPInstanceUID = file.SOPInstanceUID = UID("1.2.3")
    file.file_meta.TransferSyntaxUID = UID(syntax)
    file.PatientID = "a person"
    if pixels is not None:
        bits = 8 * pixels.dtype.itemsize
        file.Rows, file.Columns = pixels.shape[:2]
        file.SamplesPerPixel = 3 if pixels.ndim == 3 else 1
        file.PhotometricInterpretation = "RGB" if pixels.ndim == 3 else "MONOCHROME2"
        file.BitsAllocated, file.BitsStored, file.HighBit = bits, bits, bits - 1
        file.PixelRepresentation = int(np.issubdtype(pixels.dtype, np.signedinteger))
        if pixels.ndim == 3:
            file.PlanarConfiguration = 0
        file.PixelData = pixels.tobytes()
        file["PixelData"].VR = "OW" if bits == 16 else "OB"
    for name, value in elements.items():
        setattr(file, name, value)
    if syntax != ExplicitVRLittleEndian:
        from pydicom.encaps import encapsulate

        file.PixelData = encapsulate([file.PixelData])
        file["PixelData"].is_undefined_length = True
    written = io.BytesIO()
    file.save_as(written, enforce_file_format=True)
    return written.getvalue()
