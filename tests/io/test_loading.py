from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from hushpore.base.errors import InputError
from hushpore.base.events import Progress
from hushpore.base.rescaled import held
from hushpore.base.volume import Volume
from hushpore.io import describe, is_on_disk, lazy_arrays, load, loading, read, read_all
from hushpore.io.dicom import write_series
from hushpore.io.loading import MOST, choose, preselected, split_notes


@pytest.fixture
def series(tmp_path, rng):
    values = rng.integers(-1000, 1000, (60, 16, 12)).astype(np.int16)
    folder = write_series(Volume(values, spacing=(3, 1, 1), unit="mm"), tmp_path / "series", seed=1)
    return folder, values


def drained(work):
    events = []
    while True:
        try:
            events.append(next(work))
        except StopIteration as end:
            return events, end.value


def test_a_description_has_all_facts_and_no_values(series, monkeypatch):
    folder, values = series
    monkeypatch.setattr("hushpore.io.dicom.pixels.read_uncompressed", None)
    (volume,) = describe(folder)
    assert is_on_disk(volume)
    assert (volume.shape, volume.spacing, volume.unit) == ((60, 16, 12), (3, 1, 1), "mm")
    assert (volume.dtype, volume.source) == (values.dtype, str(folder))


def test_what_stays_on_disk_reads_the_slices_that_are_asked_for(series):
    folder, values = series
    (volume,) = read_all(folder, lazy=True)
    np.testing.assert_array_equal(volume.data[7], values[7])
    np.testing.assert_array_equal(volume.data[::9, 3:5, 2], values[::9, 3:5, 2])
    np.testing.assert_array_equal(volume.array(), values)


def test_dask_takes_what_stays_on_disk(series):
    array = pytest.importorskip("dask.array")
    folder, values = series
    lazy = array.from_array(read_all(folder, lazy=True)[0].data, chunks=(10, -1, -1))
    np.testing.assert_array_equal(lazy.max(axis=0).compute(scheduler="threads"), values.max(axis=0))


def test_above_half_of_thefree_memory_values_stay_on_disk_and_it_is_said(series, monkeypatch):
    folder, values = series
    monkeypatch.setattr(loading, "free_memory", lambda: 1.9 * values.nbytes)
    volume = read(folder)
    assert is_on_disk(volume)
    assert "half of the free memory" in volume.notes[-1]
    assert not is_on_disk(read_all(folder, lazy=False)[0])
    monkeypatch.setattr(loading, "free_memory", lambda: 2.1 * values.nbytes)
    assert not is_on_disk(read(folder))


def test_progress_runs_from_nothing_to_everything(series):
    events, (volume,) = drained(load(series[0]))
    np.testing.assert_array_equal(volume.data, series[1])
    assert all(isinstance(event, Progress) for event in events)
    fractions = [event.fraction for event in events]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1
    assert (events[-1].done, events[-1].total, events[-1].unit) == (60, 60, "slices")
    assert events[0].stage == "reading headers"


def test_closing_stops_at_once_and_leaves_no_thread(series, monkeypatch):
    from hushpore.io.dicom import pixels

    original, seen, stopped = pixels.read_uncompressed, [], threading.Event()

    def slow(*arguments):
        seen.append(1)
        # no further than this until it is stopped
        assert len(seen) < 10 or stopped.wait(60)
        original(*arguments)

    monkeypatch.setattr(pixels, "read_uncompressed", slow)
    monkeypatch.setattr(lazy_arrays, "threading", SimpleNamespace(Event=lambda: stopped))
    work = load(series[0])
    for event in work:
        if event.stage == "reading":
            break
    work.close()
    assert len(seen) < 30
    assert not [each for each in threading.enumerate() if "hushpore reads" in each.name]


def test_a_damaged_largest_stack_gives_way_to_the_next_and_is_named(tmp_path, ramp):
    import tifffile

    tifffile.imwrite(tmp_path / "a.tif", ramp, photometric="minisblack", compression="zlib")
    np.save(tmp_path / "b.npy", ramp)
    write_series(Volume(ramp, spacing=(1, 1, 1), unit="mm"), tmp_path / "good", seed=1)
    bad = write_series(
        Volume(np.zeros((9, 8, 8)), spacing=(1, 1, 1), unit="mm"), tmp_path / "bad", seed=2
    )
    for path in bad.iterdir():
        path.write_bytes(path.read_bytes()[:-20])
    volume = read(tmp_path)
    assert volume.shape == ramp.shape
    assert any("could not be read" in note and "incomplete" in note for note in volume.notes)


