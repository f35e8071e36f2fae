"""Labels of another program, measured as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import ndimage
from skimage.measure import regionprops_table
from skimage.segmentation import watershed

import hushpore
from hushpore.base.errors import InputError, MemoryLimitError
from hushpore.base.volume import Volume
from hushpore.pores.advice import Plausibility, warnings_of
from hushpore.pores.settings import PoreSettings
from hushpore.scan.exterior import Exterior
from hushpore.scan.sample import kind_of_values

if TYPE_CHECKING:
    import numpy.typing as npt


def void_of(shape: tuple[int, ...], seed: int = 0) -> npt.NDArray[np.bool_]:
    """Void of smoothed noise, a quarter of the volume."""
    smooth = ndimage.gaussian_filter(np.random.default_rng(seed).random(shape), 2)
    return smooth < np.quantile(smooth, 0.25)


def labels_of(shape: tuple[int, ...] = (24, 40, 50), step: int = 1) -> npt.NDArray[np.int32]:
    """Labels by scikit-image's watershed; their numbers are multiples of `step`."""
    void = void_of(shape)
    distance = ndimage.distance_transform_edt(void)
    labels = watershed(-distance, mask=void, connectivity=len(shape))
    return (step * labels).astype(np.int32)


def scan_of(shape: tuple[int, ...], seed: int = 5) -> npt.NDArray[np.uint16]:
    return np.random.default_rng(seed).integers(900, 1100, shape).astype(np.uint16)


@pytest.mark.parametrize("shape", [(24, 40, 50), (60, 70)])
@pytest.mark.parametrize("step", [1, 3])
def test_columns_are_those_of_regionprops(shape: tuple[int, ...], step: int) -> None:
    labels, scan = labels_of(shape, step), scan_of(shape)
    n = len(shape)
    spacing = (3.0, 2.0, 1.0)[-n:]
    volume = Volume(labels, spacing=spacing, unit="um")
    result = hushpore.run("measure", volume, {"image": Volume(scan, spacing=spacing, unit="um")})
    own, table = result.pores, regionprops_table(
        labels, scan, spacing=spacing,
        properties=(
            "label", "num_pixels", "area", "equivalent_diameter_area", "centroid", "bbox",
            "intensity_mean", "intensity_std", "inertia_tensor_eigvals",
        ),
    )  # fmt: skip
    same = {"num_voxels": "num_pixels", "volume": "area", "mean_grey": "intensity_mean"}
    same |= {"equivalent_diameter": "equivalent_diameter_area", "grey_deviation": "intensity_std"}
    for place, axis in enumerate("zyx"[-n:]):
        same[f"centroid_{axis}"] = f"centroid-{place}"
        same |= {f"bbox_{axis}_start": f"bbox-{place}", f"bbox_{axis}_stop": f"bbox-{place + n}"}
    number = own["label"] if step == 1 else own["given_label"]
    np.testing.assert_array_equal(number, table["label"])
    for name, theirs in same.items():
        np.testing.assert_allclose(own[name], table[theirs], rtol=1e-9, atol=1e-9, err_msg=name)
    assert ("given_label" in own) == (step > 1)
    # each voxel keeps its label
    given = labels // step
    np.testing.assert_array_equal(result.labels, given)


def test_axis_lengths_are_those_of_regionprops_with_the_extent_of_a_voxel() -> None:
    labels = labels_of()
    result = hushpore.run("measure", labels, {"minimum_shape_voxels": 1})
    theirs = regionprops_table(labels, properties=("axis_major_length",))["axis_major_length"]
    # the second moment of a cube of edge 1 is 1/12, and a semi-axis is the root of 5 times it
    expected = np.sqrt(theirs**2 + 4 * 5 / 12)
    np.testing.assert_allclose(result.pores["axis_length_major"], expected, rtol=1e-6)


def test_neighbours_are_those_of_the_voxels() -> None:
    labels = labels_of()
    throats = hushpore.run("measure", labels, {"connectivity": "faces"}).throats
    found = set()
    for axis in range(3):
        a = np.moveaxis(labels, axis, 0)
        for first, second in zip(a[:-1].ravel(), a[1:].ravel(), strict=True):
            if first != second and first and second:
                found.add((min(first, second), max(first, second)))
    assert set(zip(throats["pore_1"], throats["pore_2"], strict=True)) == found
    assert found


def test_own_labels_measured_again_have_the_same_tables_and_totals() -> None:
    void = void_of((24, 40, 50))
    made = hushpore.segment_pores(void)
    again = hushpore.run("measure", made.labels_volume)
    for one, other in ((made.pores, again.pores), (made.throats, again.throats)):
        assert list(one) == list(other)
        for name in one:
            np.testing.assert_allclose(one[name], other[name], rtol=1e-12, err_msg=name)
    before, after = made.provenance["result"], again.provenance["result"]
    changed = {"merge_height", "merged_by", "threshold", "ball_radius", "only_values"}
    # examined with the grey values of a scan only
    changed |= set(Plausibility().totals())
    for name in before.keys() - changed:
        assert before[name] == pytest.approx(after[name]), name


