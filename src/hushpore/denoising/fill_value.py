"""The fill value around a scan: it has no noise, and is left unchanged.

If each of these voxels had another value after denoising, padding would look like air.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.fill_value import is_fill_value, possible_fill_values

if TYPE_CHECKING:
    from collections.abc import Generator

    from hushpore.base.arrays import Array, Mask
    from hushpore.base.volume import Volume

#: Minimum share of a slice with the fill value, in squares of 3 x 3 pixels.
_LEAST_SHARE = 0.01

#: Maximum number of pixels of a speck, and maximum share of specks in the padding: in dark noise of
#: few counts, squares of one value are common too, but with other values among them.
_SPECK, _SPECKS = 8, 1e-3

#: Note on the padding; takes the fill value.
PADDED = "Padding around the scan (value {:g}) was left unchanged."

#: Margin around a piece of a slice for finding the fill value in it, in pixels.
MARGIN = 2


def find_fill_value(volume: Volume) -> float | None:
    """Return the fill value of a scan, or None.

    `volume`: with any leading axes; at most four slices of the first image are checked.
    """
    image = volume.at(**dict.fromkeys(volume.axes[: -volume.n_spatial], 0))
    if image.dtype.kind not in "iuf" or min(image.shape[-2:]) < 3:
        return None
    plane = np.asarray(image.data[image.shape[0] // 2] if image.n_spatial == 3 else image.data)
    # a pore that is taken for padding does no harm: it remains as scanned
    for value in possible_fill_values(plane, image.metadata, ends=True):
        enough = _squares(plane, value).mean() >= _LEAST_SHARE
        if enough and not _has_specks(plane, value) and is_fill_value(image, value):
            return value
    return None


def _has_specks(plane: Array, value: float) -> bool:
    """Whether single voxels of other values lie among those of the fill value."""
    from scipy import ndimage

    others = plane != value
    parts, _ = ndimage.label(others, np.ones((3, 3), np.bool_))
    sizes = np.bincount(parts.ravel())[1:]
    specks = sizes[sizes <= _SPECK].sum()
    return bool(specks > _SPECKS * np.count_nonzero(~others))


def fill_value_of(noisy: Array, padding: float) -> Mask:
    """Return the mask of the padding in slices (..., y, x).

    Only squares of 3 x 3 pixels with the fill value count, so that noise with that value by chance
    does not. At cut edges `MARGIN` pixels may be wrong.
    """
    found = np.empty(noisy.shape, np.bool_)
    for index in np.ndindex(noisy.shape[:-2]):
        found[index] = _squares(noisy[index], padding)
    return found


def restore_fill_value(
    volume: Volume, denoised: Any, padding: float
) -> Generator[float, None, None]:
    """Restore the fill value in a result, and yield the completed share.

    `volume`: as scanned. `denoised`: of the same shape; both are processed slice by slice.
    """
    places = list(np.ndindex(volume.shape[:-2]))
    for number, place in enumerate(places, start=1):
        own = np.asarray(denoised[place])
        own[fill_value_of(np.asarray(volume.data[place] if place else volume.data), padding)] = (
            padding
        )
        denoised[place] = own
        yield number / len(places)


def _squares(plane: Array, value: float) -> Mask:
    """Return the pixels of a slice that lie in a square of 3 x 3 pixels with one value."""
    from scipy import ndimage

    square = np.ones((3, 3), np.bool_)
    # values outside the slice are unknown, and count as equal
    has_it = plane == value
    middles = ndimage.binary_erosion(has_it, square, border_value=1)
    found: Mask = has_it & ndimage.binary_dilation(middles, square)
    return found
