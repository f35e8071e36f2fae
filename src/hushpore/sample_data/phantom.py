"""Phantoms with known pores: a noisy foam, and a concrete core with air around it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hushpore.base.errors import InputError
from hushpore.base.volume import Volume

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from hushpore.base.arrays import Float32s, Float64s, Int32s, Mask

AIR, WALL = -1000.0, 200.0

#: Grey values of a core: air (exterior and voids), paste, and aggregate.
SURROUNDINGS, PASTE, GRAIN = 4000.0, 24000.0, 29000.0

_RADII = (5.5, 12.0)  # voxels
_GRAINS, _AIR_VOIDS = (6.0, 24.0), (1.5, 7.0)  # voxels
_NEAREST = 0.9  # smallest distance of two centres, as a fraction of the sum of the radii
_ATTEMPTS = 3000
_BLUR = 0.6  # voxels; point spread of the scanner
_PHOTONS = 12.0  # mean photon count of a solid voxel, before scaling to the requested noise
_RING_WIDTH = 1.0  # pixels


@dataclass(frozen=True, eq=False)
class Phantom:
    """Synthetic scan with its ground truth.

    Attributes
    ----------
    volume : Volume
        The scan with noise: int16 HU for a foam, uint16 for a core.
    clean : Volume
        The scan without noise and rings: float32.
    void : numpy.ndarray
        bool, True for voxels with their centre in a pore.
    labels : numpy.ndarray
        int32, label of the pore of each voxel, 1 to `n_pores`; 0 in the solid.
    spheres : pandas.DataFrame
        One row per pore: ``label``, centre ``z``, ``y``, ``x`` and ``radius``, all in voxels.
    sample : numpy.ndarray
        bool, True for voxels with their centre in the sample, including its pores.
    """

    volume: Volume
    clean: Volume
    void: Mask
    labels: Int32s
    spheres: pd.DataFrame
    sample: Mask

    @property
    def n_pores(self) -> int:
        """Number of pores."""
        return len(self.spheres)

    @property
    def porosity(self) -> float:
        """Void fraction of the sample, 0 to 1."""
        return float(self.void.sum() / self.sample.sum())


def foam_phantom(
    shape: tuple[int, int, int] = (48, 160, 160),
    seed: int = 0,
    *,
    voxel: float = 0.05,
    noise: float = 0.4,
    rings: float = 0.02,
) -> Phantom:
    """Return a phantom of a foam in a micro-CT scan.

    Spheres of random radii are placed at random, large ones first. They may overlap slightly, so
    that pores are connected by necks as in a foam, but none contains another. The image has partial
    volume at the surfaces, slight blur, white photon noise (which increases with the signal), and
    faint rings around the central axis.

    Parameters
    ----------
    shape : tuple of int, optional
        Voxels along z, y and x; at least 16 each.
    seed : int, optional
        Same seed, same phantom; the global random state is not changed.
    voxel : float, optional
        Edge length of a voxel, in mm.
    noise : float, optional
        Standard deviation of the noise in the solid, as a fraction of the contrast of 1200 HU.
    rings : float, optional
        Standard deviation of the rings, as a fraction of the contrast.

    Returns
    -------
    Phantom
        The scan and its ground truth. Where spheres overlap, a voxel belongs to the sphere with the
        smallest power distance (d² - r²).

    Raises
    ------
    InputError
        If the shape is too small or a number is negative.

    Examples
    --------
    >>> phantom = foam_phantom((16, 32, 32))
    >>> phantom.volume.shape, phantom.n_pores > 0
    ((16, 32, 32), True)
    """
    if len(shape) != 3 or min(shape) < 16:
        raise InputError(f"A phantom needs three axes of at least 16 voxels; got {shape}.")
    if noise < 0 or rings < 0 or voxel <= 0:
        raise InputError("noise and rings must not be negative, and voxel must be positive.")
    rng = np.random.default_rng(seed)
    centres, radii = _spheres(rng, shape)
    distance, labels = _rasterise(centres, radii, shape)
    clean = _image(distance)
    noisy = _noisy(rng, clean, noise, rings)
    known: dict[str, Any] = {"spacing": (voxel,) * 3, "unit": "mm", "axes": "zyx"}
    window = {"contrast_limits": [AIR, WALL + 300.0], "value_unit": "HU"}
    return Phantom(
        volume=Volume(noisy, name="foam phantom", metadata=window, **known),
        clean=Volume(clean, name="foam phantom (clean)", metadata=window, **known),
        void=labels > 0,
        labels=labels,
        spheres=_table(centres, radii),
        sample=np.ones(shape, np.bool_),
    )


def core_phantom(
    shape: tuple[int, int, int] = (64, 192, 192), seed: int = 0, *, noise: float = 0.02
) -> Phantom:
    """Return a phantom of a drilled concrete core in a micro-CT scan.

    The core extends from the first to the last slice, with air around it. It consists of paste,
    slightly brighter grains of aggregate, and isolated round air voids (a few per cent of the
    core), some of them cut by its surface. The scan has little noise and no voxel size, like an
    exported TIFF.

    Parameters
    ----------
    shape : tuple of int, optional
        Voxels along z, y and x; at least 16 each. The diameter of the core is 0.82 times the
        smaller of the last two.
    seed : int, optional
        Same seed, same phantom; the global random state is not changed.
    noise : float, optional
        Standard deviation of the noise, as a fraction of the contrast between paste and air.

    Returns
    -------
    Phantom
        The scan and its ground truth; only voids in the core are labelled.

    Raises
    ------
    InputError
        If the shape is too small or the noise is negative.

    Examples
    --------
    >>> core_phantom((16, 32, 32)).volume.dtype
    dtype('uint16')
    """
    from scipy import ndimage

    if len(shape) != 3 or min(shape) < 16:
        raise InputError(f"A phantom needs three axes of at least 16 voxels; got {shape}.")
    if noise < 0:
        raise InputError("noise must not be negative.")
    rng = np.random.default_rng(seed)
    grains, _ = _rasterise(*_spheres(rng, shape, _GRAINS, apart=1.05), shape)
    centres, radii = _spheres(
        rng, shape, _AIR_VOIDS, apart=1.25, most=round(2e-4 * math.prod(shape))
    )
    radius = 0.41 * min(shape[1:])
    middle = (np.asarray(shape[1:]) - 1) / 2
    away = np.hypot(*(centres[:, 1:] - middle).T)
    inside = away < radius
    centres, radii = centres[inside], radii[inside]
    distance, labels = _rasterise(centres, radii, shape)
    rows, columns = np.ogrid[: shape[1], : shape[2]]
    from_axis = np.hypot(rows - middle[0], columns - middle[1]).astype(np.float32)
    sample = np.broadcast_to(from_axis < radius, shape)
    solid = np.clip(np.minimum(distance, radius - from_axis) + 0.5, 0.0, 1.0)
    matter = PASTE + (GRAIN - PASTE) * np.clip(0.5 - grains, 0.0, 1.0)
    clean = ndimage.gaussian_filter(SURROUNDINGS + (matter - SURROUNDINGS) * solid, _BLUR)
    noisy = clean + noise * (PASTE - SURROUNDINGS) * rng.standard_normal(shape, dtype=np.float32)
    labels[~sample] = 0
    return Phantom(
        volume=Volume(noisy.round().astype(np.uint16), name="concrete core", axes="zyx"),
        clean=Volume(clean.astype(np.float32), name="concrete core (clean)", axes="zyx"),
        void=labels > 0,
        labels=labels,
        spheres=_table(centres, radii),
        sample=sample.copy(),
    )


def _spheres(
    rng: np.random.Generator,
    shape: tuple[int, int, int],
    radii_between: tuple[float, float] = _RADII,
    apart: float = _NEAREST,
    most: int = _ATTEMPTS,
) -> tuple[Float64s, Float64s]:
    """Place spheres at random, large ones first, where they fit.

    `apart`: smallest distance of two centres, as a fraction of the sum of the radii. `most`: number
    of attempts.
    """
    low, high = radii_between
    high = min(high, min(shape) / 3)
    low = min(low, high / 2)
    # many small ones and few large ones, as in a foam
    candidates = np.sort(low + (high - low) * rng.beta(1.2, 2.0, most))[::-1]
    places = rng.uniform(3.0, np.asarray(shape) - 4.0, (most, 3))
    centres, radii = np.empty((0, 3)), np.empty(0)
    for place, radius in zip(places, candidates, strict=True):
        distances = np.linalg.norm(centres - place, axis=1)
        if (distances >= apart * (radii + radius)).all():
            centres, radii = np.vstack([centres, place]), np.append(radii, radius)
    return centres, radii


def _rasterise(
    centres: Float64s, radii: Float64s, shape: tuple[int, int, int]
) -> tuple[Float32s, Int32s]:
    """Return the signed distance to the surface (negative in pores), and the labels."""
    distance = np.full(shape, 4.0, np.float32)
    power = np.zeros(shape, np.float32)
    labels = np.zeros(shape, np.int32)
    for label, (centre, radius) in enumerate(zip(centres, radii, strict=True), start=1):
        box = tuple(_reach(c, radius + 2.0, n) for c, n in zip(centre, shape, strict=True))
        squared = sum(axis**2 for axis in _offsets(box, centre))
        inside = squared - radius**2
        nearer = inside < power[box]
        power[box][nearer] = inside[nearer]
        labels[box][nearer] = label
        np.minimum(distance[box], np.sqrt(squared) - radius, out=distance[box])
    return distance, labels


def _reach(centre: float, reach: float, length: int) -> slice:
    return slice(max(0, math.floor(centre - reach)), min(length, math.ceil(centre + reach) + 1))


def _offsets(box: tuple[slice, ...], centre: Float64s) -> Iterator[Float32s]:
    for axis, (span, middle) in enumerate(zip(box, centre, strict=True)):
        line = np.arange(span.start, span.stop, dtype=np.float32) - np.float32(middle)
        yield line.reshape([-1 if i == axis else 1 for i in range(3)])


def _image(distance: Float32s) -> Float32s:
    """Return HU: partial volume from the distance to the surface, then the scanner's blur."""
    from scipy import ndimage

    solid = np.clip(distance + 0.5, 0.0, 1.0)
    blurred = ndimage.gaussian_filter(solid, _BLUR, mode="nearest")
    image: Float32s = (AIR + (WALL - AIR) * blurred).astype(np.float32)
    return image