def test_slabs_on_disk_have_the_same_result() -> None:
    labels, scan = labels_of((40, 60, 70), 2), scan_of((40, 60, 70))
    one = hushpore.run("measure", labels, {"image": scan})
    other = hushpore.run("measure", labels, {"image": scan, "memory_budget": 0.0015})
    assert other._slabs.on_disk
    assert len(other._slabs) > 1
    np.testing.assert_array_equal(one.labels, other.labels)
    for name in one.pores:
        rounding = 1e-13 * ("grey" in name)
        np.testing.assert_allclose(one.pores[name], other.pores[name], rounding, err_msg=name)
    with pytest.raises(MemoryLimitError, match="connected components"):
        hushpore.run("measure", void_of((40, 60, 70)), {"memory_budget": 0.0015})


@pytest.mark.parametrize(
    "make",
    [
        lambda void: void,
        lambda void: void.astype(np.uint8) * np.uint8(255),
        lambda void: void.astype(np.float32),
        lambda void: np.where(void, 0.93, 0.04).astype(np.float32),
    ],
)
def test_components_of_masks_and_probabilities_are_pores(make: Any) -> None:
    void = void_of((24, 40, 50))
    labels, count = ndimage.label(void, np.ones((3, 3, 3)))
    result = hushpore.run("measure", make(void))
    assert len(result.pores) == count
    np.testing.assert_array_equal(result.labels, labels)
    assert any("connected component" in note for note in result.notes)


def test_a_sample_mask_excludes_labels_outside() -> None:
    labels = labels_of()
    mask = np.zeros(labels.shape, np.bool_)
    mask[:, :, :25] = True
    result = hushpore.run("measure", labels, {"sample_mask": mask})
    inside = labels * mask
    assert result.provenance["result"]["sample_voxels"] == mask.sum()
    np.testing.assert_array_equal(result.pores["num_voxels"], np.bincount(inside.ravel())[1:][
        np.unique(inside)[1:] - 1])  # fmt: skip
    assert result.porosity == pytest.approx((inside > 0).sum() / mask.sum())


def test_small_and_cut_pores_can_be_excluded() -> None:
    labels = labels_of()
    sizes = np.bincount(labels.ravel())
    kept = [n for n in range(1, sizes.size) if sizes[n] >= 30]
    result = hushpore.run("measure", labels, {"minimum_voxels": 30})
    np.testing.assert_array_equal(result.pores["given_label"], kept)
    at_face = np.unique(np.concatenate([labels[0].ravel(), labels[-1].ravel(), labels[:, 0].ravel(),
        labels[:, -1].ravel(), labels[:, :, 0].ravel(), labels[:, :, -1].ravel()]))  # fmt: skip
    result = hushpore.run("measure", labels, {"edge_pores": "remove"})
    np.testing.assert_array_equal(
        result.pores["given_label"], sorted(set(range(1, sizes.size)) - set(at_face.tolist()))
    )


def test_the_voxel_size_may_be_that_of_the_scan() -> None:
    labels = labels_of()
    scan = Volume(scan_of(labels.shape), spacing=(2, 2, 2), unit="um", name="scan")
    result = hushpore.run("measure", Volume(labels), {"image": scan})
    assert result.volume.spacing == (2, 2, 2)
    assert result.volume.unit == "um"
    with pytest.raises(InputError, match="shape"):
        hushpore.run("measure", labels[1:], {"image": scan})


def test_wrong_values_are_refused() -> None:
    grey = scan_of((10, 20, 30))
    with pytest.raises(InputError, match="grey values"):
        hushpore.run("measure", grey)
    assert len(hushpore.run("measure", grey, {"values": "labels"}).pores) == np.unique(grey).size
    with pytest.raises(InputError, match="0 or above"):
        hushpore.run("measure", -labels_of(), {"values": "labels"})
    with pytest.raises(InputError, match="fractions"):
        hushpore.run("measure", labels_of() / 2, {"values": "labels"})
    with pytest.raises(InputError, match="axes"):
        hushpore.run("measure", np.zeros((2, 3, 4, 5), np.int32))


def test_labels_without_pores_have_empty_tables() -> None:
    result = hushpore.run("measure", np.zeros((6, 7, 8), np.int32), {"values": "labels"})
    assert result.pores.empty
    assert result.porosity == 0


def test_measured_labels_are_not_merged_but_follow_the_voxel_size() -> None:
    result = hushpore.run("measure", labels_of(step=2), {"image": scan_of((24, 40, 50))})
    with pytest.raises(InputError, match="not merged"):
        result.remerge(0.3)
    larger = result.resized((2.0, 2.0, 2.0), "um")
    np.testing.assert_allclose(larger.pores["volume"], 8 * result.pores["volume"])
    np.testing.assert_array_equal(larger.pores["given_label"], result.pores["given_label"])
    assert not result.files().arrays


