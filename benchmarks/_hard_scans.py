"""Simulated scans with the difficulties of real ones: few projections, dense samples, artefacts.

Optical depth up to 4, 90 or 180 projections, fan-beam geometry, zingers, gain errors of the
detector, samples in air, and scans with hardly any noise. Every kind is there twice: a scan to tune
on, and one of another structure that is held out. They are made once, as small files::

    python -m benchmarks._hard_scans FOLDER
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy import fft, ndimage, sparse
from skimage.transform import radon

from benchmarks._scans import AIR, CONTRAST, _field_of_view, _response, solid_share

if TYPE_CHECKING:
    import numpy.typing as npt

    Image = npt.NDArray[np.float32]

#: Slices of a scan; the structures have more.
_DEPTH = 16

#: Distance of the source from the axis in a fan beam, in pixels.
_DISTANCE = 320.0


@dataclass(frozen=True)
class HardCase:
    """A simulated scan."""

    half: str  # "tuning" or "held out"
    kind: str
    structure: str
    depth: float  # optical depth through the middle of the field of view
    angles: int  # projections over half a turn
    noise: float  # standard deviation in the core, as a share of the contrast
    seed: int
    is_fan: bool = False
    zingers: float = 0.0  # share of detector readings with a flash
    gains: float = 0.0  # relative error of the sensitivity of each detector pixel
    radius: float = 1.0  # of the sample, relative to the field of view
    drawn_out: bool = False  # the structure hardly changes along z

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.half}_{self.kind}".replace(" ", "-")


def hard_cases() -> list[HardCase]:
    """Return all cases, those to tune on first."""
    found = []
    for seed, half in enumerate(("tuning", "held out")):
        first, second, third = (("foam", "rock", "small pores"), ("rock", "fibres", "foam"))[seed]
        found += [
            HardCase(half, "depth 2", first, 2, 180, 0.15, seed),
            HardCase(half, "depth 4", second, 4, 180, 0.2, seed),
            HardCase(half, "90 projections", second, 1, 90, 0.2, seed),
            HardCase(half, "fan beam", first, 1, 180, 0.12, seed, is_fan=True),
            HardCase(half, "zingers", third, 1, 180, 0.15, seed, zingers=1e-4, gains=0.002),
            HardCase(half, "noise-free", third, 1, 180, 0.01, seed, drawn_out=True),
            HardCase(half, "in air", first, 2, 180, 0.15, seed, radius=0.5),
        ]
    return found


def simulate_hard(case: HardCase) -> dict[str, npt.NDArray[np.generic]]:
    """Return the scan and the reconstruction without noise, both uint16, and the core."""
    full = solid_share(case.structure, case.seed)
    if case.drawn_out:
        solid = np.repeat(full[: _DEPTH // 4], 4, 0)
        solid = ndimage.gaussian_filter(solid, (1.5, 0, 0), mode="nearest")
    else:
        solid = full[:_DEPTH]
    n = solid.shape[-1]
    y, x = np.indices((n, n)) - (n - 1) / 2
    inside = np.hypot(y, x) < case.radius * (n / 2 - 2)
    attenuation = case.depth / (n * case.radius)
    mu = np.where(inside, solid * attenuation, 0).astype(np.float64)
    angles = np.linspace(0, 180, 360 if case.is_fan else case.angles, endpoint=False)
    lines = np.stack([radon(each, angles, circle=True) for each in mu])
    if case.is_fan:
        lines = _to_fan(lines, case.angles * 2)
    core = ndimage.binary_erosion(inside & _field_of_view(n), iterations=6)
    reference = _values(_reconstructed(lines, case), attenuation)
    rng = np.random.default_rng(case.seed)
    gains = 1 + case.gains * rng.standard_normal((*lines.shape[:2], 1))
    photons = 2000.0
    for _ in range(12):
        rng = np.random.default_rng(case.seed + 1)
        counts = rng.poisson(photons * gains * np.exp(-lines)).astype(float)
        counts = ndimage.gaussian_filter(counts, (0.4, 0.4, 0))
        flashes = rng.random(counts.shape) < case.zingers
        counts[flashes] += photons * rng.exponential(0.5, int(flashes.sum()))
        noisy = -np.log(np.maximum(counts, 0.5) / photons)
        scan = _values(_reconstructed(noisy, case), attenuation)
        found = float((scan - reference)[:, core].std()) / CONTRAST
        if abs(found / case.noise - 1) < 0.03:
            break
        photons *= min(max((found / case.noise) ** 2, 0.1), 10.0)
    # the mean of the logarithm of few counts is off
    scan = scan - (scan - reference)[:, core].mean()
    stored = {name: _stored(each) for name, each in (("scan", scan), ("reference", reference))}
    return {**stored, "core": core}


def _values(image: Image, attenuation: float) -> Image:
    return (image / attenuation * CONTRAST + AIR).astype(np.float32)


def _stored(image: Image) -> npt.NDArray[np.uint16]:
    """Return grey values as integers: a tenth of a step each, from -3 contrasts."""
    return np.clip(np.rint((image - AIR) * 10 + 32768), 0, 65535).astype(np.uint16)


def loaded(path: Path) -> tuple[Image, Image, npt.NDArray[np.bool_]]:
    """Return scan, reference and core of a file, the grey values as they were simulated."""
    with np.load(path) as kept:
        scan, reference = (
            ((kept[name].astype(np.float32) - 32768) / 10 + AIR) for name in ("scan", "reference")
        )
        return scan, reference, kept["core"]


def _to_fan(lines: npt.NDArray[np.float64], views: int) -> npt.NDArray[np.float64]:
    """Return the projections of a fan beam over a full turn from those of parallel beams."""
    n = lines.shape[1]
    middle = n // 2
    fan = np.arcsin((np.arange(n) - middle) / _DISTANCE)[:, None]
    turn = 2 * np.pi * np.arange(views) / views + fan
    place = _DISTANCE * np.sin(fan) + 0 * turn
    return _interpolated(lines, turn, place)


def _from_fan(lines: npt.NDArray[np.float64], n_angles: int) -> npt.NDArray[np.float64]:
    """Return parallel projections over half a turn, each the mean of two rays of a fan beam."""
    n, views = lines.shape[1:]
    middle = n // 2
    place = (np.arange(n) - middle)[:, None]
    fan = np.arcsin(place / _DISTANCE)
    angles = np.pi * np.arange(n_angles) / n_angles
    found = 0.0
    for sign in (1, -1):
        turn = angles[None] + (0 if sign > 0 else np.pi) - sign * fan
        view = np.mod(turn / (2 * np.pi) * views, views)
        pixel = sign * place + middle + 0 * view
        at = np.stack([np.clip(pixel, 0, n - 1), view])
        around = np.concatenate([lines, lines[..., :1]], 2)
        found = found + np.stack([ndimage.map_coordinates(s, at, order=1) for s in around]) / 2
    return np.asarray(found)


def _interpolated(
    lines: npt.NDArray[np.float64], turn: npt.NDArray[np.float64], place: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    n, n_angles = lines.shape[1:]
    middle = n // 2
    halves = np.floor(turn / np.pi)
    angle = (turn - np.pi * halves) / np.pi * n_angles
    # after half a turn the detector is mirrored
    pixel = np.where(halves % 2 == 0, place, -place) + middle
    mirrored = lines[:, ::-1, :1]
    if n % 2 == 0:
        mirrored = np.roll(mirrored, 1, axis=1)
    around = np.concatenate([lines, mirrored], 2)
    at = np.stack([np.clip(pixel, 0, n - 1), angle])
    return np.stack([ndimage.map_coordinates(each, at, order=1) for each in around])


def _reconstructed(lines: npt.NDArray[np.float64], case: HardCase) -> Image:
    if case.is_fan:
        lines = _from_fan(lines, case.angles)
    n_slices, n, n_angles = lines.shape
    size = 2 ** int(np.ceil(np.log2(2 * n)))
    spectrum = fft.rfft(lines, size, axis=1) * _response(size, "shepp-logan")[:, None]
    filtered = fft.irfft(spectrum, size, axis=1)[:, :n].astype(np.float32)
    columns = np.ascontiguousarray(filtered.transpose(2, 1, 0).reshape(n_angles * n, n_slices))
    image = _projector(n, n_angles) @ columns * (np.pi / (2 * n_angles))
    return np.ascontiguousarray(image.T).reshape(n_slices, n, n)


@lru_cache(maxsize=1)
def _projector(n: int, n_angles: int) -> sparse.csr_array:
    """Return the matrix from projections to a slice: (y x, angle detector)."""
    y, x = np.mgrid[:n, :n] - n // 2
    inside = y**2 + x**2 <= (n // 2) ** 2
    angles = np.pi * np.arange(n_angles) / n_angles
    t = x[inside][:, None] * np.cos(angles) - y[inside][:, None] * np.sin(angles) + n // 2
    t = np.clip(t, 0, n - 1.001).astype(np.float32)
    below = t.astype(np.int32)
    weights = np.stack([1 - (t - below), t - below], -1)
    columns = np.stack([below, below + 1], -1) + n * np.arange(n_angles, dtype=np.int32)[:, None]
    starts = np.concatenate([[0], np.cumsum(np.where(inside.ravel(), 2 * n_angles, 0))])
    return sparse.csr_array((weights.ravel(), columns.ravel(), starts), shape=(n * n, n_angles * n))


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for each in hard_cases():
        if not (target := folder / f"{each.name}.npz").exists():
            np.savez_compressed(target, **simulate_hard(each))
            print(each.name, flush=True)
