"""What is filled in around a scan with one value: it has no noise, and stays as it is.

A denoised scan with another value in each of these voxels could not be told from one in air.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.fill_value import is_fill_value, possible_fill_values

if TYPE_CHECKING:
    from collections.abc import Generator

    import numpy.typing as npt

    from hushpore.base.volume import Volume

#: Share of a slice that is filled in at the least, in squares of 3 x 3 pixels.
_LEAST_SHARE = 0.01

#: Pixels of a speck at most, and the share of what is filled in that specks may be: in dark noise,
#: as of few counts, whole squares have one value, too, with others among them.
_SPECK, _SPECKS = 8, 1e-3

#: Note on the padding; takes the fill value.
PADDED = "Padding around the scan (value {:g}) was left unchanged."

#: Pixels around a piece of a slice that decide what is filled in within it.
MARGIN = 2


def find_fill_value(volume: Volume) -> float | None:
    """Return the value that a scan is filled in with; None where it is not.

    `volume`: with any leading axes, of which the first image is looked at: four slices at most.
    """
    image = volume.at(**dict.fromkeys(volume.axes[: -volume.n_spatial], 0))
    if image.dtype.kind not in "iuf" or min(image.shape[-2:]) < 3:
        return None
    plane = np.asarray(image.data[image.shape[0] // 2] if image.n_spatial == 3 else image.data)
    # a pore that is taken for it does no harm: it stays as it was scanned
    for value in possible_fill_values(plane, image.metadata, ends=True):
        enough = _squares(plane, value).mean() >= _LEAST_SHARE
        if enough and not _has_specks(plane, value) and is_fill_value(image, value):
            return value
    return None


def _has_specks(plane: npt.NDArray[Any], value: float) -> bool:
    """Whether other values lie singly among voxels of one."""
    from scipy import ndimage

    others = plane != value
    parts, _ = ndimage.label(others, np.ones((3, 3), np.bool_))
    sizes = np.bincount(parts.ravel())[1:]
    specks = sizes[sizes <= _SPECK].sum()
    return bool(specks > _SPECKS * np.count_nonzero(~others))


def fill_value_of(noisy: npt.NDArray[Any], padding: float) -> npt.NDArray[np.bool_]:
    """Return where slices (..., y, x) are filled in.

    Not where a pixel has that value by chance: in squares of 3 x 3 pixels of it alone. At cut edges
    `MARGIN` pixels may be wrong.
    """
    found = np.empty(noisy.shape, np.bool_)
    for index in np.ndindex(noisy.shape[:-2]):
        found[index] = _squares(noisy[index], padding)
    return found


def restore_fill_value(
    volume: Volume, denoised: Any, padding: float
) -> Generator[float, None, None]:
    """Put the value that is filled in back where it was, and yield the share that is done.

    `volume`: as it was scanned. `denoised`: of its shape; read and written slice by slice.
    """
    places = list(np.ndindex(volume.shape[:-2]))
    for number, place in enumerate(places, start=1):
        own = np.asarray(denoised[place])
        own[fill_value_of(np.asarray(volume.data[place] if place else volume.data), padding)] = (
            padding
        )
        denoised[place] = own
        yield number / len(places)


def _squares(plane: npt.NDArray[Any], value: float) -> npt.NDArray[np.bool_]:
    """Return which pixels of a slice lie in a square of 3 x 3 that has one value."""
    from scipy import ndimage

    square = np.ones((3, 3), np.bool_)
    # what is beyond the slice may be anything
    has_it = plane == value
    middles = ndimage.binary_erosion(has_it, square, border_value=1)
    found: npt.NDArray[np.bool_] = has_it & ndimage.binary_dilation(middles, square)
    return found