def test_the_read_values_take_the_memory_of_one_copy(series, monkeypatch):
    taken = []
    original = np.empty

    def counted(shape, dtype=float, *arguments, **options):
        array = original(shape, dtype, *arguments, **options)
        taken.append(array.nbytes)
        return array

    monkeypatch.setattr(np, "empty", counted)
    volume = read(series[0])
    assert max(taken) == volume.nbytes
    assert sum(taken) < 1.2 * volume.nbytes


def test_an_error_of_the_system_is_told_in_plain_words(series, monkeypatch):
    (volume,) = read_all(series[0], lazy=True)
    for path in series[0].iterdir():
        path.unlink()
    with pytest.raises(InputError, match="does not exist"):
        drained(loading.into_memory([volume]))


def test_slope_and_intercept_leave_the_integers_as_they_are_until_values_are_asked_for(tmp_path):
    hounsfield = np.linspace(-1024, 3071.5, 60 * 16 * 12).reshape(60, 16, 12)
    folder = write_series(Volume(hounsfield, spacing=(3, 1, 1), unit="mm"), tmp_path / "s", seed=1)
    for volume in (read(folder), *read_all(folder, lazy=True)):
        assert (volume.dtype, held(volume.data).dtype) == (np.float32, np.int16)
        assert volume.nbytes == 2 * hounsfield.size
        np.testing.assert_allclose(volume.array(), hounsfield, atol=0.1)
        np.testing.assert_array_equal(volume.data[7, 3:5], volume.array()[7, 3:5])
    assert not is_on_disk(read(folder))


def test_values_are_decoded_into_the_memory_that_is_given(series):
    made = []

    def empty(shape, dtype):
        made.append(np.full(shape, 77, dtype))
        return made[-1]

    volume = read(series[0], empty=empty)
    assert held(volume.data) is made[0]
    np.testing.assert_array_equal(made[0], series[1])


def test_what_goes_to_a_gpu_is_decoded_into_pinned_memory(series, monkeypatch):
    import torch

    from hushpore.device import memory
    from hushpore.device.backend import Backend
    from hushpore.runs import scan_recipe

    class Runtime:
        pinned = ()

        def cudaHostRegister(self, address, nbytes, flags):  # noqa: N802
            self.pinned = (address, nbytes)
            return 0

        def cudaHostUnregister(self, address):  # noqa: N802
            return 0

    runtime = Runtime()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    monkeypatch.setattr(memory, "LEAST_PINNED", 1)
    monkeypatch.setattr(scan_recipe, "choose_backend", lambda device: Backend("cuda:0"))
    scan = scan_recipe.ScanRecipe(str(series[0]))
    stored = held(scan.read("cuda").data)
    assert runtime.pinned == (stored.ctypes.data, stored.nbytes)
    runtime.pinned = ()
    scan.read()
    assert runtime.pinned == ()


def stack(name, depth=2):
    return Volume(np.zeros((depth, 4, 5), np.uint8), name=name)


SERIES = [stack("thorax series 3"), stack("thorax series 31"), stack("Head")]


@pytest.mark.parametrize(
    ("series", "place"),
    [(1, 0), ("3", 2), (" head ", 2), ("THORAX SERIES 3", 0), ("31", 1)],
    ids=["number", "number as text", "any case", "the whole name wins", "part of a name"],
)
def test_a_series_is_named_by_number_or_name(series, place):
    assert choose(SERIES, series) is SERIES[place]


@pytest.mark.parametrize("series", ["thorax", "knee", "0"])
def test_what_does_not_name_exactly_one_is_refused_with_the_list(series):
    with pytest.raises(InputError, match="1 thorax series 3; 2 thorax series 31; 3 Head"):
        choose(SERIES, series)


def test_without_a_name_the_largest_is_meant_and_of_equals_the_first():
    assert choose(SERIES) is choose(SERIES, " ") is SERIES[0]
    assert choose([*SERIES, (large := stack("foot", 9))]) is large


def test_all_are_proposed_where_there_are_few_and_memory_has_room():
    assert preselected(SERIES, room=1e9) == [0, 1, 2]


def test_the_largest_is_proposed_first_and_always():
    series = [stack("a"), stack("b", 50), stack("c", 9)]
    assert preselected(series, room=0) == [1]
    assert preselected(series, room=59 * 20) == [1, 2]


def test_of_very_many_a_few_are_proposed():
    assert len(preselected([stack(str(i), 1 + i) for i in range(40)], room=1e9)) == MOST


def test_a_note_of_all_series_is_said_once():
    shared, own = split_notes([["stray", "odd"], ["stray"], ["stray", "tilted"]])
    assert (shared, own) == (["stray"], [["odd"], [], ["tilted"]])
    assert split_notes([["alone"]]) == ([], [["alone"]])