def _grey() -> dict[str, npt.NDArray[Any]]:
    """Scans that are not labels."""
    void = void_of((24, 60, 60))
    noise = np.random.default_rng(3).normal(0, 1, void.shape)
    clean = np.where(void, 50.0, 180.0)
    blurred = ndimage.gaussian_filter(clean, 0.8)
    z, y, x = np.indices(void.shape)
    padded = np.where((y - 30) ** 2 + (x - 30) ** 2 < 800, clean + 9 * noise, 0)
    return {
        "noisy": (clean + 10 * noise).clip(0, 255).astype(np.uint8),
        "blurred": blurred.astype(np.uint8),
        "saturated": (clean + 60 * noise).clip(60, 180).astype(np.uint8),
        "padded": padded.astype(np.uint16),
        "phases": np.where(void, 20, np.where(z > 12, 100, 200)).astype(np.uint8),
        "gradient": (z + y + x).astype(np.uint8),
        "gradient behind void": np.where(void, 0, 100 + (y + x) // 4).astype(np.uint8),
        "hounsfield": (clean * 10 - 1000 + 30 * noise).astype(np.int16),
        "real": (clean + 10 * noise).astype(np.float32),
        "scaled": ((clean + 20 * noise) / 255).clip(0, 1).astype(np.float32),
    }


@pytest.mark.parametrize("name", list(_grey()))
def test_scans_are_not_taken_for_labels(name: str) -> None:
    assert kind_of_values(Volume(_grey()[name])) == ""


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32, np.float32])
def test_labels_are_recognised_in_any_type(dtype: Any) -> None:
    labels = labels_of() % 250
    assert kind_of_values(Volume(labels.astype(dtype))) == "labels"
    assert kind_of_values(Volume(labels[12].astype(dtype))) == "labels"


@pytest.mark.parametrize(("solid", "pore"), [(1, 2), (3, 7), (100, 255), (0, 1), (0, 255)])
@pytest.mark.parametrize("shape", [(24, 40, 50), (40, 50)])
def test_a_mask_of_any_two_values_offers_the_other_one_as_the_pores(
    solid: int, pore: int, shape: tuple[int, ...]
) -> None:
    void = void_of(shape)
    mask = np.where(void, pore, solid).astype(np.uint8)
    result = hushpore.run("measure", mask)
    assert result.porosity == pytest.approx(void.mean())
    (remark,) = (note for note in result.remarks if "are a mask" in note.message)
    assert f"of the value {pore} ({solid} is solid)" in remark.message
    assert remark.remedy is not None
    assert remark.remedy.flags == "--pores-are dark"
    if solid < 2:
        segmented = hushpore.segment_pores(mask, exterior="keep", device="cpu")
        assert segmented.porosity == result.porosity
    other = hushpore.run("measure", mask, dict(remark.remedy.settings))
    assert other.porosity == pytest.approx(1 - void.mean())


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.int16, np.bool_])
def test_a_mask_without_pores_has_a_porosity_of_0(dtype: Any) -> None:
    result = hushpore.run("measure", np.zeros((12, 14, 16), dtype))
    assert (result.porosity, len(result.pores)) == (0, 0)


@pytest.mark.parametrize("value", [1, 255])
def test_a_mask_without_solid_has_a_porosity_of_1(value: int) -> None:
    result = hushpore.run("measure", np.full((12, 14, 16), value, np.uint8))
    assert (result.porosity, len(result.pores)) == (1, 1)
    (high,) = (note for note in result.remarks if "unusually high" in note.message)
    assert high.remedy is None
    assert "threshold" not in high.message


def test_labels_outside_the_sampled_slices_are_labels() -> None:
    labels = np.zeros((64, 30, 34), np.uint16)
    for number in (1, 2, 3):
        labels[1:5, 7 * number : 7 * number + 5, 3:20] = number
    assert kind_of_values(Volume(labels)) == "labels"


def test_a_constant_scan_is_no_mask() -> None:
    with pytest.raises(InputError, match="seems to hold grey values"):
        hushpore.run("measure", np.full((12, 14, 16), 137, np.uint8))


def test_phases_are_labels() -> None:
    void = void_of((24, 40, 50))
    assert kind_of_values(Volume(void.astype(np.uint8) + void_of((24, 40, 50), 1) * 2)) == "labels"


def test_labels_and_probabilities_segmented_as_grey_values_are_said() -> None:
    nothing = Exterior("keep", 10.0)
    (said,) = warnings_of(Volume(labels_of()), PoreSettings(), nothing, 0.0)
    assert "look like labels" in said.message
    assert said.remedy is not None
    assert said.remedy.flags == "hushpore measure"
    chance = Volume(np.where(void_of((24, 40, 50)), 0.93, 0.04))
    (said,) = warnings_of(chance, PoreSettings(), nothing, 0.0)
    assert said.remedy is not None
    assert said.remedy.settings == {"pores_are": "bright", "threshold": 0.5}
    bright = PoreSettings(pores_are="bright", threshold=0.5)
    assert not warnings_of(chance, bright, nothing, 0.0)
    remarks = hushpore.segment_pores(labels_of()).remarks
    assert "look like labels" in remarks[0].message
