from __future__ import annotations

import io

import numpy as np
import pytest
from matplotlib.axes import Axes
from skimage.io import imread

import hushpore
from hushpore import InputError, Volume
from hushpore.denoising.inspection import denoising_picture

pytestmark = pytest.mark.usefixtures("small_network")

QUICK = {"steps": 30, "patch_size": 16, "batch_size": 2, "device": "cpu"}


@pytest.mark.parametrize(
    ("shape", "axes", "method", "curve"),
    [
        ((3, 30, 40), "zyx", "r2r", "squared error against targets with noise"),
        ((30, 40), "yx", "n2v2", "squared error at hidden pixels"),
    ],
)
def test_a_denoising_is_pictured(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], axes: str,
    method: str, curve: str,
) -> None:  # fmt: skip
    titles = []
    monkeypatch.setattr(Axes, "set_title", lambda ax, text, **style: titles.append(text))
    noisy = Volume(rng.normal(100, 20, shape), axes=axes, spacing=(1.0,) * len(shape), unit="mm")
    result = hushpore.denoise(noisy, method=method, **QUICK)
    picture = imread(io.BytesIO(denoising_picture(noisy, result, dpi=50)))
    assert picture.shape[:2] == (200, 700)
    assert picture[..., :3].std() > 10
    assert titles[-1] == curve
    with pytest.raises(InputError, match="needs the noisy volume"):
        denoising_picture(Volume(np.zeros((5, 5))), result)
