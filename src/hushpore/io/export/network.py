"""Export of the network of pores and throats with the names and units of OpenPNM."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.formatting import METRES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import pandas as pd

    from hushpore.base.arrays import Array, Float64s
    from hushpore.base.volume import Volume
    from hushpore.io.export import PoreResult


def network_arrays(
    pores: pd.DataFrame,
    throats: pd.DataFrame,
    volume: Volume,
    phases: Mapping[int, str] | None = None,
) -> dict[str, Array]:
    """Return a pore network as arrays for OpenPNM.

    `pores`, `throats`: the tables of a segmentation, see `hushpore.pores.tables.measures`.
    `volume`: the labels, for shape, spacing and unit. `phases`: phase names by number, if the pores
    are regions of several phases; the result is then a dual network of all phases. Returns:
    ``pore.*`` and ``throat.*``, one row per pore or throat, in SI units, with coordinates in the
    order x, y, z. Pore ``i`` is label ``pore.region_label[i]``. Pores at a face of the volume are
    marked ``pore.xmin`` to ``pore.zmax``, for the boundary conditions of flow.
    Raises InputError if the volume is not 3D, its voxel size is unknown, no two pores touch, or the
    name of a phase causes a duplicate key.

    Names are those of OpenPNM (Gostick et al. 2016, https://doi.org/10.1109/MCSE.2016.49) and
    PoreSpy. As in PoreSpy, a dual network has ``pore.phase`` and ``throat.phases``, ``pore.<name>``
    for each phase and ``throat.<name>_<name>`` for each pair in contact, in alphabetical order.
    A contact between two phases has no neck, so its diameter is that of a disc of the same area.
    ``throat.total_length`` runs from the centroid of one pore through the widest voxel of the neck
    to the centroid of the other; ``throat.diameter`` is the inscribed diameter.
    """
    if volume.n_spatial != 3:
        raise InputError(f"{volume.name} is 2D, but a pore network needs a 3D volume.")
    if volume.unit not in METRES:
        raise InputError(
            f"The voxel size of {volume.name} is unknown (unit {volume.unit!r}), but OpenPNM needs "
            f"metres. Set the voxel size ({', '.join(METRES)}), and segment the pores again."
        )
    if throats.empty:
        raise InputError(
            f"The {len(pores):,} pores of {volume.name} form no network, because no two of them "
            "touch. Use the tables instead."
        )
    metre = METRES[volume.unit]
    centre = _coordinates(pores, "centroid") * metre
    neck = _coordinates(throats, "position") * metre
    ends = throats[["pore_1", "pore_2"]].to_numpy(np.int64)
    # labels have gaps if the table was filtered
    conns = np.searchsorted(pores["label"].to_numpy(np.int64), ends)
    area = throats["area"].to_numpy(np.float64) * metre**2
    width = throats["inscribed_diameter"].to_numpy(np.float64) * metre
    width = np.where(np.isnan(width), np.sqrt(4 * area / np.pi), width)
    first, second = centre[conns[:, 0]], centre[conns[:, 1]]
    # pores too small for shape measures still have an equivalent diameter
    diameter = pores["inscribed_diameter"].fillna(pores["equivalent_diameter"])
    inscribed = diameter.to_numpy(np.float64) * metre
    surface = pores["surface_area"].fillna(np.pi * pores["equivalent_diameter"] ** 2)
    at_faces = {}
    for axis, length in zip("zyx", volume.spatial_shape, strict=True):
        at_faces[f"pore.{axis}min"] = pores[f"bbox_{axis}_start"].to_numpy() == 0
        at_faces[f"pore.{axis}max"] = pores[f"bbox_{axis}_stop"].to_numpy() == length
    arrays = {
        "pore.coords": centre,
        "throat.conns": conns,
        "pore.region_label": pores["label"].to_numpy(np.int64),
        "pore.volume": pores["volume"].to_numpy(np.float64) * metre**3,
        "pore.surface_area": surface.to_numpy(np.float64) * metre**2,
        "pore.equivalent_diameter": pores["equivalent_diameter"].to_numpy(np.float64) * metre,
        "pore.inscribed_diameter": inscribed,
        "pore.diameter": inscribed,
        "throat.coords": neck,
        "throat.cross_sectional_area": area,
        "throat.equivalent_diameter": np.sqrt(4 * area / np.pi),
        "throat.inscribed_diameter": width,
        "throat.diameter": width,
        "throat.direct_length": _distance(first, second),
        "throat.total_length": _distance(first, neck) + _distance(neck, second),
        **at_faces,
    }
    for key, values in _phase_arrays(pores, throats, phases) if phases else ():
        if key in arrays:
            raise InputError(
                f"The name of a phase gives the key {key!r} twice in the network of {volume.name}. "
                "Measure the phases again with other names (hushpore phases --names)."
            )
        arrays[key] = values
    return arrays


def _phase_arrays(
    regions: pd.DataFrame, contacts: pd.DataFrame, names: Mapping[int, str]
) -> Iterator[tuple[str, Array]]:
    """Yield the phases of regions and the pairs of phases of contacts, by key."""
    own = regions["phase"].to_numpy(np.int64)
    both = contacts[["phase_1", "phase_2"]].to_numpy(np.int64)
    # OpenPNM separates parts of a key by dots, and PoreSpy two names by an underscore
    words = {number: re.sub(r"[^\w-]+|_", "-", name) for number, name in names.items()}
    low, high = both.min(axis=1), both.max(axis=1)
    yield "pore.phase", own
    yield "throat.phases", both
    for number, word in words.items():
        yield f"pore.{word}", own == number
    pairs = np.unique(np.stack([low, high], axis=1), axis=0).tolist()
    for one, other in pairs:
        pair = "_".join(sorted((words[one], words[other])))
        yield f"throat.{pair}", (low == one) & (high == other)


def _arrays_of(result: PoreResult) -> dict[str, Array]:
    """Return the network of a result, of pores or of the regions of phases."""
    phases = None
    if "phase" in result.pores:
        phases = {row["phase"]: row["name"] for row in result.provenance["result"]["phases"]}
    return network_arrays(result.pores, result.throats, result.labels, phases)


def write_csv(path: Path, result: PoreResult) -> None:
    """Write the network as a table for ``openpnm.io.network_from_csv``.

    With fewer throats than pores, that reads ``throat.conns`` as decimals: convert it to int.
    """
    with path.open("wb") as file:
        _columns(_arrays_of(result)).to_csv(
            file, index=False, lineterminator="\n", encoding="utf-8"
        )


def write_npz(path: Path, result: PoreResult) -> None:
    """Write the network as arrays, which are smaller than a table and exact.

    Load them with ``openpnm.io.network_from_porespy(dict(numpy.load(path)))``.
    """
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **_arrays_of(result))


def _columns(arrays: dict[str, Array]) -> pd.DataFrame:
    """Return one column per component, with OpenPNM names; pores and throats share rows."""
    import pandas as pd

    flat = {}
    for name, values in arrays.items():
        if values.ndim == 1:
            flat[name] = pd.Series(values)
        else:
            flat |= {f"{name}[{axis}]": pd.Series(part) for axis, part in enumerate(values.T)}
    # integers need a nullable type, because there are fewer throats than pores or vice versa
    whole = {name: "Int64" for name, column in flat.items() if column.dtype.kind in "iu"}
    flags = {name: "boolean" for name, column in flat.items() if column.dtype.kind == "b"}
    typed = {
        name: column.astype((whole | flags).get(name, column.dtype))
        for name, column in flat.items()
    }
    return pd.DataFrame(typed)


def _coordinates(table: pd.DataFrame, what: str) -> Float64s:
    places: Float64s = table[[f"{what}_{axis}" for axis in "xyz"]].to_numpy(float)
    return places


def _distance(a: Float64s, b: Float64s) -> Float64s:
    distance: Float64s = np.linalg.norm(a - b, axis=1)
    return distance
