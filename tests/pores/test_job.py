from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra import numpy as hnp
from scipy import ndimage

import hushpore
from hushpore import InputError, Volume
from hushpore.base.errors import MemoryLimitError
from hushpore.base.events import Attention, Note, Preview, Progress, Remedy, Timing
from hushpore.base.provenance import fingerprint
from hushpore.device.backend import Backend
from hushpore.io.results import write_image
from hushpore.pores import parallel
from hushpore.pores.job import segment_pores
from hushpore.pores.settings import PoreSettings
from hushpore.scan import exterior

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hushpore.pores.result import Pores


def drive(volume: Volume, backend: Backend | None = None, **values: Any) -> tuple[list, Pores]:
    job = segment_pores(volume, PoreSettings(**values), backend or Backend())
    events = []
    while True:
        try:
            events.append(next(job))
        except StopIteration as end:
            return events, end.value


@pytest.fixture(scope="module")
def foam() -> np.ndarray:
    """A smooth random void, about half of the volume."""
    noise = np.random.default_rng(7).normal(size=(40, 44, 48))
    return ndimage.gaussian_filter(noise, 3) > 0


@pytest.fixture(scope="module")
def scan(foam: np.ndarray) -> np.ndarray:
    rng = np.random.default_rng(8)
    return (np.where(foam, 60, 180) + rng.normal(0, 15, foam.shape)).clip(0, 255).astype(np.uint8)


# what comes out


def test_a_void_that_was_saved_is_the_same_void(tmp_path: Path, foam: np.ndarray) -> None:
    path = write_image(tmp_path / "void.tif", Volume(foam[:20]))
    read, given = hushpore.segment_pores(hushpore.read(path)), hushpore.segment_pores(foam[:20])
    assert read.porosity == given.porosity == foam[:20].mean()
    assert read.threshold is None
    np.testing.assert_array_equal(read.labels, given.labels)


@pytest.mark.parametrize("pore", [np.uint8(255), np.int16(1), np.float32(1), np.True_])
def test_a_mask_is_segmented_as_it_is_measured_and_it_is_said_how_to_turn_it_round(
    foam: np.ndarray, pore: Any
) -> None:
    mask = foam[:20] * pore
    result = hushpore.segment_pores(mask)
    assert result.porosity == foam[:20].mean() == hushpore.run("measure", mask).porosity
    remark = result.remarks[0]
    assert remark.message == (
        f"The image has only two values: {pore:g} was segmented as pore and 0 as solid."
    )
    assert remark.with_flags.endswith(" Swap pores and solid: --pores-are dark")
    assert result.provenance["result"]["only_values"] == [0, pore]
    assert remark.remedy is not None
    swapped = hushpore.segment_pores(mask, **remark.remedy.settings)
    assert swapped.porosity == 1 - foam[:20].mean()
    assert f"0 was segmented as pore and {pore:g} as solid" in swapped.remarks[0].message
    assert swapped.remarks[0].remedy == Remedy("Swap pores and solid", {"pores_are": "bright"})


def test_a_threshold_does_not_turn_a_mask_round(foam: np.ndarray) -> None:
    mask = foam[:20].astype(np.uint8) * 255
    result = hushpore.segment_pores(mask, threshold=127)
    assert result.porosity == foam[:20].mean()
    assert "255 was segmented as pore" in result.remarks[0].message


def test_isolated_pores_of_a_mask_lie_in_no_padding(balls: Callable[..., np.ndarray]) -> None:
    void = balls((40, 60, 60), [(20, 20, 30), (20, 40, 30)], 7)
    result = hushpore.segment_pores(void.astype(np.uint8))
    assert result.porosity == void.mean()
    assert result.provenance["result"]["exterior_share"] == 0


def test_of_two_values_without_0_the_darker_one_is_pore(foam: np.ndarray) -> None:
    result = hushpore.segment_pores(np.where(foam[:20], 20, 200).astype(np.uint8))
    assert result.porosity == foam[:20].mean()
    assert "20 was segmented as pore and 200 as solid" in result.remarks[0].message


def test_of_more_values_nothing_is_said(scan: np.ndarray) -> None:
    result = hushpore.segment_pores(scan[:20])
    assert result.provenance["result"]["only_values"] is None
    assert not any("two values" in remark.message for remark in result.remarks)


