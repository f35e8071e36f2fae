import numpy as np
import pytest
from scipy import ndimage

import hushpore
from hushpore.base.events import result_of
from hushpore.base.volume import Volume
from hushpore.pores import preview, sample_greys
from hushpore.pores.preview import survey_greys
from hushpore.pores.sample_greys import SampleFinder, sample_settings
from hushpore.pores.settings import PoreSettings


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
    monkeypatch.setattr(sample_greys, "WHOLE", 1000)
    monkeypatch.setattr(preview, "WHOLE", 1000)
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
        monkeypatch.setattr(sample_greys, "WHOLE", 1000)
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
