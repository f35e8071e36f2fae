"""Reading of TIFF: ImageJ and OME stacks, plain pages, pyramids, and folders of slices."""

from __future__ import annotations

import math
import re
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tifffile

from hushpore.base.errors import HushporeError, InputError, NotTrustedError
from hushpore.base.formatting import on_one_line, readable_count
from hushpore.base.rescaled import Scaled
from hushpore.base.volume import LONGEST_UNIT, Volume
from hushpore.io.folders import SliceStack, note_on_damaged, stacks_by_name, without_strays
from hushpore.io.guards import (
    CONSENT,
    InputLimits,
    captured_log,
    captured_warnings,
    explained_damage,
    limits_for,
)
from hushpore.io.lazy_arrays import PlaneStack, Stream
from hushpore.io.tiff_planes import (
    explained,
    files_of_image,
    layout_notes,
    planes_of,
    require_distinct,
    require_few_pages,
    require_files,
    require_own_folder,
    require_parts,
)
from hushpore.io.tiff_sizes import VoxelSize, voxel_size
from hushpore.io.vendor_headers import with_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hushpore.base.arrays import Array


_ORDER = "tczyx"
# photometric interpretations, as the TIFF standard numbers them
_COLOURS = (2, 5, 6, 8, 9, 10)  # RGB, CMYK, YCbCr, and three forms of CIE L*a*b*
_PALETTE = 3
_UNCALIBRATED = 20  # number of no calibration function in ImageJ
_WHITE_IS_ZERO = 0
_MOST_CHANNELS = 7  # largest number in ImageJ; more "channels" are mislabelled slices
_ALPHA = (1, 2)  # extra samples that are opacity, associated or not
_MOST_LEVELS = 1000  # largest plausible number of subimages of a page (pyramid levels)
# log messages of tifffile for missing pixels, which it would fill with zeros
_INCOMPLETE = re.compile(
    r"invalid page offset|corrupt|truncated|failed to reshape|missing|incomplete|"
    r"failed to (read|open)|not (found|a TIFF)|invalid (OME|ImageJ)",
    re.IGNORECASE,
)


def read_tiff(path: Path) -> list[Volume]:
    """Read every image stack of a TIFF file.

    `path`: ImageJ, OME or plain TIFF, classic or BigTIFF.
    Returns: one volume per page shape, pyramids at full resolution; axes in t, c, z, y, x order.
    Raises InputError if the file is damaged or incomplete, or contains only colour images;
    MissingPackageError if its compression needs imagecodecs.
    """
    require_few_pages(path)
    with captured_warnings("tifffile") as messages, _opened(path) as tif:
        return _read_series(tif, path, messages)


def read_tiff_folder(
    files: Sequence[Path], folder: Path, others: Sequence[Path] = ()
) -> list[Volume]:
    """Read a folder with one slice a file.

    `files`: its TIFF files, in the order in which they are stacked. `folder`: the folder; gives the
    stack its name. `others`: further files in it; they are left out.
    Returns: one for each shape and type of slice. Where the files are stacks themselves, those.
    Raises InputError, MissingPackageError: as for `read_tiff`.
    """
    if len(files) == 1:
        return read_tiff(files[0])
    groups: dict[tuple[Any, ...], list[Path]] = {}
    stacks: list[Volume] = []
    read: set[Path] = set()
    for path in files:
        key, parts = _slice_key(path)
        if key is None:
            # every file of an OME-TIFF opens the whole of it
            if path.resolve() not in read:
                stacks += read_tiff(path)
                read |= parts
        else:
            groups.setdefault(key, []).append(path)
    keys = {path: key for key, group in groups.items() for path in group}
    parted = [stacks_by_name(group) for group in groups.values()]
    own, notes = without_strays(parted) if parted else ([], [])
    notes = [*note_on_damaged(files, others), *notes]
    names = [folder.resolve().name if len(parted) == len(own) else stack.name for stack in own]
    slices = [
        _stack(stack, keys[stack.files[0]], name) for stack, name in zip(own, names, strict=True)
    ]
    volumes = [*slices, *stacks]
    if len(volumes) > 1:
        notes.append(
            f"The folder holds {len(volumes)} image stacks by name, shape and type; each is read "
            "alone."
        )
    return [volume.replace(volume.data, notes=[*notes, *volume.notes]) for volume in volumes]


