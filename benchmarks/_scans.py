"""Scans as a scanner makes them: projections, photons, a detector's blur, filtered back-projection.

The noise is independent in the photons and correlated in the voxels. Of each scan there is the
reconstruction without noise, so that the noise itself is known. Scans are made once and kept in
``HUSHPORE_SCANS`` (by default a folder of the system's temporary one)::

    python -m benchmarks._scans     # makes all, a minute each
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy import fft, ndimage, sparse
from skimage.transform import radon

from hushpore.sample_data import foam_phantom

if TYPE_CHECKING:
    import numpy.typing as npt

    Image = npt.NDArray[np.float32]

BEREA = Path(__file__).parents[1] / "tests" / "data" / "rocks" / "berea_200.npz"
KEPT = Path(os.environ.get("HUSHPORE_SCANS", Path(tempfile.gettempdir()) / "scans"))

SHAPE = (48, 160, 160)
AIR, SOLID = -1000.0, 200.0
CONTRAST = SOLID - AIR

#: Attenuation of the solid, in 1/voxel, and the number of projections over half a turn.
_MU, _ANGLES = 0.006, 240

STRUCTURES = ("foam", "rock", "fibres", "small pores")
BLURS = (0.0, 0.4, 0.6, 0.9)
FILTERS = ("ramp", "shepp-logan", "cosine", "hann")

#: Deviation of the noise as a share of the contrast, in the half for tuning and in the other.
NOISES = {"tuning": (0.02, 0.05, 0.15, 0.4), "held out": (0.02, 0.08, 0.2, 0.3)}


@dataclass(frozen=True)
class Case:
    """One scan of the grid."""

    half: str
    structure: str
    blur: float  # of the detector, in pixels
    filter: str
    noise: float  # deviation, as a share of the contrast
    seed: int

    @property
    def name(self) -> str:
        """Where it is kept."""
        half = self.half.replace(" ", "-")
        structure = self.structure.replace(" ", "-")
        return f"{half}_{structure}_{self.blur}_{self.filter}_{self.noise}"


@dataclass(frozen=True, eq=False)
class Scan:
    """A scan and what it would be without noise, both float32, and where the truth is known."""

    scan: npt.NDArray[np.float32]
    reference: npt.NDArray[np.float32]
    core: npt.NDArray[np.bool_]  # in the field of view and off its rim; 2D
    photons: float = 0.0  # in each pixel of the detector, in air; 0 where it is not known

    @property
    def noise(self) -> npt.NDArray[np.float32]:
        """The noise alone."""
        return self.scan - self.reference


def cases(half: str) -> list[Case]:
    """Return one half of the grid: 16 scans, every pair of two properties once.

    Every structure meets every blur; filter and noise are orthogonal Latin squares over them.
    """
    seed = list(NOISES).index(half)
    found = []
    for s, structure in enumerate(STRUCTURES):
        for b, blur in enumerate(BLURS):
            f = s ^ _times(1 + seed, b)
            n = s ^ _times(2 + seed, b)
            found.append(Case(half, structure, blur, FILTERS[f], NOISES[half][n], seed))
    return found


def _times(a: int, b: int) -> int:
    """Return the product in the field of four elements."""
    return 0 if a == 0 or b == 0 else (a + b - 2) % 3 + 1


def made(case: Case) -> Scan:
    """Return a scan of the grid, made or as it was kept."""
    target = KEPT / f"{case.name}.npz"
    if not target.exists():
        scan = simulate(
            sinogram_of(case.structure, case.seed), case.blur, case.filter, case.noise, case.seed
        )
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_suffix(".part.npz")
        np.savez(part, **vars(scan))
        part.rename(target)
    with np.load(target) as kept:
        return Scan(*(kept[name] for name in ("scan", "reference", "core")))


# --- what is scanned


def solid_share(structure: str, seed: int) -> npt.NDArray[np.float32]:
    """Return a phantom, 0 in the void and 1 in the solid, partial at surfaces."""
    rng = np.random.default_rng(seed)
    if structure == "foam":
        clean = np.asarray(foam_phantom(SHAPE, seed=11 + seed, noise=0.0, rings=0.0).clean.data)
        return ((clean - AIR) / CONTRAST).astype(np.float32)
    if structure == "rock":
        void = _rock()[tuple(slice(40 * seed, 40 * seed + n) for n in SHAPE)]
        solid = (~void).astype(np.float32)
    elif structure == "fibres":
        solid = _fibres(rng)
    else:
        solid = 1 - _balls(rng, share=0.04)
    return ndimage.gaussian_filter(solid, 0.6, mode="nearest")


def _rock() -> npt.NDArray[np.bool_]:
    with np.load(BEREA) as f:
        bits = np.unpackbits(f["void"], count=200**3)
        return bits.reshape(f["shape"]).astype(bool)


def _fibres(rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Return straight fibres, mostly lying in the slices, a fifth of the volume."""
    grid = np.stack(np.indices(SHAPE, dtype=np.float32), -1)
    solid = np.zeros(SHAPE, np.float32)
    while solid.mean() < 0.2:
        point = rng.uniform(0, SHAPE).astype(np.float32)
        along = rng.normal(0, (0.3, 1, 1)).astype(np.float32)
        along /= np.linalg.norm(along)
        away = grid - point
        across = np.sqrt(np.maximum((away**2).sum(-1) - (away @ along) ** 2, 0))
        solid = np.maximum(solid, np.clip(rng.uniform(2, 4.5) - across + 0.5, 0, 1))
    return solid


