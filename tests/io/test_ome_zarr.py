import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hushpore.base.errors import InputError, MissingPackageError, OutputError
from hushpore.base.volume import Volume
from hushpore.io import is_on_disk, kind_of, read, read_all

zarr = pytest.importorskip("zarr")

from hushpore.io.ome_zarr import write_zarr  # noqa: E402
from hushpore.io.results import check_target, write_image  # noqa: E402


@given(
    axes=st.sampled_from(["yx", "zyx", "tzyx", "czyx", "tczyx"]),
    dtype=st.sampled_from(["bool", "uint8", "int16", ">u2", "int32", "float32", "float64"]),
    unit=st.sampled_from(["mm", "um", "nm", "m", "cm", "pixel"]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_values_type_axes_and_geometry_survive_a_round_trip(
    tmp_path_factory, axes, dtype, unit, seed
):
    rng = np.random.default_rng(seed)
    n_spatial = min(3, len(axes))
    volume = Volume(
        rng.integers(0, 2, rng.integers(1, 5, len(axes))).astype(dtype),
        spacing=tuple(rng.uniform(0.01, 9, n_spatial)),
        origin=tuple(rng.uniform(-9, 9, n_spatial)),
        unit=unit,
        axes=axes,
        name="a",
    )
    path = write_zarr(tmp_path_factory.mktemp("zarr") / "a.ome.zarr", volume)
    assert kind_of(path) == "zarr"
    back = read(path)
    np.testing.assert_array_equal(back.data, volume.data)
    assert back.dtype == volume.dtype.newbyteorder("=")
    assert (back.axes, back.spacing, back.unit, back.origin, back.notes) == (
        axes, volume.spacing, unit, volume.origin, [],
    )  # fmt: skip


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_an_image_of_another_program_is_read_with_its_scale_and_unit(tmp_path, ramp, version):
    path = tmp_path / "scan.zarr"
    group = zarr.open_group(str(path), mode="w", zarr_format=2 if version == "0.4" else 3)
    group.create_array("full", data=ramp[None, None])
    group.create_array("half", data=ramp[None, None, ::2, ::2, ::2])
    units = ["second", None, "micrometer", "micrometer", "millimeter"]
    image = {
        "axes": [
            {"name": name, **({"unit": unit} if unit else {})}
            for name, unit in zip("tczyx", units, strict=True)
        ],
        "datasets": [
            {
                "path": "full",
                "coordinateTransformations": [
                    {"type": "scale", "scale": [1, 1, 2, 0.5, 0.001]},
                    {"type": "translation", "translation": [0, 0, 4, 0, 0]},
                ],
            },
            {"path": "half"},
        ],
        "coordinateTransformations": [{"type": "scale", "scale": [0.1, 1, 2, 1, 1]}],
    }
    inner = {"version": version, "multiscales": [image]}
    group.attrs.update(inner if version == "0.4" else {"ome": inner})
    volume = read(path)
    np.testing.assert_array_equal(volume.data, ramp)
    assert (volume.axes, volume.unit) == ("zyx", "mm")
    assert volume.spacing == pytest.approx((0.004, 0.0005, 0.001))
    assert volume.origin == pytest.approx((0.008, 0, 0))


def test_several_images_in_one_folder_are_several_volumes(tmp_path, ramp):
    zarr.open_group(str(tmp_path), mode="w", zarr_format=2)
    for name in "01":
        write_zarr(tmp_path / name, Volume(ramp, name=f"image {name}"))
    assert [volume.name for volume in read_all(tmp_path)] == ["image 0", "image 1"]


def test_a_bare_array_is_read_without_a_voxel_size(tmp_path, ramp):
    zarr.create_array(str(tmp_path / "a.zarr"), data=ramp)
    volume = read(tmp_path / "a.zarr")
    np.testing.assert_array_equal(volume.data, ramp)
    assert volume.unit == "pixel"


def test_a_stack_left_on_disk_is_read_where_it_is_indexed(tmp_path, ramp):
    path = write_zarr(tmp_path / "a.zarr", Volume(np.stack([ramp, ramp + 1]), axes="tzyx"))
    (volume,) = read_all(path, lazy=True)
    assert is_on_disk(volume)
    np.testing.assert_array_equal(volume.data[1, ..., 2], (ramp + 1)[..., 2])
    np.testing.assert_array_equal(volume.data[-1], ramp + 1)


def test_damage_is_told(tmp_path, ramp):
    path = write_zarr(tmp_path / "a.zarr", Volume(ramp))
    (path / "0" / "0" / "0" / "0").write_bytes(b"not a chunk")
    with pytest.raises(InputError, match="damaged"):
        read(path)
    (path / "0" / ".zarray").write_text("{}")
    with pytest.raises(InputError, match="damaged"):
        read(path)
    (path / ".zattrs").write_text(json.dumps({"other": 1}))
    with pytest.raises(InputError, match=r"without an OME image|damaged"):
        read(path)


def test_only_an_image_written_here_is_replaced(tmp_path, ramp):
    path = write_zarr(tmp_path / "a.zarr", Volume(ramp))
    with pytest.raises(OutputError, match="exists already"):
        write_zarr(path, Volume(ramp))
    write_zarr(path, Volume(ramp[:2]), overwrite=True)
    assert read(path).shape == (2, 6, 7)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "x").touch()
    with pytest.raises(OutputError, match="not replaced"):
        write_zarr(tmp_path / "mine", Volume(ramp), overwrite=True)


def test_the_name_of_an_image_decides_its_format(tmp_path, ramp):
    volume = Volume(ramp, spacing=(2, 1, 1), unit="um")
    path = write_image(tmp_path / "a.ome.zarr", volume)
    assert kind_of(path) == "zarr"
    with pytest.raises(OutputError, match="exists already"):
        check_target(path, directory=False)
    write_image(path, volume, record={"job": "denoise"}, overwrite=True)
    assert (tmp_path / "a.ome.json").is_file()
    (tmp_path / "b.zarr").mkdir()
    (tmp_path / "b.zarr" / "mine").touch()
    with pytest.raises(OutputError, match="not replaced"):
        write_image(tmp_path / "b.zarr", volume, overwrite=True)


def test_without_zarr_the_command_that_installs_it_is_given(tmp_path, ramp, monkeypatch):
    path = write_zarr(tmp_path / "a.zarr", Volume(ramp))
    monkeypatch.setitem(__import__("sys").modules, "zarr", None)
    with pytest.raises(MissingPackageError, match="pip install zarr"):
        read(path)