@contextmanager
def _opened(path: Path) -> Iterator[tifffile.TiffFile]:
    """Open a TIFF file, and convert all errors while it is open."""
    with explained_damage(partial(explained, path)), tifffile.TiffFile(path) as tif:
        yield tif


def _slice_key(path: Path) -> tuple[tuple[Any, ...] | None, set[Path]]:
    """Return the shape and type of a file with one page, or None if it holds more.

    Also returns the files of an OME-TIFF of several files.
    """
    with captured_warnings("tifffile"), _opened(path) as tif:
        page: Any = tif.pages.first
        _refuse_colour(page, path)
        _require_plausible(page.shape, page.dtype, path)
        require_parts(page, limits_for(path))
        if len(tif.pages) > 1:
            return None, files_of_image(tif)
        return (*page.shape, str(page.dtype)), set()


def _stack(stack: SliceStack, key: tuple[Any, ...], name: str) -> Volume:
    files, (*shape, dtype) = stack.files, key
    if len(shape) != 2:
        raise InputError(f"{files[0].name} has shape {tuple(shape)}; a slice has two axes, y x.")
    with captured_warnings("tifffile") as messages, _opened(files[0]) as tif:
        size, notes = voxel_size(tif, 0, 1), _photometric_notes(tif.pages.first)
        imagej = tif.imagej_metadata

    def read(number: int, out: Array) -> None:
        path = files[number]
        with captured_log("tifffile"), _opened(path) as tif:
            page: Any = tif.pages.first
            _require_bytes(tif, [page], path)
            out[...] = page.asarray(maxworkers=1).reshape(out.shape)

    native = np.dtype(dtype).newbyteorder("=")
    if len(files) == 1:
        plane = PlaneStack(np.array(0), tuple(shape), native, read)
        return _calibrated(_volume(plane, "yx", size, files[0].stem, notes), imagej)
    planes = PlaneStack(np.arange(len(files)), tuple(shape), native, read)
    said = [*notes, *stack.notes, *_log_notes(messages)]
    return with_log(_calibrated(_volume(planes, "zyx", size, name, said), imagej), stack)


def _read_series(tif: tifffile.TiffFile, path: Path, messages: list[str]) -> list[Volume]:
    limits = limits_for(path)
    require_few_images(tif, limits)
    if tif.is_ome:
        require_distinct(tif, path)
    all_series = tif.series
    if tif.is_ome and any(_INCOMPLETE.search(message) for message in messages):
        require_files(tif, path)
    _require_complete(messages, path)
    grey = [
        (i, series)
        for i, series in enumerate(all_series)
        if not _is_colour(series.keyframe) and not (tif.is_lsm and series.keyframe.is_reduced)
    ]
    if not grey:
        _refuse_colour(tif.pages.first, path)
        raise InputError(f"{path.name} contains no image.")
    notes = []
    if len(all_series) > 1 and not tif.is_lsm:
        shapes = "; ".join(" x ".join(str(n) for n in series.shape) for series in all_series)
        notes.append(
            f"The file contains {len(all_series)} image stacks ({shapes}), read separately."
        )
    if len(grey) < len(all_series) and not tif.is_lsm:
        count = readable_count(len(all_series) - len(grey), "colour image")
        notes.append(f"{count} in the file skipped.")
    volumes = []
    for index, series in grey:
        volume = _read_one(tif, index, series, path)
        name = path.name.removesuffix(path.suffix).removesuffix(".ome")
        name = name if len(all_series) == 1 or tif.is_lsm else f"{name} [{index + 1}]"
        volumes.append(volume.replace(volume.data, name=name, notes=[*notes, *volume.notes]))
    _require_complete(messages, path)
    shared = [*_log_notes(messages), *layout_notes(tif, all_series)]
    return [v.replace(v.data, notes=[*v.notes, *shared]) for v in volumes]


