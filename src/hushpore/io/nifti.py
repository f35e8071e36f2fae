"""NIfTI files to volumes, by nibabel."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.volume import Volume
from hushpore.io.log_capture import captured_warnings
from hushpore.io.units import unit_of

if TYPE_CHECKING:
    from pathlib import Path

_LARGEST_RATIO = 1032  # of gzip


def read_nifti(path: Path) -> Volume:
    """Read a NIfTI image, 2D to 4D.

    `path`: ``.nii`` or ``.nii.gz``.
    Returns: axes zyx, with time before them. Rows stay in the order in which they are stored.
    Raises InputError if it is damaged, or holds no grey values.
    """
    import nibabel

    try:
        with captured_warnings("nibabel"):
            image: Any = nibabel.load(path)
            _require_plausible(image, path)
            values = np.asarray(image.dataobj)
            steps = image.header.get_zooms()
            unit = unit_of(image.header.get_xyzt_units()[0].replace("unknown", ""))
    except (InputError, OSError, MemoryError):
        raise
    except Exception as error:
        # damaged files make nibabel raise errors of any kind
        raise InputError(
            f"{path.name} is damaged or incomplete and cannot be read as NIfTI "
            f"({type(error).__name__}: {error}). Copy or export it again."
        ) from error
    if values.dtype == np.float64 and image.get_data_dtype() != np.float64:
        values = values.astype(np.float32)  # slope and intercept were applied
    values = values.reshape(values.shape[:3] + tuple(n for n in values.shape[3:] if n > 1))
    n_spatial = min(values.ndim, 3)
    return Volume(
        np.ascontiguousarray(values.T, dtype=values.dtype.newbyteorder("=")),
        spacing=tuple(float(step) or 1.0 for step in reversed(steps[:n_spatial])),
        unit=unit[0] if unit else "pixel",
        name=path.name.removesuffix(".gz").removesuffix(".nii"),
    )


def _require_plausible(image: Any, path: Path) -> None:
    """Refuse a damaged header before memory is taken for an image that cannot be there."""
    size = path.stat().st_size * (_LARGEST_RATIO if path.suffix == ".gz" else 1)
    if math.prod(image.shape) * image.get_data_dtype().itemsize > size:
        raise InputError(
            f"{path.name} is damaged or incomplete: it states an image of "
            f"{' x '.join(map(str, image.shape))} voxels, which its bytes cannot hold."
        )