def test_it_is_said_where_most_pores_are_specks() -> None:
    void = np.random.default_rng(0).random((20, 30, 30)) < 0.02
    void[5:15, 5:15, 5:15] = True
    noisy = hushpore.segment_pores(void)
    few, count = np.count_nonzero(noisy.pores["num_voxels"] < 8), len(noisy.pores)
    assert few == noisy.provenance["result"]["tiny_pores"] == count - 1 > 100
    first = noisy.remarks[0]
    said = f"{few:,} of {count:,} pores are smaller than 8 voxels, probably noise."
    # of the remaining pore, 10 voxels wide, and a few voxels beside it
    size = noisy.provenance["result"]["median_diameter_large"]
    assert size == pytest.approx((6000 / np.pi) ** (1 / 3), rel=0.01)
    said += f" Without them, D50 is {size:.3g} px by number."
    assert (first.message, first.warning) == (said, True)
    assert first.remedy == Remedy("Exclude them", {"minimum_voxels": 8})
    without = hushpore.segment_pores(void, **first.remedy.settings)
    assert not any(remark.warning for remark in without.remarks)


def test_a_few_small_pores_are_no_warning(balls: Callable[..., np.ndarray]) -> None:
    void = balls((30, 30, 60), [(15, 15, 15), (15, 15, 45)], 8)
    void[2, 2, 2] = True
    remarks = hushpore.segment_pores(void).remarks
    assert "1 of 3 pores is smaller than 8 voxels, too small for shape measures." in [
        remark.message for remark in remarks if not remark.warning
    ]


def test_a_window_without_a_middle_is_told(scan: np.ndarray) -> None:
    one = hushpore.segment_pores(scan[:12], threshold="niblack", local_window=7)
    even = hushpore.segment_pores(scan[:12], threshold="niblack", local_window=8)
    (note,) = even.notes
    assert "was changed from 8 to 9 voxels" in note
    np.testing.assert_array_equal(
        even.labels, hushpore.segment_pores(scan[:12], threshold="niblack", local_window=9).labels
    )
    assert one.notes == ()
    hints = PoreSettings(threshold="niblack", local_window=8).hints({})
    assert "a window of 9 voxels" in hints["threshold"]


def test_settings_that_have_no_effect_on_a_void_are_told(foam: np.ndarray) -> None:
    events, result = drive(Volume(foam[:20], name="void"), threshold=0.1, sauvola_k=0.3)
    (note,) = (event for event in events if isinstance(event, Note))
    assert note.warning
    assert note.message.startswith("void is a boolean mask, so ")
    assert "threshold=0.1, sauvola_k=0.3 had no effect." in note.message
    assert result.provenance["notes"] == [note.message]
    assert not drive(Volume(foam[:20]), merge_height=0.3, pore_type="open")[1].notes


def test_labels_and_table_say_the_same(scan: np.ndarray) -> None:
    volume = Volume(scan, spacing=0.5, unit="um", name="foam")
    result = hushpore.segment_pores(volume, minimum_voxels=1)
    assert result.labels.dtype == np.int32
    assert result.labels.shape == scan.shape
    assert result.labels.flags.c_contiguous
    voxels = np.bincount(result.labels.ravel())[1:]
    np.testing.assert_array_equal(result.pores["num_voxels"], voxels)
    np.testing.assert_array_equal(result.pores["label"], np.arange(1, voxels.size + 1))
    assert result.porosity == (result.labels > 0).mean()
    assert result.porosity == (scan <= result.threshold).mean()


def test_the_labels_keep_the_place_of_the_input(scan: np.ndarray) -> None:
    volume = Volume(scan, spacing=(2, 1, 1), unit="mm", origin=(5, 6, 7), name="foam")
    labels = hushpore.segment_pores(volume).labels_volume
    assert (labels.spacing, labels.unit, labels.origin) == ((2, 1, 1), "mm", (5, 6, 7))
    assert labels.dtype == np.int32


def test_the_record_is_json_and_tells_settings_and_figures(scan: np.ndarray) -> None:
    result = hushpore.segment_pores(scan, merge_height=0.7)
    provenance = json.loads(json.dumps(result.provenance, allow_nan=False))
    assert provenance["job"] == "pores"
    assert provenance["settings"]["merge_height"] == 0.7
    assert provenance["result"]["porosity"] == result.porosity
    assert provenance["result"]["count"] == len(result.pores)
    assert provenance["result"]["threshold"] == result.threshold
    assert set(result.timings) >= {"threshold", "void", "distance", "basins", "measuring"}


