"""BM3D and BM4D on the scans that `denoise_correlated` compares other ways on.

By their authors' packages, which are told the spectrum of the noise that is in the scan. Their
licence (Tampere University) allows what is informational and not commercial alone, so that nothing
here installs them. Some of the scans, by a part of their name, are put beside those that the same
commit has done already::

    python -m benchmarks denoise_bm4d --only small-pores
"""

from __future__ import annotations

from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import fft

from benchmarks._missing import require_package
from benchmarks._scans import cases, made
from benchmarks.denoise_correlated import compared
from hushpore.n2v2.noise.model import taper

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from benchmarks._scans import Scan

    Image = npt.NDArray[np.float32]


def measure(only: str = "", kept: dict[str, Any] | None = None) -> Iterator[dict[str, object]]:
    """Both on every scan.

    `only`: part of the names of the scans that are done. `kept`: figures that there are already.
    """
    versions = {package: required(package) for package in ("bm3d", "bm4d")}
    figures: dict[str, object] = {**(kept or {}), **versions}
    for case in cases("held out"):
        if only in case.name:
            scan = made(case)
            ways = {"BM3D": partial(bm3d_of, scan), "BM4D": partial(bm4d_of, scan)}
            figures[case.name] = compared(case, scan, ways)
            yield figures


def required(package: str) -> str:
    """Return the version of one of the authors' packages, which can be imported from then on."""
    require_package(package)
    # NumPy's name up to 2.3, which bm3d 4.0.3 and bm4d 4.2.5 use
    vars(np).setdefault("trapz", np.trapezoid)
    return metadata.version(package)


def bm3d_of(scan: Scan) -> Image:
    """Denoise slice by slice by BM3D for correlated noise.

    https://doi.org/10.1109/TIP.2020.3014721
    """
    from bm3d import bm3d

    spectrum = noise_spectrum(scan, scan.scan.shape[1:])
    return np.stack([bm3d(each, spectrum) for each in scan.scan]).astype(np.float32)


def bm4d_of(scan: Scan) -> Image:
    """Denoise by BM4D (https://doi.org/10.1109/TIP.2012.2210725) for correlated noise."""
    from bm4d import bm4d

    image: Image = bm4d(scan.scan, noise_spectrum(scan, scan.scan.shape)).astype(np.float32)
    return image


def noise_spectrum(scan: Scan, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """Return the power of the noise that is in a scan, as BM3D and BM4D take it.

    `shape`: of a slice or of the whole. From correlations over 3 slices and 5 pixels.
    """
    noise = np.where(scan.core, scan.noise.astype(np.float64), 0)
    products = fft.ifftn(np.abs(fft.fftn(noise)) ** 2).real / scan.core.sum() / len(noise)
    reach = (3, 5, 5)
    lags = [np.arange(-r, r + 1) for r in reach]
    near = products[np.ix_(*lags)] * taper(reach)
    if len(shape) == 2:
        near, lags = near[reach[0]], lags[1:]
    around = np.zeros(shape)
    np.add.at(around, np.ix_(*(lag % n for lag, n in zip(lags, shape, strict=True))), near)
    power: npt.NDArray[np.float64] = np.maximum(fft.fftn(around).real, 0) * around.size
    return power
