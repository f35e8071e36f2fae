"""DICOM series: read and written."""
