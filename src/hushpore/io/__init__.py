"""Files to volumes, and results to files.

`read` and `read_all` open whatever `hushpore.io.registry` has an entry for; `load` does so as a job
with progress. `hushpore.io.results` writes, by the entries of the same place.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from hushpore.base.errors import HushporeError, InputError, MissingPackageError
from hushpore.base.events import result_of
from hushpore.io.lazy_arrays import LEFT_OUT
from hushpore.io.loading import choose, into_memory, is_on_disk, load
from hushpore.io.registry import kind_of
from hushpore.io.resample import is_uneven, resample_evenly

if TYPE_CHECKING:
    from hushpore.base.volume import Volume
    from hushpore.io.loading import Empty, Paths

__all__ = [
    "choose", "describe", "is_on_disk", "is_uneven", "kind_of", "load", "read", "read_all",
    "resample_evenly",
]  # fmt: skip


def read(
    path: Paths,
    *,
    series: int | str | None = None,
    empty: Empty | None = None,
    trust: bool = False,
) -> Volume:
    """Read the image stack of a file or folder.

    Parameters
    ----------
    path : str or path-like, or sequence of them
        A file or folder of a format in docs/formats.md, or a folder that holds a DICOM series or
        one TIFF a slice. Of a single DICOM file its own pixels are read, never those of its
        neighbours. Several files are read as if they were all that their folder holds.
    series : int or str, optional
        Which one to read where there are several: its number in the order of `describe`, from 1,
        or its name, or a part that only its name has.
    empty : callable, optional
        Makes the array that is filled, given shape and dtype: `numpy.empty`, or what
        `hushpore.device.backend.Backend.empty` of the device that all of it will go to.
    trust : bool, optional
        Whether to read a file that is compressed more than 1,000:1, or has more than 100,000
        frames or pages. Such files can be made to fill the memory.

    Returns
    -------
    Volume
        With spacing, unit, axes and notes. Where there are several and none is named, the one with
        most voxels; a note then names the others. Where the files state slope and intercept,
        ``data`` is `hushpore.base.rescaled.Scaled`: integers in memory, float32 wherever it is
        asked for values; ``array()`` gives all of them.

    Raises
    ------
    InputError
        If there is nothing that can be read, or no such series; says why.
    NotTrustedError
        If it would take far more memory than its bytes, and `trust` does not allow that.
    MissingPackageError
        If an optional package is needed; gives the command that installs it.
    """
    found = describe(path, trust=trust)
    if series is not None:
        (wanted,) = result_of(into_memory([choose(found, series)], empty=empty))
        return wanted
    volumes = sorted(found, key=lambda volume: math.prod(volume.shape), reverse=True)
    damaged: list[HushporeError] = []
    for volume in volumes:
        try:
            (largest,) = result_of(into_memory([volume], empty=empty))
            break
        except (InputError, MissingPackageError) as error:
            damaged.append(error)
    else:
        raise damaged[0]
    if len(volumes) == 1:
        return largest
    notes = [LEFT_OUT.format(error) for error in damaged]
    others = volumes[len(damaged) + 1 :]
    if others:
        names = "; ".join(
            f"{volume.name} ({' x '.join(map(str, volume.shape))})" for volume in others
        )
        notes.append(
            f"The largest of {len(volumes)} image stacks was read. The others: {names}; "
            "name one with series=, or take them all with hushpore.read_all."
        )
    return dataclasses.replace(largest, notes=[*notes, *largest.notes])


def read_all(path: Paths, *, lazy: bool | None = None, trust: bool = False) -> list[Volume]:
    """Read every image stack of a file or folder: one for each DICOM series and shape of page.

    Parameters
    ----------
    path
        As for `read`.
    lazy : bool, optional
        Whether values stay on disk until they are asked for; by default those do that would take
        more than half of the free memory.
    trust : bool, optional
        As for `read`.

    Returns
    -------
    list of Volume
        At least one.

    Raises
    ------
    InputError
        If there is nothing that can be read; says why.
    MissingPackageError
        If an optional package is needed; gives the command that installs it.
    MemoryLimitError
        If memory is asked for that is not there.
    """
    return result_of(load(path, lazy=lazy, trust=trust))


def describe(path: Paths, *, trust: bool = False) -> list[Volume]:
    """Say what is in a file or folder from its headers alone.

    `path`, `trust`: as for `read`.
    Returns: as `read_all` would, but the values stay on disk until they are asked for.
    Raises InputError, MissingPackageError: as for `read_all`; damage within the pixels is not
    noticed.
    """
    return read_all(path, lazy=True, trust=trust)
