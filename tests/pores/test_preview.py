from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage
from skimage import filters

import hushpore
from hushpore.base.errors import InputError
from hushpore.base.events import result_of
from hushpore.base.rescaled import Scaled
from hushpore.base.volume import Volume
from hushpore.pores import preview
from hushpore.pores.preview import (
    VOID,
    WEAK,
    SampleFinder,
    SliceVoid,
    sample_settings,
    survey_greys,
)
from hushpore.pores.settings import PoreSettings


@pytest.fixture(scope="module")
def grey():
    """A stack of dark blobs in a brighter, noisy ground, from -1000 to about 300."""
    rng = np.random.default_rng(3)
    smooth = ndimage.gaussian_filter(rng.normal(size=(9, 40, 44)), 3)
    solid = smooth > np.quantile(smooth, 0.3)
    return np.where(solid, 200.0, -1000.0) + rng.normal(0, 120, solid.shape)


DTYPES = {
    "float32": lambda grey: grey.astype(np.float32),
    "int16": lambda grey: grey.astype(np.int16),
    "uint16": lambda grey: (grey + 2000).astype(np.uint16),
    "uint8": lambda grey: np.clip((grey + 1600) / 10, 0, 255).astype(np.uint8),
}

SETTINGS = {
    "a method": PoreSettings(),
    "a method for three classes": PoreSettings(otsu_classes=3),
    "a number": PoreSettings(threshold=130.5),
    "bright pores": PoreSettings(threshold="li", pores_are="bright"),
    "a local threshold": PoreSettings(threshold="sauvola", local_window=15),
    "a local threshold in a slice": PoreSettings(
        threshold="niblack", local_window=9, local_window_by_slice=True
    ),
}


def survey(values, threads, **known):
    return result_of(survey_greys(Volume(values, **known), threads))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("how", SETTINGS)
def test_the_void_of_a_slice_is_that_of_the_job(grey, threads, dtype, how):
    values, settings = DTYPES[dtype](grey), SETTINGS[how]
    # the preview shows all void, which the job counts without a minimum size
    all_void = settings.to_dict() | {"minimum_voxels": 1}
    labels = hushpore.segment_pores(values, **all_void).labels
    greys = survey(values, threads)
    seen = SliceVoid(Volume(values))
    for z in (0, 4, 8):
        phase = seen.void_state((z,), settings, greys)
        np.testing.assert_array_equal(phase == VOID, labels[z] > 0)
        assert (phase <= VOID).all()


def test_of_an_image_and_of_an_array_on_disk_too(grey, threads):
    da = pytest.importorskip("dask.array")
    values = grey.astype(np.float32)
    greys = survey(values, threads)
    expected = SliceVoid(Volume(values)).void_state((4,), PoreSettings(), greys)
    lazy = Volume(da.from_array(values, chunks=(1, 20, 20)))
    np.testing.assert_array_equal(SliceVoid(lazy).void_state((4,), PoreSettings(), greys), expected)
    labels = hushpore.segment_pores(values[4], minimum_voxels=1).labels
    image = Volume(values[4])
    found = SliceVoid(image).void_state((), PoreSettings(), survey(values[4], threads))
    np.testing.assert_array_equal(found == VOID, labels > 0)


def test_of_the_integers_of_a_scanner_too(grey, threads):
    scan = Scaled((grey + 2000).astype(np.uint16), 0.5, -1000.0)
    greys = survey(scan, threads)
    assert greys.share == 1.0
    assert greys.find(PoreSettings()) == hushpore.segment_pores(scan).threshold
    found = SliceVoid(Volume(scan)).void_state((4,), PoreSettings(), greys)
    np.testing.assert_array_equal(found == VOID, scan[4] <= greys.find(PoreSettings()))


def test_of_one_image_among_several(grey, threads):
    values = np.stack([grey, 2 * grey]).astype(np.float32)
    settings = PoreSettings(threshold=-300.0)
    volume = Volume(values, axes="tzyx")
    greys = result_of(survey_greys(volume, threads))
    assert greys.share == 1.0
    assert greys.histogram.counts.sum() == values.size
    found = SliceVoid(volume).void_state((1, 3), settings, greys)
    np.testing.assert_array_equal(found == VOID, values[1, 3] <= -300)


