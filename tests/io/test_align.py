"""Alignment against phantoms that were moved by a known motion."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import ndimage
from scipy.spatial.transform import Rotation

from hushpore.base.errors import InputError
from hushpore.base.volume import Volume
from hushpore.cli.commands import hushpore as command
from hushpore.io import read
from hushpore.io.align import aligned, find_alignment
from hushpore.io.results import write_image


def sample(n, seed=0):
    noise = np.random.default_rng(seed).normal(size=(n, n, n)).astype(np.float32)
    field = ndimage.gaussian_filter(noise, 3)
    return ndimage.gaussian_filter((field > np.quantile(field, 0.2)).astype(np.float32), 0.7)


def pair(n, angles, shift, noise, room):
    """Return a scan, and another that is moved, brighter and has noise of its own.

    `angles`: rotation vector in degrees, `shift` in voxels, along z, y, x about the centre.
    """
    rng = np.random.default_rng(1)
    whole = sample(n + 2 * room)
    x, y, z = np.radians(angles[::-1])
    turn = Rotation.from_rotvec([x, y, z]).as_matrix()[::-1, ::-1]
    centre = np.full(3, (n - 1) / 2)
    start = room + centre - turn.T @ (centre + np.array(shift))
    moving = ndimage.affine_transform(whole, turn.T, start, (n, n, n), order=3)
    fixed = whole[(slice(room, room + n),) * 3]
    first, second = (each + rng.normal(0, noise, each.shape) for each in (fixed, moving))
    return first, 2 * second + 1


@pytest.mark.parametrize(
    ("angles", "shift", "noise"),
    [((3, -3, 3), (20, -20, 20), 0.25), ((-1.2, 0.4, 2.1), (0.3, 7.6, -3.2), 0.1)],
)
def test_a_known_motion_is_found(angles, shift, noise):
    fixed, moving = pair(72, angles, shift, noise, 24)
    found = find_alignment(Volume(moving), Volume(fixed))
    np.testing.assert_allclose(found.shift, shift, atol=0.1)
    np.testing.assert_allclose(found.angles, angles, atol=0.1)


def test_the_result_lies_on_the_grid_of_the_fixed_scan():
    fixed, moving = pair(56, (1, -2, 1.5), (4.3, -3, 2.5), 0.02, 12)
    grid = Volume(fixed, spacing=(3, 3, 3), unit="um", origin=(9, 0, 0), name="before")
    volume, found = aligned(Volume(moving, spacing=3, unit="um", name="after"), grid)
    assert (volume.shape, volume.spacing, volume.origin) == (grid.shape, grid.spacing, grid.origin)
    np.testing.assert_allclose(found.shift, 3 * np.array([4.3, -3, 2.5]), atol=0.1)
    values = volume.array()
    covered = values != np.float32(volume.metadata["padding_value"])
    assert covered.mean() == pytest.approx(found.overlap, abs=0.06)
    assert np.corrcoef(values[covered], fixed[covered])[0, 1] > 0.98
    part = volume.data[5:9, 10:40:3, 20]
    np.testing.assert_allclose(part, values[5:9, 10:40:3, 20], atol=1e-4)
    assert "of its volume overlaps" in volume.notes[-1]
    filled = np.empty(volume.shape, np.float32)
    assert list(volume.data.read_into(filled))[-1] == 56


def test_voxels_of_two_sizes():
    fixed, moving = pair(64, (0, 0, 0), (0, 4, -2), 0.02, 8)
    binned = moving.reshape(32, 2, 32, 2, 32, 2).mean((1, 3, 5))
    # centres of the blocks lie half a voxel inwards
    found = find_alignment(
        Volume(binned, spacing=2, unit="um"), Volume(fixed, spacing=1, unit="um")
    )
    np.testing.assert_allclose(found.shift, np.array([0, 4, -2]) - 0.5, atol=0.1)


def test_two_samples_do_not_match():
    with pytest.raises(InputError, match="do not match"):
        find_alignment(Volume(sample(48, 1)), Volume(sample(48, 2)))


@pytest.mark.parametrize(
    ("moving", "message"),
    [
        (Volume(np.zeros((16, 16))), "at least 8 voxels"),
        (Volume(np.zeros((4, 16, 16))), "at least 8 voxels"),
        (Volume(np.zeros((16, 16, 16)), spacing=1, unit="um"), "in the same unit"),
        (Volume(np.zeros((16, 16, 16), int), metadata={"labels": True}), "contains labels"),
    ],
)
def test_what_cannot_be_aligned(moving, message):
    with pytest.raises(InputError, match=message):
        find_alignment(moving, Volume(np.zeros((16, 16, 16))))


def test_the_command(tmp_path):
    fixed, moving = pair(48, (0, 1, 0), (2, 3, -4), 0.02, 10)
    paths = [
        str(
            write_image(
                tmp_path / f"{name}.tif", Volume(values.astype(np.float32), spacing=2, unit="um")
            )
        )
        for name, values in (("after", moving), ("before", fixed))
    ]
    out = tmp_path / "aligned.ome.zarr"
    done = CliRunner().invoke(command, ["align", *paths, "-o", str(out), "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    np.testing.assert_allclose(found["shift"], [4, 6, -8], atol=0.2)
    volume = read(out)
    assert (volume.shape, volume.spacing, volume.unit) == ((48, 48, 48), (2, 2, 2), "um")
    inner = (slice(10, 38),) * 3
    assert np.corrcoef(volume.array()[inner].ravel(), fixed[inner].ravel())[0, 1] > 0.98
    again = CliRunner().invoke(command, ["align", *paths, "-o", str(out)])
    assert again.exit_code == 1
