"""What the columns of the tables of pores and throats mean, and their units."""

from __future__ import annotations

from typing import Any, NamedTuple

from hushpore.base.volume import readable_unit


class Column(NamedTuple):
    """What a column holds: power of the unit of length, meaning in a sentence, no and yes."""

    power: int
    meaning: str
    words: tuple[str, str] = ("no", "yes")


#: Columns of the tables; what is not here is shown without unit and explanation.
COLUMNS = {
    "label": Column(0, "Number of the pore in the labels layer."),
    "num_voxels": Column(0, "Size in voxels."),
    "volume": Column(3, "Volume; in 2D the area."),
    "equivalent_diameter": Column(1, "Diameter of the ball (disc in 2D) of the same volume."),
    "inscribed_diameter": Column(1, "Diameter of the largest ball that fits into the pore."),
    "surface_area": Column(2, "Surface of the whole pore, throats included; in 2D the perimeter."),
    "sphericity": Column(0, "Surface of the ball of the same volume over that of the pore."),
    "length_major": Column(1, "Longest axis of the ellipsoid of the same second moments."),
    "length_medium": Column(1, "Middle axis of the ellipsoid of the same second moments."),
    "length_minor": Column(1, "Shortest axis of the ellipsoid of the same second moments."),
    "elongation": Column(0, "1 - medium/major axis: 0 for a ball, towards 1 for a needle."),
    "flatness": Column(0, "1 - minor/medium axis: 0 for a ball, towards 1 for a plate."),
    "axis_z": Column(0, "Direction of the longest axis: its part along z."),
    "axis_y": Column(0, "Direction of the longest axis: its part along y."),
    "axis_x": Column(0, "Direction of the longest axis: its part along x."),
    "centroid_z": Column(1, "Place of the centre along z."),
    "centroid_y": Column(1, "Place of the centre along y."),
    "centroid_x": Column(1, "Place of the centre along x."),
    "num_throats": Column(0, "How many other pores it touches."),
    "is_open": Column(
        0, "Whether its void reaches a face of the volume, or the air outside.", ("closed", "open")
    ),
    "touches_border": Column(
        0, "Whether the pore itself is cut by a face of the volume.", ("inside", "cut by a face")
    ),
    "pore_1": Column(0, "One of the two pores."),
    "pore_2": Column(0, "The other pore."),
    "num_faces": Column(0, "Voxel faces that the two pores share."),
    "area": Column(2, "Area of the contact; in 2D its length."),
    "position_z": Column(1, "Place of the widest way through, along z."),
    "position_y": Column(1, "Place of the widest way through, along y."),
    "position_x": Column(1, "Place of the widest way through, along x."),
}


def unit_of(column: str, unit: str, n_spatial: int = 3) -> str:
    """Return the unit of a column as it is printed; empty where it has none.

    Parameters
    ----------
    column : str
        Name of the column.
    unit : str
        Of lengths.
    n_spatial : int
        In 2D the volume is an area, and so on.
    """
    power = COLUMNS[column].power if column in COLUMNS else 0
    if n_spatial == 2 and power > 1:
        power -= 1
    return readable_unit(unit, power) if power else ""


def title_of(column: str, unit: str, n_spatial: int = 3) -> str:
    """Return the name of a column with its unit, as it stands on an axis."""
    printed = unit_of(column, unit, n_spatial)
    name = column.replace("_", " ")
    return f"{name} ({printed})" if printed else name


def meaning_of(column: str) -> str:
    """Return what a column holds, in a sentence; empty where it is not known."""
    return COLUMNS[column].meaning if column in COLUMNS else ""


def words_of(column: str, value: Any) -> str:
    """Return what a kind of pores is called: what yes and no mean in this column, or the value."""
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):
        known = COLUMNS.get(column, Column(0, ""))
        return known.words[bool(value)]
    return str(value)
