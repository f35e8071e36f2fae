"""Order, spacing and irregularities of DICOM slices, computed from their headers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.formatting import readable_count
from hushpore.io.dicom.slice_grid import SliceGrid, gap_notes, grid_of, rounding_of
from hushpore.io.folders import natural_key, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from hushpore.base.arrays import Array

AXIAL = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)

# distance below which two positions are equal: in pixels, and at most, in mm
_SAME_PLACE, _MOST_SAME_PLACE = 0.02, 1e-3
_ALONG = 1e-3  # direction cosine from which a coordinate changes along the slice normal
_LEAST = 3  # smallest stack whose distances are examined
_LEAST_JOINED = 5  # smallest number of one-slice series that are joined to a stack


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

    Slices without a pixel spacing join those of their series that have one. A
    multi-frame file without positions forms its own group.
    """
    groups: dict[tuple[Any, ...], list[Slice]] = {}
    for item in slices:
        alone = str(item.path) if item.n_frames > 1 and item.position is None else ""
        key = (
            item.series,
            item.shape,
            _rounded(item.orientation, ".3f"),
            _rounded(item.pixel_spacing, ".5g"),
            alone,
        )
        groups.setdefault(key, []).append(item)
    for key in [key for key in groups if key[3] is None]:
        others = [each for each in groups if each[3] and (*each[:3], None, each[4]) == key]
        if len(others) == 1:
            # the header of a slice may be damaged; `_finish` says so
            spacing = groups[others[0]][0].pixel_spacing
            items = groups.pop(key)
            groups[others[0]] += [replace(item, pixel_spacing=spacing) for item in items]
    return list(groups.values())


def join_alike(groups: Sequence[list[Slice]]) -> tuple[list[list[Slice]], list[str]]:
    """Join series of one slice each that are alike and lie evenly along one line.

    Some scanners give each slice a SeriesInstanceUID of its own.

    `groups`: as `group_by_series` returns them.
    Returns: the groups, with one for each joined stack; and notes that say so.
    """
    singles = [group[0] for group in groups if len(group) == 1]
    joined: list[list[Slice]] = []
    # stacks with descriptions of their own are separate; a scanner may describe each slice, too
    for described in (True, False):
        taken = {(item.path, item.frame) for items in joined for item in items}
        alike: dict[tuple[Any, ...], list[Slice]] = {}
        for item in singles:
            if (item.path, item.frame) not in taken:
                alike.setdefault(_kind(item, described), []).append(item)
        joined += [
            even
            for items in alike.values()
            if len(items) >= _LEAST_JOINED and (even := _evenly_spaced(items))
        ]
    taken = {(item.path, item.frame) for items in joined for item in items}
    notes = [
        f"{len(items)} equal and evenly spaced series of one slice each were joined to one stack."
        for items in joined
    ]
    others = [group for group in groups if (group[0].path, group[0].frame) not in taken]
    return [*joined, *others], notes


def _kind(item: Slice, described: bool) -> tuple[Any, ...]:
    """Return what slices of one stack share; `described`: including their description."""
    facts = item.facts
    description = facts.get("description") if described else None
    return (
        item.shape,
        _rounded(item.orientation, ".3f"),
        _rounded(item.pixel_spacing, ".5g"),
        facts.get("modality"),
        facts.get("localiser"),
        description,
    )


def _evenly_spaced(slices: Sequence[Slice]) -> list[Slice]:
    """Return slices if they are on an even grid or have consecutive numbers, else none.

    Without usable positions and instance numbers, consecutive SeriesNumbers number the slices.
    """
    if all(item.position is not None for item in slices):
        positions, order = _ordered(slices)
        if np.ptp(positions) >= (tolerance := _tolerance(slices)):
            grid = _grid([slices[i] for i in order], positions[order])
            are_apart = np.diff(positions[order]).min() >= tolerance
            is_even = grid.indices is not None or (are_apart and _count_on(slices))
            return list(slices) if is_even else []
    if _count_on(slices):
        return list(slices)
    numbered = [replace(item, number=item.facts.get("series_number")) for item in slices]
    return numbered if _count_on(numbered) else []


def arrange(slices: Sequence[Slice]) -> list[Arrangement]:
    """Order the slices of one group and determine their spacing.

    `slices`: one group of `group_by_series`.
    Returns: one arrangement, or several if all positions occur equally often, as in a time series.
    """
    slices, notes = _without_copies(slices)
    if any(item.position is None for item in slices):
        return _without_positions(slices, notes)
    positions, order = _ordered(slices)
    tolerance = _tolerance(slices)
    if np.ptp(positions) < tolerance and len(slices) >= _LEAST:
        notes.append(
            f"All {len(slices)} slices state the same position, {positions[0]:.4g} mm; it was not "
            "used."
        )
        return _without_positions(slices, notes)
    layers: list[list[int]] = []
    for i in order:
        if layers and positions[i] - positions[layers[-1][0]] < tolerance:
            layers[-1].append(i)
        else:
            layers.append([i])
    repeats = {len(layer) for layer in layers}
    if len(layers) > 1 and len(repeats) == 1 and repeats != {1}:
        count = repeats.pop()
        layers = [sorted(layer, key=lambda i: _number_key(slices[i])) for layer in layers]
        note = f"Every slice position occurs {count} times; the series was read as {count} volumes."
        return [
            _by_position([slices[layer[k]] for layer in layers], [*notes, note])
            for k in range(count)
        ]
    in_order = [slices[i] for i in order]
    # a few equal positions are copies; many that the numbers explain are rounded
    if len(slices) - len(layers) >= _LEAST and _grid(in_order, positions[order]).is_fitted:
        return [_by_position(in_order, notes)]
    for layer in layers:
        layer.sort(key=lambda i: _number_key(slices[i]))
        if len(layer) > 1:
            names = shortened([_label(slices[i]) for i in layer])
            notes.append(
                f"{len(layer)} images have the same position, {positions[layer[0]]:.4g} mm "
                f"({names}); only {_label(slices[layer[0]])} was kept."
            )
    return [_by_position([slices[layer[0]] for layer in layers], notes)]