def test_hysteresis_shows_what_is_void_for_certain_and_what_may_be(grey, threads):
    settings = PoreSettings(threshold=-100.0, hysteresis=-1200.0, minimum_voxels=1)
    labels = hushpore.segment_pores(grey, **settings.to_dict()).labels
    greys = survey(grey, threads)
    seen = SliceVoid(Volume(grey))
    doubtful = 0
    for z in range(len(grey)):
        phase = seen.void_state((z,), settings, greys)
        np.testing.assert_array_equal(phase > 0, grey[z] <= -100)
        assert (labels[z][phase == VOID] > 0).all()
        doubtful += np.count_nonzero(phase == WEAK)
        parts, _ = ndimage.label(grey[z] <= -100)
        strict = np.unique(parts[grey[z] <= -1200])
        np.testing.assert_array_equal(phase == VOID, np.isin(parts, strict[strict > 0]))
    assert doubtful


def test_thresholds_are_those_of_scikit_image_and_remembered(grey, threads):
    values = DTYPES["int16"](grey)
    greys = survey(values, threads)
    settings = PoreSettings(threshold="isodata")
    assert greys.known(settings) is None
    assert greys.find(settings) == filters.threshold_isodata(values)
    assert greys.known(settings) == filters.threshold_isodata(values)
    assert greys.known(PoreSettings(threshold=-5.0)) == -5.0
    assert greys.find(PoreSettings(threshold="niblack")) is None


def test_a_method_that_finds_nothing_says_so_and_shows_no_void(grey, threads):
    two = np.where(grey < 0, 0, 1).astype(np.uint8)
    greys = survey(two, threads)
    settings = PoreSettings(threshold="minimum")
    assert isinstance(greys.find(settings), InputError)
    assert SliceVoid(Volume(two)).void_state((0,), settings, greys) is None


def test_the_share_that_is_darker_is_counted(grey, threads):
    values = DTYPES["int16"](grey)
    greys = survey(values, threads, metadata={"value_unit": "HU"})
    assert greys.unit == "HU"
    for value in (-1000, -300.5, 0, 5000):
        assert greys.histogram.share_beyond(value) == np.mean(values <= value)
        assert greys.histogram.share_beyond(value, bright=True) == np.mean(values > value)


@pytest.mark.parametrize("lazy", [False, True])
def test_of_a_large_volume_slices_from_all_over_are_counted(grey, threads, monkeypatch, lazy):
    da = pytest.importorskip("dask.array")
    monkeypatch.setattr(preview, "WHOLE", 1)
    monkeypatch.setattr(preview, "SAMPLE", 3 * 40 * 44)
    values = grey.astype(np.float32)
    read = []

    def look(block):
        read.append(block.shape)
        return block

    data = da.from_array(values, chunks=(1, 40, 44)).map_blocks(look, meta=values[:0, :0, :0])
    greys = survey(data if lazy else values, threads)
    assert greys.share == pytest.approx(1 / 3)
    assert greys.histogram.counts.sum() == 3 * 40 * 44
    # and those of the thumbnail
    assert len(read) <= (3 + 9 if lazy else 0)
    assert tuple(greys.range)[:2] == (values[[1, 4, 7]].min(), values[[1, 4, 7]].max())


def test_of_a_plane_larger_than_the_sample_every_nth_pixel_is_counted(grey, threads, monkeypatch):
    monkeypatch.setattr(preview, "WHOLE", 1)
    monkeypatch.setattr(preview, "SAMPLE", 440)
    assert survey(grey[0], threads).histogram.counts.sum() == 440


def test_values_beyond_a_sample_are_void_or_solid_all_the_same(grey, threads, monkeypatch):
    values = DTYPES["uint16"](grey)
    settings = PoreSettings(threshold="sauvola", local_window=9)
    values[0, :5, :5] = 0
    monkeypatch.setattr(preview, "WHOLE", 1)
    monkeypatch.setattr(preview, "SAMPLE", 40 * 44)
    greys = survey(values, threads)
    assert greys.range.low > 0
    phase = SliceVoid(Volume(values)).void_state((0,), settings, greys)
    assert (phase[:5, :5] == VOID).all()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.full((4, 4, 4), 7), "constant"),
        (np.array([[1.0, np.nan], [2.0, 3.0]]), "NaN"),
        (np.zeros((0, 4, 4)), "empty"),
    ],
)
def test_what_cannot_be_segmented_is_refused(threads, values, said):
    with pytest.raises(InputError, match=said):
        survey(values, threads)


