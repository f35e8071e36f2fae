from __future__ import annotations

import io

import numpy as np
import pytest
from skimage.io import imread

import hushpore
from hushpore import InputError, Volume
from hushpore.n2v2.picture import denoising_picture

QUICK = {"steps": 30, "patch_size": 16, "batch_size": 2, "device": "cpu"}


@pytest.mark.parametrize(("shape", "axes"), [((3, 30, 40), "zyx"), ((30, 40), "yx")])
def test_a_denoising_is_pictured(
    rng: np.random.Generator, shape: tuple[int, ...], axes: str
) -> None:
    noisy = Volume(rng.normal(100, 20, shape), axes=axes, spacing=(1.0,) * len(shape), unit="mm")
    result = hushpore.denoise(noisy, **QUICK)
    picture = imread(io.BytesIO(denoising_picture(noisy, result, dpi=50)))
    assert picture.shape[:2] == (200, 700)
    assert picture[..., :3].std() > 10
    with pytest.raises(InputError, match="needs what was denoised"):
        denoising_picture(Volume(np.zeros((5, 5))), result)
