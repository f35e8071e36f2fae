import io
import sys
import threading

import numpy as np
import pytest

from hushpore.base.errors import InputError
from hushpore.base.volume import Volume
from hushpore.figures.drawing import round_step
from hushpore.figures.slices import _coloured, pore_picture

RNG = np.random.default_rng(0)


def picture(shape, **known):
    before = Volume(RNG.normal(size=shape).astype(np.float32), **known)
    labels = before.replace((before.data > 1).astype(np.int32) * RNG.integers(1, 30, shape))
    return before, labels


def size(png):
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    return int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")


@pytest.mark.parametrize(
    ("shape", "known"),
    [
        ((40, 50), {}),
        ((9, 40, 50), {"spacing": (5, 0.5, 0.5), "unit": "mm"}),
        ((9, 40, 20), {"spacing": (1, 3, 1), "unit": "um"}),
        ((2, 3, 5, 20, 20), {}),
        ((1, 1), {}),
        ((1, 400, 2), {}),
    ],
)
def test_a_report_is_drawn_for_every_kind_of_volume(shape, known):
    before, labels = picture(shape, **known)
    width, height = size(pore_picture(before, before, labels, [1.0, 2.0, 4.0], title="scan"))
    assert 1500 < width < 2500
    assert 300 < height < 1500


def test_without_a_denoised_volume_the_report_has_one_picture_less():
    before, labels = picture((9, 40, 50))
    with_it = size(pore_picture(before, before, labels, [1.0]))
    without = size(pore_picture(before, None, labels, [1.0]))
    assert without[0] < with_it[0]


@pytest.mark.parametrize("diameters", [[], [3.0], [np.nan, 2.0], np.ones(5000)])
def test_any_number_of_pores_is_drawn(diameters):
    before, labels = picture((40, 50))
    size(pore_picture(before, None, labels, diameters))


def test_a_constant_or_nan_plane_is_drawn():
    flat = Volume(np.full((20, 20), np.nan))
    size(pore_picture(flat, Volume(np.zeros((20, 20))), Volume(np.zeros((20, 20), int)), []))


def test_images_of_different_shape_are_refused():
    with pytest.raises(InputError, match="one shape"):
        pore_picture(
            Volume(np.zeros((5, 6))), None, Volume(np.zeros((5, 7), np.int32)), [], title="x"
        )


def test_drawing_touches_no_global_state_and_works_in_a_thread():
    before, labels = picture((40, 50))
    pyplot = "matplotlib.pyplot" in sys.modules
    drawn = []
    thread = threading.Thread(target=lambda: drawn.append(pore_picture(before, None, labels, [])))
    thread.start()
    thread.join()
    size(drawn[0])
    assert ("matplotlib.pyplot" in sys.modules) == pyplot


def test_the_solid_is_transparent_and_labels_differ_in_colour():
    colours = _coloured(np.array([[0, 1, 2, 3], [0, 4, 5, 6]]))
    assert (colours[:, 0, 3] == 0).all()
    assert len({tuple(c) for c in colours[:, 1:].reshape(-1, 4)}) == 6


@pytest.mark.parametrize(
    ("length", "bar"), [(1, 1), (1.99, 1), (2, 2), (49, 20), (50, 50), (0.0123, 0.01)]
)
def test_scale_bars_haveround_steps(length, bar):
    assert round_step(length) == pytest.approx(bar)


def test_the_same_result_gives_the_same_bytes():
    before, labels = picture((40, 50))
    first, second = (pore_picture(before, None, labels, [1.0, 2.0]) for _ in range(2))
    assert io.BytesIO(first).read() == second
