"""Exterior of a sample: surrounding air and padding, found quickly from sampled grey values.

A scan may show a whole core in air, a block cut out of a core, or a foam whose void reaches all
faces. They differ in projection: with air around a sample, whole bundles of lines at the rim cross
the volume without meeting solid, and these bundles are wider than any passage through the pores. So
the solid of sampled slices is projected along each axis, and a disc with a diameter of half the
volume, which pores do not admit, is rolled over the silhouette from outside.

Voxels outside a round field of view are often padded with a value that no voxel of the scan has.
Padding is recognised by that: one value, around the rest, without similar values beside it.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.pores.settings import PoreSettings
from hushpore.pores.void.threshold import two_groups
from hushpore.pores.void.thumbnail import (
    BLUNT,
    DISC,
    Thumbnail,
    axes_of,
    histogram_of,
    is_around,
    make_thumbnail,
    roll,
    rolled,
    spread,
    threshold_of,
    void_of,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from hushpore.base.volume import Volume

#: Minimum contrast of solid and air, in widths of the middle 80 % of the grey values of air.
_EVEN = 2.5

#: Maximum fraction of the sample that the ball may remove where a much larger one cannot enter.
_TAKEN = 0.1

#: Maximum void fraction of what the ball leaves, if it removes more than that.
_HOLLOW = 0.25

#: Width of openings that the ball may enter in any case, in radii of the ball.
_WIDE = 3.0

#: Minimum number of solid voxels for estimating a grey-value drift.
_FEWEST = 1000

#: Approximate maximum number; more take time without improving the estimate.
_SAMPLED = 20_000

#: Maximum distance from the median, in median absolute deviations, of voxels used for the drift.
_ODD = 8.0

#: Number of blocks along each axis, to distinguish drift from coarse texture.
_BLOCKS = 6

#: Minimum drift, in standard deviations of block means around the fit.
_CLEAR = 4.0

#: Minimum drift to report, relative to the contrast of solid and void.
_UNEVEN = 0.15

#: Minimum ratio to report of the porosity with a wider ball to that with the ball.
_CUT_OFF = 1.1


class Exterior(NamedTuple):
    """Exterior of a sample, and its treatment."""

    treatment: str  # ``"keep"``, ``"remove"`` or ``"remove-slicewise"``, as in the setting
    radius: float  # of the rolling ball, in voxels
    share: float = 0.0  # approximate fraction of the volume to exclude
    padding: float | None = None  # grey value of padding; None if there is none
    kept: float = 0.0  # approximate fraction of the volume that is kept air
    gain: float = 1.0  # porosity with the widest possible ball, relative to this ball
    widest: float = 0.0  # radius of the widest ball; 0 if the gain is small
    drift: float = 0.0  # of the solid, relative to its contrast with void; 0 if small
    groups: tuple[float, float] | None = None  # peaks of the void, if it has two

    def apply(self, settings: PoreSettings) -> PoreSettings:
        """Return settings with the treatment of the exterior decided."""
        return dataclasses.replace(settings, exterior=self.treatment, ball_radius=self.radius)


def values_of_sample(volume: Volume, slices: int) -> npt.NDArray[Any]:
    """Return sampled grey values of a sample, without its exterior.

    `volume`: 2D or 3D. `slices`: maximum number of slices to read, at least four.
    Returns: (n,), of the type of the volume.
    """
    from scipy import ndimage

    small = make_thumbnail(volume, slices - 3)
    settings = PoreSettings()
    around = find_exterior(volume, settings, small)
    left_out = small.padded
    if around.treatment != "keep":
        void = void_of(small, settings)
        assert void is not None, "there is air"
        left_out = left_out | rolled(void | left_out, small, around.radius)
    # the rim is partly exterior
    left_out = ndimage.binary_dilation(left_out, np.ones((1, 5, 5), np.bool_))
    values: npt.NDArray[Any] = small.values[~left_out]
    # a single grey value would be useless
    return values if values.size and values.min() < values.max() else small.values.ravel()


def find_exterior(
    volume: Volume, settings: PoreSettings, thumbnail: Thumbnail | None = None
) -> Exterior:
    """Find the exterior of the sample in a volume, 2D or 3D, and decide on its treatment.

    `thumbnail`: of the volume, if known.
    Returns: the treatment given by the settings; with ``"auto"``, ``"keep"`` if no exterior or no
    threshold is found or a sample mask is given. Padding is excluded, too, unless air is kept.
    """
    small = thumbnail or make_thumbnail(volume)
    outside = settings.exterior if settings.removes_air else "keep"
    nothing = Exterior(outside, settings.ball_radius)
    padded = nothing._replace(share=float(small.padded.mean()), padding=small.padding)
    if settings.sample_mask or not np.isfinite(small.means).all():
        return padded
    void = void_of(small, settings)
    drift = 0.0 if void is None or settings.is_local else _find_drift(void, small)
    padded = padded._replace(drift=drift)
    found = padded
    if void is not None and not settings.removes_air:
        found = _find_air(void | small.padded, small, padded)
    radius = 0.0 if found.treatment == "keep" else found.radius
    groups = None if void is None else _find_groups(void, small, settings, radius)
    if settings.keeps_all:
        # kept as requested, with a note
        kept = 0.0 if found.treatment == "keep" else found.share
        return nothing._replace(kept=kept, drift=drift, groups=groups)
    return found._replace(groups=groups)


def _find_drift(void: npt.NDArray[np.bool_], small: Thumbnail) -> float:
    """Return the drift of the grey value of the solid, caused for example by beam hardening.

    The range of a parabola fitted to the solid, from the 5 % to the 95 % quantile, relative to the
    contrast of solid and void; 0 if small or unknown.
    """
    from scipy import ndimage

    values = small.values
    measured = ~small.padded
    # without partial volume beside void
    solid = ndimage.binary_erosion(~void & measured, np.ones((1, 3, 3), np.bool_))
    places = np.argwhere(solid)
    places = places[:: max(1, len(places) // _SAMPLED)]
    dark = values[void & measured]
    if values.dtype == np.bool_ or len(places) < _FEWEST or not dark.size:
        return 0.0
    grey = values[tuple(places.T)].astype(np.float64)
    middle = float(np.median(grey))
    # grains of another material are outliers
    usual = np.abs(grey - middle) <= _ODD * np.median(np.abs(grey - middle))
    at = places / (np.array([max(n, 2) for n in values.shape]) - 1.0) - 0.5
    design = np.column_stack([np.ones(len(at)), at, at**2])
    fitted = design @ np.linalg.lstsq(design[usual], grey[usual])[0]
    low, high = np.percentile(fitted, (5, 95))
    # a coarse texture deviates from the fit as much as it drifts
    block = np.minimum((_BLOCKS * (at + 0.5)).astype(np.int64), _BLOCKS - 1)
    block = np.ravel_multi_index(tuple(block[usual].T), (_BLOCKS,) * 3)
    voxels = np.bincount(block)
    left = np.bincount(block, (grey - fitted)[usual])[voxels > 0]
    texture = math.sqrt(np.sum(left**2 / voxels[voxels > 0]) / voxels.sum())
    apart = abs(middle - float(np.median(dark.astype(np.float64))))
    if high - low < _CLEAR * texture:
        return 0.0
    drift = float(high - low) / apart if apart else 0.0
    return drift if drift >= _UNEVEN else 0.0


def _find_groups(
    void: npt.NDArray[np.bool_], small: Thumbnail, settings: PoreSettings, radius: float
) -> tuple[float, float] | None:
    """Return the peaks of the grey values of the pores, if they form two groups; else None.

    `radius`: of the rolling ball; 0 without surrounding air. Air and small pores differ in grey
    value, too, and are checked separately.
    """
    from scipy import ndimage

    if not isinstance(settings.threshold, str) or settings.is_local or settings.otsu_classes != 2:
        return None
    threshold = threshold_of(small, settings)
    if threshold is None:
        return None
    places = slice(None) if not radius else spread(len(void))
    values, padded, void = small.values[places], small.padded[places], void[places]
    outside = np.zeros(void.shape, np.bool_)
    if radius:
        outside = rolled(void | padded, small, radius)
    solid = ~void & ~padded
    # without partial volume beside solid
    pure = ndimage.binary_erosion(void, np.ones((1, 3, 3), np.bool_), border_value=1) & ~padded
    for part in (pure & ~outside, pure & outside):
        if part.any() and solid.any():
            histogram = histogram_of(values[part | solid])
            found = two_groups(histogram, threshold, settings.pores_are == "bright")
            if found is not None:
                return found
    return None


def _find_air(void: npt.NDArray[np.bool_], small: Thumbnail, nothing: Exterior) -> Exterior:
    """Return the treatment of the air around a sample; `nothing` if there is none."""
    from scipy import ndimage

    padded = small.padded
    if void.all() or not any(is_around(void, padded, at, small.spacing) for at in axes_of(void)):
        return nothing
    radius, outside, places, hull, widest = _fitting_ball(void, small, nothing.radius)
    # without means that include padding or solid
    mixed = ndimage.binary_dilation(padded[places], np.ones((1, 5, 5), np.bool_))
    mixed |= ndimage.binary_dilation(~void[places], np.ones((1, 3, 3), np.bool_))
    shown = small.means[places], outside & ~mixed, ~void[places]
    if small.values.dtype != np.bool_ and not _is_even(*shown):
        return nothing
    # whole slices may be padding
    ends = np.flatnonzero(~padded.all(axis=(1, 2)))[[0, -1]]
    is_cut = small.depth > 1 and not void[ends].all()
    way = "remove-slicewise" if is_cut else "remove"
    measured = ~padded[places]
    own, wide = (
        np.count_nonzero(void[places] & part) / max(int(np.count_nonzero(part)), 1)
        for part in (measured & ~outside, measured & hull)
    )
    around = nothing._replace(treatment=way, radius=radius, share=float(outside.mean()))
    if wide < _CUT_OFF * own or not own:
        return around
    return around._replace(gain=float(wide / own), widest=widest)


def _fitting_ball(
    void: npt.NDArray[np.bool_], small: Thumbnail, radius: float
) -> tuple[float, npt.NDArray[np.bool_], npt.NDArray[np.int64], npt.NDArray[np.bool_], float]:
    """Return the radius of a ball that stays outside the sample, and what it covers.

    Returns: the radius; the exterior in some slices, and the indices of these slices in the
    thumbnail; and the sample that the widest possible ball leaves in them, with its radius.

    A ball that fits through the pores of a foam enters it deeply and leaves struts thinner than the
    space that it removes. The radius is doubled until that does not happen.
    """
    from scipy import ndimage

    sides = small.spacing[1:]
    places = spread(len(void))
    planes = void[places]
    widest = DISC * min(n * side for n, side in zip(void.shape[1:], sides, strict=True))
    hull = ~np.stack([roll(plane, sides, widest) for plane in planes])
    depth = np.stack([ndimage.distance_transform_edt(each, sampling=sides) for each in planes])
    while True:
        ball = max(radius, BLUNT * min(sides))
        left = ~rolled(planes, small, radius)
        taken = hull & ~left
        if np.count_nonzero(taken) <= _TAKEN * np.count_nonzero(hull) or 2 * radius > widest:
            break
        thick = np.stack([ndimage.distance_transform_edt(each, sampling=sides) for each in left])
        width = np.percentile(depth[taken], 90)
        is_wide = width >= _WIDE * ball
        is_full = np.count_nonzero(planes & left) <= _HOLLOW * np.count_nonzero(left)
        if np.percentile(thick[left], 90) >= width and (is_wide or is_full):
            break
        radius *= 2
    return radius, ~left, places, hull, widest


def _is_even(
    values: npt.NDArray[np.float32], air: npt.NDArray[np.bool_], solid: npt.NDArray[np.bool_]
) -> bool:
    """Return whether air has one grey value, unlike the dark side of an uneven matrix."""
    if not air.any() or not solid.any():
        return True
    low, middle, high = np.percentile(values[air], (10, 50, 90))
    return bool(abs(np.median(values[solid]) - middle) >= _EVEN * (high - low))