def _ordered(slices: Sequence[Slice]) -> tuple[Array, list[int]]:
    """Return positions along the normal, and the order of the slices along it.

    Slices at the same position are ordered by number, in the direction of all numbers.
    """
    positions = _positions_along(slices)
    numbers = _numbers(slices)
    apart = (numbers - numbers.mean()) @ (positions - positions.mean())
    sign = -1.0 if apart < 0 else 1.0
    steps = np.diff(np.sort(positions), prepend=positions.min()) >= _tolerance(slices)
    place = np.empty(len(slices))
    place[np.argsort(positions, kind="stable")] = np.cumsum(steps)
    rank = sign * np.nan_to_num(numbers)
    return positions, sorted(
        range(len(slices)), key=lambda i: (place[i], rank[i], *_name_key(slices[i]))
    )


def _numbers(slices: Sequence[Slice]) -> Array:
    """Return InstanceNumber or frame number of each slice; NaN if it has none."""
    if len({item.path for item in slices}) == 1:
        return np.array([float(item.frame) for item in slices])
    return np.array([math.nan if item.number is None else float(item.number) for item in slices])


def _tolerance(slices: Sequence[Slice]) -> float:
    """Return the distance below which two positions are equal, in mm.

    Positions are decimal text, and a voxel may measure 0.3 mm or 60 nm.
    """
    first = slices[0]
    size = min(first.pixel_spacing) if first.pixel_spacing else first.distance or math.inf
    return min(_SAME_PLACE * size, _MOST_SAME_PLACE)


def _grid(slices: Sequence[Slice], positions: Array) -> SliceGrid:
    """Return the grid of slices in order, given their positions along the normal."""
    return grid_of(positions, _numbers(slices), _rounding(slices)[0], _tolerance(slices))


def _rounding(slices: Sequence[Slice]) -> tuple[float, float]:
    """Return the unit of rounding along the slice normal, and that of the coordinates, in mm.

    In oblique stacks several coordinates add to the position along the normal.
    """
    normal = np.abs(_directions(slices[0])[2])
    places = np.array([item.position for item in slices])
    tolerance = _tolerance(slices)
    # a coordinate that stays the same moves no slice against another
    units = [rounding_of(column) if np.ptp(column) > tolerance else 0.0 for column in places.T]
    return float(normal @ units), max(
        (unit for unit, part in zip(units, normal, strict=True) if part > _ALONG), default=0.0
    )


def _by_position(slices: Sequence[Slice], notes: list[str]) -> Arrangement:
    positions = _positions_along(slices)
    metadata: dict[str, Any] = {"directions": _directions(slices[0]).round(6).tolist()}
    if len(slices) == 1:
        z = slices[0].distance or 1.0
        return _finish(slices, z, [*notes, *_direction_notes(slices)], metadata)
    grid = _grid(slices, positions)
    notes = list(notes)
    if grid.is_fitted and grid.indices is not None:
        notes.append(
            f"Positions are rounded to {_rounding(slices)[1]:g} mm; the distance between slices, "
            f"{grid.step:.4g} mm, is fitted to the whole stack."
        )
        positions = positions[0] + grid.step * grid.indices
    gaps = gap_notes(positions, grid)
    notes += [*gaps, *_direction_notes(slices)]
    if gaps:
        metadata["slice_positions"] = [float(f"{place:.9g}") for place in positions]
    return _finish(slices, grid.step, notes, metadata)


def _without_positions(slices: Sequence[Slice], notes: list[str]) -> list[Arrangement]:
    """Arrange slices by number, file name and SliceLocation.

    Returns several volumes if all locations, or else all numbers, occur equally often.
    """
    locations: dict[Any, list[Slice]] = {}
    numbers: dict[Any, list[Slice]] = {}
    for item in sorted(slices, key=_number_key):
        locations.setdefault(item.location, []).append(item)
        numbers.setdefault((item.number, item.frame), []).append(item)
    is_located = None not in locations and len(locations) > 1
    repeated = locations if is_located else numbers
    counts = {len(items) for items in repeated.values()}
    if len(repeated) < _LEAST or len(counts) > 1 or counts == {1}:
        return [_by_number(slices, notes)]
    what, count = "SliceLocation" if is_located else "InstanceNumber", counts.pop()
    note = f"Every {what} occurs {count} times; the series was read as {count} volumes."
    volumes = zip(*repeated.values(), strict=True)
    return [_by_number(volume, [*notes, note]) for volume in volumes]


