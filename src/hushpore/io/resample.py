"""Resampling of unevenly spaced slices to an even spacing, on request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.events import Progress, result_of
from hushpore.base.formatting import readable_unit
from hushpore.io.lazy_arrays import PlaneStack

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from hushpore.base.arrays import Array
    from hushpore.base.volume import Volume


def resample_evenly(volume: Volume, spacing: float | None = None) -> Volume:
    """Interpolate a stack of unevenly spaced or missing slices to an even spacing.

    `hushpore.read` never resamples: it keeps the slices and adds a note that they are uneven.
    Values between two slices are interpolated linearly, which reduces the noise there.

    Parameters
    ----------
    volume : Volume
        Axes zyx, with unevenly spaced or missing slices; their positions are in
        ``volume.metadata["slice_positions"]``.
    spacing : float, optional
        Slice distance of the result, in the unit of the volume; by default ``volume.spacing[0]``.

    Returns
    -------
    Volume
        Values in float32, from the first slice to the last position within the volume. A note gives
        the number of interpolated slices.

    Raises
    ------
    InputError
        If the volume has no slice positions, or the spacing is not positive.

    Examples
    --------
    >>> import numpy as np
    >>> from hushpore import Volume
    >>> places = {"slice_positions": [0.0, 1.0, 3.0]}
    >>> scan = Volume(np.arange(3.0)[:, None, None] * np.ones((3, 2, 2)), metadata=places)
    >>> resample_evenly(scan).array()[:, 0, 0].tolist()
    [0.0, 1.0, 1.5, 2.0]
    """
    return result_of(resampling(volume, spacing))


def is_uneven(volume: Volume) -> bool:
    """Return whether slices are missing or unevenly spaced, so that resampling is possible."""
    places = np.asarray(volume.metadata.get("slice_positions", ()), dtype=float)
    fits = volume.axes == "zyx" and 1 < len(places) == volume.shape[0]
    return fits and bool((np.diff(places) > 0).all())


def with_rescaled_positions(metadata: Mapping[str, Any], ratio: float) -> dict[str, Any]:
    """Return the metadata of a volume for a slice distance multiplied by `ratio`.

    The slice positions are in the unit of the volume, like its spacing.
    """
    rescaled = dict(metadata)
    if "slice_positions" in rescaled:
        rescaled["slice_positions"] = [place * ratio for place in rescaled["slice_positions"]]
    return rescaled


def resampling(volume: Volume, spacing: float | None = None) -> Generator[Progress, None, Volume]:
    """Resample as `resample_evenly` does, as a job that yields progress."""
    even = resampled(volume, spacing)
    values, count = np.empty(even.shape, np.float32), even.shape[0]
    for done in even.data.read_into(values):
        yield Progress("resampling", done, count, "slices", done / count)
    return even.replace(values)


def resampled(volume: Volume, spacing: float | None = None) -> Volume:
    """Return the result of `resample_evenly` as a lazy volume."""
    if not is_uneven(volume):
        raise InputError(
            f"{volume.name} has no positions of unevenly spaced slices (metadata "
            "'slice_positions'), so there is nothing to resample."
        )
    places = np.asarray(volume.metadata["slice_positions"], dtype=float)
    step = volume.spacing[0] if spacing is None else float(spacing)
    if not step > 0:
        raise InputError(f"The spacing must be positive; got {spacing}.")
    # include a position that exceeds the end only by rounding
    count = int(np.floor((places[-1] - places[0]) / step + 1e-6)) + 1
    wanted = places[0] + step * np.arange(count)
    above = np.clip(np.searchsorted(places, wanted), 1, len(places) - 1)
    low, high = places[above - 1], places[above]
    share = np.clip((wanted - low) / (high - low), 0.0, 1.0)
    nearest = np.rint(share).astype(int)
    is_there = np.abs(share - nearest) < 1e-6

    def read(index: int, out: Array) -> None:
        k = int(above[index])
        if is_there[index]:
            out[...] = volume.data[k - 1 + int(nearest[index])]
            return
        first, second = (np.asarray(volume.data[each], np.float32) for each in (k - 1, k))
        out[...] = first + np.float32(share[index]) * (second - first)

    metadata = {key: value for key, value in volume.metadata.items() if key != "slice_positions"}
    note = (
        f"Resampled to {step:.4g} {readable_unit(volume.unit)} between slices: "
        f"{np.count_nonzero(~is_there)} of {count} slices were interpolated."
    )
    return volume.replace(
        PlaneStack(np.arange(count), volume.shape[1:], np.dtype(np.float32), read),
        spacing=(step, *volume.spacing[1:]),
        notes=[*volume.notes, note],
        metadata=metadata,
    )
