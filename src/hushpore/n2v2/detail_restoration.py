"""Detail restoration: what was removed beyond the noise goes back into the result.

A blind spot cannot know what is in its own pixel alone, so that sharp edges and fine texture are
removed with the noise. Where the residual (noisy minus denoised) varies more than the noise does,
the share of it that the noise does not explain is restored: the local Wiener filter of Lee
(https://doi.org/10.1109/TPAMI.1980.4766994), on the residual.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.n2v2.source import pieces

if TYPE_CHECKING:
    from collections.abc import Generator

    import numpy.typing as npt

    from hushpore.n2v2.noise.diagnosis import NoiseDiagnosis
    from hushpore.n2v2.source import Source

#: Deviation of the Gaussian over which the residual's variance is taken, in y and x, in pixels.
REACH = 3.0


def restore_detail_in_place(
    source: Source, denoised: Any, noise: NoiseDiagnosis
) -> Generator[float, None, None]:
    """Restore what the noise does not explain, in place, and yield the share that is done.

    `denoised`: of the shape of the volume; read and written piece by piece. `noise`: how much noise
    there is at which grey value; it must be independent from pixel to pixel.
    """
    if len(source.size) == 2:
        # whole slices, so that no neighbourhood is cut
        parts = [(np.array([plane]), slice(0, source.size[0])) for plane in range(source.count)]
    else:
        parts = pieces(source)
    for number, (planes, rows) in enumerate(parts, start=1):
        noisy = source.read(planes, rows).astype(np.float32)
        for plane, values in zip(planes, noisy, strict=True):
            where = source.index(int(plane), rows)
            denoised[where] = restore_detail(values, np.asarray(denoised[where]), noise)
        yield number / len(parts)


def restore_detail(
    noisy: npt.NDArray[np.float32], denoised: npt.NDArray[np.float32], noise: NoiseDiagnosis
) -> npt.NDArray[np.float32]:
    """Return slices (..., y, x) with the detail restored that was removed."""
    from scipy.ndimage import gaussian_filter

    residual = noisy - denoised
    reach = (0,) * (residual.ndim - 2) + (REACH, REACH)
    variance = np.maximum(gaussian_filter(residual**2, reach), np.finfo(np.float32).tiny)
    # the residual's own mean is part of what was removed, and counts
    share = np.maximum(1 - noise.variance_at(denoised) / variance, 0)
    result: npt.NDArray[np.float32] = denoised + share * residual
    return result
