"""Voxels without a grey value (NaN), as reconstructions have them outside their field of view."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from hushpore.base.formatting import readable_grey, readable_percent

if TYPE_CHECKING:
    from hushpore.base.volume import Volume

#: Distance of the fill value from the lowest grey value, as a fraction of the range.
_BELOW = 0.1


def with_fill_value(volume: Volume) -> Volume:
    """Return a scan in which NaN and infinite values are a fill value.

    Parameters
    ----------
    volume : Volume
        A scan in memory. Floating-point values are changed in place; others are left as they are.

    Returns
    -------
    Volume
        With ``metadata["padding_value"]`` below all grey values, and a note. The same volume if
        all values are finite, or none is.

    Examples
    --------
    >>> import numpy as np
    >>> from hushpore.base.volume import Volume
    >>> scan = with_fill_value(Volume(np.array([[np.nan, 0], [5, 10]], np.float32)))
    >>> scan.data.tolist(), scan.metadata["padding_value"]
    ([[-1.0, 0.0], [5.0, 10.0]], -1.0)
    """
    values = volume.data
    in_memory = isinstance(values, np.ndarray) and not isinstance(values, np.memmap)
    if not in_memory or values.dtype.kind != "f" or not values.size:
        return volume
    with np.errstate(over="ignore", invalid="ignore"):
        # the sum is finite if all values are; a sum that overflows is looked at again
        if math.isfinite(float(values.sum(dtype=np.float64))):
            return volume
    bad = ~np.isfinite(values)
    count = int(np.count_nonzero(bad))
    if count in (0, values.size):
        return volume
    lowest = float(np.min(values, initial=np.inf, where=~bad))
    highest = float(np.max(values, initial=-np.inf, where=~bad))
    fill = float(values.dtype.type(lowest - _BELOW * ((highest - lowest) or 1.0)))
    values[bad] = fill
    note = (
        f"{count:,} voxels ({readable_percent(count / values.size)} of the volume) have no value "
        f"(NaN or infinite). They were set to {readable_grey(fill)} and are excluded as fill value."
    )
    return dataclasses.replace(
        volume, notes=[*volume.notes, note], metadata={**volume.metadata, "padding_value": fill}
    )
