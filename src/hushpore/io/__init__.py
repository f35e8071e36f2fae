"""Files to volumes, and results to files.

`read` and `read_all` open DICOM (a file, a series, a folder of several), TIFF (ImageJ, OME, plain
stacks, a folder with one slice a file), OME-Zarr and NumPy files; `load` does so as a job with
progress. `hushpore.io.results` and `hushpore.io.ome_zarr` write.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from hushpore.base.errors import HushporeError, InputError, MissingPackageError
from hushpore.base.events import result_of
from hushpore.io.formats import kind_of
from hushpore.io.loading import into_memory, is_on_disk, load
from hushpore.io.planes import LEFT_OUT
from hushpore.io.resample import resample_evenly

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from hushpore.base.volume import Volume

__all__ = ["describe", "is_on_disk", "kind_of", "load", "read", "read_all", "resample_evenly"]


def read(path: str | os.PathLike[str]) -> Volume:
    """Read the image stack of a file or folder.

    Parameters
    ----------
    path : str or path-like
        A TIFF, DICOM or NumPy file, or a folder that holds a DICOM series or one TIFF a slice.
        Of a single DICOM file its own pixels are read, never those of its neighbours.

    Returns
    -------
    Volume
        With spacing, unit, axes and notes. Where there are several, the one with most voxels; a
        note then names the others.

    Raises
    ------
    InputError
        If there is nothing that can be read; says why.
    MissingPackageError
        If an optional package is needed; gives the command that installs it.
    """
    volumes = sorted(describe(path), key=lambda volume: math.prod(volume.shape), reverse=True)
    damaged: list[HushporeError] = []
    for volume in volumes:
        try:
            (largest,) = result_of(into_memory([volume]))
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
        names = "; ".join(f"{volume.name} ({_times(volume.shape)})" for volume in others)
        notes.append(
            f"The largest of {len(volumes)} image stacks was read. The others: {names}; "
            "hushpore.read_all gives them all."
        )
    return dataclasses.replace(largest, notes=[*notes, *largest.notes])


def read_all(path: str | os.PathLike[str], *, lazy: bool | None = None) -> list[Volume]:
    """Read every image stack of a file or folder: one for each DICOM series and shape of page.

    Parameters
    ----------
    path : str or path-like
        As for `read`.
    lazy : bool, optional
        Whether values stay on disk until they are asked for; by default those do that would take
        more than half of the free memory.

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
    return result_of(load(path, lazy=lazy))


def describe(path: str | os.PathLike[str]) -> list[Volume]:
    """Say what is in a file or folder from its headers alone.

    Parameters
    ----------
    path : str or path-like
        As for `read`.

    Returns
    -------
    list of Volume
        As `read_all` would, but the values stay on disk until they are asked for.

    Raises
    ------
    InputError, MissingPackageError
        As for `read_all`; damage within the pixels is not noticed.
    """
    return read_all(path, lazy=True)


def _times(shape: Sequence[int]) -> str:
    return " x ".join(str(n) for n in shape)