def _balls(rng: np.random.Generator, share: float) -> npt.NDArray[np.float32]:
    """Return small balls of radius 1 to 3."""
    void = np.zeros(SHAPE, np.float32)
    reach = np.stack(np.mgrid[-5:6, -5:6, -5:6], -1)
    while void.mean() < share:
        for _ in range(50):
            centre = rng.uniform(5, np.array(SHAPE) - 6)
            corner = np.rint(centre).astype(int)
            distance = np.linalg.norm(reach + corner - centre, axis=-1)
            box = tuple(slice(c - 5, c + 6) for c in corner)
            ball = np.clip(rng.uniform(1, 3) - distance + 0.5, 0, 1)
            void[box] = np.maximum(void[box], ball)
    return void


# --- the scanner


@lru_cache(maxsize=1)
def sinogram_of(structure: str, seed: int) -> npt.NDArray[np.float32]:
    """Return the line integrals of a phantom, (z, detector, angle)."""
    solid = solid_share(structure, seed)
    mu = np.where(_field_of_view(SHAPE[-1]), solid * _MU, 0).astype(np.float64)
    return np.stack([radon(each, _angles(), circle=True) for each in mu]).astype(np.float32)


def simulate(
    sinogram: npt.NDArray[np.float32], blur: float, filter_name: str, noise: float, seed: int
) -> Scan:
    """Scan with as many photons as give the noise that is asked for, within 3 %."""
    transmitted = np.exp(-sinogram.astype(np.float64))
    core = ndimage.binary_erosion(_field_of_view(sinogram.shape[1]), iterations=6)
    reference = reconstructed(transmitted * 1e4, 1e4, blur, filter_name)
    photons = 1000.0
    while True:
        counts = np.random.default_rng(seed).poisson(photons * transmitted).astype(float)
        scan = reconstructed(counts, photons, blur, filter_name)
        found = float((scan - reference)[:, core].std()) / CONTRAST
        if abs(found / noise - 1) < 0.03:
            return Scan(scan, reference, core, photons)
        photons *= (found / noise) ** 2


def halves_of(case: Case, photons: float) -> tuple[Image, Image]:
    """Return what the even and the odd projections of a scan of the grid give by themselves.

    `photons`: of the scan.
    """
    transmitted = np.exp(-sinogram_of(case.structure, case.seed).astype(np.float64))
    counts = np.random.default_rng(case.seed).poisson(photons * transmitted).astype(float)
    first, second = (
        reconstructed(counts[..., views], photons, case.blur, case.filter, views)
        for views in (slice(0, None, 2), slice(1, None, 2))
    )
    return first, second


