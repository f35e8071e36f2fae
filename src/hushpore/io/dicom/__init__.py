"""DICOM series: read and written."""

from hushpore.io.dicom.writer import write_series

__all__ = ["write_series"]
