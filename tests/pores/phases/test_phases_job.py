"""Phases of volumes of which it is known where they are."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import hushpore
from hushpore import InputError, Volume
from hushpore.base.errors import MemoryLimitError
from hushpore.device.backend import Backend

if TYPE_CHECKING:
    from hushpore.pores.phases.result import Phases


def phases(image: Any, **settings: Any) -> Phases:
    found: Phases = hushpore.run("phases", image, {"exterior": "keep", **settings}, "cpu")
    return found


@pytest.fixture(scope="module")
def nested() -> np.ndarray:
    """A ball of grey 40 within one of 120, in 200; with noise that parts nowhere."""
    grid = np.indices((45, 45, 45)) - 22.3
    radius = np.sqrt((grid**2).sum(axis=0))
    grey = np.select([radius <= 10, radius <= 18], [40, 120], 200)
    noise = np.random.default_rng(0).integers(-20, 21, grey.shape)
    return (grey + noise).astype(np.int16)


@pytest.fixture(scope="module")
def of_nested(nested: np.ndarray) -> Phases:
    volume = Volume(nested, spacing=2.0, unit="um")
    return phases(volume, thickness=True, names=("core", "shell"))


def test_shares_and_contacts_of_nested_balls_are_those_of_balls(of_nested: Phases) -> None:
    found = of_nested.phases.set_index("name")
    assert list(found.index) == ["core", "shell", "phase 3"]
    ball = [4 / 3 * math.pi * (2 * radius) ** 3 for radius in (10, 18)]
    assert found["volume"]["core"] == pytest.approx(ball[0], rel=0.01)
    assert found["volume"]["shell"] == pytest.approx(ball[1] - ball[0], rel=0.01)
    assert found["share"].sum() == pytest.approx(1)
    assert found["volume"].sum() == 90**3
    contacts = of_nested.contacts.set_index(["name_1", "name_2"])
    # core and surroundings do not touch
    assert list(contacts.index) == [("core", "shell"), ("shell", "phase 3")]
    areas = [4 * math.pi * (2 * radius) ** 2 for radius in (10, 18)]
    assert contacts["area"].tolist() == pytest.approx(areas, rel=0.015)
    assert contacts["share"].sum() == pytest.approx(1)
    assert found["surface_area"].tolist() == pytest.approx(
        [areas[0], sum(areas), areas[1]], rel=0.015
    )
    assert found["specific_surface"]["shell"] == pytest.approx(sum(areas) / 90**3, rel=0.015)


def test_a_ball_and_a_shell_are_as_thick_as_they_are(of_nested: Phases) -> None:
    found = of_nested.phases.set_index("name")["thickness"]
    assert found["core"] == pytest.approx(40, abs=0.5)
    assert found["shell"] == pytest.approx(16, abs=0.5)
    assert of_nested.thickness is not None
    assert of_nested.thickness.dtype == np.float32
    core = of_nested.thickness[of_nested.labels == 1].mean(dtype=np.float64)
    assert core == pytest.approx(found["core"])


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_layers_have_exact_shares_and_contacts(axis: int) -> None:
    edges = np.array([0, 6, 9, 20, 24])
    plates = np.repeat([30.0, 90.0, 150.0, 210.0], np.diff(edges))
    shape = [1, 1, 1]
    shape[axis] = 24
    image = np.broadcast_to(plates.reshape(shape), (24, 24, 24))
    found = phases(image, phases=4, thickness=True)
    np.testing.assert_array_equal(found.phases["share"], np.diff(edges) / 24)
    assert found.contacts[["phase_1", "phase_2"]].to_numpy().tolist() == [[1, 2], [2, 3], [3, 4]]
    np.testing.assert_allclose(found.contacts["area"], 24**2)
    # those at the faces go on beyond them
    np.testing.assert_allclose(found.phases["thickness"].to_numpy()[1:3], [3, 11], rtol=1e-5)


def test_two_phases_are_pores_and_solid() -> None:
    grey = np.random.default_rng(2).normal(size=(30, 31, 32))
    for _ in range(2):
        grey = sum(np.roll(grey, step, axis) for axis in range(3) for step in (-1, 0, 1))
    volume = Volume(grey, spacing=(3, 1, 1), unit="mm")
    # the grey values are one group, in which the automatic threshold finds no pores
    how = {"threshold": "otsu", "exterior": "keep", "local_thickness": "both"}
    pores = hushpore.segment_pores(volume, **how, minimum_voxels=1)
    both = phases(volume, thresholds=[pores.threshold], thickness=True)
    totals = pores.provenance["result"]
    table = both.phases
    np.testing.assert_array_equal(both.labels == 1, pores.labels > 0)
    assert table["share"][0] == pytest.approx(totals["porosity"])
    assert table["specific_surface"].tolist() == pytest.approx([totals["specific_surface"]] * 2)
    assert table["thickness"].tolist() == pytest.approx(
        [totals["void_thickness"], totals["solid_thickness"]]
    )


@pytest.mark.parametrize("in_air", [False, True])
def test_two_phases_are_pores_and_solid_in_air_and_within_what_is_filled_in(in_air: bool) -> None:
    rng = np.random.default_rng(0)
    z, y, x = np.indices((24, 120, 120))
    solid = np.hypot(y - 59.5, x - 90) < 48 if in_air else np.ones(z.shape, bool)
    for place in rng.uniform(0, (24, 120, 120), (60, 3)):
        solid &= (z - place[0]) ** 2 + (y - place[1]) ** 2 + (x - place[2]) ** 2 > 49
    grey = 1000 * solid + rng.normal(0, 20, z.shape)
    measured = np.hypot(y - 59.5, x - 59.5) < 58
    scan = np.where(measured, grey, -2000).astype(np.int16)
    pores = hushpore.segment_pores(scan, local_thickness="both")
    totals = pores.provenance["result"]
    assert totals["padding_value"] == -2000
    assert (totals["exterior"] != "keep") == in_air
    both = phases(scan, thresholds=[pores.threshold], thickness=True, exterior="auto")
    for number, name in enumerate(("void", "solid"), 1):
        own = np.where(both.labels == number, both.thickness, 0)
        np.testing.assert_array_equal(own, pores.thickness[name].diameter)


def test_thresholds_that_are_given_part_the_values_up_to_each_from_those_above() -> None:
    image = np.arange(24, dtype=np.uint16).reshape(2, 3, 4)
    found = phases(image, thresholds="3, 10.5, 20")
    np.testing.assert_array_equal(found.labels, 1 + np.digitize(image, [3, 10.5, 20], right=True))
    assert found.labels.dtype == np.uint8
    assert found.phases["grey_from"].tolist() == [0, 3, 10.5, 20]
    assert found.phases["grey_to"].tolist() == [3, 10.5, 20, 23]
    assert found.provenance["result"]["thresholds"] == [3, 10.5, 20]
    assert found.provenance["settings"]["thresholds"] == "3, 10.5, 20"
    again = phases(image, **found.provenance["settings"])
    np.testing.assert_array_equal(again.labels, found.labels)


def test_an_image_is_measured_in_lengths_and_areas() -> None:
    image = np.zeros((40, 40))
    image[:, 10:20], image[:, 20:] = 1, 2
    found = phases(Volume(image, spacing=0.5, unit="mm"))
    assert found.phases["volume"].tolist() == [100, 100, 200]
    assert found.contacts["area"].tolist() == pytest.approx([20, 20])
    assert found.profile[found.names[2]].tolist() == [0.5] * 40


def test_labels_are_phases_by_their_rank_and_zero_is_not_of_the_sample() -> None:
    labels = np.zeros((6, 6, 6), np.int32)
    labels[:, :2], labels[:, 2:4] = 70000, 4
    found = phases(labels, are_labels=True, names="a, b")
    assert found.phases["grey_from"].tolist() == [4, 70000]
    assert found.phases["share"].tolist() == [0.5, 0.5]
    np.testing.assert_array_equal(found.labels, np.select([labels == 4, labels > 4], [1, 2], 0))
    # with nothing that is left out there is no contact
    assert len(found.contacts) == 1
    assert not any("usually wrong" in note for note in found.notes)
    assert found.headline == "2 phases · a 50 % · b 50 %"


def test_what_a_mask_leaves_out_is_of_no_phase() -> None:
    image = np.arange(1000.0).reshape(10, 10, 10)
    mask = np.zeros(image.shape, np.uint8)
    mask[:5] = 7
    found = phases(image, thresholds=(99, 299), sample_mask=mask)
    assert found.phases["share"].tolist() == [0.2, 0.4, 0.4]
    assert not found.labels[5:].any()
    assert found.provenance["result"]["sample_voxels"] == 500


def test_air_around_a_sample_is_left_out() -> None:
    y, x = np.indices((60, 60)) - 29.5
    disc = y**2 + x**2 <= 24**2
    rng = np.random.default_rng(0)
    plane = np.where(disc, np.where(x > 0, 200, 120), 10)
    image = np.repeat(plane[None], 20, 0)
    image[:, 28:32, 20:24] = 10
    image = (image + rng.normal(0, 4, image.shape)).astype(np.float32)
    found = phases(image, exterior="auto")
    sample = int(disc.sum()) * 20
    assert found.provenance["result"]["sample_voxels"] == pytest.approx(sample, rel=0.01)
    assert found.phases["num_voxels"][0] == 20 * 16
    assert found.remarks[0].message.startswith("Surrounding air (50 % of the volume) was excluded.")


def test_a_phase_without_voxels_is_said() -> None:
    found = phases(np.arange(64.0).reshape(4, 4, 4), thresholds="10, 100", names="a, b, c")
    assert found.phases["num_voxels"].tolist() == [11, 53, 0]
    assert found.notes == ("c is empty: no voxel is above 100. Use other thresholds, or fewer.",)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"thresholds": "5, 3"}, "must be ascending; got '5, 3'"),
        ({"thresholds": "5, 5"}, "must be ascending"),
        ({"thresholds": "5, dark"}, "grey values separated by commas"),
        ({"thresholds": "nan"}, "grey values separated by commas"),
        ({"thresholds": ",".join("12345678")}, "at most 7, for 8 phases; got 8"),
        ({"phases": 9}, "phases must be a whole number from 2 to 8; got 9"),
        ({"phases": 2, "names": "a, b, c"}, "3 names for 2 phases"),
        ({"names": "a, a"}, "names must be unique"),
    ],
)
def test_settings_that_say_nothing_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        phases(np.arange(64.0).reshape(4, 4, 4), **settings)


@pytest.mark.parametrize(
    ("image", "settings", "words"),
    [
        (np.eye(8) > 0, {}, "is a boolean mask: it holds two phases"),
        (np.eye(8), {}, "cannot find 3 phases in 2 different grey values"),
        (np.ones((4, 4)), {}, "is constant"),
        (np.where(np.eye(8) > 0, np.nan, 1.0), {}, "NaN or infinite"),
        (np.zeros((0, 4, 4)), {}, "is empty"),
        (np.zeros((2, 2, 4, 4)), {}, "in one image at a time, 2D or 3D"),
        (np.eye(8), {"are_labels": True}, "Labels must be whole numbers, but volume holds float64"),
        (np.arange(-1, 8).reshape(3, 3), {"are_labels": True}, "holds the label -1"),
        (np.arange(16).reshape(4, 4), {"are_labels": True}, "15 different labels above 0"),
        (np.zeros((4, 4), int), {"are_labels": True}, "no label above 0"),
        (
            np.arange(16.0).reshape(4, 4),
            {"sample_mask": np.zeros((4, 4))},
            "is empty: it has no voxel",
        ),
    ],
)
def test_what_cannot_be_told_apart_is_refused(
    image: np.ndarray, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        phases(image, **settings)


def test_of_labels_it_is_not_said_that_they_may_be_grey_values() -> None:
    values, words = np.arange(16).reshape(4, 4), "set are_labels=False"
    with pytest.raises(InputError, match=words):
        phases(values, are_labels=True)
    with pytest.raises(InputError, match="15 different labels") as found:
        phases(Volume(values, metadata={"labels": True}), are_labels=True)
    assert words not in str(found.value)


def test_phases_in_slabs_on_disk_are_those_in_memory(nested: np.ndarray) -> None:
    volume = Volume(np.tile(nested, (8, 1, 1)))
    for settings in ({"exterior": "remove"}, {"are_labels": True}):
        if settings.get("are_labels"):
            volume = volume.replace(1 + volume.data // 100 % 3)
        whole = phases(volume, **settings)
        parts = phases(volume, **settings, memory_budget=0.001)
        assert isinstance(parts.labels, np.memmap)
        assert not isinstance(whole.labels, np.memmap)
        np.testing.assert_array_equal(parts.labels, whole.labels)
        assert parts.phases.equals(whole.phases)
        assert parts.contacts.equals(whole.contacts)


def test_what_does_not_fit_into_memory_is_refused_with_its_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Backend, "free_memory", lambda _: 100_000)
    image = np.arange(64.0**3).reshape(64, 64, 64)
    with pytest.raises(MemoryLimitError, match=r"voxels, 0.00603 GB, and 0.0001 GB are free"):
        phases(image, thickness=True)
    plate = np.zeros((1, 4000, 4000), np.uint8)
    with pytest.raises(MemoryLimitError, match=r"in the thinnest slabs, and 0\.001 GB"):
        phases(plate)