def test_the_headline_has_units(balls: Callable[..., np.ndarray]) -> None:
    void = balls((30, 30, 60), [(15, 15, 15), (15, 15, 45)], 8)
    result = hushpore.segment_pores(Volume(void, spacing=2.0, unit="um"))
    assert result.headline == (
        "Porosity 7.8 % (open 0.0 %, closed 7.8 %) · 2 pores · "
        "D10/D50/D90 31.8/31.8/31.8 µm by number, 31.8/31.8/31.8 µm by volume"
    )


def test_headline_and_remarks_name_what_was_excluded(balls: Callable[..., np.ndarray]) -> None:
    # a block of 54,000 voxels in air, with a hole of 2,109 in it and half a one, 1,153, at its face
    block = np.ones((40, 50, 80), bool)
    block[:30, 10:40, 10:70] = False
    void = block | balls(block.shape, [(15, 25, 25), (0, 25, 55)], 8)
    settings = {"exterior": "remove-slicewise", "ball_radius": 9}
    every = hushpore.segment_pores(Volume(void, unit="um", spacing=1), **settings)
    assert every.headline == (
        "Porosity 6.0 % (open 2.1 %, closed 3.9 %) · 2 pores · "
        "D10/D50/D90 13/14.5/15.9 µm by number, 13/15.9/15.9 µm by volume"
    )
    said = "Surrounding air (66 % of the volume) was excluded."
    assert every.remarks[1].message == said
    assert every.remarks[1].remedy == Remedy("Include it", {"exterior": "keep"})
    inner = hushpore.segment_pores(
        Volume(void, unit="um", spacing=1), edge_pores="remove", merge_height=0.5, **settings
    )
    assert inner.headline == (
        "Porosity 3.9 % (all void 6.0 %: open 2.1 %, closed 3.9 %) · 1 pore · "
        "D10/D50/D90 15.9/15.9/15.9 µm by number, 15.9/15.9/15.9 µm by volume"
    )
    assert [remark.message for remark in inner.remarks[1:]] == [said]


def test_open_and_closed_add_up_to_all(scan: np.ndarray) -> None:
    shares = {
        mode: hushpore.segment_pores(scan, pore_type=mode, minimum_voxels=1)
        for mode in ("all", "open", "closed")
    }
    result = shares["all"].provenance["result"]
    assert shares["open"].porosity == pytest.approx(result["open_porosity"])
    assert shares["closed"].porosity == pytest.approx(result["closed_porosity"])
    assert result["open_porosity"] + result["closed_porosity"] == pytest.approx(
        shares["all"].porosity
    )
    assert not (shares["open"].labels.astype(bool) & shares["closed"].labels.astype(bool)).any()


def test_bright_pores_of_the_negative_are_the_dark_pores(scan: np.ndarray) -> None:
    dark = hushpore.segment_pores(scan, threshold=119)
    bright = hushpore.segment_pores(255 - scan, threshold=135.5, pores_are="bright")
    np.testing.assert_array_equal(bright.labels, dark.labels)


@pytest.mark.parametrize("pores_are", ["dark", "bright"])
def test_hysteresis_is_that_of_scikit_image(scan: np.ndarray, pores_are: str) -> None:
    from skimage.filters import apply_hysteresis_threshold

    loose, strict = (140, 50) if pores_are == "dark" else (105, 195)
    found = hushpore.segment_pores(
        scan, threshold=loose, hysteresis=strict, pores_are=pores_are
    ).labels
    sign = -1 if pores_are == "dark" else 1
    # there a voxel passes above a threshold only, here also at it where pores are dark
    margin = 0.5 if pores_are == "dark" else 0
    grey = sign * scan.astype(float)
    expected = apply_hysteresis_threshold(grey, sign * loose - margin, sign * strict - margin)
    np.testing.assert_array_equal(found > 0, expected)
    assert (
        0
        < np.count_nonzero(found)
        < np.count_nonzero(
            hushpore.segment_pores(scan, threshold=loose, pores_are=pores_are).labels
        )
    )


@pytest.mark.parametrize(("pores_are", "strict"), [("dark", 150), ("bright", 90)])
def test_a_looser_hysteresis_is_refused(scan: np.ndarray, pores_are: str, strict: float) -> None:
    with pytest.raises(InputError, match="must be stricter than the threshold \\(120\\)"):
        hushpore.segment_pores(scan, threshold=120, hysteresis=strict, pores_are=pores_are)


