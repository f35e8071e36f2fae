"""Slices at uneven positions brought to an even spacing, where the user asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.events import Progress, result_of
from hushpore.base.formatting import readable_unit
from hushpore.io.lazy_arrays import PlaneStack

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    import numpy.typing as npt

    from hushpore.base.volume import Volume


def resample_evenly(volume: Volume, spacing: float | None = None) -> Volume:
    """Interpolate a stack of unevenly spaced or missing slices to an even spacing.

    Never done silently: `hushpore.read` keeps the slices as they are and says in a note that they
    are uneven. Between two slices values are interpolated linearly, which smooths noise there.

    `volume`: with axes zyx, read from DICOM files whose slices are uneven or missing; their places
    are in ``volume.metadata["slice_positions"]``. `spacing`: the new distance of slices, in the
    unit of the volume; by default ``volume.spacing[0]``.
    Returns: float32, from the first slice to the last place that does not lie beyond the last one.
    A note says how many of its slices were interpolated.
    Raises InputError if the volume has no places of slices, or the spacing is not above zero.
    """
    return result_of(resampling(volume, spacing))


def is_uneven(volume: Volume) -> bool:
    """Whether `resample_evenly` has something to do: slices are missing or unevenly spaced."""
    places = np.asarray(volume.metadata.get("slice_positions", ()), dtype=float)
    fits = volume.axes == "zyx" and 1 < len(places) == volume.shape[0]
    return fits and bool((np.diff(places) > 0).all())


def with_places(known: Mapping[str, Any], ratio: float) -> dict[str, Any]:
    """Return what is known of a volume whose slices are said to lie so many times as far apart.

    Their places are in its unit, as its spacing is.
    """
    found = dict(known)
    if "slice_positions" in found:
        found["slice_positions"] = [place * ratio for place in found["slice_positions"]]
    return found


def resampling(volume: Volume, spacing: float | None = None) -> Generator[Progress, None, Volume]:
    """Do what `resample_evenly` does as a job, slice by slice."""
    even = resampled(volume, spacing)
    values, count = np.empty(even.shape, np.float32), even.shape[0]
    for done in even.data.read_into(values):
        yield Progress("resampling", done, count, "slices", done / count)
    return even.replace(values)


def resampled(volume: Volume, spacing: float | None = None) -> Volume:
    """Do what `resample_evenly` does, but each slice only when it is asked for."""
    if not is_uneven(volume):
        raise InputError(
            f"{volume.name} does not say that its slices are uneven (metadata "
            "'slice_positions'): there is nothing to resample."
        )
    places = np.asarray(volume.metadata["slice_positions"], dtype=float)
    step = volume.spacing[0] if spacing is None else float(spacing)
    if not step > 0:
        raise InputError(f"The spacing must be above zero; got {spacing}.")
    # a place beyond the end by rounding alone still counts
    count = int(np.floor((places[-1] - places[0]) / step + 1e-6)) + 1
    wanted = places[0] + step * np.arange(count)
    above = np.clip(np.searchsorted(places, wanted), 1, len(places) - 1)
    low, high = places[above - 1], places[above]
    share = np.clip((wanted - low) / (high - low), 0.0, 1.0)
    nearest = np.rint(share).astype(int)
    is_there = np.abs(share - nearest) < 1e-6

    def read(index: int, out: npt.NDArray[Any]) -> None:
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
