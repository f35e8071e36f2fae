"""Chords and anisotropy of shapes of which they are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import ndimage

import hushpore
from hushpore import Volume


def totals(void: np.ndarray, **volume: Any) -> dict[str, Any]:
    found = hushpore.segment_pores(Volume(void, **volume), device="cpu", exterior="keep")
    return found.provenance["result"]


def chords(void: np.ndarray, axis: int) -> float:
    """Mean length of the chords of a void that goes on at the other side of its volume."""
    begins = void & ~np.roll(void, 1, axis)
    return float(void.sum() / begins.sum())


def test_plates_have_their_chords_across_and_differ_most() -> None:
    void = np.zeros((60, 20, 22), bool)
    void.reshape(6, 10, 20, 22)[:, 3:7] = True
    found = totals(void, spacing=(2, 1, 0.5), unit="um")
    # 4 of 10 slices of 2 µm
    assert found["void_chord_length_z"] == pytest.approx(8, rel=0.02)
    assert found["solid_chord_length_z"] == pytest.approx(12, rel=0.02)
    # there is no wall along y and x
    assert found["void_chord_length_y"] is None
    assert found["anisotropy"] == pytest.approx(1)


def test_chords_are_those_that_are_counted() -> None:
    noise = np.random.default_rng(2).normal(size=(90, 91, 92))
    void = ndimage.gaussian_filter(noise, (5, 2.5, 2.5), mode="wrap") > 0
    found = totals(void)
    for axis, name in enumerate("zyx"):
        assert found[f"void_chord_length_{name}"] == pytest.approx(chords(void, axis), rel=0.02)
        assert found[f"solid_chord_length_{name}"] == pytest.approx(chords(~void, axis), rel=0.02)
    # the axes of the noise are 2 : 1
    assert found["anisotropy"] == pytest.approx(0.5, abs=0.06)


def test_what_is_alike_in_all_directions_has_no_anisotropy_whatever_the_voxels() -> None:
    noise = np.random.default_rng(3).normal(size=(70, 100, 140))
    void = ndimage.gaussian_filter(noise, (2.5, 4, 5)) > 0
    found = totals(void, spacing=(2, 1.25, 1), unit="um")
    assert found["anisotropy"] < 0.08


def test_an_image_has_chords_in_its_plane() -> None:
    noise = np.random.default_rng(5).normal(size=(300, 300))
    found = totals(ndimage.gaussian_filter(noise, (8, 4)) > 0)
    assert "void_chord_length_z" not in found
    assert found["void_chord_length_y"] / found["void_chord_length_x"] == pytest.approx(2, rel=0.15)
    assert found["anisotropy"] == pytest.approx(0.5, abs=0.08)


@pytest.mark.parametrize("value", [False, True])
def test_without_a_wall_there_is_neither(value: bool) -> None:
    found = totals(np.full((4, 5, 6), value))
    assert found["void_chord_length_z"] is None
    assert found["anisotropy"] is None