def test_the_darkest_of_three_phases_is_the_pores(foam: np.ndarray) -> None:
    rng = np.random.default_rng(0)
    grey = np.where(foam, 40, np.where(rng.random(foam.shape) < 0.5, 110, 210))
    scan = (grey + rng.normal(0, 8, foam.shape)).clip(0, 255).astype(np.uint8)
    result = hushpore.segment_pores(scan, otsu_classes=3)
    assert ((result.labels > 0) == foam).mean() > 0.999


def test_small_pores_are_left_out_of_labels_table_and_porosity(scan: np.ndarray) -> None:
    everything = hushpore.segment_pores(scan)
    large = hushpore.segment_pores(scan, minimum_voxels=50)
    sizes = everything.pores["num_voxels"]
    assert sizes.min() < 50
    assert sorted(large.pores["num_voxels"]) == sorted(sizes[sizes >= 50])
    assert large.porosity == (large.labels > 0).mean() < everything.porosity


def test_solid_around_the_volume_bounds_pores_at_its_faces(foam: np.ndarray) -> None:
    without = hushpore.segment_pores(foam).pores
    bounded = hushpore.segment_pores(foam, border_is_solid=True).pores
    assert bounded["inscribed_diameter"].max() <= without["inscribed_diameter"].max()
    whole = hushpore.segment_pores(np.ones((9, 9, 9), bool), border_is_solid=True)
    assert whole.pores["inscribed_diameter"].tolist() == [10.0]


def test_the_profile_is_the_porosity_of_each_slice(scan: np.ndarray) -> None:
    result = hushpore.segment_pores(scan)
    np.testing.assert_allclose(result.porosity_profile, (result.labels > 0).mean(axis=(1, 2)))
    image = hushpore.segment_pores(scan[3])
    np.testing.assert_allclose(image.porosity_profile, (image.labels > 0).mean(axis=1))


def test_the_size_distribution_counts_every_pore_and_its_volume(scan: np.ndarray) -> None:
    result = hushpore.segment_pores(Volume(scan, spacing=0.5))
    sizes = result.size_distribution(bins=12)
    assert len(sizes) == 12
    assert sizes["number"].sum() == len(result.pores)
    assert sizes["volume"].sum() == pytest.approx(result.pores["volume"].sum())
    assert sizes["number_share"].sum() == pytest.approx(1)
    assert sizes["volume_share"].sum() == pytest.approx(1)
    assert sizes["diameter_to"].iloc[-1] == result.pores["equivalent_diameter"].max()
    for bins in (-1, 0, "a", 2.5, True):
        with pytest.raises(InputError, match="whole number of at least 1"):
            result.size_distribution(bins)  # type: ignore[arg-type]
    empty = hushpore.segment_pores(np.zeros((3, 3, 3), bool)).size_distribution()
    assert empty["number"].sum() == 0


# merging again


@pytest.mark.parametrize("h", [0.0, 0.3, 1.0, 5.0])
def test_merging_again_is_the_same_as_running_again(scan: np.ndarray, h: float) -> None:
    first = hushpore.segment_pores(scan, minimum_voxels=5)
    again = hushpore.segment_pores(scan, minimum_voxels=5, merge_height=h)
    merged = first.remerge(h)
    np.testing.assert_array_equal(merged.labels, again.labels)
    assert merged.pores.equals(again.pores)
    assert merged.throats.equals(again.throats)
    assert merged.provenance["result"] == again.provenance["result"]
    assert merged.provenance["settings"] == again.provenance["settings"]
    back = merged.remerge("auto")
    assert back.pores.equals(first.pores)
    assert back.provenance["result"] == first.provenance["result"]


def test_merging_again_refuses_a_height_below_zero(scan: np.ndarray) -> None:
    with pytest.raises(InputError, match="merge_height must be"):
        hushpore.segment_pores(scan).remerge(-1)


def peaks(result: Pores) -> np.ndarray:
    """Peaks of the pores, in the order of labels."""
    distance = ndimage.distance_transform_edt(result.labels > 0)
    places = ndimage.maximum_position(distance, result.labels, result.pores["label"])
    return np.array(places)