@pytest.mark.parametrize("filled_in", [False, True])
@pytest.mark.parametrize("outside", ["auto", "keep", "remove-slicewise"])
@pytest.mark.parametrize("threshold", ["otsu", 600.0, "sauvola"])
def test_air_around_the_sample_is_left_out_as_the_job_leaves_it_out(
    threads, outside, threshold, filled_in
):
    along = np.arange(70) - 34.5
    away = np.hypot(along[:, None], along)
    noise = ndimage.gaussian_filter(np.random.default_rng(3).normal(size=(12, 70, 70)), 2)
    solid = ndimage.gaussian_filter(((away < 24) & (noise < 0.06)).astype(float), 0.6)
    scan = (300 + 900 * solid).astype(np.int16)
    if filled_in:
        scan[:, away >= 34] = -2000
    settings = PoreSettings(exterior=outside, threshold=threshold, minimum_voxels=1)
    job = hushpore.segment_pores(scan, **settings.to_dict())
    greys = survey(scan, threads)
    void = SliceVoid(Volume(scan))
    for z in (0, 5, 11):
        np.testing.assert_array_equal(void.void_state((z,), settings, greys), job.labels[z] > 0)
    if settings.is_local:
        return
    assert greys.find(settings) == job.threshold
    # of air that is kept nothing is taken away
    assert (job.labels[5] > 0)[0, 0] == (outside == "keep")


@pytest.fixture(scope="module")
def core():
    """A core in air, (z, y, x), with closed pores of a known share; air and pores have one grey."""
    rng = np.random.default_rng(5)
    shape = (40, 96, 96)
    along = np.arange(shape[1]) - (shape[1] - 1) / 2
    sample = np.broadcast_to(np.hypot(along[:, None], along) < 38, shape)
    noise = ndimage.gaussian_filter(rng.normal(size=shape), 2)
    inside = np.broadcast_to(np.hypot(along[:, None], along) < 34, shape)
    pores = inside & (noise > np.quantile(noise[inside], 0.85))
    grey = np.where(sample & ~pores, 20000.0, 8000.0) + rng.normal(0, 700, shape)
    return grey.astype(np.uint16), float(pores.sum() / sample.sum())


def find(values, threads, **settings):
    """The sample, the survey and the settings of an image."""
    volume = Volume(values, auxiliary=settings.pop("auxiliary", {}))
    greys = result_of(survey_greys(volume, threads))
    how = PoreSettings(**settings)
    greys.find(how)
    used = sample_settings(how, greys)
    return result_of(SampleFinder(volume).find(used, greys, threads)), greys, how


def void_of(found):
    sample, greys, how = found
    return sample.histogram.share_beyond(greys.known(how), how.pores_are == "bright")


@pytest.mark.parametrize("threshold", ["auto", 12000.0, 16000.0])
@pytest.mark.parametrize("exterior", ["auto", "remove", "remove-slicewise"])
def test_the_share_of_void_is_the_porosity_of_the_job(core, threads, threshold, exterior):
    values, truth = core
    found = find(values, threads, threshold=threshold, exterior=exterior)
    job = hushpore.segment_pores(values, threshold=threshold, exterior=exterior, minimum_voxels=1)
    assert void_of(found) == pytest.approx(job.porosity, abs=1e-9)
    assert void_of(found) == pytest.approx(truth, abs=0.01)
    sample, greys, how = found
    # the whole scan has several times as much
    assert greys.histogram.share_beyond(greys.known(how)) > 3 * truth
    assert sample.excluded == pytest.approx(job.provenance["result"]["exterior_share"])
    assert sample.slices == 0


def test_the_threshold_stays_that_of_the_whole_scan(core, threads):
    values, _ = core
    _, greys, how = find(values, threads)
    assert greys.known(how) == hushpore.segment_pores(values).threshold


