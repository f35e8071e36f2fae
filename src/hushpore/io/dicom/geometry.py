"""Order, spacing and irregularities of DICOM slices, computed from their headers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.formatting import readable_count
from hushpore.io.folders import natural_key, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import numpy.typing as npt

AXIAL = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)

_SAME_PLACE = 1e-3  # mm; DICOM stores positions as decimal text
_UNEVEN = 0.01  # tolerance for evenly spaced slices, as a fraction of the spacing
_MOST_MISSING = 10  # largest plausible ratio of grid positions to slices
_LEAST = 3  # smallest stack whose distances are examined
_ROUNDED = 1.25  # tolerance for rounded positions on an even grid, in units of the rounding
_LEAST_JOINED = 5  # smallest number of one-slice series that are joined to a stack
_LOCATION_ROUNDING = 0.1  # tolerance for SliceLocation, as a fraction of the distance


@dataclass(frozen=True)
class Slice:
    """Header of one image plane."""

    path: Path  # its file
    # index of the frame in the file, and number of frames
    frame: int
    n_frames: int
    shape: tuple[int, int]  # rows and columns
    series: str = ""  # SeriesInstanceUID
    instance: str = ""  # SOPInstanceUID
    number: int | None = None  # InstanceNumber
    # ImagePositionPatient: x, y, z of the first pixel's centre, in mm
    position: tuple[float, float, float] | None = None
    # ImageOrientationPatient: direction along a row, then along a column
    orientation: tuple[float, ...] | None = None
    # distance of rows (y) and of columns (x), in mm
    pixel_spacing: tuple[float, float] | None = None
    # slice distance in the header, in mm, and the keyword of its element; used if positions are
    # missing
    distance: float | None = None
    distance_name: str = ""
    location: float | None = None  # SliceLocation, in mm
    # from stored to physical values
    slope: float = 1.0
    intercept: float = 0.0
    # further header values common to a series, as JSON values
    facts: dict[str, Any] = field(default_factory=dict)
    encoding: Any = None  # `Encoding` of the pixel data; not needed for the geometry


@dataclass(frozen=True)
class Arrangement:
    """Ordered slices and their geometry."""

    slices: tuple[Slice, ...]  # in the order of the z axis
    spacing: tuple[float, float, float]  # of z, y, x
    unit: str  # ``"mm"``, or ``"pixel"`` if the header gives no pixel spacing
    # position of the first voxel along the slice normal, the columns and the rows
    origin: tuple[float, float, float]
    notes: tuple[str, ...]  # what the user should know
    # slice positions along the normal and directions of the axes, as JSON values
    metadata: dict[str, Any]


def group_by_series(slices: Iterable[Slice]) -> list[list[Slice]]:
    """Group slices by series, orientation, shape and pixel spacing.

    A multi-frame file without positions forms its own group.
    """
    groups: dict[tuple[Any, ...], list[Slice]] = {}
    for item in slices:
        alone = str(item.path) if item.n_frames > 1 and item.position is None else ""
        key = (
            item.series,
            item.shape,
            _rounded(item.orientation, 3),
            _rounded(item.pixel_spacing, 5),
            alone,
        )
        groups.setdefault(key, []).append(item)
    return list(groups.values())


def join_alike(groups: Sequence[list[Slice]]) -> tuple[list[list[Slice]], list[str]]:
    """Join series of one slice each that are alike and lie evenly along one line.

    Some scanners give each slice a SeriesInstanceUID of its own.

    Parameters
    ----------
    groups : sequence of lists of Slice
        As `group_by_series` returns them.

    Returns
    -------
    groups : list of lists of Slice
        With one group for what was joined.
    notes : list of str
        Says so.
    """
    alike: dict[tuple[Any, ...], list[Slice]] = {}
    for group in groups:
        if len(group) == 1:
            item = group[0]
            turned, spacing = _rounded(item.orientation, 3), _rounded(item.pixel_spacing, 5)
            kind = item.facts.get("modality"), item.facts.get("localiser")
            alike.setdefault((item.shape, turned, spacing, kind), []).append(item)
    joined = [items for items in alike.values() if len(items) >= _LEAST_JOINED and _is_even(items)]
    taken = {id(item) for items in joined for item in items}
    notes = [
        f"{len(items)} equal and evenly spaced series of one slice each were joined to one stack."
        for items in joined
    ]
    return [*joined, *(group for group in groups if id(group[0]) not in taken)], notes


def _is_even(slices: Sequence[Slice]) -> bool:
    """Whether slices have different positions on an even grid, or else consecutive numbers."""
    if any(item.position is None for item in slices):
        return _count_on(slices)
    positions = np.sort(_positions_along(slices))
    if np.diff(positions).min() < _SAME_PLACE:
        return False
    return _even_steps(positions)[1] is not None or _count_on(slices)


def arrange(slices: Sequence[Slice]) -> list[Arrangement]:
    """Order the slices of one group and determine their spacing.

    `slices`: one group of `group_by_series`.
    Returns: one arrangement, or several if all positions occur equally often, as in a time series.
    """
    slices, notes = _without_copies(slices)
    if any(item.position is None for item in slices):
        return [_by_number(slices, notes)]
    positions = _positions_along(slices)
    if np.ptp(positions) < _SAME_PLACE and _count_on(slices) and len(slices) >= _LEAST:
        notes.append(
            f"All {len(slices)} slices state the same position, {positions[0]:.4g} mm; it was not "
            "used."
        )
        return [_by_number(slices, notes)]
    order = sorted(range(len(slices)), key=lambda i: (positions[i], *_number_key(slices[i])))
    layers: list[list[int]] = []
    for i in order:
        if layers and positions[i] - positions[layers[-1][0]] < _SAME_PLACE:
            layers[-1].append(i)
        else:
            layers.append([i])
    repeats = {len(layer) for layer in layers}
    if len(layers) > 1 and len(repeats) == 1 and repeats != {1}:
        count = repeats.pop()
        note = f"Every slice position occurs {count} times; the series was read as {count} volumes."
        return [
            _by_position([slices[layer[k]] for layer in layers], [*notes, note])
            for k in range(count)
        ]
    for layer in layers:
        if len(layer) > 1:
            names = shortened([_label(slices[i]) for i in layer])
            notes.append(
                f"{len(layer)} images have the same position, {positions[layer[0]]:.4g} mm "
                f"({names}); only {_label(slices[layer[0]])} was kept."
            )
    return [_by_position([slices[layer[0]] for layer in layers], notes)]


def _by_position(slices: Sequence[Slice], notes: list[str]) -> Arrangement:
    positions = _positions_along(slices)
    gaps = np.diff(positions)
    notes = list(notes)
    rounded = _step_of_rounded(slices, positions)
    if rounded is not None:
        z, unit = rounded
        gap_notes: list[str] = []
        notes.append(
            f"Positions are rounded to {unit:g} mm; the distance between slices, {z:.4g} mm, is "
            "fitted to the whole stack."
        )
    elif len(gaps):
        z, numbers = _even_steps(positions)
        gap_notes = _gap_notes(positions, z, numbers)
        notes += gap_notes
    else:
        z, gap_notes = slices[0].distance or 1.0, []
    notes += _direction_notes(slices)
    metadata: dict[str, Any] = {"directions": _directions(slices[0]).round(6).tolist()}
    if gap_notes:
        metadata["slice_positions"] = [round(float(place), 6) for place in positions]
    return _finish(slices, z, notes, metadata)


def _by_number(slices: Sequence[Slice], notes: list[str]) -> Arrangement:
    frames = slices[0].n_frames > 1
    numbered = frames or all(item.number is not None for item in slices)
    ordered = sorted(slices, key=_number_key if numbered else _name_key)
    notes = list(notes)
    z, source = _distance_without_positions(ordered)
    if len(ordered) > 1:
        how = "frame number" if frames else "InstanceNumber" if numbered else "file name"
        notes.append(f"The slices have no positions. They were ordered by {how}; {source}.")
    if numbered and not frames:
        numbers = [item.number or 0 for item in ordered]
        missing = sorted(set(range(numbers[0], numbers[-1])) - set(numbers))
        if 0 < len(missing) <= len(numbers):
            shown = ", ".join(str(number) for number in missing[:5])
            count = readable_count(len(missing), "slice")
            notes.append(f"{count} missing by InstanceNumber: {shown}.")
    return _finish(ordered, z, notes, {})


def _distance_without_positions(slices: Sequence[Slice]) -> tuple[float, str]:
    """Return the distance between slices in order, and a clause that says what it is from."""
    first = slices[0]
    locations = [item.location for item in slices if item.location is not None]
    if len(locations) == len(slices) > 1:
        places = np.array(locations)
        step = _shortest(abs(places[-1] - places[0]) / (len(places) - 1), places)
        off = np.abs(np.abs(places - places[0]) - step * np.arange(len(places))).max()
        if step > 0 and off <= _LOCATION_ROUNDING * step:
            return step, f"the distance between them ({step:.4g} mm) is from SliceLocation"
    stated = first.distance_name or "the header"
    if first.distance:
        doubt = ", which may differ from it" if stated == "SliceThickness" else ""
        return (
            first.distance,
            f"the distance between them ({first.distance:.4g} mm) is from {stated}{doubt}",
        )
    if first.pixel_spacing is None:
        return 1.0, "the distance between them is not stated"
    return first.pixel_spacing[0], (
        "the distance between them is not stated; it was set to the pixel size, "
        f"{first.pixel_spacing[0]:.4g} mm"
    )


def _finish(
    slices: Sequence[Slice], z: float, notes: list[str], metadata: dict[str, Any]
) -> Arrangement:
    first = slices[0]
    origin = (0.0, 0.0, 0.0)
    if first.position is not None:
        row, column, normal = _directions(first)
        place = np.asarray(first.position)
        origin = (float(place @ normal), float(place @ column), float(place @ row))
    if first.pixel_spacing is None:
        why = first.facts.get("no_spacing") or "the header gives no pixel spacing"
        notes.append(f"The voxel size is unknown, because {why}.")
        spacing, unit, origin = (1.0, 1.0, 1.0), "pixel", (0.0, 0.0, 0.0)
    else:
        spacing, unit = (z, *first.pixel_spacing), "mm"
    return Arrangement(tuple(slices), spacing, unit, origin, tuple(notes), metadata)


def _count_on(slices: Sequence[Slice]) -> bool:
    """Whether the InstanceNumbers of slices are consecutive, in whatever order."""
    numbers = sorted(item.number for item in slices if item.number is not None)
    first = numbers[0] if numbers else 0
    return len(numbers) == len(slices) and numbers == list(range(first, first + len(numbers)))


def _step_of_rounded(
    slices: Sequence[Slice], positions: npt.NDArray[Any]
) -> tuple[float, float] | None:
    """Return the distance of slices whose positions are rounded coarsely, and to what unit.

    Such positions look uneven, or as if slices were missing. That none is missing is told by
    InstanceNumbers that go on along the stack. None where the positions are on no even grid.
    """
    count = len(positions)
    numbers = np.array([math.nan if item.number is None else item.number for item in slices])
    if count < _LEAST or not (np.abs(np.diff(numbers)) == 1).all() or np.ptp(numbers) != count - 1:
        return None
    # of the lines through all positions the best: rounding of the ends counts less than in a mean
    step = float(np.polyfit(np.arange(count), positions, 1)[0])
    for digits in range(7):
        unit = 10.0**-digits
        if np.allclose(positions, positions.round(digits), rtol=0, atol=1e-9):
            break
    else:
        return None
    rest = positions - step * np.arange(count)
    # a finer unit evens out, and what is on a grid as it is needs no mean
    if unit < step / 10 or np.ptp(rest) > _ROUNDED * unit or np.ptp(rest) < 1e-6:
        return None
    # no more digits than rounding leaves
    return float(f"{step:.4g}"), unit


def _even_steps(positions: npt.NDArray[Any]) -> tuple[float, npt.NDArray[Any] | None]:
    """Return the slice spacing, and the index of each slice on an even grid, from 0.

    The indices are None if the slices are unevenly spaced; the spacing is then the median distance.
    Otherwise it is the mean distance, which averages out the rounding of the positions.
    """
    gaps = np.diff(positions)
    median = float(np.median(gaps))
    steps = np.rint(gaps / median)
    numbers = np.concatenate([[0.0], np.cumsum(steps)])
    # beyond this ratio a position is wrong, rather than slices missing
    if (steps < 1).any() or numbers[-1] > _MOST_MISSING * len(positions):
        return _shortest(median, positions), None
    step = float((positions[-1] - positions[0]) / numbers[-1])
    off = float(np.abs(positions - positions[0] - step * numbers).max())
    if off > max(_UNEVEN * step, _rounding(positions, step)) + _SAME_PLACE:
        return _shortest(median, positions), None
    return _shortest(step, positions), numbers.astype(int)


def _shortest(step: float, positions: npt.NDArray[Any]) -> float:
    """Return the shortest decimal that equals the spacing within floating-point precision.

    For example 0.05 for 0.05000000000004.
    """
    noise = 8 * np.finfo(float).eps * float(np.abs(positions).max())
    for digits in range(1, 16):
        short = float(f"{step:.{digits}g}")
        if abs(short - step) <= noise:
            return short
    return step


def _rounding(positions: npt.NDArray[Any], step: float) -> float:
    """Return the rounding unit of the positions if it is small against the step, else 0."""
    for digits in range(7):
        unit = 10.0**-digits
        if unit < step / 10 and np.allclose(positions, positions.round(digits), rtol=0, atol=1e-9):
            return unit
    return 0.0


def _gap_notes(
    positions: npt.NDArray[Any], z: float, numbers: npt.NDArray[Any] | None
) -> list[str]:
    gaps = np.diff(positions)
    if numbers is None:
        return [
            f"The slices are unevenly spaced ({gaps.min():.4g} to {gaps.max():.4g} mm apart); the "
            f"median distance, {z:.4g} mm, is used. Resample the stack to an even spacing."
        ]
    steps = np.diff(numbers)
    if (steps == 1).all():
        return []
    # slice numbers of the complete stack, from 1
    missing = sorted(set(range(1, int(numbers[-1]) + 2)) - {int(n) + 1 for n in numbers})
    shown = ", ".join(str(n) for n in missing[:5]) + (", ..." if len(missing) > 5 else "")
    what = f"Slice {shown} is" if len(missing) == 1 else f"Slices {shown} are"
    first = int(np.argmax(steps > 1))
    return [
        f"{what} missing: no slices between {positions[first]:.4g} and "
        f"{positions[first + 1]:.4g} mm (spacing {z:.4g} mm elsewhere). The gap was closed. "
        "Resample the stack to interpolate it."
    ]


def _direction_notes(slices: Sequence[Slice]) -> list[str]:
    first, last = slices[0], slices[-1]
    row, column, normal = _directions(first)
    notes = []
    if first.orientation is None:
        notes.append("The header gives no orientation; axial slices are assumed.")
    axes = np.stack([row, column, normal])
    angle = math.degrees(math.acos(min(1.0, float(np.abs(axes).max(axis=1).min()))))
    if angle > 0.5:
        notes.append(
            f"The slices are oblique ({angle:.1f} degrees to the axes of the scanner); z, y and x "
            "are the axes of the stack."
        )
    along = np.asarray(last.position) - np.asarray(first.position)
    aside = math.hypot(float(along @ row), float(along @ column))
    depth = float(along @ normal)
    pixel = min(first.pixel_spacing or (1.0, 1.0))
    if len(slices) > 1 and aside > 0.5 * pixel:
        notes.append(
            f"Gantry tilt {math.degrees(math.atan2(aside, depth)):.1f} degrees: each slice is "
            f"offset by {aside / (len(slices) - 1):.3g} mm from the previous one (not corrected)."
        )
    return notes


def _without_copies(slices: Sequence[Slice]) -> tuple[list[Slice], list[str]]:
    """Drop duplicates of the same image, as from a backup folder."""
    seen: dict[tuple[str, int], Slice] = {}
    for item in slices:
        seen.setdefault((item.instance or str(item.path), item.frame), item)
    dropped = len(slices) - len(seen)
    count = readable_count(dropped, "duplicate image")
    notes = [f"{count} (same SOP Instance UID) dropped; one copy of each was kept."]
    return list(seen.values()), notes if dropped else []


def _positions_along(slices: Sequence[Slice]) -> npt.NDArray[Any]:
    """Return positions along the slice normal, in mm."""
    normal = _directions(slices[0])[2]
    return np.array([np.asarray(item.position) @ normal for item in slices])


def _directions(item: Slice) -> npt.NDArray[Any]:
    """Return unit vectors along a row, along a column, and normal to the slice."""
    values = np.asarray(item.orientation or AXIAL, dtype=float)
    row, column = values[:3], values[3:]
    directions = np.stack([row, column, np.cross(row, column)])
    lengths = np.linalg.norm(directions, axis=1, keepdims=True)
    # directions of zero length are invalid
    if (lengths < 1e-6).any():
        return np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]])
    units: npt.NDArray[Any] = directions / lengths
    return units


def _number_key(item: Slice) -> tuple[Any, ...]:
    return (item.number if item.number is not None else math.inf, item.frame, *_name_key(item))


def _name_key(item: Slice) -> tuple[Any, ...]:
    return (natural_key(item.path), item.frame)


def _label(item: Slice) -> str:
    return item.path.name if item.n_frames == 1 else f"frame {item.frame + 1}"


def _rounded(values: Sequence[float] | None, digits: int) -> tuple[float, ...] | None:
    # adding 0.0 turns -0.0 into 0.0, for equal keys
    return None if values is None else tuple(round(value, digits) + 0.0 for value in values)
