"""The network of pores and throats in the terms and units of OpenPNM."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.formatting import METRES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import numpy.typing as npt
    import pandas as pd

    from hushpore.base.volume import Volume
    from hushpore.io.export import PoreResult


def network_arrays(
    pores: pd.DataFrame,
    throats: pd.DataFrame,
    volume: Volume,
    phases: Mapping[int, str] | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """Return a pore network as the arrays that OpenPNM works on.

    `pores`, `throats`: the tables of a segmentation, see `hushpore.pores.tables.measures`.
    `volume`: the labels: shape, spacing and unit. `phases`: names of phases by their number, where
    pores are regions of several: the network is a dual one then, of all of them.
    Returns: ``pore.*`` and ``throat.*``, one row a pore or throat, in SI units; coordinates in the
    order x, y, z. Pore ``i`` is label ``pore.region_label[i]``. Pores that reach a face of the
    volume are marked ``pore.xmin`` to ``pore.zmax``, from which flow can be made to enter.
    Raises InputError if the volume is not 3D, its voxel size is not known, no two pores touch, or
    the name of a phase comes to one that is there already.

    Names are those of OpenPNM (Gostick et al. 2016, https://doi.org/10.1109/MCSE.2016.49) and
    PoreSpy, as whose a dual network has ``pore.phase`` and ``throat.phases``, and for each phase
    ``pore.<name>``, for each two that touch ``throat.<name>_<name>``, in the order of the alphabet.
    Between two phases there is no way through, and a throat is as wide as the disc of its area.
    ``throat.total_length`` leads from the centroid of one pore through the widest voxel of
    the neck to the other; ``throat.diameter`` is the inscribed one.
    """
    if volume.n_spatial != 3:
        raise InputError(f"{volume.name} is 2D; a pore network is made from a 3D volume.")
    if volume.unit not in METRES:
        raise InputError(
            f"The voxel size of {volume.name} is not known (unit {volume.unit!r}), and OpenPNM "
            f"counts in metres. Give it, in {', '.join(METRES)}, and segment the pores again."
        )
    if throats.empty:
        raise InputError(
            f"No two of the {len(pores):,} pores of {volume.name} touch: there is no network. "
            "The tables hold them all the same."
        )
    metre = METRES[volume.unit]
    centre = _coordinates(pores, "centroid") * metre
    neck = _coordinates(throats, "position") * metre
    ends = throats[["pore_1", "pore_2"]].to_numpy(np.int64)
    # labels are numbered from 1 without a gap, but need not be if the table was filtered
    conns = np.searchsorted(pores["label"].to_numpy(np.int64), ends)
    area = throats["area"].to_numpy(np.float64) * metre**2
    width = throats["inscribed_diameter"].to_numpy(np.float64) * metre
    width = np.where(np.isnan(width), np.sqrt(4 * area / np.pi), width)
    first, second = centre[conns[:, 0]], centre[conns[:, 1]]
    # pores that are too small to have a shape have a size all the same
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
                f"The network of {volume.name} would have {key!r} twice: by the name of a phase, "
                "and by that of another phase or of something that OpenPNM needs. Measure the "
                "phases again with other names (--names)."
            )
        arrays[key] = values
    return arrays


def _phase_arrays(
    regions: pd.DataFrame, contacts: pd.DataFrame, names: Mapping[int, str]
) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Tell which phase regions are of, and between which two contacts are, by key."""
    own = regions["phase"].to_numpy(np.int64)
    both = contacts[["phase_1", "phase_2"]].to_numpy(np.int64)
    # dots part what OpenPNM reads in a name, and an underscore two names
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


def _arrays_of(result: PoreResult) -> dict[str, npt.NDArray[Any]]:
    """Return the network of a result, which may be of the regions of phases."""
    phases = None
    if "phase" in result.pores:
        phases = {row["phase"]: row["name"] for row in result.provenance["result"]["phases"]}
    return network_arrays(result.pores, result.throats, result.labels, phases)


def write_csv(path: Path, result: PoreResult) -> None:
    """Write the network as a table, which ``openpnm.io.network_from_csv`` loads."""
    with path.open("wb") as file:
        _columns(_arrays_of(result)).to_csv(
            file, index=False, lineterminator="\n", encoding="utf-8"
        )


def write_npz(path: Path, result: PoreResult) -> None:
    """Write the network as arrays: smaller than a table, and exact.

    ``openpnm.io.network_from_porespy(dict(numpy.load(path)))`` loads them.
    """
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **_arrays_of(result))


def _columns(arrays: dict[str, npt.NDArray[Any]]) -> pd.DataFrame:
    """One column a component, as OpenPNM names them; pores and throats share rows."""
    import pandas as pd

    flat = {}
    for name, values in arrays.items():
        if values.ndim == 1:
            flat[name] = pd.Series(values)
        else:
            flat |= {f"{name}[{axis}]": pd.Series(part) for axis, part in enumerate(values.T)}
    # where there are fewer throats than pores, numbers that stay whole need a type with gaps
    whole = {name: "Int64" for name, column in flat.items() if column.dtype.kind in "iu"}
    flags = {name: "boolean" for name, column in flat.items() if column.dtype.kind == "b"}
    typed = {
        name: column.astype((whole | flags).get(name, column.dtype))
        for name, column in flat.items()
    }
    return pd.DataFrame(typed)


def _coordinates(table: pd.DataFrame, what: str) -> npt.NDArray[np.float64]:
    places: npt.NDArray[np.float64] = table[[f"{what}_{axis}" for axis in "xyz"]].to_numpy(float)
    return places


def _distance(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    distance: npt.NDArray[np.float64] = np.linalg.norm(a - b, axis=1)
    return distance