def _read_one(tif: tifffile.TiffFile, index: int, series: Any, path: Path) -> Volume:
    level = series.levels[0]
    if not all(isinstance(n, int | np.integer) and n > 0 for n in level.shape):
        raise InputError(
            f"{path.name} is damaged: its header gives an image of "
            f"{' x '.join(map(str, level.shape))} pixels. Copy or export it again."
        )
    if not level.is_multifile:
        _require_plausible(level.shape, level.dtype, path)
    _require_bytes(tif, level.pages, path, level)
    size = voxel_size(tif, index, len(tif.series))
    shape, letters = level.get_shape(squeeze=False), level.get_axes(squeeze=False)
    kept = _named_axes(letters, shape, size)
    has_alpha = _has_alpha(level.keyframe)
    if has_alpha:
        del kept["c"]
    values, axes = _in_axis_order(level, letters, shape, kept, path, index)
    if isinstance(values, PlaneStack):
        values.coarser = tuple(_coarser_levels(series, kept, path))
    if size.is_boolean and values.dtype == np.uint8:
        values = values.as_boolean()
    notes = _photometric_notes(level.keyframe)
    if has_alpha:
        notes.append("The alpha channel (opacity) was left out.")
    n_channels = values.shape[axes.index("c")] if "c" in axes and "z" not in axes else 0
    if n_channels > _MOST_CHANNELS and level.keyframe.samplesperpixel == 1:
        notes.append(f"The {n_channels} images are labelled as channels, but were read as slices.")
        axes = axes.replace("c", "z")
    return _calibrated(_volume(values, axes, size, path.stem, notes), tif.imagej_metadata)


def _coarser_levels(series: Any, kept: dict[str, int], path: Path) -> Iterator[PlaneStack]:
    """Yield the coarser levels of a pyramid, up to the first incomplete one."""
    for level in series.levels[1:]:
        shape, letters = level.get_shape(squeeze=False), level.get_axes(squeeze=False)
        if len(shape) != len(series.levels[0].get_shape(squeeze=False)):
            return
        try:
            _require_bytes(level.keyframe.parent, level.pages, path, level)
            values, _ = _in_axis_order(level, letters, shape, kept, path, None)
        except HushporeError:
            return
        if not isinstance(values, PlaneStack):
            return
        yield values


def _volume(values: Any, axes: str, size: VoxelSize, name: str, notes: list[str]) -> Volume:
    n_spatial = 3 if axes.endswith("zyx") else 2
    spacing, unit, spacing_notes = size.along(n_spatial)
    origin = size.origin[-n_spatial:] if len(size.origin) >= n_spatial else ()
    return Volume(
        values,
        spacing=spacing,
        unit=unit,
        axes=axes,
        name=name,
        origin=origin,
        notes=[*notes, *spacing_notes],
        metadata=dict(size.metadata),
    )


def _named_axes(letters: str, shape: Sequence[int], size: VoxelSize) -> dict[str, int]:
    """Return the positions of axes by name; axes of length one are kept only if stated."""
    stated = size.axes
    found: dict[str, int] = {}
    unknown: list[int] = []
    letters = letters.lower()
    lengths = dict(zip(letters, shape, strict=True))
    if lengths.get("s", 1) > 1 == lengths.get("c", 1):
        # the samples of a pixel are channels
        letters = letters.replace("c", "q").replace("s", "c")
    for position, (letter, length) in enumerate(zip(letters, shape, strict=True)):
        if letter in "yx" or (letter in "zct" and (length > 1 or letter in stated)):
            found[letter] = position
        elif length > 1:
            unknown.append(position)
    # the last unknown axis is z, a second one is time; with three they are time, channel and z
    free = [letter for letter in "zct" if letter not in found]
    if len(unknown) == 2 and free == ["z", "c", "t"]:
        free = ["z", "t"]
    if len(unknown) > len(free) or min(lengths.get("s", 1), lengths.get("c", 1)) > 1:
        raise InputError(
            f"An image with axes {letters} and shape {tuple(shape)} has more axes than time, "
            "channel, z, y and x. Split it first, for example in ImageJ."
        )
    found |= zip(free, reversed(unknown), strict=False)
    return {letter: found[letter] for letter in _ORDER if letter in found}


