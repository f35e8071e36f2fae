from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from napari.layers import Layer

import hushpore
from hushpore import Volume
from hushpore.base.provenance import fingerprint
from hushpore.viewer.layers.conversion import layer_data
from hushpore.viewer.layers.layer_files import (
    write_image_layer,
    write_image_with_labels,
    write_labels_layer,
)
from hushpore.viewer.layers.reader import read_layers

if TYPE_CHECKING:
    from pathlib import Path
from typing import Any

pytestmark = pytest.mark.gui


def save(path: str, made: tuple[Any, dict[str, Any], str]) -> list[str]:
    """Save a layer as napari does: from its data and all its attributes."""
    data, attributes, kind = Layer.create(*made).as_layer_data_tuple()
    return {"image": write_image_layer, "labels": write_labels_layer}[kind](path, data, attributes)


@pytest.mark.parametrize(
    ("kind", "dtype"), [("image", np.float32), ("image", np.int16), ("labels", np.int32)]
)
@pytest.mark.parametrize("suffix", ["tif", "zarr"])
def test_a_saved_layer_comes_back_where_it_lay(
    tmp_path: Path, kind: str, dtype: type, suffix: str
) -> None:
    values = np.arange(60).reshape(3, 4, 5).astype(dtype)
    volume = Volume(values, spacing=(2, 0.5, 0.5), unit="mm", origin=(1, 2, 3), name="bread")
    written = save(str(tmp_path / f"bread.{suffix}"), layer_data(volume, kind))
    assert written == [str(tmp_path / f"bread.{suffix}")]
    back = hushpore.read(written[0])
    np.testing.assert_array_equal(back.array(), values)
    assert (back.spacing, back.unit, back.origin) == ((2, 0.5, 0.5), "mm", (1, 2, 3))
    # and as a layer of its kind
    ((_, _, opened),) = read_layers(written[0])
    assert opened == kind


def test_how_a_layer_was_made_is_saved_beside_it(tmp_path: Path) -> None:
    volume = Volume(np.ones((4, 4), np.float32), spacing=1, unit="mm")
    save(str(tmp_path / "bread.tif"), layer_data(volume, provenance={"job": "denoise"}))
    record = json.loads((tmp_path / "bread.json").read_text())
    assert record == {"job": "denoise", "fingerprints": {"image": fingerprint(volume.data)}}


def test_an_image_and_the_labels_over_it_are_saved_as_one(tmp_path: Path) -> None:
    values = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    volume = Volume(values, spacing=(2, 0.5, 0.5), unit="mm", name="bread")
    layers = [
        Layer.create(*layer_data(each, kind)).as_layer_data_tuple()
        for each, kind in (
            (volume.replace((values > 9).astype(np.int32), name="pores"), "labels"),
            (volume, "image"),
        )
    ]
    (written,) = write_image_with_labels(str(tmp_path / "bread.zarr"), layers)
    image, labels = hushpore.read_all(written)
    np.testing.assert_array_equal(image.array(), values)
    np.testing.assert_array_equal(labels.array(), values > 9)
    assert (labels.name, labels.spacing) == ("pores", (2, 0.5, 0.5))
