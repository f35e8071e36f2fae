"""Porosity and its interval at default settings, on simulated scans of known porosity.

Particles, fibres, foams, cracks, pores and rocks of 0.1 to 95 % void, blurred by 0 to 2.5 voxels,
with noise of 5 to 60 % of the contrast, stronger or weaker in the solid, whose neighbours are
correlated as in a reconstruction, in 16 bits or in 8 bits with gaps. Each is segmented by the
automatic threshold and by Otsu's. Every second scan is held back: it was not looked at while the
method was written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import ndimage

import hushpore
from benchmarks.pores import CPU

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    Mask = npt.NDArray[np.bool_]

#: Voxels along an edge, points of a voxel along it, and scans of each kind.
EDGE, FINE, SCANS = 56, 2, 40
#: By kind: range of the share of void, and of the radius of what it is made of, in voxels.
KINDS: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "particles": ((0.3, 0.9), (4.0, 12.0)),
    "fibres": ((0.5, 0.95), (2.5, 6.0)),
    "foam": ((0.5, 0.9), (6.0, 14.0)),
    "cracks": ((0.001, 0.05), (0.7, 2.5)),
    "pores": ((0.001, 0.4), (2.0, 8.0)),
    "rock": ((0.05, 0.5), (2.0, 6.0)),
}
#: Standard deviations of the filter of the noise along z, y and x: white noise, noise of a sharp
#: and noise of a smooth reconstruction (neighbours correlated by 0.37, 0.78 and 0.81).
SMOOTHING = ((0.0, 0.0, 0.0), (0.4, 0.6, 0.6), (0.5, 1.0, 1.09))
#: Range of the logarithm of how much stronger the noise is in solid than in pores.
GROWTH = (-0.1, 0.35)
#: Grey values of pores and solid in 16 bits, grey levels in 8 bits, and the share of the void by
#: which the automatic threshold may be worse than Otsu's.
PORE, SOLID, LEVELS, WORSE = 20000.0, 32000.0, 40, 0.1
#: Error of the porosity at which a scan is right, as a share of it.
RIGHT = 0.1


class Case(NamedTuple):
    """One scan; `blur` in voxels, `noise` as a share of the contrast.

    `growth`: standard deviation of the noise in solid over that in pores.
    """

    kind: str
    void: float
    radius: float
    blur: float
    noise: float
    smoothing: int
    in_bytes: bool
    growth: float
    seed: int

    @property
    def is_held_back(self) -> bool:
        """Whether the method was written without this scan."""
        return self.seed % 2 == 1


def cases() -> Iterator[Case]:
    """Yield all scans."""
    for number, (kind, (voids, radii)) in enumerate(KINDS.items()):
        for seed in range(SCANS):
            rng = np.random.default_rng((number, seed))
            yield Case(
                kind,
                float(np.exp(rng.uniform(*np.log(voids)))),
                float(rng.uniform(*radii)),
                float(rng.uniform(0, 2.5)),
                float(np.exp(rng.uniform(*np.log((0.05, 0.6))))),
                int(rng.integers(len(SMOOTHING))),
                bool(rng.random() < 0.4),
                float(np.exp(rng.uniform(*GROWTH))),
                seed,
            )


def simulate(case: Case) -> tuple[npt.NDArray[np.unsignedinteger[Any]], float]:
    """Return the scan of a case, always the same, and its porosity."""
    rng = np.random.default_rng((list(KINDS).index(case.kind), case.seed, 1))
    void = _structure(case, rng)
    share = void.reshape((EDGE, FINE) * 3).mean(axis=(1, 3, 5))
    # a voxel averages over its own edge already
    grey = ndimage.gaussian_filter(PORE * share + SOLID * (1 - share), case.blur)
    noise = ndimage.gaussian_filter(
        rng.standard_normal(share.shape), SMOOTHING[case.smoothing], mode="wrap"
    )
    # half-way between pores and solid it is as strong as stated
    strength = case.growth ** ((grey - PORE) / (SOLID - PORE) - 0.5)
    grey += case.noise * (SOLID - PORE) * strength * noise / noise.std()
    low, high = np.quantile(grey, [0.0005, 0.9995])
    if case.in_bytes:
        # few levels, stretched to all of 8 bits as programs do that enhance the contrast
        level = np.clip(np.rint((grey - low) / (high - low) * (LEVELS - 1)), 0, LEVELS - 1)
        return np.rint(level * 255 / (LEVELS - 1)).astype(np.uint8), float(share.mean())
    return np.clip(np.rint(grey), 0, 65535).astype(np.uint16), float(share.mean())


def _structure(case: Case, rng: np.random.Generator) -> Mask:
    """Return which points are void."""
    shape, radius = (EDGE * FINE,) * 3, case.radius * FINE
    if case.kind == "rock":
        field = ndimage.gaussian_filter(rng.standard_normal(shape), radius, mode="wrap")
        return field <= np.quantile(field, case.void)
    if case.kind == "foam":
        # cells around random seeds; their walls are where two seeds are about as near
        seeds = rng.uniform(0, shape[0], (max(4, round((EDGE / case.radius / 2) ** 3)), 3))
        away = _nearest(seeds, shape)
        return away >= np.quantile(away, 1 - case.void)
    solid_first = case.kind in ("particles", "fibres")
    wanted = 1 - case.void if solid_first else case.void
    filled = np.zeros(shape, np.bool_)
    while filled.mean() < wanted:
        filled |= _body(case.kind, radius, shape, rng)
    return ~filled if solid_first else filled


def _nearest(seeds: npt.NDArray[np.float64], shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Return how much farther the second nearest seed of each point is than the nearest."""
    from scipy.spatial import KDTree

    # they vary slowly, so that every second point will do
    half = np.stack(np.indices([n // 2 + 1 for n in shape]), -1) * 2.0
    found = KDTree(seeds).query(half.reshape(-1, 3), 2)[0]
    apart = (found[:, 1] - found[:, 0]).reshape(half.shape[:3]).astype(np.float32)
    return ndimage.zoom(apart, 2, order=1, grid_mode=False)[tuple(slice(n) for n in shape)]


def _body(kind: str, radius: float, shape: tuple[int, ...], rng: np.random.Generator) -> Mask:
    """Return a ball, a straight fibre, or a round crack, at a random place."""
    place = rng.uniform(0, shape[0], 3)
    towards = rng.standard_normal(3)
    towards /= np.linalg.norm(towards)
    z, y, x = (
        grid - at for grid, at in zip(np.ogrid[tuple(map(slice, shape))], place, strict=True)
    )
    away = z**2 + y**2 + x**2
    if kind in ("particles", "pores"):
        return np.asarray(away <= (radius * rng.uniform(0.6, 1.2)) ** 2)
    along = z * towards[0] + y * towards[1] + x * towards[2]
    if kind == "fibres":
        return np.asarray(away - along**2 <= radius**2)
    return np.asarray((np.abs(along) <= radius / 2) & (away <= (0.25 * shape[0]) ** 2))


def measure() -> dict[str, Any]:
    """Segment all scans; some ten minutes."""
    found = [(case, judge(case)) for case in cases()]
    figures: dict[str, Any] = {}
    for half, held_back in (("seen", False), ("held back", True)):
        own = [(case, was) for case, was in found if case.is_held_back == held_back]
        figures[half] = {
            kind: _counts([was for case, was in own if case.kind == kind]) for kind in KINDS
        } | {"all": _counts([was for _, was in own])}
    figures["samples"] = [{**case._asdict(), **was} for case, was in found]
    return figures


def judge(case: Case) -> dict[str, Any]:
    """Segment one scan by both thresholds and compare with the truth."""
    values, truth = simulate(case)
    how = {"exterior": "keep", "device": CPU}
    otsu = hushpore.segment_pores(values, threshold="otsu", **how)
    result = hushpore.segment_pores(values, intervals=True, **how)
    totals = result.provenance["result"]
    first = result.remarks[0] if result.remarks else None
    return {
        "true": truth,
        "otsu": otsu.porosity,
        "found": result.porosity,
        "low": totals.get("porosity_low"),
        "high": totals.get("porosity_high"),
        "is_warned": first is not None and first.warning,
        "method": totals["threshold_groups"]["method"],
    }


def _counts(scans: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how many scans are right, and how many intervals hold the truth."""
    errors = {name: [abs(each[name] / each["true"] - 1) for each in scans]
              for name in ("found", "otsu")}  # fmt: skip
    worse = [own > other + WORSE for own, other in zip(*errors.values(), strict=True)]
    sure = [each for each in scans if each["low"] is not None]
    held = [each["low"] <= each["true"] <= each["high"] for each in sure]
    widths = [(each["high"] - each["low"]) / each["found"] for each in sure]
    return {
        "scans": len(scans),
        "within 10 %": sum(error <= RIGHT for error in errors["found"]),
        "Otsu within 10 %": sum(error <= RIGHT for error in errors["otsu"]),
        "median error": round(float(np.median(errors["found"])), 3),
        "median error of Otsu": round(float(np.median(errors["otsu"])), 3),
        "worse than Otsu": sum(worse),
        "worse without a warning": sum(
            bad and not each["is_warned"] for bad, each in zip(worse, scans, strict=True)
        ),
        "better than Otsu": sum(
            other > own + WORSE for own, other in zip(*errors.values(), strict=True)
        ),
        "intervals": len(sure),
        "truth inside": sum(held),
        "median width": round(float(np.median(widths)), 3) if sure else None,
    }