def _in_axis_order(
    level: Any,
    letters: str,
    shape: Sequence[int],
    kept: dict[str, int],
    path: Path,
    index: int | None,
) -> tuple[Any, str]:
    """Return the lazy values of a series with its axes in order.

    `index`: index of the series in the file; None for a coarser level.
    """
    axes = "".join(kept)
    if not axes.endswith("yx"):
        raise InputError(f"{path.name} has no image plane: its axes are {letters}.")
    order = list(kept.values())
    if order[-2] < order[-1] and math.prod(shape[order[-2] + 1 :]) == shape[order[-1]]:
        # plane numbers in the file, transposed like the leading axes
        numbers = np.arange(math.prod(shape[: order[-2]])).reshape(
            [n if axis < order[-2] else 1 for axis, n in enumerate(shape)]
        )
        plane_shape = (shape[order[-2]], shape[order[-1]])
        leading = _transposed(numbers, order).reshape([shape[axis] for axis in order[:-2]])
        planes = planes_of(level, leading, plane_shape, path)
        if planes is not None:
            return planes, axes
    wanted = tuple(shape[axis] for axis in order)

    def fill(out: Array) -> None:
        with captured_log("tifffile"), _opened(path) as tif:
            series = tif.series[index or 0]
            out[...] = _transposed(series.levels[0].asarray().reshape(shape), order)

    native = level.dtype.newbyteorder("=")
    stored = sum(
        {
            page.parent.filehandle.path: page.parent.filehandle.size
            for page in level.pages
            if page is not None
        }.values()
    )
    limits = limits_for(path, stored)
    limits.require_plausible(math.prod(wanted) * native.itemsize)
    return Stream(wanted, native, fill, limits), axes


def _transposed(values: Array, order: list[int]) -> Array:
    """Reorder the axes; of axes that are not listed, the first position is taken."""
    dropped = [axis for axis in range(values.ndim) if axis not in order]
    turned: Array = values.transpose(*dropped, *order)[(0,) * len(dropped)]
    return turned


def _is_colour(page: Any) -> bool:
    return int(page.photometric) in _COLOURS and int(page.samplesperpixel) >= 3


def _has_alpha(page: Any) -> bool:
    """Whether a grey value is followed by an opacity."""
    return int(page.samplesperpixel) == 2 and tuple(page.extrasamples)[:1] in {(a,) for a in _ALPHA}


def _calibrated(volume: Volume, stated: dict[str, Any] | None) -> Volume:
    """Return a volume with the calibration function of ImageJ applied, if it is a straight line."""
    if not stated or "cf" not in stated or volume.dtype.kind not in "ui":
        return volume
    zero, slope = stated.get("c0", 0), stated.get("c1", 0)
    if stated["cf"] != 0 or not all(isinstance(each, int | float) for each in (zero, slope)):
        if stated["cf"] == _UNCALIBRATED:
            return volume
        note = "The calibration function of ImageJ is no straight line; it was not applied."
        return volume.replace(volume.data, notes=[*volume.notes, note])
    if (zero, slope) == (0, 1) or not slope or not math.isfinite(zero + slope):
        return volume
    note = (
        f"The stored values are converted to grey value = {zero:g} + {slope:g} x stored value, the "
        "calibration function of ImageJ."
    )
    unit = on_one_line(str(stated.get("vunit", "")).strip(), LONGEST_UNIT)
    named = {} if unit.lower() in ("", "gray value") else {"value_unit": unit}
    return volume.replace(
        Scaled(volume.data, slope, zero), notes=[*volume.notes, note],
        metadata={**volume.metadata, **named},
    )  # fmt: skip


