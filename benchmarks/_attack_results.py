"""Results made to do harm: what pores are merged anew from, and tables beside scans.

Entered into the list of `_attack_uses`.
"""

from __future__ import annotations

import struct
import warnings
import zipfile
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks._attack_uses import USES, HarmError, put, scan, typed, use
from hushpore.base.errors import HushporeError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks._attack_uses import Use
    from hushpore.pores.result import Pores

# ---- what pores are merged anew from


@cache
def _segmented() -> Pores:
    import hushpore

    z, y, x = np.mgrid[:12, :32, :32]
    values = np.full(z.shape, 200, np.uint8)
    for at, radius in (((5, 10, 10), 4), ((6, 15, 13), 5), ((5, 22, 24), 4), ((6, 18, 20), 3)):
        near = sum((a - b) ** 2 for a, b in zip((z, y, x), at, strict=True))
        values[near < radius**2] = 30
    return hushpore.segment_pores(hushpore.Volume(values, 0.5, "mm"), threshold=100)


def _result(folder: Path) -> Path:
    from hushpore.runs.result_folder import write_result

    found = _segmented()
    return write_result(folder / "r", [found], found.volume)


def _merging(name: str, change: Callable[[dict[str, Any]], object]) -> None:
    def make(folder: Path) -> Use:
        place = _result(folder)
        arrays = {name: np.array(each) for name, each in _segmented().merging_arrays.items()}
        change(arrays)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            np.savez(place / "merging.npz", allow_pickle=True, **arrays)
        return partial(_merge_anew, place)

    USES[f"merging.npz: {name}"] = make


def _merge_anew(place: Path) -> None:
    """Open labels as napari does, and merge them by another height."""
    from hushpore.io import read
    from hushpore.viewer.layers.conversion import METADATA_KEY
    from hushpore.viewer.layers.result_folder import labels_from_result
    from hushpore.viewer.results.pore_layer import RESULT

    layer = labels_from_result(read(place / "labels.tif"))
    if layer is None:
        raise HarmError("the labels are gone")
    known = layer[1]["metadata"][METADATA_KEY]
    if known.get(RESULT) is None:
        if not any("cannot be merged anew" in note for note in known["notes"]):
            raise HarmError("without a word")
        raise InputError("refused, and the labels are shown")
    truth, found = _segmented().remerge(2.0), known[RESULT].remerge(2.0)
    same = np.array_equal(truth.labels, found.labels) and truth.pores.equals(found.pores)
    if not same or not truth.throats.equals(found.throats):
        raise HarmError("other figures without a word")


def _set(table: str, at: Any, value: float) -> Callable[[dict[str, Any]], object]:
    return lambda arrays: arrays[table].__setitem__(at, value)


def _replace(table: str, change: Callable[[Any], Any]) -> Callable[[dict[str, Any]], object]:
    return lambda arrays: arrays.update({table: change(arrays[table])})


_merging("a basin of number 2^30", _set("basins", (5, 10, 10), 2**30))
_merging("a basin below zero", _set("basins", (5, 10, 10), -5))
_merging("a peak 2^40 voxels away", _set("graph_peak", 1, 2**40))
_merging("neighbours that are not there", _set("graph_b", 0, 2**30))
_merging("far bounds", _set("graph_bounds", (1, slice(3, 6)), 2**31 - 1))
_merging("bounds below zero", _set("graph_bounds", (1, slice(0, 3)), -(2**31)))
_merging("radii that are no numbers", _set("graph_peak_squared_distance", slice(1, None), np.nan))
_merging("a saddle above its peaks", _set("graph_saddle", 0, 1e30))
_merging("a pore of 10^18 voxels", _set("graph_sums", (1, 0), 10**18))
_merging("a surface below zero", _set("graph_crossings", (1, 0), -9))
_merging("one crossing more", _replace("graph_crossings", lambda each: each + 1))
_merging("one contact more", _replace("graph_contacts", lambda each: each + 1))
_merging("moments of other pores", _replace("graph_sums", lambda each: each + np.eye(1, 10, 4)))
_merging("a sample of nothing", _set("sample", slice(None), -1))
_merging("a table that ends early", _replace("graph_sums", lambda each: each[:-1]))
_merging("tables without a row", lambda arrays: arrays.update(
    {name: each[:0] for name, each in arrays.items() if each.ndim}))  # fmt: skip