def _by_number(slices: Sequence[Slice], notes: list[str]) -> Arrangement:
    frames = slices[0].n_frames > 1
    found = {item.number for item in slices}
    # a number that all slices share is none
    numbered = frames or (None not in found and len(found) > 1)
    ordered = sorted(slices, key=_number_key if numbered else _name_key)
    how = "frame number" if frames else "InstanceNumber" if numbered else "file name"
    notes = list(notes)
    metadata: dict[str, Any] = {}
    gaps: list[str] = []
    located = _by_location(ordered)
    if located is None:
        z, source = _distance_in_header(ordered[0])
    else:
        in_order, places, grid = located
        how = how if in_order == ordered else "SliceLocation"
        ordered, z = in_order, grid.step
        source = f"the distance between them ({z:.4g} mm) is from SliceLocation"
        source += ", fitted because it is coarsely rounded" if grid.is_fitted else ""
        gaps = gap_notes(places, grid)
        if gaps:
            metadata["slice_positions"] = [float(f"{place:.9g}") for place in places]
    if len(ordered) > 1:
        notes.append(f"The slices have no positions. They were ordered by {how}; {source}.")
    notes += gaps
    if numbered and not frames and not gaps:
        whole = sorted({item.number or 0 for item in ordered})
        missing = sorted(set(range(whole[0], whole[-1])) - set(whole))
        if 0 < len(missing) <= len(whole):
            shown = ", ".join(str(number) for number in missing[:5])
            count = readable_count(len(missing), "slice")
            notes.append(f"{count} missing by InstanceNumber: {shown}.")
    return _finish(ordered, z, notes, metadata)


def _by_location(ordered: list[Slice]) -> tuple[list[Slice], Array, SliceGrid] | None:
    """Return slices along SliceLocation, their distances from the first one, and their grid.

    `ordered`: by number or name; this order is kept if the locations follow it in either direction.
    None if the locations cannot be used.
    """
    stated = [item.location for item in ordered]
    if len(ordered) < 2 or None in stated:
        return None
    values = np.array(stated, float)
    steps = np.diff(values)
    is_in_order = bool((steps >= 0).all() or (steps <= 0).all())
    if not is_in_order:
        order = np.argsort(values, kind="stable")
        ordered, values = [ordered[i] for i in order], values[order]
    places = np.abs(values - values[0])
    if places[-1] < _tolerance(ordered):
        return None
    grid = grid_of(places, _numbers(ordered), rounding_of(values), _tolerance(ordered))
    if grid.step == 0 or (grid.indices is None and not is_in_order):
        return None
    if grid.is_fitted and grid.indices is not None:
        places = grid.step * grid.indices
    return ordered, places, grid


def _distance_in_header(first: Slice) -> tuple[float, str]:
    """Return the distance between slices, and a clause that says what it is from."""
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
        if without := [_label(item) for item in slices if item.facts.get("no_spacing")]:
            count = readable_count(len(without), "slice")
            notes.append(
                f"{count} without a readable pixel spacing ({shortened(without)}); that of the "
                "other slices was used."
            )
    return Arrangement(tuple(slices), spacing, unit, origin, tuple(notes), metadata)


def _count_on(slices: Sequence[Slice]) -> bool:
    """Whether the InstanceNumbers of slices are consecutive, in whatever order."""
    numbers = sorted(item.number for item in slices if item.number is not None)
    first = numbers[0] if numbers else 0
    return len(numbers) == len(slices) and numbers == list(range(first, first + len(numbers)))


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


def _positions_along(slices: Sequence[Slice]) -> Array:
    """Return positions along the slice normal, in mm."""
    normal = _directions(slices[0])[2]
    return np.array([np.asarray(item.position) @ normal for item in slices])


def _directions(item: Slice) -> Array:
    """Return unit vectors along a row, along a column, and normal to the slice."""
    values = np.asarray(item.orientation or AXIAL, dtype=float)
    row, column = values[:3], values[3:]
    directions = np.stack([row, column, np.cross(row, column)])
    lengths = np.linalg.norm(directions, axis=1, keepdims=True)
    # directions of zero length are invalid
    if (lengths < 1e-6).any():
        return np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]])
    units: Array = directions / lengths
    return units


def _number_key(item: Slice) -> tuple[Any, ...]:
    return (item.number if item.number is not None else math.inf, item.frame, *_name_key(item))


def _name_key(item: Slice) -> tuple[Any, ...]:
    return (natural_key(item.path), item.frame)


def _label(item: Slice) -> str:
    return item.path.name if item.n_frames == 1 else f"frame {item.frame + 1}"


def _rounded(values: Sequence[float] | None, digits: str) -> tuple[float, ...] | None:
    # adding 0.0 turns -0.0 into 0.0, for equal keys
    return None if values is None else tuple(float(f"{value:{digits}}") + 0.0 for value in values)
