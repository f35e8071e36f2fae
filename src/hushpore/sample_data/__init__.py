"""Sample data: phantoms with known pores, and a real CT slice."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from hushpore.base.errors import InputError, import_optional
from hushpore.sample_data.phantom import Phantom, core_phantom, foam_phantom

if TYPE_CHECKING:
    from hushpore.base.volume import Volume

__all__ = ["Phantom", "core_phantom", "ct_slice", "foam_phantom"]

_NAME = "CT_small.dcm"


def ct_slice() -> Volume:
    """Return a real CT slice of 128 x 128 pixels in HU.

    The file is a part of pydicom; nothing is downloaded.

    Returns
    -------
    Volume
        float32 HU, axes yx, in mm.

    Raises
    ------
    MissingPackageError
        If pydicom is not installed.
    InputError
        If this installation of pydicom has no test data.

    Examples
    --------
    >>> ct_slice().shape
    (128, 128)
    """
    import_optional("pydicom", "The CT slice")
    from pydicom.data import get_testdata_file

    path = get_testdata_file(_NAME, download=False)
    if path is None:
        raise InputError(
            f"This installation of pydicom lacks its test file {_NAME}. Install it with pip."
        )
    # the denoiser's widget opens without the readers
    from hushpore.io import read

    return dataclasses.replace(read(str(path)), name="CT slice", source=f"pydicom: {_NAME}")
