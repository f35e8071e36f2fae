from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from hushpore import InputError, Volume
from hushpore.io.export.mesh import Mesh, ply, pore_surface, stl

if TYPE_CHECKING:
    from pathlib import Path


def balls() -> Volume:
    """Two balls of radius 12 and 8 voxels, apart, in flat voxels."""
    z, y, x = np.ogrid[:24, :40, :60]
    labels = np.zeros((24, 40, 60), np.int32)
    labels[(2 * (z - 12)) ** 2 + (y - 20) ** 2 + (x - 15) ** 2 < 144] = 1
    labels[(2 * (z - 12)) ** 2 + (y - 20) ** 2 + (x - 45) ** 2 < 64] = 2
    return Volume(labels, spacing=(2, 1, 1), origin=(5, 6, 7), unit="mm", name="balls")


def edges(mesh: Mesh) -> np.ndarray:
    """The directed edges of all triangles."""
    return mesh.faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2)


def is_closed(mesh: Mesh) -> bool:
    """Whether each edge is walked once in each sense, as around a body without holes."""
    walked = {tuple(edge) for edge in edges(mesh).tolist()}
    return len(walked) == len(edges(mesh)) and all((b, a) in walked for a, b in walked)


def volume_of(mesh: Mesh) -> float:
    """The volume inside by the divergence theorem; above zero where normals lead outward."""
    a, b, c = (mesh.vertices[mesh.faces[:, corner]] for corner in range(3))
    return float(np.einsum("ij,ij->i", a, np.cross(b, c)).sum() / 6)


def test_the_surface_of_balls_is_closed_and_holds_their_volume() -> None:
    labels = balls()
    mesh = pore_surface(labels)
    assert is_closed(mesh)
    expected = 4 / 3 * np.pi * (12**3 + 8**3)
    assert volume_of(mesh) == pytest.approx(expected, rel=0.05)
    assert volume_of(mesh) < np.count_nonzero(labels.data) * labels.voxel_size
    # Euler: two spheres
    assert len(mesh.vertices) - len(edges(mesh)) / 2 + len(mesh.faces) == 4


def test_places_are_those_of_the_volume() -> None:
    mesh = pore_surface(balls(), only=[2])
    middle = (mesh.vertices.min(axis=0) + mesh.vertices.max(axis=0)) / 2
    np.testing.assert_allclose(middle, (7 + 45, 6 + 20, 5 + 24))


@pytest.mark.parametrize("share", [0.1, 0.4, 0.7])
def test_any_void_has_a_closed_surface(rng: np.random.Generator, share: float) -> None:
    void = Volume((rng.random((14, 15, 16)) < share).astype(np.int32))
    mesh = pore_surface(void)
    assert is_closed(mesh)
    assert volume_of(mesh) > 0


def test_pores_that_touch_share_a_surface_or_have_one_each() -> None:
    labels = np.zeros((6, 6, 12), np.int32)
    labels[1:5, 1:5, 1:6], labels[1:5, 1:5, 6:11] = 1, 2
    together = pore_surface(Volume(labels))
    apart = pore_surface(Volume(labels), apart=True)
    assert is_closed(together)
    assert is_closed(apart)
    assert set(apart.labels) == {1, 2}
    assert set(together.labels) == {0}
    assert len(apart.faces) > len(together.faces)
    assert volume_of(together) > volume_of(apart)


def test_no_pores_are_no_triangles(tmp_path: Path) -> None:
    mesh = pore_surface(Volume(np.zeros((3, 4, 5), np.int32)))
    assert mesh.faces.shape == (0, 3)
    assert len(b"".join(stl(mesh))) == 84


@pytest.mark.parametrize("suffix", [".stl", ".ply"])
def test_another_program_reads_the_same_body(tmp_path: Path, suffix: str) -> None:
    trimesh = pytest.importorskip("trimesh")
    mesh = pore_surface(balls())
    path = tmp_path / f"a{suffix}"
    path.write_bytes(b"".join({".stl": stl, ".ply": ply}[suffix](mesh, "mm")))
    loaded = trimesh.load_mesh(path)
    assert loaded.is_watertight
    assert loaded.is_winding_consistent
    assert loaded.volume == pytest.approx(volume_of(mesh), rel=1e-5)
    assert loaded.body_count == 2
    if suffix == ".ply":
        assert len(loaded.metadata["_ply_raw"]["face"]["data"]["label"]) == len(mesh.faces)


def test_an_stl_file_has_the_triangles_and_their_normals(tmp_path: Path) -> None:
    mesh = pore_surface(balls())
    data = b"".join(stl(mesh, "mm"))
    assert b"lengths in mm" in data[:80]
    assert not data.startswith(b"solid")
    assert int.from_bytes(data[80:84], "little") == len(mesh.faces)
    kind = [("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("end", "<u2")]
    records = np.frombuffer(data, kind, offset=84)
    np.testing.assert_array_equal(records["corners"], mesh.vertices[mesh.faces].astype("f4"))
    np.testing.assert_allclose(np.linalg.norm(records["normal"], axis=1), 1, rtol=1e-5)
    outward = records["corners"].mean(axis=1) - (22, 26, 29)
    of_first = outward[:, 0] < 15
    assert (np.einsum("ij,ij->i", outward, records["normal"])[of_first] > 0).all()


@pytest.mark.parametrize(
    ("labels", "only", "words"),
    [
        (Volume(np.zeros((4, 4), np.int32)), None, "3D labels"),
        (Volume(np.zeros((4, 4, 4))), None, "3D labels"),
        (balls(), [7], "Pore 7 does not exist; the labels are 1 to 2"),
    ],
)
def test_what_has_no_surface_is_refused(labels: Volume, only: list[int] | None, words: str) -> None:
    with pytest.raises(InputError, match=words):
        pore_surface(labels, only)
