"""A measure that is declared here, in one place, is known wherever measures are."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from scipy import ndimage

import hushpore
from hushpore import Volume
from hushpore.base.events import result_of
from hushpore.base.rescaled import Scaled
from hushpore.io.zarr import write_zarr
from hushpore.pores.geometry.sums import SUMS, Sum
from hushpore.pores.gpu import engines
from hushpore.pores.gpu.engine import SOURCES, Gpu, definitions
from hushpore.pores.settings import PoreSettings
from hushpore.pores.tables.measures import PORES, Measure
from hushpore.runs.compare import compare, distributions
from hushpore.runs.result_folder import write_result

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hushpore.pores.result import Pores
    from hushpore.pores.tables.merged_sums import PoreSums

SHAPE = (24, 30, 34)
DOCS = Path(__file__).parents[2] / "docs"


def mean_of(pores: PoreSums) -> np.ndarray:
    return pores.sum("toy") / pores.sum("voxels")


@pytest.fixture
def toy_grey() -> Iterator[None]:
    """The mean grey value of a pore."""
    SUMS.append(Sum("toy", grey=1))
    PORES.append(Measure("toy_grey", 0, "Mean grey value of its voxels.", mean_of))
    yield
    SUMS.pop()
    PORES.pop()


def grey_values(shape: tuple[int, ...]) -> np.ndarray:
    """Whole numbers from some below zero on, dark in pores."""
    noise = np.random.default_rng(5).normal(size=shape)
    return (ndimage.gaussian_filter(noise, 2) * -4000 + noise).round().astype(np.int16)


def scan(kind: str = "int16", shape: tuple[int, ...] = SHAPE) -> Volume:
    values: Any = grey_values(shape)
    if kind == "scaled":
        values = Scaled((values + 5000).astype(np.uint16), 0.7, -3500.25)
    elif kind == "bool":
        values = values < 0
    elif kind == "uint8":
        values = (values // 16 + 128).clip(0, 255).astype(np.uint8)
    elif kind == "uint16":
        values = (values.astype(np.int64) + 2**15).clip(0, 2**16 - 1).astype(np.uint16)
    elif kind == "uint32":
        values = (values.astype(np.int64) + 2**31).astype(np.uint32)
    elif kind.startswith("float"):
        values = (values / 7).astype(kind)
    return Volume(values, spacing=(2, 1, 1.5), unit="um", name="scan")


def assert_means(found: Pores) -> None:
    """Of the table those that SciPy finds in grey values and labels."""
    values = np.asarray(found.volume.data, np.float64)
    expected = ndimage.mean(values, found.labels, found.pores["label"])
    deviations = ndimage.standard_deviation(values, found.labels, found.pores["label"])
    assert len(expected) > 3
    # other values than integers of 16 bits are rounded to a share of their range
    is_exact = found.volume.dtype.kind in "iu" and np.abs(values).max() < 2**16
    step = 0.0 if is_exact else np.ptp(values) / 65_536
    for name in ("toy_grey", "mean_grey"):
        np.testing.assert_allclose(found.pores[name], expected, rtol=1e-12, atol=step / 2)
    # rounding adds a twelfth of the squared step to a variance
    deviation = found.pores["grey_deviation"]
    np.testing.assert_allclose(deviation, deviations, rtol=1e-9, atol=step / 2 + 1e-9)


@pytest.mark.parametrize(
    "kind", ["int16", "uint8", "uint16", "uint32", "float32", "float64", "scaled"]
)
def test_it_is_that_of_scipy_in_memory_and_in_slabs(kind: str, toy_grey: None) -> None:
    # of 14 bytes a voxel, more than the least that can be allowed
    large = scan(kind, (24, 60, 54))
    whole = hushpore.segment_pores(large, threshold="otsu", device="cpu")
    assert whole.pores.columns[-1] == "toy_grey"
    assert_means(whole)
    assert_means(whole.remerge(3.0))
    slabs = hushpore.segment_pores(large, threshold="otsu", device="cpu", memory_budget=0.001)
    assert isinstance(slabs.labels, np.memmap)
    pd.testing.assert_frame_equal(slabs.pores, whole.pores)


def test_a_small_contrast_far_from_0_is_not_lost() -> None:
    values = (grey_values(SHAPE) / 50 + 5000).astype(np.float32)
    found = hushpore.segment_pores(Volume(values), device="cpu")
    where = values.astype(np.float64), found.labels, found.pores["label"]
    step = float(np.ptp(values)) / 65_536
    np.testing.assert_allclose(found.pores["mean_grey"], ndimage.mean(*where), atol=step, rtol=0)
    expected = ndimage.standard_deviation(*where)
    np.testing.assert_allclose(found.pores["grey_deviation"], expected, atol=step, rtol=1e-9)


def test_a_mask_has_no_grey_values() -> None:
    found = hushpore.segment_pores(scan("bool"), device="cpu")
    assert len(found.pores) > 3
    assert found.pores[["mean_grey", "grey_deviation"]].isna().all(axis=None)


def test_it_is_that_of_scipy_in_an_image(toy_grey: None) -> None:
    image = Volume(grey_values((60, 70)))
    assert_means(hushpore.segment_pores(image, minimum_voxels=1, device="cpu"))


@pytest.mark.parametrize("kind", ["int16", "float32", "scaled", "bool"])
def test_it_is_the_same_on_a_gpu(
    kind: str,
    emulated: Any,
    emulated_backend: Any,
    cuda_shim: Any,
    monkeypatch: pytest.MonkeyPatch,
    toy_grey: None,
) -> None:
    kernels = dict(zip(SOURCES, emulated.sources(), strict=True))
    # the one of the graph sums, and is compiled for the sums that there are
    kernels[SOURCES[-1]] = cuda_shim.ShimKernels(SOURCES[-1], definitions())
    gpu = type(emulated)(emulated.xp, lambda source, _: kernels[source])
    gpu.run_threads("shuffled")
    monkeypatch.setattr(Gpu, "of", lambda backend: gpu)
    monkeypatch.setattr(engines, "_WARMED_UP", {"cuda:0"})
    expected = hushpore.segment_pores(scan(kind), device="cpu")
    voxels = expected.labels.size
    # with its grey values, without them, and in slabs
    for free in (10**12, 33 * voxels // 2, 12 * voxels):
        found = hushpore.run("pores", scan(kind), None, emulated_backend(free=free))
        assert found.provenance["device"].startswith("a GPU")
        pd.testing.assert_frame_equal(found.pores, expected.pores)


@pytest.mark.parametrize("kind", ["int16", "float32"])
def test_it_is_the_same_on_a_cluster(
    kind: str, address: str, tmp_path: Path, toy_grey: None
) -> None:
    from hushpore.cluster.segmenting import segment_pores

    stored = write_zarr(tmp_path / "scan.ome.zarr", scan(kind))
    expected = hushpore.segment_pores(hushpore.read(stored), device="cpu")
    job = segment_pores(stored, tmp_path / "result", PoreSettings(), where=address, thickness=7)
    folder = result_of(job).folder
    table = expected.pores.to_csv(index=False, lineterminator="\n")
    assert (folder / "pores.csv").read_text(encoding="utf-8") == table


def test_any_powers_are_summed_alike(toy_grey: None) -> None:
    more = [Sum("squares", grey=2), Sum("weighted", z=1, x=2, grey=1), Sum("of_y", y=2, x=1)]
    shown = [
        Measure(each.name, 0, "", lambda pores, name=each.name: pores.sum(name)) for each in more
    ]
    SUMS.extend(more)
    PORES.extend(shown)
    try:
        found = hushpore.segment_pores(scan("uint8"), device="cpu")
    finally:
        del SUMS[-len(more) :], PORES[-len(more) :]
    grey = np.asarray(found.volume.data, np.int64)
    z, y, x = np.indices(grey.shape)
    for name, values in (("squares", grey**2), ("weighted", z * x**2 * grey), ("of_y", y**2 * x)):
        expected = ndimage.sum_labels(values, found.labels, found.pores["label"])
        np.testing.assert_array_equal(found.pores[name], expected)


def test_it_is_in_files_reports_and_comparisons(tmp_path: Path, toy_grey: None) -> None:
    found = hushpore.segment_pores(scan(), device="cpu")
    other = hushpore.segment_pores(scan(), device="cpu", merge_height=2.0)
    folder = write_result(tmp_path / "result", [found], found.volume)
    stored = pd.read_csv(folder / "pores.csv")
    np.testing.assert_allclose(stored["toy_grey"], found.pores["toy_grey"])
    page = (folder / "report.html").read_text(encoding="utf-8")
    # of the spread, and of the largest
    assert page.count("Toy grey<") == 2
    table = compare(folder, other).set_index("quantity")
    row = table.loc["median toy_grey of pores"]
    assert row["a"] == pytest.approx(np.median(found.pores["toy_grey"]))
    assert row["b"] == pytest.approx(np.median(other.pores["toy_grey"]))
    assert distributions(folder, other, "toy_grey")["a"].sum() == pytest.approx(1)
    # a result that was made without it can be compared in all else
    stored.drop(columns="toy_grey").to_csv(folder / "pores.csv", index=False)
    assert "median toy_grey of pores" not in set(compare(folder, other)["quantity"])


def test_it_is_in_the_viewer(toy_grey: None) -> None:
    pytest.importorskip("napari")
    from qtpy.QtCore import Qt

    from hushpore.viewer.results.pore_layer import pore_layer
    from hushpore.viewer.results.table import TableModel, filter_rows

    found = hushpore.segment_pores(scan(), device="cpu")
    features = pore_layer(found, "pores")[1]["features"]
    np.testing.assert_array_equal(features["toy_grey"], found.pores["toy_grey"])
    model = TableModel(PORES)
    model.show_table(found.pores, "um")
    across, last = Qt.Orientation.Horizontal, model.columnCount() - 1
    assert model.headerData(last, across) == "Toy\ngrey"
    meaning = model.headerData(last, across, Qt.ItemDataRole.ToolTipRole)
    assert meaning == "Mean grey value of its voxels.\nIn filters and files: toy_grey"
    middle = float(np.median(found.pores["toy_grey"]))
    passing = filter_rows(f"toy_grey > {middle}", found.pores)
    np.testing.assert_array_equal(passing, found.pores["toy_grey"] > middle)


def test_it_is_in_the_documentation(toy_grey: None) -> None:
    page = runpy.run_path(str(DOCS / "measures.py"))["columns_page"]()
    assert "| `toy_grey` |  | Mean grey value of its voxels. |" in page


def test_a_power_that_no_kernel_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="0, 1 or 2"):
        Sum("cubes", x=3)
