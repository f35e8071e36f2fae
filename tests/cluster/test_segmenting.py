"""Blocks on a cluster change nothing: not how thick, nor how many workers, nor what is lost."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pytest
from scipy import ndimage

import hushpore
from hushpore import InputError, Volume
from hushpore.base.atomic import partial_path
from hushpore.base.errors import DeviceError, MemoryLimitError, OutputError
from hushpore.base.events import Note, Progress, Timing, result_of
from hushpore.cluster import setup
from hushpore.cluster.connection import connect
from hushpore.cluster.segmenting import segment_pores
from hushpore.io.output_target import PROVENANCE
from hushpore.io.zarr import write_zarr
from hushpore.io.zarr_reader import open_zarr
from hushpore.pores.settings import PoreSettings
from hushpore.runs.pore_result import open_result
from hushpore.runs.rerun import rerun
from hushpore.runs.scan_recipe import ScanRecipe
from hushpore.scan.settings import LOCAL_METHODS

if TYPE_CHECKING:
    from pathlib import Path

    from distributed import Client

    from hushpore.base.events import Event
    from hushpore.pores.result import Pores


dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def scan() -> np.ndarray:
    """A noisy scan of a foam of two greys, so that there are many small parts too."""
    noise = np.random.default_rng(7).normal(size=(30, 36, 40))
    grey = np.where(ndimage.gaussian_filter(noise, 2.5) > 0, 60, 180)
    rng = np.random.default_rng(8)
    return (grey + rng.normal(0, 35, grey.shape)).clip(0, 255).astype(np.uint8)


@pytest.fixture
def path(scan: np.ndarray, tmp_path: Path) -> Path:
    """The scan as OME-Zarr, of voxels that are no cubes."""
    return store(scan, tmp_path)


def store(values: np.ndarray, folder: Path) -> Path:
    volume = Volume(values, spacing=(1.5, 1, 1.2), unit="um", origin=(3, 0, 7), name="scan")
    return write_zarr(folder / "scan.ome.zarr", volume)


def run(
    path: Path,
    client: Client,
    thickness: int | None,
    events: list[Event] | None = None,
    **values: Any,
) -> Path:
    """Segment on the cluster, and return the result folder."""
    folder = path.with_name("result")
    settings = PoreSettings(**values)
    job = segment_pores(path, folder, settings, where=client, thickness=thickness, overwrite=True)
    written = result_of(job, events.append if events is not None else None)
    assert written.folder == folder
    # nothing is left of the work
    assert [each.name for each in path.parent.iterdir() if each.name.startswith(".")] == []
    return folder


def assert_same(folder: Path, expected: Pores) -> None:
    labels = open_zarr(folder / "labels.ome.zarr")[0]
    np.testing.assert_array_equal(np.asarray(labels.data), expected.labels)
    assert (labels.spacing, labels.origin) == (expected.volume.spacing, expected.volume.origin)
    tables = expected.files().tables
    of_form = {"form", "limits", "profile_depth", "profile_radius", "size_classes"}
    for name in ({"pores", "throats", "totals"} | of_form) & set(tables):
        table = tables[name].to_csv(index=False, lineterminator="\n")
        assert (folder / f"{name}.csv").read_text(encoding="utf-8") == table
    profile = np.genfromtxt(folder / "profile.csv", delimiter=",", skip_header=1)
    np.testing.assert_array_equal(profile[:, 2], expected.porosity_profile)
    provenance = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    assert provenance["jobs"][0]["result"] == json.loads(json.dumps(expected.provenance["result"]))
    assert provenance["headline"] == expected.headline


# 1, 2, 5 and 15 blocks
@pytest.mark.parametrize("thickness", [30, 17, 7, 2])
def test_blocks_of_any_thickness_give_the_same_bits(
    path: Path, client: Client, thickness: int
) -> None:
    expected = hushpore.segment_pores(hushpore.read(path))
    assert_same(run(path, client, thickness), expected)


#: What a cluster does as one machine does.
DONE: list[dict[str, Any]] = [
    {"threshold": 130, "hysteresis": 40, "memory_budget": 1.0},
    {"otsu_classes": 3, "merge_overlapping": False, "merge_height": 0.2},
    {"exterior": "remove-slicewise", "ball_radius": 3, "pore_type": "open"},
    {"exterior": "remove", "ball_radius": 3.5, "border_is_solid": True},
    {"exterior": "remove", "ball_radius": 12, "pore_type": "closed"},
    {"connectivity": "faces", "threshold": 110, "edge_pores": "remove", "minimum_voxels": 5,
     "minimum_shape_voxels": 30, "merge_height": 1.5},
    {"threshold": "sauvola", "local_window": 9, "pores_are": "bright", "merge_height": 0},
    {"threshold": "niblack", "local_window": 7, "local_window_by_slice": True, "sauvola_k": 0.4},
    {"merging": "snow", "report_form": "foam", "edge_pores": "sizes"},
]  # fmt: skip

#: What needs the whole volume, which one worker holds.
OF_THE_WHOLE: list[dict[str, Any]] = [
    {"local_thickness": "both", "border_is_solid": True},
    {"tortuosity": True},
    {"transport": "diffusion", "periodic_sides": True},
    {"intervals": True},
    {"detection_limit": True},
    {"measured_porosity": 40.0},
    {"subvoxel_porosity": True},
    {"subvoxel_porosity": True, "void_grey": 60.0, "solid_grey": 180.0},
]


def test_every_setting_is_tried_on_a_cluster() -> None:
    tried = {"sample_mask", "markers", "limits"}.union(*DONE, *OF_THE_WHOLE)
    assert tried == {each.name for each in dataclasses.fields(PoreSettings)}


@pytest.mark.parametrize("values", DONE, ids=lambda values: " ".join(map(str, values.values())))
def test_blocks_change_nothing_whatever_is_asked_for(
    scan: np.ndarray, tmp_path: Path, client: Client, values: dict[str, Any]
) -> None:
    # a sample in air: a block with the pores of the scan
    path = store(np.pad(scan, ((3, 4), (5, 3), (2, 6)), constant_values=20), tmp_path)
    expected = hushpore.segment_pores(hushpore.read(path), **values)
    assert_same(run(path, client, 9, **values), expected)


@pytest.mark.parametrize("air", [0, 12])
@pytest.mark.parametrize("form", ["casting", "bread"])
def test_depths_below_the_surface_and_their_limits_are_the_same_in_blocks(
    tmp_path: Path, client: Client, form: str, air: int
) -> None:
    # more voxels along x than the map has points
    noise = ndimage.gaussian_filter(np.random.default_rng(3).normal(size=(20, 24, 170)), 2)
    grey = np.pad(np.where(noise > 0.04, 30, 180).astype(np.uint8), air, constant_values=30)
    path = store(grey, tmp_path)
    file = tmp_path / "limits.toml"
    file.write_text('form = "casting"\n[a_max]\nmin = 0\n[P]\nmax = 1\n')
    how = {"report_form": form, "limits": str(file)}
    expected = hushpore.segment_pores(hushpore.read(path), **how)
    lines = expected.provenance["result"]["acceptance"]["lines"]
    assert [line["verdict"] for line in lines] == ["passed", "failed"]
    assert (expected.provenance["result"]["exterior_share"] > 0) == bool(air)
    pores = expected.pores_of_form
    is_of_faces = pores["surface_distance"].equals(pores["face_distance"])
    assert is_of_faces == (not air)
    assert_same(run(path, client, 7, **how), expected)
    assert (tmp_path / "result" / "profile_depth.csv").is_file()


@pytest.mark.parametrize("dtype", [np.int16, np.float32])
def test_what_is_around_a_sample_is_the_same_in_blocks(
    tmp_path: Path, client: Client, dtype: Any
) -> None:
    along = np.arange(64) - 31.5
    away = np.hypot(along[:, None], along)[None]
    noise = ndimage.gaussian_filter(np.random.default_rng(3).normal(size=(20, 64, 64)), 2)
    solid = ndimage.gaussian_filter(((away < 20) & (noise < 0.06)).astype(float), 0.6)
    core = np.where(away < 31, 300 + 900 * solid, -2000).astype(dtype)
    # what is filled in at the ends, too: whole slices and whole blocks of them
    core = np.pad(core, ((3, 6), (0, 0), (0, 0)), constant_values=-2000)
    expected = hushpore.segment_pores(hushpore.read(store(core, tmp_path)))
    totals = expected.provenance["result"]
    assert (totals["exterior"], totals["padding_value"]) == ("remove-slicewise", -2000)
    assert_same(run(tmp_path / "scan.ome.zarr", client, 6), expected)
    for method in LOCAL_METHODS:
        local = {"threshold": method, "local_window": 9}
        found = hushpore.segment_pores(hushpore.read(tmp_path / "scan.ome.zarr"), **local)
        assert found.provenance["result"]["padding_value"] == -2000
        assert_same(run(tmp_path / "scan.ome.zarr", client, 6, **local), found)
    # around a core that is whole a ball rolls, through all blocks
    whole = np.pad(core[3:-6], ((4, 4), (0, 0), (0, 0)), constant_values=300)
    whole[:, away[0] >= 31] = 300
    (tmp_path / "whole").mkdir()
    path = store(whole, tmp_path / "whole")
    expected = hushpore.segment_pores(hushpore.read(path))
    assert expected.provenance["result"]["exterior"] == "remove"
    assert_same(run(path, client, 6), expected)


def test_workers_know_what_a_scan_is_said_to_be_filled_in_with(
    tmp_path: Path, client: Client
) -> None:
    # most of the rim is of the sample, and what is filled in lies between its grey values
    noise = ndimage.gaussian_filter(np.random.default_rng(0).normal(size=(20, 64, 64)), 2)
    grey = ndimage.gaussian_filter(np.where(noise > 0.06, -900.0, 1200.0), 0.6)
    outside = np.hypot(*(np.indices((64, 64)) - 31.5)) > 39
    values = np.where(outside, 100, grey.round()).astype(np.int16)
    volume = Volume(values, name="scan", metadata={"padding_value": 100})
    expected = hushpore.segment_pores(volume)
    assert expected.provenance["result"]["padding_value"] == 100
    job = segment_pores(volume, tmp_path / "result", PoreSettings(), where=client, thickness=7)
    assert_same(result_of(job).folder, expected)


@pytest.mark.parametrize("is_file", [False, True])
def test_a_mask_of_the_sample_is_read_in_blocks(
    path: Path, scan: np.ndarray, client: Client, is_file: bool
) -> None:
    z, y, x = np.indices(scan.shape)
    mask = ((y - 17) ** 2 + (x - 20) ** 2 < 150) & (z > 2)
    expected = hushpore.segment_pores(hushpore.read(path), sample_mask=mask, pore_type="open")
    if is_file:
        np.save(path.parent / "core.npy", mask)
        named = str(path.parent / "core.npy")
        assert_same(run(path, client, 7, sample_mask=named, pore_type="open"), expected)
        return
    volume = dataclasses.replace(open_zarr(path)[0], auxiliary={"core": mask})
    folder, settings = path.with_name("result"), PoreSettings(sample_mask="core", pore_type="open")
    result_of(segment_pores(volume, folder, settings, where=client, thickness=7))
    assert_same(folder, expected)
    none = dataclasses.replace(volume, auxiliary={"core": np.zeros_like(mask)})
    with pytest.raises(InputError, match="is empty"):
        result_of(segment_pores(none, folder, settings, where=client, overwrite=True))


@pytest.mark.parametrize(
    ("thickness", "values"),
    [
        (7, {"pore_type": "open", "sample_mask": "core.npy"}),
        (9, {"merging": "snow"}),
        # in one piece
        (None, {"local_thickness": "both", "intervals": True}),
    ],
)
def test_one_machine_makes_it_again(
    path: Path, scan: np.ndarray, client: Client, thickness: int | None, values: dict[str, Any]
) -> None:
    mask = np.ones(scan.shape, bool)
    mask[:, :5] = False
    np.save(path.parent / "core.npy", mask)
    if "sample_mask" in values:
        values = {**values, "sample_mask": str(path.parent / values["sample_mask"])}
    folder, again = run(path, client, thickness, **values), path.with_name("again")
    done = result_of(rerun(folder, again, "cpu"))
    assert done.identical
    assert "Identical bit for bit, although the device was 2 workers of the cluster" in done.summary
    # an image of the first is another, and so is the table of it
    labels = open_zarr(folder / "labels.ome.zarr")[0]
    without = np.where(labels.array() == 3, 0, labels.array())
    write_zarr(folder / "labels.ome.zarr", labels.replace(without), overwrite=True)
    other = result_of(rerun(folder, again, "cpu", overwrite=True))
    assert "Not identical: labels differs" in other.summary
    # and the scan
    write_zarr(path, hushpore.read(path).replace(scan + 1), overwrite=True)
    with pytest.raises(InputError, match="has changed since this result was made"):
        result_of(rerun(folder, path.with_name("third")))


@pytest.mark.parametrize(
    ("thickness", "kind"),
    [(30, "labels"), (7, "points"), (2, "labels"), (2, "points"), (7, "a mask")],
)
def test_pores_grow_from_markers_through_blocks(
    path: Path, scan: np.ndarray, client: Client, rng: np.random.Generator,
    thickness: int, kind: str,
) -> None:  # fmt: skip
    volume = open_zarr(path)[0]
    void = np.argwhere(hushpore.segment_pores(volume.array()).labels)
    points = void[rng.choice(len(void), 60, replace=False)]
    markers = points + 0.2
    if kind != "points":
        # some numbers more than once, far apart, and some basins with several
        markers = np.zeros(scan.shape, np.uint16)
        markers[tuple(points.T)] = rng.integers(1, 40, len(points))
    if kind == "a mask":
        markers = markers > 0
    expected = hushpore.segment_pores(hushpore.read(path), markers=markers, edge_pores="remove")
    volume = dataclasses.replace(volume, auxiliary={"mine": markers})
    folder, settings = path.with_name("result"), PoreSettings(markers="mine", edge_pores="remove")
    result_of(segment_pores(volume, folder, settings, where=client, thickness=thickness))
    assert_same(folder, expected)


def test_markers_that_are_in_no_void_are_refused(path: Path, client: Client) -> None:
    volume, settings = open_zarr(path)[0], PoreSettings(markers="mine")
    void = hushpore.segment_pores(volume.array(), minimum_voxels=1).labels > 0
    solid = np.argwhere(~void)[:1]
    for points, said in ((solid, "1 of them outside the void"), (solid + 90, "outside the volume")):
        marked = dataclasses.replace(volume, auxiliary={"mine": points.astype(float)})
        job = segment_pores(marked, path.with_name("result"), settings, where=client)
        with pytest.raises(InputError, match=said):
            result_of(job)


def test_a_voxel_far_outside_is_seen_in_blocks(
    scan: np.ndarray, tmp_path: Path, client: Client
) -> None:
    values = scan.astype(np.float32)
    values[3, 4, 5] = 1e9
    path = store(values, tmp_path)
    expected = hushpore.segment_pores(hushpore.read(path))
    assert 60 < expected.threshold < 180
    assert_same(run(path, client, 11), expected)


@pytest.mark.parametrize("dtype", [np.int16, np.float32, np.bool_])
def test_blocks_are_read_of_any_type(
    scan: np.ndarray, tmp_path: Path, client: Client, dtype: Any
) -> None:
    values = (scan > 120) if dtype == np.bool_ else scan.astype(dtype) - dtype(50)
    path = store(values, tmp_path)
    assert_same(run(path, client, 11), hushpore.segment_pores(hushpore.read(path)))


def smooth(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """A void of wide pores, which reach through many thin blocks."""
    return ndimage.gaussian_filter(rng.normal(size=shape), 4) > -0.01


def noise(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """A void of noise, in which every basin reaches a face."""
    return rng.random(shape) > 0.5


def ramps(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """A void of long wedges, along which one climbs through all blocks."""
    z, y, x = np.indices(shape)
    return (y % 20) * 3 < z + 3 + (x // 9) % 4


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (smooth, {"merge_height": 0.5}),
        (noise, {"merge_height": 0.0}),
        (ramps, {"merge_height": 3.0}),
        # blocks thinner than the ball in which peaks are the highest
        (smooth, {"merging": "snow"}),
    ],
)
def test_merging_in_thin_blocks_is_that_of_the_whole(
    tmp_path: Path, client: Client, rng: np.random.Generator, make: Any, values: dict[str, Any]
) -> None:
    path = store(make(rng, (31, 30, 26)), tmp_path)
    expected = hushpore.segment_pores(hushpore.read(path), **values)
    assert_same(run(path, client, 4, **values), expected)


@pytest.mark.parametrize("value", [False, True])
def test_all_void_and_no_void_have_results_too(tmp_path: Path, client: Client, value: bool) -> None:
    path = store(np.full((9, 8, 7), value), tmp_path)
    assert_same(run(path, client, 4), hushpore.segment_pores(hushpore.read(path)))


def test_a_job_says_how_far_it_is_and_what_workers_did(path: Path, client: Client) -> None:
    events: list[Event] = []
    run(path, client, 9, events)
    progress = [event for event in events if isinstance(event, Progress)]
    fractions = [event.fraction for event in progress]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1
    assert {"threshold", "void", "basins", "merging", "labels"} <= {each.stage for each in progress}
    timing = [event for event in events if isinstance(event, Timing)][-1]
    assert timing.stages["basins"].count == 4
    assert timing.stages["basins"].voxels == 30 * 36 * 40
    assert timing.host_memory > 0
    notes = [event.message for event in events if isinstance(event, Note)]
    assert notes[0].startswith("Worked on in 4 blocks of 9 slices")


def test_what_is_left_of_a_killed_run_is_gone_on_with(
    path: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = segment_pores(path, path.with_name("result"), PoreSettings(), where=client, thickness=9)
    stages = []
    for event in job:
        if isinstance(event, Progress):
            stages.append(event.stage)
            if event.stage == "merging":
                break
    # what happens to a process that is killed: nothing is cleaned up
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)
    job.close()
    monkeypatch.undo()
    assert not path.with_name("result").exists()
    (left,) = path.parent.glob(".result.*.unfinished")
    left.rename(partial_path(path.with_name("result"), ".unfinished", owned=False))
    events: list[Event] = []
    folder = run(path, client, 9, events)
    assert_same(folder, hushpore.segment_pores(hushpore.read(path)))
    notes = [event.message for event in events if isinstance(event, Note)]
    assert any("Resumed an earlier run with" in note for note in notes)
    computed, reused = (int(word) for word in notes[-1].split() if word.isdecimal())
    # survey, threshold and basins of 4 blocks, 3 faces and 2 bands
    assert reused >= 4 * 3 + 3 + 2
    timing = [event for event in events if isinstance(event, Timing)][-1]
    assert sum(stage.count for stage in timing.stages.values()) == computed
    assert "basins" not in timing.stages


@pytest.mark.long
def test_a_worker_that_is_killed_changes_nothing(path: Path) -> None:
    folder = path.with_name("result")
    with connect("local:2", memory=1) as client:
        victim = psutil.Process(next(iter(client.run(os.getpid).values())))
        job = segment_pores(path, folder, PoreSettings(), where=client, thickness=4)
        for event in job:
            if isinstance(event, Progress) and event.stage == "basins" and victim.is_running():
                victim.kill()
                victim.wait(timeout=60)
        assert not victim.is_running()
    assert_same(folder, hushpore.segment_pores(hushpore.read(path)))


def test_work_that_loses_its_scheduler_is_kept(path: Path, client: Client) -> None:
    folder = path.with_name("result")
    place = {"processes": False, "dashboard_address": "127.0.0.1:0", "silence_logs": 50}
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, **place) as cluster:
        other = distributed.Client(cluster, set_as_default=False)
        job = segment_pores(path, folder, PoreSettings(), where=other, thickness=9)
        next(event for event in job if isinstance(event, Progress) and event.stage == "basins")
        cluster.close()
        with pytest.raises(DeviceError, match="run the same command again"):
            result_of(job)
        other.close()
    assert not folder.exists()
    events: list[Event] = []
    run(path, client, 9, events)
    messages = [event.message for event in events if isinstance(event, Note)]
    assert any("Resumed an earlier run with" in message for message in messages)
    assert_same(folder, hushpore.segment_pores(hushpore.read(path)))


def test_cancelling_leaves_nothing(path: Path, client: Client) -> None:
    job = segment_pores(path, path.with_name("result"), PoreSettings(), where=client, thickness=9)
    for event in job:
        if isinstance(event, Progress) and event.stage == "basins":
            break
    job.close()
    assert sorted(each.name for each in path.parent.iterdir()) == ["scan.ome.zarr"]


def test_what_a_task_cannot_do_is_said_and_leaves_nothing(
    path: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise InputError("This cannot be.")

    monkeypatch.setitem(setup.TASKS, "basins", fails)
    with pytest.raises(InputError, match=r"This cannot be\."):
        run(path, client, 9)
    assert sorted(each.name for each in path.parent.iterdir()) == ["scan.ome.zarr"]


def test_what_is_made_in_blocks_is_a_result_like_others(path: Path, client: Client) -> None:
    found = open_result(run(path, client, 9))
    expected = hushpore.segment_pores(hushpore.read(path))
    np.testing.assert_array_equal(np.asarray(found.labels.data), expected.labels)
    assert len(found.pores) == len(expected.pores)
    assert found.provenance["input"]["shape"] == [30, 36, 40]


def test_a_result_that_is_there_is_not_replaced_unasked(path: Path, client: Client) -> None:
    folder = run(path, client, 30)
    with pytest.raises(OutputError, match="already exists"):
        next(segment_pores(path, folder, PoreSettings(), where=client))


@pytest.mark.parametrize("values", [{}, *OF_THE_WHOLE], ids=" ".join)
def test_what_one_worker_holds_is_one_task_as_on_one_machine(
    path: Path, client: Client, values: dict[str, Any]
) -> None:
    events: list[Event] = []
    folder = run(path, client, None, events, **values)
    expected = hushpore.segment_pores(hushpore.read(path), **values)
    assert_same(folder, expected)
    record = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    assert sorted(record["files"]) == sorted(each.name for each in folder.iterdir())
    assert record["jobs"][0]["settings"] == PoreSettings(**values).to_dict()
    for phase in expected.thickness:
        (stored,) = open_zarr(folder / f"{phase}_thickness.ome.zarr")
        np.testing.assert_array_equal(np.asarray(stored.data), expected.thickness[phase].diameter)
        # a viewer knows it by that
        assert stored.name == f"{phase}_thickness"
    notes = [event.message for event in events if isinstance(event, Note)]
    assert notes[0].startswith("Worked on in one piece, by one of 2 workers")
    assert [event.fraction for event in events if isinstance(event, Progress)][-1] == 1
    assert "basins" in [event for event in events if isinstance(event, Timing)][-1].stages


def test_a_job_on_a_worker_of_this_process_leaves_what_dask_computes_by(
    path: Path, client: Client
) -> None:
    before = dask.config.get("scheduler", None)
    run(path, client, None)
    assert dask.config.get("scheduler", None) == before
    with pytest.raises(ValueError, match="No clients found"):
        distributed.default_client()


def test_cancelling_one_task_leaves_nothing(path: Path, client: Client) -> None:
    job = segment_pores(path, path.with_name("result"), PoreSettings(), where=client)
    next(event for event in job if isinstance(event, Note))
    job.close()
    assert sorted(each.name for each in path.parent.iterdir()) == ["scan.ome.zarr"]


@pytest.mark.parametrize("values", OF_THE_WHOLE, ids=" ".join)
def test_what_needs_the_whole_is_not_cut_into_blocks(
    path: Path, client: Client, values: dict[str, Any]
) -> None:
    with pytest.raises(InputError, match="Do not set the thickness of the blocks"):
        run(path, client, 9, **values)
    with pytest.raises(MemoryLimitError, match=r"needs all of .*Give the workers more"):
        run(path, client, None, memory_budget=0.3, **values)


def test_an_image_is_refused(tmp_path: Path, client: Client) -> None:
    path = write_zarr(tmp_path / "image.ome.zarr", Volume(np.eye(9)))
    with pytest.raises(InputError, match="axes z, y and x"):
        run(path, client, 9)


def test_noise_that_no_worker_has_memory_for_is_refused(
    path: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = setup.cut_volume

    def little(*arguments: Any) -> setup.Cut:
        return found(*arguments)._replace(most_basins=10)

    monkeypatch.setattr("hushpore.cluster.setup.cut_volume", little)
    with pytest.raises(MemoryLimitError, match="denoise the volume first"):
        run(path, client, 9)


def test_the_volume_of_a_reader_is_segmented_where_it_lies(path: Path, client: Client) -> None:
    volume = dataclasses.replace(open_zarr(path)[0])
    job = segment_pores(volume, path.with_name("result"), PoreSettings(), where=client)
    assert_same(result_of(job).folder, hushpore.segment_pores(hushpore.read(path)))


def test_a_copy_of_a_scan_is_read_however_little_it_takes_on_disk(
    path: Path, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as what is filled in over many slices, with a pore somewhere
    values = np.full((32, 64, 64), 5000, np.uint16)
    values[10:14, 30:34, 30:34] = 100
    with monkeypatch.context() as strict:
        strict.setattr("hushpore.io.guards.SMALL", 0)
        strict.setattr("hushpore.io.guards.LARGEST_RATIO", 1)
        job = segment_pores(Volume(values), tmp_path / "result", PoreSettings(), where=client)
        written = result_of(job)
    assert_same(written.folder, hushpore.segment_pores(Volume(values)))


@pytest.mark.parametrize("kind", ["hdf5", "nrrd", "skyscan"])
def test_scans_of_lab_formats_are_segmented_as_on_one_machine(
    kind: str, scan: np.ndarray, client: Client, tmp_path: Path
) -> None:
    path = tmp_path / {"hdf5": "scan.h5", "nrrd": "scan.nrrd", "skyscan": "core"}[kind]
    if kind == "hdf5":
        with pytest.importorskip("h5py").File(path, "w") as file:
            file.create_dataset("volume", data=scan, chunks=(4, 36, 40), compression="gzip")
    elif kind == "nrrd":
        header = {"spacings": [1.2, 1.0, 1.5], "space units": ["um"] * 3, "space dimension": 3}
        pytest.importorskip("nrrd").write(str(path), scan, header, index_order="C")
    else:
        image = pytest.importorskip("PIL.Image")
        path.mkdir()
        for number, plane in enumerate(scan):
            image.fromarray(plane).save(path / f"core__rec{number:08d}.bmp")
        (path / "core__rec.log").write_text(
            "[System]\nScanner=SkyScan1172\n[Reconstruction]\nPixel Size (um)=2.5\n"
        )
    written = result_of(segment_pores(path, tmp_path / "result", PoreSettings(), where=client))
    alone = hushpore.read(path)
    np.testing.assert_array_equal(alone.data, scan)
    expected = {"hdf5": ((1, 1, 1), "pixel"), "skyscan": ((2.5, 2.5, 2.5), "um")}
    assert (alone.spacing, alone.unit) == expected.get(kind, ((1.5, 1.0, 1.2), "um"))
    assert_same(written.folder, hushpore.segment_pores(alone))


def test_a_voxel_size_that_was_given_counts_and_not_that_of_the_file(
    path: Path, client: Client
) -> None:
    volume = dataclasses.replace(open_zarr(path)[0], spacing=(7.0, 3.0, 2.5), unit="nm")
    job = segment_pores(volume, path.with_name("result"), PoreSettings(), where=client)
    expected = hushpore.read(path).replace(volume.array(), spacing=(7.0, 3.0, 2.5), unit="nm")
    written = result_of(job)
    assert_same(written.folder, hushpore.segment_pores(expected))
    # the record says so, and what it says is read again
    source = ScanRecipe.of(json.loads((written.folder / PROVENANCE).read_text())["source"])
    again = source.read()
    assert (again.spacing, again.unit) == (volume.spacing, "nm")


@pytest.mark.parametrize("suffix", ["zarr", "npy"])
def test_voxels_without_a_value_are_excluded_as_on_one_machine(
    scan: np.ndarray, client: Client, tmp_path: Path, suffix: str
) -> None:
    values = scan.astype(np.float32)
    _, y, x = np.indices(values.shape)
    outside = (y - 18) ** 2 + (x - 20) ** 2 > 17**2
    values[outside] = np.nan
    path = tmp_path / f"scan.{suffix}"
    if suffix == "zarr":
        write_zarr(path, Volume(values))
    else:
        np.save(path, values)
    events: list[Event] = []
    folder = run(path, client, 7, events)
    expected = hushpore.segment_pores(ScanRecipe(str(path)).read())
    labels = np.asarray(open_zarr(folder / "labels.ome.zarr")[0].data)
    np.testing.assert_array_equal(labels, expected.labels)
    assert not labels[outside].any()
    found = json.loads((folder / PROVENANCE).read_text(encoding="utf-8"))["jobs"][0]["result"]
    assert found["padding_value"] == expected.provenance["result"]["padding_value"] < scan.min()
    assert found["porosity"] == expected.provenance["result"]["porosity"]
    notes = " ".join(each.message for each in events if isinstance(each, Note))
    assert f"{int(outside.sum()):,} voxels" in notes
    assert ("a copy with a fill value is written first" in notes) == (suffix == "zarr")
