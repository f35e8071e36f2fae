"""Reader of slices in picture files, by Pillow: BMP, PNG and JPEG."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.volume import Volume
from hushpore.io.folders import SliceStack, note_on_damaged, stacks_by_name, without_strays
from hushpore.io.guards import captured_log, captured_warnings, explained_damage, limits_for
from hushpore.io.lazy_arrays import PlaneStack
from hushpore.io.vendor_headers import with_log

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from pathlib import Path

    from hushpore.base.arrays import Array

    #: Rows, columns and data type of a slice, its Pillow mode, and the file format.
    Key = tuple[int, int, str, str, str]

_FORMATS = ("BMP", "PNG", "JPEG")
#: Data type for each Pillow mode.
_TYPES = {
    "1": "?", "L": "u1", "P": "u1", "LA": "u1", "RGB": "u1", "RGBA": "u1",
    "I;16": "u2", "I;16B": "u2", "I": "i4", "F": "f4",
}  # fmt: skip
_COLOURS = ("RGB", "RGBA")
_NO_SIZE = "Pictures state no voxel size; the voxel size is not known."
_LOSSY = (
    "JPEG is lossy: compression has changed grey values and noise. Use the original slices if you "
    "have them."
)
_EQUAL = "The slices are stored in colour; they are read as grey, as red, green and blue are equal."


def open_picture(path: Path) -> Volume:
    """Open one picture as a lazy 2-D image.

    Raises InputError if the file is damaged or has colours.
    """
    return _volume(SliceStack((path,), path.stem), _key(path), path.stem)


def open_pictures(
    files: Sequence[Path], folder: Path, others: Sequence[Path] = ()
) -> Generator[float, None, list[Volume]]:
    """Open a folder of picture slices from their headers alone.

    Yields the fraction of the headers read so far.

    `files`: BMP, PNG or JPEG files. `folder`: that of the files; a single stack is named after it.
    `others`: other files in the folder.
    Returns: one volume for each name, shape and data type of the slices. The voxel size is taken
    from a SkyScan log in the folder, if there is one.
    Raises InputError if a picture is damaged or has colours.
    """
    groups: dict[Key, list[Path]] = {}
    for number, path in enumerate(files, start=1):
        groups.setdefault(_key(path), []).append(path)
        yield number / len(files)
    stacks, notes = without_strays([stacks_by_name(group) for group in groups.values()])
    notes = [*note_on_damaged(files, others), *notes]
    keys = {path: key for key, group in groups.items() for path in group}
    found = []
    for stack in stacks:
        name = folder.resolve().name if len(stacks) == 1 else stack.name
        volume = _volume(stack, keys[stack.files[0]], name)
        found.append(volume.replace(volume.data, notes=[*notes, *volume.notes]))
    return found


def _key(path: Path) -> Key:
    """Return shape, type and format from the header; raises InputError for colour images."""
    with captured_warnings("PIL"), _explained(path), _opened(path) as image:
        columns, rows = image.size
        mode, kind = str(image.mode), str(image.format)
        palette = image.getpalette() if mode == "P" else None
    if mode not in _TYPES or (palette is not None and not _is_grey(palette)):
        raise _colours(path)
    dtype = np.dtype(_TYPES[mode])
    samples = 4 if mode in _COLOURS else 1
    limits_for(path).require_plausible(rows * columns * dtype.itemsize * samples)
    return rows, columns, dtype.str, mode, kind


def _volume(stack: SliceStack, key: Key, name: str) -> Volume:
    rows, columns, dtype, mode, kind = key

    def read(number: int, out: Array) -> None:
        path = stack.files[number]
        with captured_log("PIL"), _explained(path):
            out[...] = _values(path, key)

    numbers = np.arange(len(stack.files)) if len(stack.files) > 1 else np.array(0)
    notes = [*stack.notes]
    if kind == "JPEG":
        notes.append(_LOSSY)
    if mode in _COLOURS:
        notes.append(_EQUAL)
    volume = Volume(
        PlaneStack(numbers, (rows, columns), np.dtype(dtype), read),
        axes="zyx" if numbers.ndim else "yx", name=name, notes=[*notes, _NO_SIZE],
    )  # fmt: skip
    return with_log(volume, stack)


def _values(path: Path, key: Key) -> Array:
    rows, columns, _, mode, _ = key
    with _opened(path) as image:
        if (image.size, image.mode) != ((columns, rows), mode):
            raise InputError(f"{path.name} was changed while it was read. Open the scan again.")
        if mode == "P":
            return np.asarray(image.convert("L"))
        values = np.asarray(image)
    if mode == "LA":
        return values[..., 0]
    if mode not in _COLOURS:
        return values
    if not (values[..., 0] == values[..., 1]).all() or not (values[..., 0] == values[..., 2]).all():
        raise _colours(path)
    return values[..., 0]


def _opened(path: Path) -> Any:
    from PIL import Image

    return Image.open(path, formats=_FORMATS)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Report damaged files as InputError, including OSError without errno from Pillow."""
    with explained_damage(partial(_damaged, path)):
        try:
            yield
        except OSError as error:
            if error.errno is not None:
                raise
            raise _damaged(path, error) from error


def _is_grey(palette: Sequence[int]) -> bool:
    return list(palette[0::3]) == list(palette[1::3]) == list(palette[2::3])


def _colours(path: Path) -> InputError:
    return InputError(
        f"{path.name} is a colour image, but grey values are needed. Convert it first, for example "
        "with Image > Type > 8-bit in ImageJ."
    )


def _damaged(path: Path, _: Exception) -> InputError:
    return InputError(
        f"{path.name} is damaged or incomplete and cannot be decoded. Copy or export it again."
    )
