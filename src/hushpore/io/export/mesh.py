"""Export of pore surfaces as triangle meshes, in STL and PLY files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hushpore.base.errors import InputError, MemoryLimitError
from hushpore.device.backend import Backend

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from hushpore.base.arrays import Array, Float64s, Int32s, Mask
    from hushpore.base.volume import Volume
    from hushpore.io.export import PoreResult

_BYTES_A_VOXEL = 6  # mask and float32 copy for the contouring, without the triangles


@dataclass(frozen=True, eq=False)
class Mesh:
    """Closed triangle mesh."""

    vertices: Float64s  # (n, 3), float64: x, y, z in the unit of the volume
    # (m, 3), int32: vertices of a triangle, counter-clockwise seen from outside the pore
    faces: Int32s
    # (m,), int32: label of the pore of each triangle; 0 for a common surface
    labels: Int32s


def pore_surface(labels: Volume, only: Sequence[int] | None = None, apart: bool = False) -> Mesh:
    """Return the surface of pores, closed at the faces of the volume.

    `labels`: 3D integer labels; 0 is not pore. `only`: labels of the pores to include; by default
    all. `apart`: whether each pore gets its own closed surface, with its label on the triangles. By
    default touching pores share one surface, without a wall between them. Returns: the isosurface
    half way between voxel centres, by marching cubes (Lorensen & Cline 1987,
    https://doi.org/10.1145/37402.37422). Its volume is slightly smaller than that of the voxels,
    because it cuts off their corners.
    Raises InputError if the volume is not 3D or a label does not exist; MemoryLimitError if there
    is not enough memory.
    """
    if labels.axes != "zyx" or labels.dtype.kind not in "iub":
        raise InputError(
            f"{labels.name} has axes {labels.axes!r} and type {labels.dtype}, but a surface needs "
            "3D labels."
        )
    needed, free = _BYTES_A_VOXEL * labels.data.size, Backend().free_memory()
    if needed > free:
        raise MemoryLimitError(
            f"The surface of {labels.name} needs about {needed / 1e9:.1f} GB of memory, but "
            f"only {free / 1e9:.1f} GB are free. Choose fewer labels, or crop the volume."
        )
    values = labels.array()
    boxes = _boxes(values, only)
    if apart:
        parts = [_contour(values[box] == label, box, label, labels) for label, box in boxes]
    elif boxes:
        # one bounding box for all requested pores
        box = tuple(
            slice(
                min(each[axis].start for _, each in boxes),
                max(each[axis].stop for _, each in boxes),
            )
            for axis in range(3)
        )
        wanted = values[box] > 0 if only is None else np.isin(values[box], only)
        parts = [_contour(wanted, box, 0, labels)]
    else:
        parts = []
    return _concatenated(parts)


def write_stl(
    path: Path, result: PoreResult, labels: Sequence[int] | None = None, apart: bool = False
) -> None:
    """Write the surface of the pores as binary STL: float32, no labels; as `pore_surface`."""
    mesh = pore_surface(result.labels, labels, apart)
    path.write_bytes(b"".join(stl(mesh, result.labels.unit)))


def write_ply(
    path: Path, result: PoreResult, labels: Sequence[int] | None = None, apart: bool = False
) -> None:
    """Write the surface of the pores as binary PLY: float64, with a label for each triangle."""
    mesh = pore_surface(result.labels, labels, apart)
    path.write_bytes(b"".join(ply(mesh, result.labels.unit)))


def _boxes(values: Array, only: Sequence[int] | None) -> list[tuple[int, tuple[slice, ...]]]:
    """Return the requested labels, each with its bounding box."""
    from scipy.ndimage import find_objects

    found = {
        label: box for label, box in enumerate(find_objects(values.astype(np.int32)), 1) if box
    }
    missing = sorted(set(only or ()) - set(found))
    if missing:
        raise InputError(
            f"Pore {', '.join(map(str, missing[:5]))} does not exist; the labels are 1 to "
            f"{max(found, default=0)}."
        )
    return [(label, box) for label, box in found.items() if only is None or label in only]


def _contour(inside: Mask, box: tuple[slice, ...], label: int, volume: Volume) -> Mesh:
    from skimage.measure import marching_cubes

    # padding closes the surface at the faces of the volume. Lorensen's tables, unlike Lewiner's,
    # create no edges with four triangles where voxels meet in an edge
    padded = np.pad(inside, 1).astype(np.float32)
    vertices, faces, _, _ = marching_cubes(padded, 0.5, method="lorensen")  # type: ignore[no-untyped-call]
    first = np.array([side.start - 1 for side in box])
    places = (vertices + first) * volume.spacing + volume.origin
    # reversing the axes to x, y, z also orients the triangles outward
    return Mesh(places[:, ::-1], faces.astype(np.int32), np.full(len(faces), label, np.int32))


def _concatenated(parts: list[Mesh]) -> Mesh:
    if not parts:
        return Mesh(np.empty((0, 3)), np.empty((0, 3), np.int32), np.empty(0, np.int32))
    before = np.cumsum([0, *(len(part.vertices) for part in parts[:-1])])
    return Mesh(
        np.concatenate([part.vertices for part in parts]),
        np.concatenate(
            [part.faces + shift for part, shift in zip(parts, before, strict=True)]
        ).astype(np.int32),
        np.concatenate([part.labels for part in parts]),
    )


def stl(mesh: Mesh, unit: str = "") -> Iterator[bytes]:
    """Yield the parts of a binary STL file, with the length unit in its header."""
    corners = mesh.vertices[mesh.faces].astype("<f4")
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    length = np.linalg.norm(normal, axis=1, keepdims=True)
    records = np.zeros(
        len(corners), [("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")]
    )
    np.divide(normal, length, out=records["normal"], where=length > 0)
    records["corners"] = corners
    yield f"hushpore, lengths in {unit or 'unknown'}".encode()[:80].ljust(80)
    yield np.array(len(corners), "<u4").tobytes()
    yield records.tobytes()


def ply(mesh: Mesh, unit: str = "") -> Iterator[bytes]:
    """Yield the parts of a binary PLY file, as `stl`."""
    head = f"""ply
format binary_little_endian 1.0
comment hushpore, lengths in {unit or "unknown"}
element vertex {len(mesh.vertices)}
property double x
property double y
property double z
element face {len(mesh.faces)}
property list uchar int vertex_indices
property int label
end_header
"""
    faces = np.zeros(len(mesh.faces), [("count", "u1"), ("corners", "<i4", 3), ("label", "<i4")])
    faces["count"], faces["corners"], faces["label"] = 3, mesh.faces, mesh.labels
    yield head.encode("ascii", "replace")
    yield mesh.vertices.astype("<f8").tobytes()
    yield faces.tobytes()