def _noisy(
    rng: np.random.Generator, clean: Float32s, noise: float, rings: float
) -> npt.NDArray[np.int16]:
    contrast = WALL - AIR
    solid = (clean - AIR) / contrast
    # the standard deviation of the noise in air is 0.7 times that in the solid
    expected = _PHOTONS * (0.5 + 0.5 * solid)
    counted = rng.poisson(expected).astype(np.float32) - expected
    # read-out noise smooths the discrete photon counts
    counted += rng.standard_normal(clean.shape, dtype=np.float32)
    scale = noise * contrast / math.sqrt(_PHOTONS + 1.0)
    values = clean + scale * counted + rings * contrast * _rings(rng, clean.shape)
    rounded: npt.NDArray[np.int16] = np.rint(np.clip(values, -32768, 32767)).astype(np.int16)
    return rounded


def _rings(rng: np.random.Generator, shape: tuple[int, ...]) -> Float32s:
    """Return rings around the centre of y, x with standard deviation one.

    Each ring is the trace of one detector element, so it varies from slice to slice.
    """
    y, x = np.indices(shape[1:], dtype=np.float32)
    radius = np.hypot(y - (shape[1] - 1) / 2, x - (shape[2] - 1) / 2) / _RING_WIDTH
    index = np.rint(radius).astype(np.intp)
    traces = rng.standard_normal((shape[0], int(index.max()) + 1), dtype=np.float32)
    rings: Float32s = traces[:, index]
    return rings


def _table(centres: Float64s, radii: Float64s) -> pd.DataFrame:
    import pandas as pd

    z, y, x = centres.T
    return pd.DataFrame(
        {"label": np.arange(1, len(radii) + 1), "z": z, "y": y, "x": x, "radius": radii}
    )
