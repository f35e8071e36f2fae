"""Features of voxels by which a classifier tells phases apart.

At each of three scales: smoothed grey value, the same less a wide blur (free of shading), gradient
magnitude, Laplacian, and the eigenvalues of the Hessian matrix. For texture, within a window: the
eigenvalues of the structure tensor, its diagonal (directions along z, y and x), and the local
deviation of the finer detail; on request, also what a trained denoiser finds. Features depend on
the voxels within `Extent.reach` only (those of the denoiser on tiles that do not depend on the
part), so that any part of a volume has the same features, bit for bit, as the whole.

References
----------
I. Arganda-Carreras et al. (2017), "Trainable Weka Segmentation".
https://doi.org/10.1093/bioinformatics/btx180
J. Weickert (1999), "Coherence-enhancing diffusion filtering" (the structure tensor).
https://doi.org/10.1023/A:1008009714131
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from scipy.ndimage import gaussian_filter1d

from hushpore.pores.parallel import inlined, kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hushpore.base.arrays import Array, Float32s, UInt8s
    from hushpore.pores.parallel import KernelThreads

#: Standard deviations of the Gaussians in units of the smallest voxel edge; those of the finer
#: scales whose texture is measured, and that of the window in which it is.
SCALES, TEXTURED, WINDOW = (0.7, 1.5, 3.0), (0.7, 1.5), 2.5

#: Standard deviation of the wide blur along z and within slices, in the same unit.
WIDE = (8.0, 20.0, 20.0)

#: Where Gaussians are cut off, in standard deviations.
_CUT, _CUT_WIDE = 3.0, 2.0

#: Number of features.
COUNT = 1 + 7 * len(SCALES) + 7 * len(TEXTURED)


class Network(Protocol):
    """A trained denoiser of slices, see `hushpore.denoising.texture.TextureNetwork`."""

    stored: UInt8s
    fingerprint: str
    count: int
    reach: int

    def find(
        self, slices: Array, first: int, box: Sequence[tuple[int, int]], out: Float32s
    ) -> None:
        """Write the features of a box; `slices`: whole ones, from `first` on."""


@dataclass(frozen=True)
class Extent:
    """Widths of the filters along z, y and x.

    `units`: the smallest voxel edge in voxels of each axis; 0 along z if features are found slice
    by slice.
    """

    units: tuple[float, float, float]

    @classmethod
    def of(cls, spacing: Sequence[float], by_slice: bool) -> Extent:
        """Return the widths for a voxel size (z, y, x)."""
        units = [min(spacing[1:] if by_slice else spacing) / edge for edge in spacing]
        return cls((0.0 if by_slice else units[0], units[1], units[2]))

    def sigmas(self, sigma: float | Sequence[float]) -> tuple[float, ...]:
        """Return the standard deviations of a Gaussian in voxels of each axis."""
        each = np.broadcast_to(sigma, 3).tolist()
        return tuple(one * unit for one, unit in zip(each, self.units, strict=True))

    @property
    def reach(self) -> tuple[int, ...]:
        """Number of voxels on either side of a voxel on which its features depend."""
        radii = {sigma: self._radii(sigma) for sigma in (*SCALES, WINDOW)}
        wide = self._radii(WIDE, _CUT_WIDE)
        steps = [int(unit > 0) for unit in self.units]  # of a difference
        return tuple(
            max(
                radii[SCALES[-1]][axis] + 2 * steps[axis],
                radii[TEXTURED[-1]][axis] + steps[axis] + radii[WINDOW][axis],
                wide[axis],
            )
            for axis in range(3)
        )

    def _radii(self, sigma: float | Sequence[float], cut: float = _CUT) -> list[int]:
        return [int(cut * each + 0.5) for each in self.sigmas(sigma)]

    def blurred(self, values: Float32s, sigma: float | Sequence[float], cut: float) -> Float32s:
        """Return values after a Gaussian filter."""
        for axis, each in enumerate(self.sigmas(sigma)):
            if int(cut * each + 0.5):
                values = gaussian_filter1d(values, each, axis, truncate=cut, mode="nearest")
        return values


def features_of(
    read: Callable[[int, int], Array],
    shape: Sequence[int],
    box: Sequence[tuple[int, int]],
    extent: Extent,
    threads: KernelThreads,
    network: Network | None = None,
) -> Float32s:
    """Return the features of the voxels in a box of a volume.

    `read`: returns the grey values of a range of slices. `shape`: of the volume, (z, y, x). `box`:
    first voxel of the box, and the one after its last, for each axis. `extent`: widths of filters.
    `network`: finds further features.
    Returns: float32, (`COUNT` and those of the network, z, y, x). Values beyond the faces of the
    volume are those at them.
    """
    bounds = [
        (first - far, last + far) for (first, last), far in zip(box, extent.reach, strict=True)
    ]
    inside = [(max(low, 0), min(high, n)) for (low, high), n in zip(bounds, shape, strict=True)]
    (low, high), rows, columns = inside
    # read once, also where the network sees further
    reach, more = (0, 0) if network is None else (network.reach, network.count)
    start, stop = min(low, max(box[0][0] - reach, 0)), max(high, min(box[0][1] + reach, shape[0]))
    slices = read(start, stop)
    part = slices[low - start : high - start, slice(*rows), slice(*columns)].astype(np.float32)
    beyond = [
        (within[0] - bound[0], bound[1] - within[1])
        for bound, within in zip(bounds, inside, strict=True)
    ]
    values = np.pad(part, beyond, mode="edge")
    inner = tuple(slice(far, n - far) for far, n in zip(extent.reach, values.shape, strict=True))
    corner = np.array(extent.reach)
    step = np.array([int(unit > 0) for unit in extent.units])
    size = tuple(last - first for first, last in box)
    found = np.empty((COUNT + more, *size), np.float32)
    if network is not None:
        network.find(slices, start, box, found[COUNT:])
    found[0] = values[inner]
    (wide,) = _each([values], extent, WIDE, _CUT_WIDE, threads)
    smooth = _each([values] * len(SCALES), extent, SCALES, _CUT, threads)
    finer = values
    for number, blurred in enumerate(smooth):
        own = found[1 + 7 * number :]
        own[0] = blurred[inner]
        np.subtract(own[0], wide[inner], out=own[1])
        threads.over(size[0], _find_edges, blurred, corner, step, own[2:7])
        if number < len(TEXTURED):
            products = np.zeros((7, *values.shape), np.float32)
            threads.over(values.shape[0], _multiply, blurred, finer, step, products)
            tensor = _each(list(products), extent, WINDOW, _CUT, threads)
            own = found[1 + 7 * (len(SCALES) + number) :]
            threads.over(size[0], _find_texture, np.stack([each[inner] for each in tensor]), own)
        finer = blurred
    return found


def _each(
    images: list[Float32s], extent: Extent, sigma: Any, cut: float, threads: KernelThreads
) -> list[Float32s]:
    """Return images after a Gaussian filter, one image per thread at a time.

    `sigma`: for all images; or one for each.
    """
    one_for_all = sigma is WIDE or np.ndim(sigma) == 0
    sigmas = [sigma] * len(images) if one_for_all else list(sigma)

    def blur(first: int, last: int) -> list[Float32s]:
        return [extent.blurred(images[at], sigmas[at], cut) for at in range(first, last)]

    return [each for part in threads.over(len(images), blur, largest=1) for each in part]


@inlined
def _eigenvalues(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> Any:  # pragma: no cover
    """Return the eigenvalues of a symmetric matrix, largest first.

    `a`, `b`, `c`: its diagonal. `d`, `e`, `f`: (z, y), (z, x) and (y, x).
    O. K. Smith (1961), https://doi.org/10.1145/355578.366316
    """
    mean = (a + b + c) / 3
    a, b, c = a - mean, b - mean, c - mean
    p = np.sqrt((a * a + b * b + c * c + 2 * (d * d + e * e + f * f)) / 6)
    if p <= 1e-20:
        return mean, mean, mean
    half = (a * (b * c - f * f) - d * (d * c - f * e) + e * (d * f - b * e)) / (2 * p * p * p)
    angle = np.arccos(min(max(half, -1.0), 1.0)) / 3
    largest = mean + 2 * p * np.cos(angle)
    smallest = mean + 2 * p * np.cos(angle + 2 * np.pi / 3)
    return largest, 3 * mean - largest - smallest, smallest


@kernel
def _find_edges(
    blurred: Any, corner: Any, step: Any, out: Any, first: int, last: int
) -> None:  # pragma: no cover
    """Write gradient magnitude, Laplacian and eigenvalues of the Hessian of slices of the box."""
    k, j, i = step
    for z in range(first, last):
        for y in range(out.shape[2]):
            for x in range(out.shape[3]):
                at, row, column = z + corner[0], y + corner[1], x + corner[2]
                b = blurred[at - 2 * k : at + 2 * k + 1]
                n = 2 * k
                middle = np.float64(b[n, row, column])
                gz = (b[n + k, row, column] - b[n - k, row, column]) / 2
                gy = (b[n, row + j, column] - b[n, row - j, column]) / 2
                gx = (b[n, row, column + i] - b[n, row, column - i]) / 2
                zz = b[n + k, row, column] + b[n - k, row, column] - 2 * middle
                yy = b[n, row + j, column] + b[n, row - j, column] - 2 * middle
                xx = b[n, row, column + i] + b[n, row, column - i] - 2 * middle
                zy = (
                    b[n + k, row + j, column] - b[n + k, row - j, column]
                    - b[n - k, row + j, column] + b[n - k, row - j, column]
                ) / 4  # fmt: skip
                zx = (
                    b[n + k, row, column + i] - b[n + k, row, column - i]
                    - b[n - k, row, column + i] + b[n - k, row, column - i]
                ) / 4  # fmt: skip
                yx = (
                    b[n, row + j, column + i] - b[n, row + j, column - i]
                    - b[n, row - j, column + i] + b[n, row - j, column - i]
                ) / 4  # fmt: skip
                out[0, z, y, x] = np.sqrt(gz * gz + gy * gy + gx * gx)
                out[1, z, y, x] = zz + yy + xx
                large, medium, small = _eigenvalues(zz, yy, xx, zy, zx, yx)
                out[2, z, y, x], out[3, z, y, x], out[4, z, y, x] = large, medium, small


@kernel
def _multiply(
    blurred: Any, finer: Any, step: Any, out: Any, first: int, last: int
) -> None:  # pragma: no cover
    """Write the products of the gradients, and the square of the detail, of slices.

    Voxels at the faces stay 0; no feature depends on them.
    """
    k, j, i = step
    for z in range(max(first, k), min(last, blurred.shape[0] - k)):
        for y in range(j, blurred.shape[1] - j):
            for x in range(i, blurred.shape[2] - i):
                gz = (blurred[z + k, y, x] - blurred[z - k, y, x]) / 2
                gy = (blurred[z, y + j, x] - blurred[z, y - j, x]) / 2
                gx = (blurred[z, y, x + i] - blurred[z, y, x - i]) / 2
                out[0, z, y, x], out[1, z, y, x], out[2, z, y, x] = gz * gz, gy * gy, gx * gx
                out[3, z, y, x], out[4, z, y, x], out[5, z, y, x] = gz * gy, gz * gx, gy * gx
                detail = finer[z, y, x] - blurred[z, y, x]
                out[6, z, y, x] = detail * detail


@kernel
def _find_texture(tensor: Any, out: Any, first: int, last: int) -> None:  # pragma: no cover
    """Write the roots of eigenvalues and diagonal of structure tensors, and of the variance."""
    for z in range(first, last):
        for y in range(out.shape[2]):
            for x in range(out.shape[3]):
                zz, yy, xx = (
                    np.float64(tensor[0, z, y, x]),
                    np.float64(tensor[1, z, y, x]),
                    np.float64(tensor[2, z, y, x]),
                )
                values = _eigenvalues(
                    zz, yy, xx, tensor[3, z, y, x], tensor[4, z, y, x], tensor[5, z, y, x]
                )
                out[0, z, y, x] = np.sqrt(max(values[0], 0.0))
                out[1, z, y, x] = np.sqrt(max(values[1], 0.0))
                out[2, z, y, x] = np.sqrt(max(values[2], 0.0))
                out[3, z, y, x] = np.sqrt(max(zz, 0.0))
                out[4, z, y, x] = np.sqrt(max(yy, 0.0))
                out[5, z, y, x] = np.sqrt(max(xx, 0.0))
                out[6, z, y, x] = np.sqrt(max(tensor[6, z, y, x], 0.0))
