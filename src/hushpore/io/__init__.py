"""Reading of image stacks and writing of results.

`read` and `read_all` open all formats of `hushpore.io.registry`; `load` does so as a job with
progress. `hushpore.io.results` writes the output formats of the same registry.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from hushpore.base.errors import HushporeError, InputError, MissingPackageError
from hushpore.base.events import result_of
from hushpore.io.lazy_arrays import LEFT_OUT
from hushpore.io.loading import choose, into_memory, is_on_disk, load
from hushpore.io.parts import is_uneven, resample_evenly
from hushpore.io.registry import kind_of
from hushpore.io.undefined import with_fill_value

if TYPE_CHECKING:
    from hushpore.base.volume import Volume
    from hushpore.io.loading import Empty, Paths

__all__ = [
    "choose", "describe", "is_on_disk", "is_uneven", "kind_of", "load", "read", "read_all",
    "resample_evenly",
]  # fmt: skip


def read(
    path: Paths, *, series: int | str | None = None, empty: Empty | None = None, trust: bool = False
) -> Volume:
    """Read the image stack in a file or folder.

    Parameters
    ----------
    path : str or path-like, or sequence of them
        A file or folder in a format of docs/formats.md, or a folder with a DICOM series or one TIFF
        file per slice. A single DICOM file is read alone, without the other slices of its series.
        Several files are read like a folder that contains only these.
    series : int or str, optional
        Stack to read if there are several: its number in the list of `describe`, from 1; or its
        name, or a part of the name that is unique.
    empty : callable, optional
        Allocates the array, given shape and dtype: `numpy.empty`, or
        `hushpore.device.backend.Backend.empty` of the device to which the values will be copied.
    trust : bool, optional
        Also read a file compressed more than 1,000:1 or with more than 100,000 frames or pages.
        Such files can be crafted to fill the memory.

    Returns
    -------
    Volume
        The image stack with spacing, unit, axes and notes. If there are several and `series` is not
        given, the one with most voxels; a note lists the others. If the files give a rescale slope
        and intercept, ``data`` is `hushpore.base.rescaled.Scaled`, which keeps the stored integers
        in memory and returns float32 values; ``array()`` returns all of them. NaN and infinite
        values are a fill value (`hushpore.io.undefined.with_fill_value`).

    Raises
    ------
    InputError
        If nothing can be read, or no stack matches `series`; says why.
    NotTrustedError
        If it would take far more memory than its size in the file, unless `trust` is set.
    MissingPackageError
        If an optional package is needed; gives the command that installs it.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import hushpore
    >>> from hushpore.io.results import write_image
    >>> file = Path(tempfile.mkdtemp(), "scan.tif")
    >>> scan = hushpore.Volume(np.zeros((4, 8, 8), np.uint16), spacing=0.5, unit="mm")
    >>> _ = write_image(file, scan)
    >>> hushpore.read(file).facts
    '4 x 8 x 8 · 0.5 x 0.5 x 0.5 mm · uint16 · 512 B'
    """
    found = describe(path, trust=trust)
    if series is not None:
        (wanted,) = result_of(into_memory([choose(found, series)], empty=empty))
        return with_fill_value(wanted)
    volumes = sorted(found, key=lambda volume: math.prod(volume.shape), reverse=True)
    damaged: list[HushporeError] = []
    for volume in volumes:
        try:
            (largest,) = result_of(into_memory([volume], empty=empty))
            largest = with_fill_value(largest)
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
            f"Of {len(volumes)} image stacks the largest was read. Choose another with series= "
            f"(the others: {names})."
        )
    return dataclasses.replace(largest, notes=[*notes, *largest.notes])


def read_all(path: Paths, *, lazy: bool | None = None, trust: bool = False) -> list[Volume]:
    """Read every image stack in a file or folder: one for each DICOM series and page shape.

    Parameters
    ----------
    path : str or path-like, or sequence of them
        As for `read`.
    lazy : bool, optional
        Keep the values on disk and read them on demand; by default only for stacks larger than half
        of the free memory.
    trust : bool, optional
        As for `read`.

    Returns
    -------
    list of Volume
        At least one.

    Raises
    ------
    InputError
        If nothing can be read; says why.
    NotTrustedError
        As for `read`.
    MissingPackageError
        If an optional package is needed; gives the command that installs it.
    MemoryLimitError
        If the values do not fit into memory.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import hushpore
    >>> from hushpore.io.results import write_image
    >>> folder = tempfile.mkdtemp()
    >>> _ = write_image(f"{folder}/scan.tif", hushpore.Volume(np.zeros((4, 8, 8), np.uint16)))
    >>> [scan.name for scan in hushpore.read_all(f"{folder}/scan.tif")]
    ['scan']
    """
    return result_of(load(path, lazy=lazy, trust=trust))


def describe(path: Paths, *, trust: bool = False) -> list[Volume]:
    """List the image stacks in a file or folder; only headers are read.

    `path`, `trust`: as for `read`.
    Returns: the volumes of `read_all`, with their values on disk.
    Raises InputError, MissingPackageError: as for `read_all`, but does not detect damaged pixel
    data.
    """
    return read_all(path, lazy=True, trust=trust)