def test_markers_give_one_pore_each_in_their_order(foam: np.ndarray) -> None:
    result = hushpore.segment_pores(foam)
    points = peaks(result)[::-1]
    marked = result.remerge_to_markers(points)
    assert len(marked.pores) == len(points)
    np.testing.assert_array_equal(marked.labels[tuple(points.T)], np.arange(1, len(points) + 1))
    assert marked.pores["num_voxels"].sum() == np.count_nonzero(marked.labels)
    assert marked.provenance["result"]["merged_by"] == {"markers": len(points)}


def test_label_markers_of_any_numbers_are_the_same_as_points(foam: np.ndarray) -> None:
    result = hushpore.segment_pores(foam)
    points = peaks(result)
    labels = np.zeros(foam.shape, np.int64)
    labels[tuple(points.T)] = 10 * np.arange(1, len(points) + 1) + 2**40
    from_points = result.remerge_to_markers(points)
    from_labels = result.remerge_to_markers(labels)
    np.testing.assert_array_equal(from_labels.labels, from_points.labels)
    assert from_labels.pores.equals(from_points.pores)


def test_markers_can_be_undone(foam: np.ndarray) -> None:
    result = hushpore.segment_pores(foam)
    one = result.remerge_to_markers(peaks(result)[:1])
    assert len(one.pores) == 1
    back = one.remerge("auto")
    np.testing.assert_array_equal(back.labels, result.labels)
    assert back.provenance["result"] == result.provenance["result"]


def test_markers_outside_volume_or_void_are_refused(foam: np.ndarray) -> None:
    result = hushpore.segment_pores(foam)
    solid = np.argwhere(~foam)[:2]
    with pytest.raises(InputError, match="2 of them outside the void"):
        result.remerge_to_markers(solid)
    with pytest.raises(InputError, match=r"1 of 2 markers lie outside the volume"):
        result.remerge_to_markers([peaks(result)[0], (3, 4, 48)])
    for wrong in (np.zeros((3, 2), int), np.zeros((4, 5, 6), int), np.zeros((2, 3))):
        with pytest.raises(InputError, match="Markers must be whole numbers"):
            result.remerge_to_markers(wrong)
    with pytest.raises(InputError, match="0 marked voxels"):
        result.remerge_to_markers(np.zeros(foam.shape, int))


# every kind of input


@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64,
              np.float16, np.float32, np.float64]
)  # fmt: skip
def test_every_type_gives_the_same_labels(scan: np.ndarray, dtype: type) -> None:
    values = scan // 2
    expected = hushpore.segment_pores(values, threshold=60).labels
    found = hushpore.segment_pores(values.astype(dtype), threshold=60).labels
    np.testing.assert_array_equal(found, expected)


def test_the_layout_in_memory_makes_no_difference(scan: np.ndarray) -> None:
    dask_array = pytest.importorskip("dask.array")
    expected = hushpore.segment_pores(scan).labels
    strided = np.repeat(scan, 2, axis=2)[:, :, ::2]
    read_only = scan.copy()
    read_only.flags.writeable = False
    for same in (
        np.asfortranarray(scan),
        strided,
        scan.astype(">u2"),
        read_only,
        dask_array.from_array(scan, chunks=(7, 20, 48)),
        scan[::-1][::-1],
    ):
        np.testing.assert_array_equal(hushpore.segment_pores(same).labels, expected)


def test_the_input_is_not_changed(scan: np.ndarray, foam: np.ndarray) -> None:
    for values in (scan, foam):
        before = values.copy()
        hushpore.segment_pores(values, pore_type="closed")
        np.testing.assert_array_equal(values, before)


def test_an_image_is_segmented_like_one_slice(scan: np.ndarray) -> None:
    image = hushpore.segment_pores(scan[10], threshold=120)
    assert image.labels.shape == scan[10].shape
    stack = hushpore.segment_pores(scan[10:11], threshold=120)
    np.testing.assert_array_equal(image.labels, stack.labels[0])
    # in a stack of one slice all void is at a face; in an image only what reaches its edges is
    assert stack.provenance["result"]["closed_porosity"] == 0
    closed = hushpore.segment_pores(scan[10], threshold=120, pore_type="closed").labels > 0
    void = scan[10] <= 120
    np.testing.assert_array_equal(closed, ndimage.binary_fill_holes(~void) & void)