def _refuse_colour(page: Any, path: Path) -> None:
    if _is_colour(page):
        raise InputError(
            f"{path.name} is a colour image (RGB, shape {tuple(page.shape)}), but grey values are "
            "needed. Convert it first, for example in ImageJ (Image > Type > 16-bit)."
        )


def _photometric_notes(page: Any) -> list[str]:
    if int(page.photometric) == _PALETTE:
        return ["The colour table was ignored; the values are its indices."]
    if int(page.photometric) == _WHITE_IS_ZERO and page.dtype != np.bool_:
        return ["The values were not inverted, although the file displays 0 as white (MINISWHITE)."]
    return []


def _require_complete(messages: list[str], path: Path) -> None:
    if any(_INCOMPLETE.search(message) for message in messages):
        raise _incomplete(path)


def _require_bytes(
    tif: tifffile.TiffFile, pages: Sequence[Any], path: Path, series: Any = None
) -> None:
    """Raise InputError if a file ends before its pixel data."""
    size = tif.filehandle.size
    if series is not None and series.dataoffset is not None:
        needed = series.dataoffset + math.prod(series.shape) * series.dtype.itemsize
        if needed > size and series.keyframe.compression == 1:
            raise _incomplete(path)
        return
    limits = limits_for(path)
    for page in pages:
        if page is not None:
            require_parts(page, limits)
        if page is None:
            raise InputError(
                f"{path.name} refers to other files that do not exist. Keep all files of an "
                "OME-TIFF in one folder."
            )
        own = page.parent.filehandle.size if page.parent is not tif else size
        ends = (o + n for o, n in zip(page.dataoffsets, page.databytecounts, strict=False))
        if max(ends, default=0) > own or len(page.dataoffsets) == 0:
            raise _incomplete(path)
        # an empty strip would be read as zeros
        if any(count == 0 for count in page.databytecounts):
            raise _incomplete(path)


def _require_plausible(shape: Sequence[int], dtype: Any, path: Path) -> None:
    """Check the image size in a header before memory is allocated for it."""
    needed = math.prod(shape) * np.dtype(dtype).itemsize
    limits_for(path).require_plausible(needed, f"an image of {' x '.join(map(str, shape))} pixels,")


def require_few_images(tif: tifffile.TiffFile, limits: InputLimits) -> None:
    """Check the number of images that a file lists, and the other files that it refers to.

    Raises InputError if it lists more images than it can contain, or refers to files outside its
    folder; NotTrustedError if it lists implausibly many images.
    """
    first: Any = tif.pages.first
    if len(first.subifds or ()) > _MOST_LEVELS and not limits.is_trusted:
        raise NotTrustedError(
            f"{limits.name} has {len(first.subifds):,} subimages in one page, more than the "
            f"plausible {_MOST_LEVELS:,}; reading them may take long. {CONSENT}"
        )
    if not tif.is_ome:
        return
    xml = str(tif.ome_metadata)
    for pixels in re.findall(r"<(?:\w+:)?Pixels\b[^>]*>", xml):
        sizes = [int(size) for size in re.findall(r"\bSize[ZCT]=[\"'](\d{1,18})[\"']", pixels)]
        limits.require_few(math.prod(sizes), "planes")
    require_own_folder(tif, Path(tif.filehandle.path))


def _incomplete(path: Path) -> InputError:
    return InputError(
        f"{path.name} is incomplete: the file ({path.stat().st_size:,} bytes) ends before its "
        "image, or a part of it is missing. Copy or export it again."
    )


def _log_notes(messages: list[str]) -> list[str]:
    """Return the log messages of tifffile as notes, without object names."""
    plain = {re.sub(r"<tifffile[^>]*>\s*", "", message) for message in messages}
    return [f"TIFF: {message}" for message in sorted(plain)]
