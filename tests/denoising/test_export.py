from __future__ import annotations

import sys
import zipfile
from typing import TYPE_CHECKING

import numpy as np
import pytest

import hushpore
from hushpore import InputError, Volume
from hushpore.base.errors import MissingPackageError, OutputError

if TYPE_CHECKING:
    from pathlib import Path

QUICK = {
    "steps": 3,
    "patch_size": 16,
    "batch_size": 2,
    "device": "cpu",
    "precision": "float32",
    "context": 0,
}


def scan(axes: str, shape: tuple[int, ...]) -> Volume:
    values = np.random.default_rng(0).normal(1000, 50, shape).astype(np.float32)
    return Volume(values, axes=axes, name="bread")


@pytest.mark.parametrize(
    ("axes", "shape", "settings"),
    [
        ("zyx", (3, 70, 80), {}),
        ("zyx", (20, 40, 44), {"dimensions": 3}),
        ("zyx", (6, 40, 44), {"dimensions": 3}),
        ("cyx", (2, 40, 44), {"channels": "together", "method": "n2v"}),
    ],
    ids=["2D", "3D", "thin", "channels"],
)
@pytest.mark.needs("bioimageio")
def test_the_zoos_own_library_accepts_the_package(
    tmp_path: Path, axes: str, shape: tuple[int, ...], settings: dict[str, object]
) -> None:
    from bioimageio import core

    volume = scan(axes, shape)
    model = hushpore.denoise(volume, **QUICK, **settings).model
    package = model.export(tmp_path / "bread.zip", volume, authors=("A. Baker",))
    assert core.test_model(package).status in ("passed", "valid-format")
    assert list(tmp_path.iterdir()) == [package]
    with zipfile.ZipFile(package) as files:
        assert "denoised.npy" in files.namelist()


@pytest.mark.parametrize(
    ("method", "tag", "doi"),
    [
        ("r2r", "recorrupted2recorrupted", "10.1109/CVPR46437.2021.00208"),
        ("n2v2", "noise2void", "10.1007/978-3-031-25069-9_33"),
        ("pair", "noise2noise", "10.48550/arXiv.1803.04189"),
    ],
)
@pytest.mark.needs("bioimageio")
def test_the_package_says_by_what_method_it_was_trained(
    tmp_path: Path, method: str, tag: str, doi: str
) -> None:
    volume = scan("zyx", (3, 70, 80))
    how = {"method": method}
    if method == "pair":
        other = np.random.default_rng(1).normal(1000, 50, volume.shape).astype(np.float32)
        how = {"pair": Volume(other)}
    model = hushpore.denoise(volume, **QUICK, **how).model
    with zipfile.ZipFile(model.export(tmp_path / "bread.zip", volume)) as files:
        (name,) = (name for name in files.namelist() if name.endswith(".yaml"))
        stated = files.read(name).decode()
    assert tag in stated
    assert doi in stated
    assert ("noise2void" in stated) == (method == "n2v2")


def test_without_the_zoos_library_it_is_said_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "bioimageio.core", None)
    volume = scan("zyx", (3, 32, 32))
    model = hushpore.denoise(volume, **QUICK).model
    with pytest.raises(MissingPackageError, match=r"pip install 'hushpore\[bioimage\]'"):
        model.export(tmp_path / "bread.zip", volume)


def test_what_cannot_be_exported_is_refused(tmp_path: Path) -> None:
    volume = scan("zyx", (3, 32, 32))
    model = hushpore.denoise(volume, **QUICK | {"context": 1}).model
    with pytest.raises(InputError, match=r"must end in \.zip"):
        model.export(tmp_path / "bread.tar", volume)
    with pytest.raises(
        InputError, match=r"1 neighbouring slice on either side.*Train with context=0"
    ):
        model.export(tmp_path / "bread.zip", volume)
    (tmp_path / "there.zip").write_text("something dear")
    with pytest.raises(OutputError, match="already exists"):
        model.export(tmp_path / "there.zip", volume)