def repeated(case: Case, photons: float) -> Image:
    """Return another scan of the same thing, with as many photons."""
    transmitted = np.exp(-sinogram_of(case.structure, case.seed).astype(np.float64))
    counts = np.random.default_rng(1000 + case.seed).poisson(photons * transmitted).astype(float)
    return reconstructed(counts, photons, case.blur, case.filter)


def reconstructed(
    counts: npt.NDArray[np.float64],
    photons: float,
    blur: float,
    filter_name: str,
    views: slice = slice(None),
) -> Image:
    """Return the grey values of what was counted, (z, detector, angle), in some of the views."""
    if blur:
        counts = ndimage.gaussian_filter(counts, (blur, blur, 0))
    lines = -np.log(np.maximum(counts, 0.5) / photons)
    return back_projected(lines, filter_name, views) / _MU * CONTRAST + AIR


def back_projected(
    sinogram: npt.NDArray[np.float64], filter_name: str, views: slice = slice(None)
) -> Image:
    """Filtered back-projection of all slices at once, (z, y, x), with linear interpolation."""
    n_slices, n, n_angles = sinogram.shape
    size = max(64, 2 ** int(np.ceil(np.log2(2 * n))))
    response = _response(size, filter_name)[:, None]
    spectrum = fft.rfft(sinogram, size, axis=1) * response
    lines = fft.irfft(spectrum, size, axis=1)[:, :n].astype(np.float32)
    columns = np.ascontiguousarray(lines.transpose(2, 1, 0).reshape(n_angles * n, n_slices))
    image = (
        _back_projector(n, views.start or 0, views.step or 1) @ columns * (np.pi / (2 * n_angles))
    )
    return np.ascontiguousarray(image.T).reshape(n_slices, n, n)


def _response(size: int, filter_name: str) -> npt.NDArray[np.float64]:
    """Return a ramp times a window, over the frequencies of a real FFT."""
    # from the ramp's values in space: it does not lose the mean that way
    place = fft.fftfreq(size, 1 / size)
    odd = place % 2 == 1
    ramp = np.zeros(size)
    ramp[0] = 0.25
    ramp[odd] = -1 / (np.pi * place[odd]) ** 2
    frequency = fft.rfftfreq(size)
    window = {
        "ramp": np.ones_like(frequency),
        "shepp-logan": np.sinc(frequency),
        "cosine": np.cos(np.pi * frequency),
        "hann": 0.5 + 0.5 * np.cos(2 * np.pi * frequency),
    }[filter_name]
    response: npt.NDArray[np.float64] = 2 * fft.rfft(ramp).real * window
    return response


@lru_cache(maxsize=3)
def _back_projector(n: int, first: int, step: int) -> sparse.csr_array:
    """Return the matrix from projections to a slice: (y x, angle detector).

    `first`, `step`: of all projections the first, and which after it.
    """
    y, x = np.mgrid[:n, :n] - n // 2
    inside = y**2 + x**2 <= (n // 2) ** 2
    angles = np.deg2rad(_angles()[first::step])
    t = x[inside][:, None] * np.cos(angles) - y[inside][:, None] * np.sin(angles) + n // 2
    t = np.clip(t, 0, n - 1.001).astype(np.float32)
    below = t.astype(np.int32)
    weights = np.stack([1 - (t - below), t - below], -1)
    columns = np.stack([below, below + 1], -1) + n * np.arange(len(angles), dtype=np.int32)[:, None]
    starts = np.concatenate([[0], np.cumsum(np.where(inside.ravel(), 2 * len(angles), 0))])
    return sparse.csr_array(
        (weights.ravel(), columns.ravel(), starts), shape=(n * n, len(angles) * n)
    )


def _angles() -> npt.NDArray[np.float64]:
    return np.linspace(0, 180, _ANGLES, endpoint=False)


def _field_of_view(n: int) -> npt.NDArray[np.bool_]:
    middle = (n - 1) / 2
    y, x = np.indices((n, n))
    inside: npt.NDArray[np.bool_] = np.hypot(y - middle, x - middle) < n / 2 - 2
    return inside


if __name__ == "__main__":
    for half in NOISES:
        for case in cases(half):
            made(case)
            print(case.name, flush=True)