def test_a_volume_of_solid_has_no_pores() -> None:
    result = hushpore.segment_pores(np.zeros((4, 5, 6), bool))
    assert result.porosity == 0
    assert len(result.pores) == 0
    assert not result.labels.any()
    assert result.headline == "Porosity 0.0 % (open 0.0 %, closed 0.0 %) · 0 pores"
    json.dumps(result.provenance, allow_nan=False)


@pytest.mark.parametrize("shape", [(4, 5, 6), (7, 8)])
def test_a_volume_of_void_is_one_pore_without_bounds(shape: tuple[int, ...]) -> None:
    result = hushpore.segment_pores(np.ones(shape, bool))
    assert result.porosity == 1
    assert (result.labels == 1).all()
    assert np.isinf(result.pores["inscribed_diameter"]).tolist() == [True]
    assert result.pores["touches_border"].tolist() == [True]


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 1), (5, 1, 1), (1, 5, 1), (1, 1, 5), (1, 4, 5)])
def test_thin_volumes_work(shape: tuple[int, ...]) -> None:
    void = np.ones(shape, bool)
    void.flat[-1] = False
    result = hushpore.segment_pores(void)
    np.testing.assert_array_equal(result.labels > 0, void)


@settings(max_examples=50, deadline=None)
@given(hnp.arrays(np.bool_, hnp.array_shapes(min_dims=2, max_dims=3, max_side=7)))
def test_any_void_is_labelled_whole_and_each_pore_is_one_piece(void: np.ndarray) -> None:
    result = hushpore.segment_pores(void)
    np.testing.assert_array_equal(result.labels > 0, void)
    touching = np.ones((3,) * void.ndim)
    for label in result.pores["label"]:
        assert ndimage.label(result.labels == label, touching)[1] == 1
    # with everything merged that touches, pores are the 26-connected (in 2D 8-connected) components
    merged = result.remerge(1e6)
    assert len(merged.pores) == ndimage.label(void, touching)[1]


# pores at the edge


@pytest.mark.parametrize("image", [False, True])
def test_pores_at_the_edge_can_be_left_out(scan: np.ndarray, image: bool) -> None:
    from skimage.segmentation import clear_border, relabel_sequential

    scan = scan[19] if image else scan
    kept = hushpore.segment_pores(scan, threshold=120)
    inner = hushpore.segment_pores(scan, threshold=120, edge_pores="remove")
    expected, _, _ = relabel_sequential(clear_border(kept.labels))
    assert 0 < expected.max() < kept.labels.max()
    np.testing.assert_array_equal(inner.labels, expected)
    assert not inner.pores["touches_border"].any()
    columns = ["num_voxels", "volume", "equivalent_diameter", "centroid_x"]
    same = kept.pores.loc[~kept.pores["touches_border"], columns].reset_index(drop=True)
    assert inner.pores[columns].equals(same)
    assert inner.throats[["pore_1", "pore_2"]].isin(inner.pores["label"].to_numpy()).all(axis=None)
    assert inner.porosity == (expected > 0).mean()
    # the void is what it was
    for name in ("open_porosity", "closed_porosity", "specific_surface"):
        assert inner.provenance["result"][name] == kept.provenance["result"][name]


def test_remerging_leaves_out_what_then_reaches_the_edge(scan: np.ndarray) -> None:
    inner = hushpore.segment_pores(scan, edge_pores="remove")
    again = inner.remerge(2.0)
    assert again.pores.equals(
        hushpore.segment_pores(scan, edge_pores="remove", merge_height=2.0).pores
    )
    assert not again.pores["touches_border"].any()
    every = hushpore.segment_pores(scan)
    place = every.pores[["bbox_z_start", "bbox_y_start", "bbox_x_start"]]
    assert (place == 0).any(axis=None)
    markers = np.argwhere(every.labels > 0)[::500]
    marked = inner.remerge_to_markers(markers)
    assert len(marked.pores)
    assert not marked.pores["touches_border"].any()


# which voxels are neighbours


def test_void_that_touches_over_an_edge_is_one_pore_or_two() -> None:
    void = np.zeros((7, 12, 12), bool)
    void[1:6, 1:6, 1:6] = void[1:6, 6:11, 6:11] = True
    joined = hushpore.segment_pores(void, merge_height=10)
    apart = hushpore.segment_pores(void, merge_height=10, connectivity="faces")
    assert len(joined.pores) == 1
    assert apart.pores["num_voxels"].tolist() == [125, 125]
    assert len(apart.throats) == 0
    assert apart.pores["coordination_number"].tolist() == [0, 0]
    assert apart.remerge(100).pores.equals(apart.pores)
    # both touch, so what lies between them is counted alike
    assert (joined.provenance["result"]["specific_surface"]
            == apart.provenance["result"]["specific_surface"])  # fmt: skip
    assert len(hushpore.segment_pores(void[3], merge_height=10, connectivity="faces").pores) == 2


