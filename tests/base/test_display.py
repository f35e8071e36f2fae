"""How volumes and results are shown in a console, in a notebook, and in napari."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest
from matplotlib.image import imread

import hushpore
from hushpore import Volume
from hushpore.base import display
from hushpore.base.display import ROWS, SIDE, drawn, png
from hushpore.base.errors import MissingPackageError


@pytest.fixture(scope="module")
def scan() -> Volume:
    """Nine dark cubes in bright solid."""
    data = np.full((12, 40, 40), 200, np.uint8)
    for corner in np.ndindex(3, 3):
        y, x = (4 + 12 * np.array(corner)).tolist()
        data[3:9, y : y + 6, x : x + 6] = 10
    return Volume(data, spacing=(4.0, 2.0, 2.0), unit="um", name="cubes")


@pytest.fixture(scope="module")
def pores(scan: Volume) -> hushpore.Pores:
    """The pores of the cubes."""
    return hushpore.segment_pores(scan)


def picture_of(page: str) -> np.ndarray:
    """Return the picture in a page, read by matplotlib."""
    found = re.search(r"base64,([^\"]+)", page)
    assert found is not None
    return np.rint(255 * imread(io.BytesIO(base64.b64decode(found[1])))).astype(int)


def test_a_volume_and_its_results_are_one_line_in_a_console(scan: Volume, pores: object) -> None:
    assert repr(scan) == "Volume 'cubes': 12 x 40 x 40 · 4 x 2 x 2 µm · uint8 · 19.2 kB"
    assert repr(pores).startswith("Pores of 'cubes': Porosity ")
    assert "\n" not in repr(pores)
    phases = hushpore.measure_phases(scan, phases=2)
    assert repr(phases).startswith("Phases of 'cubes': ")
    assert len(repr(phases)) < 300


def test_a_notebook_shows_the_middle_slice_in_grey(scan: Volume) -> None:
    page = scan._repr_html_()
    picture = picture_of(page)
    np.testing.assert_array_equal(picture[..., 0], np.where(scan.data[6] > 100, 255, 0))
    assert 'width="256" height="256"' in page


def test_a_notebook_shows_pores_in_colours_over_the_slice_and_the_first_rows(
    pores: hushpore.Pores,
) -> None:
    page = pores._repr_html_()
    picture = picture_of(page)
    coloured = np.ptp(picture, axis=-1) > 0
    np.testing.assert_array_equal(coloured, pores.labels[6] > 0)
    # a colour for each pore
    colours = {tuple(colour) for colour in picture[coloured].tolist()}
    assert len(colours) == len(pores.pores) == 9
    assert page.count("<tr") == ROWS + 1
    assert "9 rows in all" in page


def test_a_large_slice_is_drawn_small_and_values_that_are_no_numbers_black() -> None:
    image = np.linspace(0, 1, 700 * 900).reshape(700, 900)
    image[:100] = np.nan
    picture = drawn(image)
    assert max(picture.shape) <= SIDE
    assert picture[0, 0].tolist() == [0, 0, 0]
    assert picture[-1, -1].tolist() == [255, 255, 255]


@pytest.mark.parametrize("shape", [(5, 7), (2, 3, 5, 7)])
def test_images_and_series_have_a_picture(shape: tuple[int, ...]) -> None:
    assert picture_of(Volume(np.zeros(shape), name="a<b")._repr_html_()).shape[:2] == (5, 7)


def test_a_picture_is_a_png_that_others_read() -> None:
    picture = np.random.default_rng(0).integers(0, 256, (5, 9, 3), np.uint8)
    read = np.rint(255 * imread(io.BytesIO(png(picture))))
    np.testing.assert_array_equal(read[..., :3], picture)


def test_without_napari_the_command_that_installs_it_is_given(
    scan: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(display, "_SHOW", "hushpore.viewer.gone:show")
    with pytest.raises(MissingPackageError, match=r'pip install "hushpore\[all\]"'):
        scan.show()
