"""The most likely layout of a raw file without header: by name, neighbouring files and size."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hushpore.base.errors import HushporeError
from hushpore.base.formatting import read_text
from hushpore.io.folders import HEADERS, RAW
from hushpore.io.raw import in_flag, layout_by_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


#: Largest header that is assumed before the voxels, in bytes and as a share of the file.
_LONGEST_HEADER, _LARGEST_SHARE = 65536, 0.1

#: Text files near the raw file: how many are read, up to which size, and how many of their numbers.
_TEXTS, _TEXT_BYTES, _NUMBERS = 20, 65536, 500

#: Candidates whose smoothness is compared.
_CANDIDATES = 60

#: Rows that are read for it, and the correlation between rows below which they look like noise.
_ROWS, _SMOOTH = 64, 0.5

#: Data types by bytes per voxel, the most likely first.
_TYPES = {2: ("<u2", "<i2", ">u2", ">i2"), 1: ("u1",), 4: ("<f4", ">f4", "<i4")}

#: How much smoother a less likely data type must look.
_CLEARLY = 0.01


@dataclass(frozen=True)
class RawGuess:
    """The most likely layout of a raw file."""

    shape: tuple[int, int, int]  # z, y, x
    dtype: str  # NumPy's name, without byte order
    byte_order: str  # ``"little"`` or ``"big"``
    offset: int  # bytes before the first voxel
    voxel_size: str  # as `hushpore.runs.scan_recipe.with_voxel_size` takes it, or empty
    reason: str  # where the guess is from, as a sentence


def guess_layout(path: Path) -> RawGuess:
    """Return the most likely layout of a raw file.

    Sources, in this order: lengths in the file name, a neighbouring raw file of the same size with
    a header, lengths in neighbouring text files, and the size of the file alone. Lengths count only
    if they fill the file, with a header of at most 64 KiB. Of several candidates the one with the
    highest correlation between neighbouring rows is chosen.

    Returns: a guess whose `reason` says if nothing fits.
    Raises OSError if the file cannot be read.
    """
    size = path.stat().st_size
    named = layout_by_name(path)
    if named is not None:
        voxel = f"{named.spacing:g}{named.unit}" if named.spacing else ""
        if len(named.lengths) == 1:
            voxel = in_flag(named.lengths[0])  # the user sees and confirms it
        kind = np.dtype(named.dtype)
        return _guess(named.shape, kind, 0, "the file name", voxel)
    sources = itertools.chain(
        [("the file name", _fitting(path.stem, size))],
        _neighbours(path, size),
        [("the file size alone", _by_size(size))],
    )
    for source, candidates in sources:
        best = _smoothest(path, candidates[:_CANDIDATES])
        if best is not None:
            correlation, (shape, dtype, offset) = best
            return _guess(shape, np.dtype(dtype), offset, source, "", correlation)
    side = max(1, math.isqrt(size))
    return RawGuess(
        (1, side, max(1, size // side)), "uint8", "little", 0, "",
        "No shape fits the file size. Enter the shape that the scanner's software shows.",
    )  # fmt: skip


_Candidate = tuple[tuple[int, int, int], str, int]


def _guess(
    shape: tuple[int, int, int],
    kind: np.dtype[np.generic],
    offset: int,
    source: str,
    voxel_size: str,
    correlation: float = 1.0,
) -> RawGuess:
    reason = f"Guessed from {source}; it matches the file size."
    if offset:
        reason = f"Guessed from {source}; {offset:,} bytes before the voxels are left for a header."
    if correlation < _SMOOTH:
        reason += " The preview looks like noise, so the guess may be wrong."
    order = "big" if kind.newbyteorder("=") != kind else "little"
    return RawGuess(shape, kind.name, order, offset, voxel_size, reason)


def _longest_header(size: int) -> float:
    return min(_LONGEST_HEADER, _LARGEST_SHARE * size)


def _fitting(text: str, size: int) -> list[_Candidate]:
    """Return the layouts of three consecutive numbers in a text (x, y, z) that fill the file."""
    numbers = [int(found) for found in re.findall(r"(?<![\d.])\d{1,5}(?![\d.])", text)[:_NUMBERS]]
    found: list[tuple[int, _Candidate]] = []
    for x, y, z in zip(numbers, numbers[1:], numbers[2:], strict=False):
        if min(x, y, z) < 2:
            continue
        for each, types in _TYPES.items():
            rest = size - x * y * z * each
            if 0 <= rest <= _longest_header(size):
                found += [(rest, ((z, y, x), kind, rest)) for kind in types]
    least = min((rest for rest, _ in found), default=0)
    return [candidate for rest, candidate in found if rest == least]


def _neighbours(path: Path, size: int) -> Iterator[tuple[str, list[_Candidate]]]:
    """Yield layouts from the other files of the folder, with their source."""
    from hushpore.io import describe

    files = sorted(each for each in path.parent.iterdir() if each.is_file() and each != path)
    alike = [each for each in files if each.suffix.lower() in RAW and each.stat().st_size == size]
    for other in alike[:_TEXTS]:
        try:
            (volume,) = describe(other)
        except (HushporeError, OSError, ValueError):
            continue
        stored = np.dtype(volume.dtype)
        rest = size - math.prod(volume.shape) * stored.itemsize
        if volume.ndim == 3 and 0 <= rest <= _longest_header(size):
            z, y, x = volume.shape
            kinds = [kind for kind in _TYPES.get(stored.itemsize, ()) if kind[-2] == stored.kind]
            yield other.name, [((z, y, x), kind, rest) for kind in kinds]
    endings = (".txt", ".log", ".ini", ".info", ".xml", ".json", ".hdr", ".cfg", ".dat", *HEADERS)
    texts = [each for each in files if each.name.lower().endswith(endings)]
    # a file with the same beginning of its name first
    texts.sort(key=lambda each: not each.name.startswith(path.stem[:6]))
    for text in texts[:_TEXTS]:
        if text.stat().st_size > _TEXT_BYTES:
            continue
        try:
            found = _fitting(read_text(text), size)
        except (OSError, ValueError):
            continue
        if found:
            yield text.name, found


def _by_size(size: int) -> list[_Candidate]:
    """Return layouts with square slices that fill a file, cubes first."""
    found: list[tuple[float, _Candidate]] = []
    for each, types in _TYPES.items():
        voxels, rest = divmod(size, each)
        if rest or not voxels:
            continue
        for side in range(32, min(8192, math.isqrt(voxels)) + 1):
            depth, rest = divmod(voxels, side * side)
            if not rest and 4 <= depth <= 8 * side:
                # round sides are more common, and so are cubes
                odd = 0 if side % 100 == 0 or side & (side - 1) == 0 else 2
                rank = odd + abs(math.log(depth / side))
                found += [(rank, ((depth, side, side), kind, 0)) for kind in types]
    return [candidate for _, candidate in sorted(found, key=lambda pair: pair[0])]


def _smoothest(path: Path, candidates: list[_Candidate]) -> tuple[float, _Candidate] | None:
    """Return the candidate whose neighbouring rows are most alike, and their correlation."""
    best: tuple[float, _Candidate] | None = None
    for candidate in candidates:
        correlation = _correlation(path, *candidate)
        if best is None or correlation > best[0] + _CLEARLY:
            best = correlation, candidate
    return best


def _correlation(path: Path, shape: tuple[int, int, int], dtype: str, offset: int) -> float:
    """Return the correlation between neighbouring rows in the middle of the middle slice."""
    depth, height, width = shape
    kind = np.dtype(dtype)
    rows = min(_ROWS, height)
    first = (depth // 2 * height + (height - rows) // 2) * width
    with path.open("rb") as file:
        file.seek(offset + first * kind.itemsize)
        read = file.read(rows * width * kind.itemsize)
    # other values may be signalling NaNs as floats
    with np.errstate(invalid="ignore"):
        values = np.frombuffer(read, kind).astype(np.float64)
    if values.size < rows * width or rows < 2 or not np.isfinite(values).all():
        return -1.0
    if np.abs(values).max() > float(np.finfo(np.float32).max) / 1e6:
        return -1.0
    plane = values.reshape(rows, width)
    upper, lower = plane[:-1] - plane[:-1].mean(), plane[1:] - plane[1:].mean()
    norm = math.sqrt(float((upper**2).sum() * (lower**2).sum()))
    return float((upper * lower).sum()) / norm if norm else 0.0