@pytest.mark.parametrize("lazy", [False, True])
def test_of_a_large_scan_slices_are_looked_at(core, threads, lazy, monkeypatch):
    da = pytest.importorskip("dask.array")
    values, truth = core
    monkeypatch.setattr(preview, "WHOLE", 1000)
    monkeypatch.setattr(preview, "_WHOLE_SAMPLE", 1000)
    monkeypatch.setattr(preview, "SAMPLE", 20 * 96 * 96)
    found = find(da.from_array(values, chunks=(1, 96, 96)) if lazy else values, threads)
    job = hushpore.segment_pores(values, minimum_voxels=1)
    assert found[0].slices == (16 if lazy else 20)
    assert void_of(found) == pytest.approx(job.porosity, abs=0.01)
    assert void_of(found) == pytest.approx(truth, abs=0.01)


def test_padding_is_excluded(core, threads):
    values, truth = core
    along = np.arange(values.shape[1]) - (values.shape[1] - 1) / 2
    padded = values.copy()
    padded[:, np.hypot(along[:, None], along) >= 38] = 0
    found = find(padded, threads)
    job = hushpore.segment_pores(padded, minimum_voxels=1)
    assert void_of(found) == pytest.approx(job.porosity, abs=1e-9)
    assert void_of(found) == pytest.approx(truth, abs=0.01)
    assert found[0].excluded > 0.3


@pytest.mark.parametrize("large", [False, True])
def test_a_mask_says_what_the_sample_is(core, threads, large, monkeypatch):
    values, truth = core
    if large:
        monkeypatch.setattr(preview, "WHOLE", 1000)
        monkeypatch.setattr(preview, "SAMPLE", 20 * 96 * 96)
    along = np.arange(values.shape[1]) - (values.shape[1] - 1) / 2
    disc = np.hypot(along[:, None], along) < 38
    mask = np.broadcast_to(disc, values.shape).astype(np.uint8)
    found = find(values, threads, sample_mask="disc", auxiliary={"disc": mask})
    assert void_of(found) == pytest.approx(truth, abs=0.01)
    assert found[0].excluded == pytest.approx(1 - mask.mean())


def test_images_and_bright_pores(core, threads):
    values = 28000 - core[0][20]
    found = find(values, threads, pores_are="bright")
    job = hushpore.segment_pores(values, pores_are="bright", minimum_voxels=1)
    assert found[0].excluded > 0.3
    assert void_of(found) == pytest.approx(job.porosity, abs=1e-9)


def test_where_nothing_is_excluded_all_voxels_count(core, threads):
    values = core[0][:, 28:68, 28:68]
    sample, greys, _ = find(values, threads)
    assert sample.histogram is greys.histogram
    assert sample.excluded == 0
    # no solid that air could surround
    sample, greys, _ = find(values, threads, threshold=60000.0, exterior="remove")
    assert sample.excluded == 0


def test_no_sample_is_looked_for_where_all_voxels_count_or_the_threshold_is_not_known(
    core, threads
):
    greys = result_of(survey_greys(Volume(core[0]), threads))
    assert sample_settings(PoreSettings(), greys) is None
    greys.find(PoreSettings())
    assert sample_settings(PoreSettings(exterior="keep"), greys) is None
    assert sample_settings(PoreSettings(measured_porosity=12.0), greys) is None
    used = sample_settings(PoreSettings(minimum_voxels=30), greys)
    assert used == sample_settings(PoreSettings(minimum_voxels=1), greys)


def test_plausible_thresholds_are_those_of_the_job(core, threads):
    values, _ = core
    found, greys, how = find(values, threads)
    job = hushpore.segment_pores(values, minimum_voxels=1).provenance["result"]
    assert list(greys.plausible(how)) == pytest.approx(job["plausible_thresholds"])
    shares = [found.histogram.share_beyond(end) for end in greys.plausible(how)]
    assert shares == pytest.approx(job["plausible_porosities"], abs=0.01)
    # a number has those of the automatic threshold; another method its own
    assert greys.plausible(PoreSettings(threshold=9000.0)) == greys.plausible(how)
    assert greys.plausible(PoreSettings(threshold="li")) is None
    greys.find(PoreSettings(threshold="li"))
    assert greys.plausible(PoreSettings(threshold="li")) is not None
    assert greys.plausible(PoreSettings(threshold=9000.0, hysteresis=8000.0)) is None