_merging("numbers as texts", _replace("graph_a", lambda each: each.astype("U9")))
_merging("numbers as objects", _replace("graph_a", lambda each: each.astype(object)))
_merging("numbers that are complex", _replace("graph_saddle", lambda each: each + 1j))
_merging("basins turned round", _replace("basins", lambda each: each[:, ::-1]))
_merging("a table is missing", lambda arrays: arrays.pop("graph_saddle"))


@use("merging.npz: 4 GB of zeros in an archive of some kB")
def _bomb(folder: Path) -> Use:
    place = _result(folder)
    with zipfile.ZipFile(place / "merging.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        header = b"{'descr': '<i4', 'fortran_order': False, 'shape': (1024, 1024, 1024)}\n"
        with archive.open("basins.npy", "w", force_zip64=True) as file:
            file.write(b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header)
            for _ in range(1 << 8):
                file.write(bytes(1 << 20))
    return partial(_merge_anew, place)


# ---- tables


def _table(name: str, content: bytes | None) -> None:
    """A table of pores in a result; None: a pipe."""

    def make(folder: Path) -> Use:
        place = _result(folder)
        put(place / "pores.csv", content)
        return partial(_open_folder, place)

    USES[f"pores.csv: {name}"] = make


def _open_folder(place: Path) -> None:
    """Do with a result what the window and the commands do."""
    from hushpore.io import read
    from hushpore.runs.compare import compare
    from hushpore.runs.pore_result import open_result
    from hushpore.viewer.layers.result_folder import labels_from_result

    refused = 0
    for way in (
        lambda: labels_from_result(read(place / "labels.tif")),
        lambda: open_result(place),
        lambda: compare(place, place),
    ):
        try:
            way()
        except HushporeError:
            refused += 1
    if refused:
        raise InputError("refused")


_WIDE = ",".join(f"c{n}" for n in range(10**6)).encode()
_table("10^6 columns", _WIDE + b"\n" + b",".join([b"1"] * 10**6))
_table("a pipe", None)
_table("zeros", bytes(10_000))
_table("UTF-16", "label,volume\n1,2\n".encode("utf-16"))
_table("no rows", b"label,volume,equivalent_diameter\n")
_table("nothing", b"")
_table("a quote that does not end", b'label,volume\n1,"' + b"x" * 10**6)
_table(
    "formulas for numbers", b"label,volume,equivalent_diameter\n=1+1,@SUM(A1),-cmd|' /C calc'!A0\n"
)
_table(
    "numbers of 400 digits", b"label,volume,equivalent_diameter\n" + b"9" * 400 + b",1e999,nan\n"
)
_table("10^5 rows for four pores", b"label,volume\n" + b"1,2\n" * 10**5)


def _groups(name: str, content: bytes | None) -> None:
    def make(folder: Path) -> Use:
        scan(folder / "n.tif")
        put(folder / "g.csv", content)
        return lambda: typed(
            ["batch", f"{folder}/n.tif", "-o", f"{folder}/b", "--no-denoise", "--threshold", "70",
             "--device", "cpu", "--groups", f"{folder}/g.csv"]
        )  # fmt: skip

    USES[f"groups: {name}"] = make


_groups("10^6 columns", _WIDE + b"\n")
_groups("a formula and what commands a terminal", b"name,group\nn,=cmd|' /C calc'!A0\x1b]0;x\x07\n")
_groups("zeros", bytes(1000))
_groups("zeros within a name", b"name,group\nn\0,a\0b\n")
_groups("UTF-16", "name,group\nn,a\n".encode("utf-16"))
_groups("Latin-1", "name,group\nn,Käse\n".encode("latin1"))
_groups("columns of the same name", b"name,name,group,group\nn,m,a,b\n")
_groups("a pipe", None)
_groups("a name of 10^5 characters", b"name,group\nn," + b"g" * 10**5 + b"\n")
_groups("text that matplotlib computes", b"name,group\nn,$\\frac$\n")


def _points(name: str, content: bytes | None) -> None:
    def make(folder: Path) -> Use:
        scan(folder / "n.tif")
        put(folder / "m.csv", content)
        return lambda: typed(
            ["pores", f"{folder}/n.tif", "-o", f"{folder}/p", "--threshold", "70", "--device",
             "cpu", "--markers", f"{folder}/m.csv"]
        )  # fmt: skip

    USES[f"markers: {name}"] = make


_points("numbers beyond all", b"z,y,x\n1e308,-1e308,9e99\n")
_points("10^6 columns", _WIDE + b"\n")
_points("a pipe", None)
_points("columns of the same name", b"z,z,y,y,x,x\n1,2,3,4,5,6\n")
