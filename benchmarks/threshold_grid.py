"""Porosity at default settings on a grid of simulated scans of known porosity.

Spherical pores in a solid, blurred, with noise, at porosities of 0.1 to 40 % and contrasts of 3 to
25 times the noise; plain, or with metal grains, drift of the grey values, surrounding air, padding,
or pores that are the bright phase. A scan passes if its porosity is within 10 % of the truth, or if
the first remark is a warning that says what to do. Every second scan, `HELD_BACK`, was not looked
at while the threshold method was written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import ndimage

import hushpore
from hushpore.base.errors import InputError
from hushpore.device.backend import Backend

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

SHAPE = (64, 96, 96)
POROSITIES = (0.001, 0.005, 0.02, 0.08, 0.2, 0.4)
CONTRASTS = (3.0, 5.0, 8.0, 15.0, 25.0)
KINDS = ("plain", "metal", "drift", "air", "padding", "inverted")
#: Grey values of pores, solid and metal, and the part of the error that is right.
PORE, SOLID, METAL, RIGHT = 8000.0, 20000.0, 60000.0, 0.1
#: Standard deviation of the blur, radii of the pores and share of metal.
BLUR, RADII, METAL_SHARE = 0.7, (3.0, 7.0), 0.002


class Case(NamedTuple):
    """One scan of the grid."""

    kind: str
    porosity: float
    contrast: float
    is_held_back: bool


class Scan(NamedTuple):
    """A simulated scan and its true porosity."""

    values: npt.NDArray[np.uint16]
    porosity: float


def cases() -> Iterator[Case]:
    """Yield all scans of the grid."""
    number = 0
    for kind in KINDS:
        for porosity in POROSITIES:
            for contrast in CONTRASTS:
                # a chessboard, so that each half has every porosity and contrast of every kind
                yield Case(kind, porosity, contrast, number % 2 == 1)
                number += 1


def simulate(case: Case) -> Scan:
    """Return the scan of a case; always the same."""
    seed = (KINDS.index(case.kind), round(1e4 * case.porosity), round(case.contrast))
    rng = np.random.default_rng(seed)
    sample = inside = np.ones(SHAPE, np.bool_)
    if case.kind in ("air", "padding"):
        _, y, x = np.indices(SHAPE)
        middle = (SHAPE[1] - 1) / 2
        away = np.hypot(y - middle, x - middle)
        sample = inside = away <= middle
        if case.kind == "air":
            # pores stay inside the sample, so that none is open and the truth is certain
            sample, inside = away <= 0.85 * middle, away <= 0.85 * middle - 3
    pores = _balls(SHAPE, case.porosity, rng, within=inside)
    grey = np.where(pores, PORE, SOLID)
    if case.kind == "air":
        grey[~sample] = PORE
    if case.kind == "metal":
        grey[_balls(SHAPE, METAL_SHARE, rng, (2.0, 3.0)) & ~pores] = METAL
    if case.kind == "inverted":
        grey = PORE + SOLID - grey
    grey = ndimage.gaussian_filter(grey, BLUR, mode="nearest")
    if case.kind == "drift":
        # brighter outside by 15 % of the contrast, as by beam hardening
        _, y, x = np.indices(SHAPE) / np.array(SHAPE)[:, None, None, None] - 0.5
        grey += 0.15 * (SOLID - PORE) * ((y**2 + x**2) / 0.5 - 0.5)
    grey += rng.normal(0.0, (SOLID - PORE) / case.contrast, SHAPE)
    if case.kind == "padding":
        grey[~sample] = 0
    values = np.clip(np.rint(grey), 0, 65535).astype(np.uint16)
    return Scan(values, float(pores[sample].mean()))


def _balls(
    shape: tuple[int, ...],
    share: float,
    rng: np.random.Generator,
    radii: tuple[float, float] = RADII,
    within: npt.NDArray[np.bool_] | None = None,
) -> npt.NDArray[np.bool_]:
    """Return balls at random places, which may overlap, of a share of what they lie within."""
    voxels = np.zeros(shape, np.bool_)
    within = np.ones(shape, np.bool_) if within is None else within
    while voxels.sum() < share * within.sum():
        left = share * within.sum() - voxels.sum()
        fitting = (left * 3 / (4 * np.pi)) ** (1 / 3)
        radius = max(min(rng.uniform(*radii), fitting), 1.0)
        at = [rng.uniform(radius + 1, n - radius - 2) for n in shape]
        cut = tuple(slice(int(a - radius), int(a + radius) + 2) for a in at)
        grid = np.ogrid[cut]
        ball = sum((g - a) ** 2 for g, a in zip(grid, at, strict=True)) <= radius**2
        voxels[cut] |= ball & within[cut]
    return voxels


def measure() -> dict[str, Any]:
    """Segment all scans of the grid; some minutes."""
    found = [(case, judge(case)) for case in cases()]
    figures: dict[str, Any] = {}
    for half, held_back in (("seen", False), ("held back", True)):
        figures[half] = {
            kind: _counts([was for case, was in found
                           if case.kind == kind and case.is_held_back == held_back])
            for kind in KINDS
        }  # fmt: skip
    figures["samples"] = [{**case._asdict(), **was} for case, was in found]
    return figures


def judge(case: Case, threshold: str = "auto") -> dict[str, Any]:
    """Segment one scan at default settings and compare with the truth."""
    scan = simulate(case)
    try:
        result = hushpore.segment_pores(scan.values, threshold=threshold, device=Backend())
    except InputError as error:
        return {"true": scan.porosity, "found": None, "verdict": "warned", "remark": str(error)}
    is_right = abs(result.porosity - scan.porosity) <= RIGHT * scan.porosity
    first = result.remarks[0] if result.remarks else None
    is_warned = first is not None and first.warning
    verdict = "right" if is_right else "warned" if is_warned else "wrong"
    return {
        "true": round(scan.porosity, 5),
        "found": round(result.porosity, 5),
        "verdict": verdict,
        "needless warning": is_right and is_warned,
        "remark": first.message if first is not None else "",
    }


def _counts(verdicts: list[dict[str, Any]]) -> dict[str, int]:
    return {
        "scans": len(verdicts),
        **{name: sum(each["verdict"] == name for each in verdicts)
           for name in ("right", "warned", "wrong")},
        "right with a warning": sum(bool(each.get("needless warning")) for each in verdicts),
    }  # fmt: skip