def test_pores_joined_over_faces_lie_within_components(foam: np.ndarray) -> None:
    result = hushpore.segment_pores(foam, connectivity="faces", merge_height=1000)
    components, count = ndimage.label(foam)
    assert len(result.pores) == count
    pairs = np.unique(np.stack([result.labels[foam], components[foam]]), axis=1)
    assert pairs.shape[1] == count


def test_slabs_change_nothing_where_faces_join(foam: np.ndarray) -> None:
    coarse = np.kron(foam[:20, :22, :24], np.ones((2, 2, 2), bool))
    whole = hushpore.segment_pores(coarse, connectivity="faces")
    slabs = hushpore.segment_pores(coarse, connectivity="faces", memory_budget=0.001)
    assert any("slabs" in note for note in slabs.notes)
    np.testing.assert_array_equal(slabs.labels, whole.labels)
    assert slabs.pores.equals(whole.pores)
    assert slabs.throats.equals(whole.throats)


# the same on any number of threads, in any thread


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_the_result_does_not_depend_on_threads(
    threads: int, scan: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = hushpore.segment_pores(scan)
    monkeypatch.setattr(parallel, "cpu_threads", lambda: threads)
    found = hushpore.segment_pores(scan)
    np.testing.assert_array_equal(found.labels, expected.labels)
    assert found.pores.equals(expected.pores)
    assert found.throats.equals(expected.throats)


def test_two_jobs_at_once_are_both_right(scan: np.ndarray) -> None:
    expected = hushpore.segment_pores(scan).labels
    with ThreadPoolExecutor(2) as pool:
        for labels in pool.map(lambda _: hushpore.segment_pores(scan).labels, range(6)):
            np.testing.assert_array_equal(labels, expected)


# what it says, and how it is cancelled


def test_progress_rises_to_one_and_every_stage_is_timed(scan: np.ndarray) -> None:
    events, result = drive(Volume(scan))
    fractions = [event.fraction for event in events if isinstance(event, Progress)]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1
    (timing,) = [event for event in events if isinstance(event, Timing)]
    assert list(timing.stages) == list(result.timings)
    assert not [event for event in events if isinstance(event, Note)]


@pytest.mark.parametrize("index", [(), (19,)])
def test_the_preview_is_the_middle_slice_of_the_labels(
    scan: np.ndarray, index: tuple[int, ...]
) -> None:
    events, result = drive(Volume(scan if index else scan[19]), minimum_voxels=1)
    basins, preview = [event for event in events if isinstance(event, Preview)]
    assert preview.name == basins.name == "labels"
    assert preview.index == basins.index == index
    assert preview.image.dtype == np.int32
    np.testing.assert_array_equal(preview.image, result.labels[index])
    np.testing.assert_array_equal(basins.image > 0, preview.image > 0)
    assert basins.image.max() >= preview.image.max()
    assert not np.shares_memory(preview.image, result.labels)


def test_previews_are_of_the_slice_that_is_looked_at(scan: np.ndarray) -> None:
    job = hushpore.start("pores", Volume(scan), {}, "cpu")
    event, previews = next(job), []
    try:
        while True:
            if isinstance(event, Preview):
                previews.append(event)
            at = 3 if not previews else 10_000
            event = job.send(Attention((at,)) if isinstance(event, Progress) else None)
    except StopIteration as end:
        result = end.value
    assert [preview.index for preview in previews] == [(3,), *[(len(scan) - 1,)] * 2]
    basins, labels = previews[1:]
    np.testing.assert_array_equal(basins.image, result.basins[-1])
    np.testing.assert_array_equal(labels.image, result.labels[-1])


def test_stages_say_how_many_voxels_they_work_on_a_second(scan: np.ndarray) -> None:
    events, _ = drive(Volume(scan))
    timing = [event for event in events if isinstance(event, Timing)][-1]
    assert timing.stages["distance"].voxels == scan.size
    assert timing.stages["basins"].voxels_per_second > 0


@pytest.mark.parametrize("budget", [None, 0.001])
def test_reading_what_lies_elsewhere_is_a_stage_of_its_own(
    scan: np.ndarray, budget: float | None
) -> None:
    da = pytest.importorskip("dask.array")
    elsewhere = Volume(da.from_array(scan, chunks=(5, *scan.shape[1:])))
    events, result = drive(elsewhere, memory_budget=budget)
    reading = [event for event in events if isinstance(event, Timing)][-1].stages["reading"]
    # in slabs on disk the values are read for the threshold, and again for the void
    assert reading.nbytes == scan.nbytes * (1 if budget is None else 2)
    assert reading.count > 1 or budget is None
    np.testing.assert_array_equal(result.labels, hushpore.segment_pores(scan).labels)


def test_what_lies_elsewhere_and_fits_into_memory_is_read_once_and_a_few_slices_beforehand(
    scan: np.ndarray,
) -> None:
    da = pytest.importorskip("dask.array")
    read: list[int] = []

    def slice_of(block_info: Any) -> np.ndarray:
        # by several threads at once
        number = block_info[None]["array-location"][0][0]
        read.append(number)
        return scan[number][None]

    chunks = ((1,) * len(scan), *((length,) for length in scan.shape[1:]))
    elsewhere = Volume(da.map_blocks(slice_of, chunks=chunks, dtype=scan.dtype, meta=scan[:0]))
    _, result = drive(elsewhere)
    assert set(read) == set(range(len(scan)))
    assert len(read) - len(scan) <= exterior.SLICES + 3
    assert result.provenance["input"]["blake2b"] == fingerprint(scan)


def test_closing_at_any_event_leaves_no_thread_behind(scan: np.ndarray) -> None:
    before = set(threading.enumerate())
    events, _ = drive(Volume(scan))
    for count in range(1, len(events) + 1):
        job = segment_pores(Volume(scan), PoreSettings(), Backend())
        for _ in range(count):
            next(job)
        job.close()
    assert set(threading.enumerate()) <= before


def test_a_threshold_that_separates_nothing_is_warned_of(scan: np.ndarray) -> None:
    events, result = drive(Volume(scan), threshold=1000)
    (note,) = [event for event in events if isinstance(event, Note)]
    assert note.warning
    assert "above all grey values" in note.message
    assert result.provenance["notes"] == [note.message]


# what is refused


@pytest.mark.parametrize("axes", ["tzyx", "cyx"])
def test_leading_axes_are_refused_with_the_way_out(axes: str) -> None:
    volume = Volume(np.zeros((2,) * len(axes)), axes=axes)
    with pytest.raises(InputError, match=rf"volume\.at\({axes[0]}=0\)"):
        drive(volume)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(scan: np.ndarray, bad: float) -> None:
    values = scan.astype(np.float32)
    values[3, 4, 5] = bad
    with pytest.raises(InputError, match="1 NaN or infinite"):
        hushpore.segment_pores(values)


def test_a_constant_image_is_refused() -> None:
    with pytest.raises(InputError, match="constant"):
        hushpore.segment_pores(np.full((4, 5, 6), 7))


def test_an_empty_image_is_refused() -> None:
    with pytest.raises(InputError, match="empty"):
        hushpore.segment_pores(np.zeros((0, 5, 6)))


def test_slices_of_too_many_voxels_are_refused_before_they_are_read() -> None:
    # one byte, seen as slices of 2**30 voxels
    huge = np.broadcast_to(np.zeros((), np.uint8), (3, 2**15, 2**15))
    with pytest.raises(InputError, match="Crop it, or bin it"):
        drive(Volume(huge))


def test_what_does_not_fit_into_memory_is_refused_with_both_figures(
    scan: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Backend, "free_memory", lambda self: 1000)
    with pytest.raises(MemoryLimitError, match=r"needs at least .* GB .* are free"):
        drive(Volume(scan))


@pytest.mark.parametrize("threads", [1, 3])
def test_kernels_run_on_as_many_threads_as_the_backend_says(
    scan: np.ndarray, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    counts = []

    class Watched(parallel.KernelThreads):
        def __init__(self, count: int | None = None) -> None:
            super().__init__(count)
            counts.append(self.count)

    monkeypatch.setattr("hushpore.pores.job.KernelThreads", Watched)
    drive(Volume(scan[:8]), Backend(threads=threads))
    assert counts[-1] == threads
