"""Measures of pores and throats, each declared once.

Each entry of `PORES` and `THROATS` computes a column from sums over merged basins
(`hushpore.pores.geometry.sums`); tables, files, reports, comparisons, the viewer and the
documentation take the columns, their order, meanings and units from these lists.

To add a measure, append to the lists before any segmentation. The mean of the squared distance
from the first slice, in voxels::

    PORES.append(Measure("mean_zz", 0, "Mean z squared.", lambda p: p.sum("zz") / p.sum("voxels")))
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from hushpore.base.formatting import readable_unit
from hushpore.base.volume import Volume
from hushpore.pores.geometry.contacts import N_DIRECTIONS
from hushpore.pores.geometry.sums import SUMS, crofton_area, surface_area
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.tables.merged_sums import PoreSums, ThroatSums, inscribed_diameter, reach_a_face

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd

    from hushpore.base.arrays import Array, Float64s, Int64s
    from hushpore.pores.watershed.graph import BasinGraph
    from hushpore.pores.watershed.merging import Numbering

S = TypeVar("S")

#: Rows (pores or throats) per block, and maximum number of blocks per thread at once: the
#: intermediate arrays take twice their size.
_AT_ONCE, _MOST_AT_ONCE = 1 << 9, 8

#: Titles of columns whose names do not become words by replacing underscores.
_IN_WORDS = {
    "^num_": "number of ",
    "^bbox_": "bounding box ",
    "^is_": "",
    "^axis_length_(.*)": r"\1 axis length",
    "^axis_direction_(.)$": r"axis direction \1",
}


@dataclass(frozen=True)
class Measure(Generic[S]):
    """A column of a table.

    Attributes
    ----------
    name : str
        Name of the column.
    unit_power : int
        Power of the unit of length: 0 none, 1 length, 2 area, 3 volume. In 2D, areas are lengths
        and volumes are areas.
    meaning : str
        Description, in a sentence or two.
    compute : callable
        Returns the values of the column for `PoreSums` or `ThroatSums` of some rows.
    is_summarised : bool
        Whether its distribution characterises a volume and is shown in reports and comparisons.
    words : tuple of str
        Words for False and True, in a boolean column.
    is_shape : bool
        Whether it describes the shape, and is empty (NaN) for pores of too few voxels.
    """

    name: str
    unit_power: int
    meaning: str
    compute: Callable[[S], Array]
    is_summarised: bool = True
    words: tuple[str, str] = ("no", "yes")
    is_shape: bool = False

    @cached_property
    def title(self) -> str:
        """Name in words."""
        title = self.name
        for pattern, words in _IN_WORDS.items():
            title = re.sub(pattern, words, title)
        return title.replace("_", " ")

    @property
    def heading(self) -> str:
        """Title with a capital letter, as heading of a column."""
        return self.title[:1].upper() + self.title[1:]

    def power(self, n_spatial: int = 3) -> int:
        """Return the power of the unit of length in 3D or 2D."""
        return self.unit_power - (n_spatial == 2 and self.unit_power > 1)

    def unit(self, length: str, n_spatial: int = 3) -> str:
        """Return the printed unit for lengths in `length`; empty if it has none."""
        power = self.power(n_spatial)
        return readable_unit(length, power) if power else ""

    def titled(self, length: str, n_spatial: int = 3) -> str:
        """Return the title with the unit, as label of an axis."""
        unit = self.unit(length, n_spatial)
        return f"{self.title} ({unit})" if unit else self.title


# a column that does not characterise a whole volume
_each: Callable[..., Measure[Any]] = partial(Measure, is_summarised=False)

_EXACT = (
    "Exact for integers of up to 16 bits; other grey values are rounded to 1/65,536 of their "
    "range. Empty (NaN) for a mask."
)

#: Columns of the table of pores.
PORES: list[Measure[PoreSums]] = [
    _each("label", 0, "Label of the pore.", lambda pores: pores.labels),
    _each("num_voxels", 0, "Size in voxels.", lambda pores: pores.sum("voxels")),
    Measure("volume", 3, "Volume; in 2D area.", lambda pores: pores.size),
    Measure(
        "equivalent_diameter",
        1,
        "Diameter of the ball (in 2D: disc) of the same volume.",
        lambda pores: pores.ball_diameter,
    ),
    Measure(
        "inscribed_diameter",
        1,
        "Twice the largest distance in the pore from the centre of a voxel to the centre of the "
        "nearest solid voxel. Up to one voxel too large between flat walls, about one voxel too "
        "small for a ball, whose centre mostly lies between voxels. Larger than the equivalent "
        "diameter only if the pore is cut: by a face of the volume, or by a throat through which "
        "the ball reaches into a neighbour. Infinite if there is no solid.",
        lambda pores: pores.inscribed_diameter,
        is_shape=True,
    ),
    Measure(
        "surface_area",
        2,
        "Surface area of the whole pore, including throats and cuts by the faces of the volume; in "
        "2D perimeter. Crofton estimate over 13 directions, at least the area of a plane with the "
        "same projections: within 1 % for round pores, up to 2 % too large for planes, and up to "
        "10 % for voxels that are not cubes.",
        lambda pores: pores.surface,
        is_shape=True,
    ),
    Measure(
        "sphericity",
        0,
        "Surface area of the ball of the same volume divided by that of the pore (in 2D: "
        "perimeters), with the surface area corrected for the voxel grid: 1 for balls of any size, "
        "to within 2 % from 8 voxels, so it may slightly exceed 1.",
        lambda pores: pores.sphericity,
        is_shape=True,
    ),
    *(
        _each(
            f"axis_length_{name}",
            1,
            f"{which} axis length of the ellipsoid (in 2D: ellipse) with the same second moments.",
            lambda pores, place=place: pores.lengths[:, place],
            is_shape=True,
        )
        for place, (name, which) in enumerate(
            {"major": "Major", "intermediate": "Intermediate", "minor": "Minor"}.items()
        )
    ),
    Measure(
        "elongation_ratio",
        0,
        "Intermediate over major axis length (Zingg's b/a): 1 for a ball, near 0 for a needle.",
        lambda pores: pores.lengths[:, 1] / pores.lengths[:, 0],
        is_shape=True,
    ),
    _each(
        "flatness_ratio",
        0,
        "Minor over intermediate axis length (Zingg's c/b): 1 for a ball, near 0 for a plate; "
        "1 in 2D.",
        lambda pores: pores.lengths[:, 2] / pores.lengths[:, 1],
        is_shape=True,
    ),
    _each(
        "zingg_class",
        0,
        "Zingg's shape class, from the two ratios with the limit 2/3: 1 disc, 2 equant, 3 blade, "
        "4 rod.",
        lambda pores: pores.zingg_class,
        is_shape=True,
    ),
    *(
        _each(
            f"axis_direction_{axis}",
            0,
            f"Direction of the major axis: {axis} component of its unit vector.",
            lambda pores, place=place: pores.axis[:, place],
            is_shape=True,
        )
        for place, axis in enumerate("zyx")
    ),
    *(
        _each(
            f"centroid_{axis}",
            1,
            f"Position of the centre of mass along {axis}, relative to the origin of the volume.",
            lambda pores, place=place: pores.centroid[:, place],
        )
        for place, axis in enumerate("zyx")
    ),
    _each(
        "axial_position",
        0,
        "Position of the centre of mass along z as a fraction of the height of the volume: 0 at "
        "the first face, 1 at the last.",
        lambda pores: pores.axial_position,
    ),
    _each(
        "radial_position",
        1,
        "Distance of the centre of mass from the axis along z through the middle of the slices.",
        lambda pores: pores.radial_position,
    ),
    _each(
        "face_distance",
        1,
        "Distance from the bounding box of the pore to the nearest face of the volume; 0 if it "
        "reaches one.",
        lambda pores: pores.face_distance,
    ),
    Measure(
        "nearest_distance",
        1,
        "Distance from the centre of mass to that of the nearest other pore; empty (NaN) if there "
        "is only one pore.",
        lambda pores: pores.nearest_distance,
    ),
    Measure(
        "coordination_number",
        0,
        "Number of other pores that the pore touches.",
        lambda pores: pores.coordination_number,
    ),
    _each(
        "is_open",
        0,
        "Whether any of its void is open: connected, across voxel faces, to a face of the volume "
        "or to the air around the sample.",
        lambda pores: pores.closed_voxels < pores.sum("voxels"),
        words=("closed", "open"),
    ),
    _each(
        "closed_voxels",
        0,
        "Voxels of closed void in the pore. Pores are also connected across voxel edges and "
        "corners, so one pore can contain both open and closed void; the sum over all pores gives "
        "the closed porosity.",
        lambda pores: pores.closed_voxels,
    ),
    _each(
        "touches_border",
        0,
        "Whether the pore is cut by a face of the volume.",
        lambda pores: reach_a_face(pores.bounds, pores.volume),
        words=("inside", "cut by a face"),
    ),
    _each(
        "mean_grey",
        0,
        f"Mean grey value of the pore in the segmented scan (the denoised one, if it was denoised; "
        f"for measured labels, the one given as image). {_EXACT}",
        lambda pores: pores.grey[0],
    ),
    _each(
        "grey_deviation", 0, "Standard deviation of these grey values.", lambda pores: pores.grey[1]
    ),
    *(
        _each(
            f"bbox_{axis}_{end}",
            0,
            f"Index of {meaning} along {axis}.",
            lambda pores, column=place + column: pores.bounds[:, column],
        )
        for place, axis in enumerate("zyx")
        for end, meaning, column in (
            ("start", "its first voxel", 0),
            ("stop", "the voxel after its last", 3),
        )
    ),
]

#: Columns of the table of throats.
THROATS: list[Measure[ThroatSums]] = [
    _each("pore_1", 0, "Label of the first pore, the lower of the two.", lambda both: both.pore_1),
    _each("pore_2", 0, "Label of the second pore.", lambda both: both.pore_2),
    _each(
        "num_faces",
        0,
        "Number of voxel faces shared by the two pores; 0 if they touch only across voxel edges or "
        "corners (26-neighbours).",
        lambda both: both.contacts[:, :3].sum(axis=1),
    ),
    Measure(
        "area",
        2,
        "Contact area, a Crofton estimate over all 26-neighbours of the two pores; in 2D length.",
        # the lower bound for planes would enlarge necks, which voxels overestimate already
        lambda both: crofton_area(both.contacts, both.volume.spacing),
    ),
    Measure(
        "inscribed_diameter",
        1,
        "Twice the distance to the solid at the narrowest point of the widest path between the "
        "pores; accuracy as for pores.",
        lambda both: inscribed_diameter(both.saddle, both.volume),
    ),
    *(
        _each(
            f"position_{axis}",
            1,
            f"Position of that point along {axis}, relative to the origin of the volume.",
            lambda both, place=place: both.position[:, place],
        )
        for place, axis in enumerate("zyx")
    ),
]


#: Columns of the table of pores that only some results have, by name.
FURTHER: dict[str, Measure[Any]] = {
    "given_label": _each(
        "given_label",
        0,
        "Number of the pore in the measured labels, if they were renumbered.",
        np.asarray,
    ),
    "surface_distance": _each(
        "surface_distance",
        1,
        "Depth of the edge of the pore below the surface of the sample, in files and Results "
        "with the form of a casting, bread or foam. In air it is the depth of the centre less half "
        "the equivalent diameter, within 1/128 of the volume, and faces that cut the sample do not "
        "count; without air it is face_distance.",
        np.asarray,
    ),
}


def measure_of(column: str, table: Sequence[Measure[Any]] = PORES) -> Measure[Any]:
    """Return the measure of a column; an unknown column has no unit and no meaning."""
    known = (each for each in (*table, *FURTHER.values()) if each.name == column)
    return next(known, _each(column, 0, "", np.asarray))


def summarised(measures: Sequence[Measure[Any]], *tables: pd.DataFrame) -> dict[str, Measure[Any]]:
    """Return the measures whose distributions are shown, by column.

    `measures`: `PORES` or `THROATS`. `tables`: only columns present in all of them are returned.
    """
    wanted = (each for each in measures if each.is_summarised)
    return {each.name: each for each in wanted if all(each.name in table for table in tables)}


def throat_columns(graph: BasinGraph, numbering: Numbering, volume: Volume) -> dict[str, Array]:
    """Return the columns of the table of throats (`THROATS`), one row per throat."""
    return _columns(THROATS, ThroatSums.of(graph, numbering, volume))


def pore_columns(
    graph: BasinGraph,
    numbering: Numbering,
    volume: Volume,
    throats: dict[str, Array],
    minimum_shape_voxels: int,
) -> dict[str, Array]:
    """Return the columns of the table of pores (`PORES`), one row per label.

    `throats`: columns of the table of throats. `minimum_shape_voxels`: shape measures are NaN for
    pores of fewer voxels.
    """
    ends = np.concatenate([throats["pore_1"], throats["pore_2"]])
    rows = np.searchsorted(numbering.names, ends)
    coordination_number = np.bincount(rows, minlength=numbering.root.size + 1)[1:]
    pores = PoreSums.of(graph, numbering, volume, coordination_number, minimum_shape_voxels)
    columns = _columns(PORES, pores)
    small = pores.sum("voxels") < minimum_shape_voxels
    if small.any():
        for each in PORES:
            if each.is_shape:
                columns[each.name] = np.where(small, np.nan, columns[each.name])
    return columns


def columns_without_rows() -> dict[str, Array]:
    """Return the columns of both tables without rows, which define their dtypes."""
    volume = Volume(np.zeros((1, 1, 1), np.bool_))
    label, whole, real = np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.float32)
    sums, bounds = np.zeros((0, len(SUMS)), np.int64), np.zeros((0, 6), np.int32)
    crossings, place = np.zeros((0, N_DIRECTIONS), np.int64), np.zeros((0, 3), np.int64)
    far = np.zeros(0, np.float64)
    pores = PoreSums(label, sums, bounds, crossings, real, whole, whole, far, volume)
    throats = ThroatSums(label, label, crossings, real, place, volume)
    return {**_columns(THROATS, throats), **_columns(PORES, pores)}


def _columns(table: Sequence[Measure[S]], sums: S) -> dict[str, Array]:
    """Return the columns of a table, measured in blocks of rows by several threads.

    `sums`: a dataclass; each of its arrays has one row per row of the table.
    """
    known: Any = sums
    whole = {
        field.name: value
        for field in dataclasses.fields(known)
        if isinstance(value := getattr(known, field.name), np.ndarray)
    }
    count = len(next(iter(whole.values())))

    def some(rows: slice) -> S:
        part: S = dataclasses.replace(known, **{name: whole[name][rows] for name in whole})
        return part

    # fresh arrays: views would keep all sums in memory
    none = some(slice(0, 0))
    columns = {each.name: np.empty(count, each.compute(none).dtype) for each in table}

    def measure(first: int, last: int) -> None:
        rows = slice(first * _AT_ONCE, last * _AT_ONCE)
        part = some(rows)
        for each in table:
            columns[each.name][rows] = each.compute(part)

    with KernelThreads() as threads:
        threads.over(-(-count // _AT_ONCE), measure, largest=_MOST_AT_ONCE)
    return columns


def resized_table(
    table: pd.DataFrame, measures: Sequence[Measure[Any]], origin: Sequence[float], ratio: Float64s
) -> pd.DataFrame:
    """Return a table of pores or throats for another voxel size of the same aspect ratio.

    `measures`: measures of its columns. `origin`: position of the first voxel, which becomes 0.
    `ratio`: new size divided by old size along each axis; the same for all.
    """
    resized, n_spatial = table.copy(), len(ratio)
    start = dict(zip("zyx"[-n_spatial:], origin, strict=True))
    for measure in (*measures, *FURTHER.values()):
        power = measure.power(n_spatial)
        if power and measure.name in table:
            stem, _, axis = measure.name.rpartition("_")
            before = start.get(axis, 0.0) if stem in ("centroid", "position") else 0.0
            resized[measure.name] = (table[measure.name] - before) * float(ratio[0]) ** power
    return resized


def void_walls(graph: BasinGraph) -> Int64s:
    """Return the void-solid neighbour pairs inside the volume; see `walls_of`."""
    inner = graph.contacts.sum(axis=0, dtype=np.int64)
    return walls_of(graph.crossings.sum(axis=0, dtype=np.int64) - inner, graph.border_crossings)


def walls_of(crossings: Int64s, border_crossings: Int64s) -> Int64s:
    """Return the number of void-solid pairs of neighbouring voxels, by direction (13,).

    `crossings`: steps out of the void in each direction. `border_crossings`: those across a face of
    the volume or into the exterior.
    """
    return 2 * crossings - border_crossings


def surface_of(walls: Int64s, volume: Volume) -> float:
    """Return the surface area between void and solid inside the volume (in 2D: length)."""
    return float(surface_area(walls, volume.spacing))
