"""DICOM series of one small scan, with the elements that a test asks for."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

SCAN = np.arange(24 * 6 * 7, dtype=np.uint16).reshape(24, 6, 7)
AXIAL = [1, 0, 0, 0, 1, 0]


def dataset(pixels, number, syntax=ExplicitVRLittleEndian, **tags):
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = CTImageStorage, generate_uid()
    meta.TransferSyntaxUID = syntax
    made = FileDataset(None, {}, file_meta=meta, preamble=b"\0" * 128)
    known: dict[str, Any] = {
        "SOPClassUID": CTImageStorage, "SOPInstanceUID": meta.MediaStorageSOPInstanceUID,
        "Modality": "CT", "StudyInstanceUID": "1.2.3", "SeriesInstanceUID": "1.2.3.4",
        "InstanceNumber": number + 1, "SamplesPerPixel": 1,
        "PhotometricInterpretation": "MONOCHROME2", "PixelRepresentation": 0, "BitsAllocated": 16,
        "BitsStored": 16, "HighBit": 15, "Rows": pixels.shape[-2], "Columns": pixels.shape[-1],
        "PixelSpacing": [0.3, 0.3], "SliceThickness": 0.4,
        "PixelData": pixels.astype("<u2").tobytes(),
    }  # fmt: skip
    for tag, value in (known | tags).items():
        if value is not None:
            setattr(made, tag, value)
    return made


def series(folder, tags, scan=SCAN):
    """Write a slice a file; `tags` gives the elements of each by its number."""
    folder.mkdir(exist_ok=True)
    for i, plane in enumerate(scan):
        made = dataset(plane, i, **tags(i))
        made.save_as(folder / f"s{i:03d}.dcm", enforce_file_format=True)
    return folder


def at(place, **tags):
    return {"ImagePositionPatient": [0, 0, place], "ImageOrientationPatient": AXIAL, **tags}


def order_of(volume):
    """Return which slices of the scan a volume holds."""
    return (volume.array()[:, 0, 0] // SCAN[0].size).tolist()
