"""Labels of another program, measured in the window."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from napari.layers import Layer
from scipy import ndimage

import hushpore
from hushpore.viewer.layers import reader
from hushpore.viewer.layers.conversion import METADATA_KEY
from hushpore.viewer.results.pore_layer import tables_of
from hushpore.viewer.segment.widget import MeasureWidget, MergeHeight, PoresWidget


@pytest.fixture
def labels() -> np.ndarray:
    smooth = ndimage.gaussian_filter(np.random.default_rng(0).random((12, 30, 40)), 2)
    return ndimage.label(smooth < np.quantile(smooth, 0.2))[0]


def test_a_labels_layer_is_measured_with_its_own_labels(
    qtbot: Any, viewer: Any, labels: np.ndarray
) -> None:
    scan = np.random.default_rng(1).integers(0, 900, labels.shape).astype(np.uint16)
    viewer.add_image(scan, name="scan", scale=(2, 2, 2), units=("um",) * 3)
    viewer.add_labels(labels, name="avizo", scale=(2, 2, 2), units=("um",) * 3)
    widget = MeasureWidget(viewer)
    qtbot.addWidget(widget.native)
    assert widget.layer.value is viewer.layers["avizo"]
    merging = MergeHeight(viewer)
    qtbot.addWidget(merging)
    widget.run()
    result = widget.wait()
    layer = viewer.layers.selection.active
    np.testing.assert_array_equal(layer.data, labels)
    tables = tables_of(layer)
    assert tables is not None
    assert len(tables.pores) == labels.max()
    expected = hushpore.measure_labels(result.volume, values="labels").pores
    np.testing.assert_allclose(tables.pores["volume"], expected["volume"])
    assert layer.metadata[METADATA_KEY]["provenance"]["job"] == "measure"
    # measured labels are not merged again, and are not the next input
    assert merging.layer is None
    assert not MeasureWidget.prefers(layer)


def test_the_pores_widget_has_a_link_to_the_measurement(
    qtbot: Any, viewer: Any, labels: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = viewer.add_labels(labels, name="avizo")
    viewer.add_labels(labels, name="another")
    widget, other = PoresWidget(viewer), MeasureWidget(viewer)
    for each in (widget, other):
        qtbot.addWidget(each.native)
    opened = []
    monkeypatch.setattr(
        "hushpore.viewer.job_widget.open_page", lambda viewer, name: opened.append(name) or other
    )
    widget.layer.value = layer
    assert "Measure these labels" in widget._facts.text()
    other.layer.value = viewer.layers["another"]
    widget._facts.linkActivated.emit("measure")
    assert opened == ["Labels"]
    assert other.layer.value is layer


def write(path: Path, values: np.ndarray) -> str:
    """Write an image as other programs do, in the format of its name."""
    match "".join(path.suffixes):
        case ".tif":
            tifffile.imwrite(path, values)
        case ".npy":
            np.save(path, values)
        case ".nrrd":
            pytest.importorskip("nrrd").write(str(path), values, index_order="C")
        case ".nii.gz":
            nibabel = pytest.importorskip("nibabel")
            nibabel.save(nibabel.Nifti1Image(values.T, np.eye(4)), path)
        case ".h5":
            with pytest.importorskip("h5py").File(path, "w") as file:
                file.create_dataset("labels", data=values)
    return str(path)


@pytest.fixture
def pores_of(qtbot: Any, viewer: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Drop a file on the window, and open *Segment pores* on its layer."""
    monkeypatch.setattr(reader, "current_viewer", lambda: viewer)

    def drop(path: str) -> PoresWidget:
        read = reader.get_reader(path)
        assert read is not None
        for data in read(path):
            viewer.add_layer(Layer.create(*data))
        return counted(PoresWidget(viewer))

    def counted(widget: PoresWidget) -> PoresWidget:
        qtbot.addWidget(widget.native)
        qtbot.waitUntil(lambda: not widget.greys.is_busy)
        return widget

    drop.counted = counted  # type: ignore[attr-defined]
    return drop


#: How each kind is made of labels, and what is said of it.
KINDS = {
    "labels": (lambda labels: labels.astype(np.uint16), "labels of another program"),
    "labels as floats": (lambda labels: labels.astype(np.float32), "labels of another program"),
    "mask": (lambda labels: np.where(labels > 0, 255, 0).astype(np.uint8), "a mask of two values"),
    "probability": (
        lambda labels: np.where(labels > 0, 0.96, 0.03).astype(np.float32), "a probability map",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("a.tif", kind) for kind in KINDS),
        *((f"a.{ending}", "labels") for ending in ("nrrd", "nii.gz", "npy", "h5")),
    ],
)
def test_dropped_labels_are_said_before_they_are_segmented(
    pores_of: Any, tmp_path: Path, labels: np.ndarray, monkeypatch: pytest.MonkeyPatch,
    name: str, kind: str,
) -> None:  # fmt: skip
    values = KINDS[kind][0](labels)
    if kind == "probability":
        values = values + np.random.default_rng(3).normal(0, 0.005, values.shape).astype("f4")
    widget = pores_of(write(tmp_path / name, values))
    said = widget._facts.text().replace("\u00a0", " ")
    assert f"looks like {KINDS[kind][1]}, not grey values ⚠ Measure these labels" in said
    assert not widget._facts.isHidden()
    measuring = MeasureWidget(widget._viewer)
    monkeypatch.setattr("hushpore.viewer.job_widget.open_page", lambda viewer, name: measuring)
    widget._facts.linkActivated.emit("measure")
    # and are measured as what they are
    assert measuring.layer.value is widget.layer.value
    measuring.run()
    result = measuring.wait()
    together = ndimage.label(labels, np.ones((3, 3, 3)))[1]
    assert len(result.pores) == (labels.max() if kind.startswith("labels") else together)
    assert result.porosity == pytest.approx((labels > 0).mean())


def test_lazy_labels_are_said_too_and_grey_values_are_not(
    pores_of: Any, viewer: Any, labels: np.ndarray
) -> None:
    da = pytest.importorskip("dask.array")
    grey = np.random.default_rng(1).integers(0, 900, labels.shape).astype(np.uint16)
    viewer.add_image(grey, name="grey")
    widget = pores_of.counted(PoresWidget(viewer))
    assert "looks like" not in widget._facts.text()
    viewer.add_image(da.from_array(labels.astype(np.uint16), chunks=(1, 30, 40)), name="avizo")
    pores_of.counted(widget)
    assert "looks like labels of another program" in widget._facts.text()
    widget.layer.value = viewer.layers["grey"]
    assert "looks like" not in widget._facts.text()
    widget.layer.value = viewer.layers["avizo"]
    assert "looks like labels of another program" in widget._facts.text()
