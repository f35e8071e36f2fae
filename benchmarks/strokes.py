"""Phases from strokes on made scans that no threshold separates, after up to three corrections.

Eight kinds of three phases (one of two), on which the features were chosen: textures of one mean
grey value, cupping, cracks beside pores, a crumb (which a threshold does separate), fibres of two
directions, a ramp of grey values, laminated grains, and an electrode whose binder has the grey
value of edges. Four more that were made after the features were fixed, and on which nothing was
chosen (`UNSEEN`): needles and platelets of one mean grey value, streaks with partial rings and a
gradient, a binder that differs from active material in granularity alone, and two foams with a
skin between them.

Short strokes of a person who knows the phases, one voxel wide, in six slices; each correction adds
strokes of each phase near the places of the greatest doubt, wherever the labels are wrong. IoU is
the mean over the phases, of all voxels; without and with the features of the scan's own denoiser,
a network of `STEPS` training steps. Beside it multi-Otsu, of the scan or smoothed by one voxel,
whichever is better, its phases named with the truth.
"""

from __future__ import annotations

import itertools
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import ndimage
from scipy.spatial import cKDTree

import hushpore
from hushpore import Volume
from hushpore.denoising.texture import TextureNetwork
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.phases.features import Extent, features_of
from hushpore.pores.phases.forest import Forest
from hushpore.pores.phases.labelling import find_thresholds
from hushpore.pores.phases.result import doubt_of
from hushpore.scan.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    Labels = npt.NDArray[np.uint8]
    Image = npt.NDArray[np.floating[Any]]

SHAPE, SEEDS, ROUNDS = (24, 112, 112), 3, 3
#: Painted voxels at most in the first round, voxels of a stroke, and slices with strokes.
PAINTED, STROKE, SLICES = 400, 5, 6
#: Training steps of a denoiser: fewer than by default, on scans as small as these.
STEPS = 600
#: Places of a correction, and voxels of each of its strokes.
PLACES, CORRECTION = 12, 4


def _field(rng: np.random.Generator, sigma: Any) -> Image:
    values = ndimage.gaussian_filter(rng.standard_normal(SHAPE), sigma, mode="wrap")
    return values / values.std()


def _grains(rng: np.random.Generator, radius: float) -> tuple[npt.NDArray[np.int64], Image]:
    """Return the grain of each voxel, and how much nearer its seed is than the next one."""
    seeds = rng.uniform(0, SHAPE, (max(6, int(np.prod(SHAPE) / (4.19 * radius**3))), 3))
    away, grain = cKDTree(seeds).query(np.stack(np.indices(SHAPE), -1).reshape(-1, 3), k=2)
    return grain[:, 0].reshape(SHAPE), (away[:, 1] - away[:, 0]).reshape(SHAPE)


def _two_kinds(rng: np.random.Generator, grain: Any) -> Labels:
    """Return phase 2 or 3 for each grain, with pores as phase 1."""
    phase = np.where(rng.random(grain.max() + 1) < 0.5, 2, 3)[grain].astype(np.uint8)
    field = _field(rng, 4)
    phase[field < np.quantile(field, 0.2)] = 1
    return phase


def _texture(rng: np.random.Generator) -> tuple[Labels, Image, float, float]:
    phase = _two_kinds(rng, _grains(rng, 16)[0])
    pattern = np.where(phase == 2, _field(rng, 0.9), _field(rng, 2.5))
    return phase, np.where(phase == 1, 0, 1 + 0.22 * pattern), 0.1, 0.6


def _cupping(rng: np.random.Generator) -> tuple[Labels, Image, float, float]:
    field = _field(rng, 4)
    phase = 1 + np.searchsorted(np.quantile(field, [0.3, 0.65]), field).astype(np.uint8)
    _, y, x = np.indices(SHAPE)
    middle, edge = (SHAPE[1] / 2, SHAPE[2] / 2), 0.7 * SHAPE[1]
    bright = ((y - middle[0]) ** 2 + (x - middle[1]) ** 2) / edge**2
    return phase, np.choose(phase - 1, [0, 0.6, 1]) - 0.9 * (1 - bright), 0.11, 0.6


def _cracks(rng: np.random.Generator) -> tuple[Labels, Image, float, float]:
    (_, gap), field = _grains(rng, 20), _field(rng, 4)
    phase = np.where(field < np.quantile(field, 0.12), 2, np.where(gap < 1.6, 3, 1))
    return phase.astype(np.uint8), (phase == 1).astype(float), 0.11, 1.0


def _crumb(rng: np.random.Generator) -> tuple[Labels, Image, float, float]:
    phase = np.where(_grains(rng, 12)[1] < 4, 2, 1)
    return phase.astype(np.uint8), phase - 1.0, 0.12, 0.6


def _fibres(rng: np.random.Generator) -> tuple[Labels, Image, float, float]:
    z, y, x = np.indices(SHAPE)
    layer = ((z + 4 * np.sin(x / 20) + 4 * np.sin(y / 17 + 1)) // 9) % 2
    field = _field(rng, 5)
    phase = np.where(field < np.quantile(field, 0.25), 1, 2 + layer).astype(np.uint8)
    along = np.where(phase == 2, _field(rng, (1, 1, 12)), _field(rng, (1, 12, 1)))
    return phase, np.where(phase == 1, 0, 1 + 0.25 * along), 0.1, 0.6


def _ramp(rng: np.random.Generator) -> tuple[Labels, Image, float, float]:
    phase = _two_kinds(rng, _grains(rng, 14)[0])
    ramp = 0.6 * (np.indices(SHAPE)[2] / SHAPE[2] - 0.5)
    return phase, np.choose(phase - 1, [0, 0.65, 1]) + ramp, 0.1, 0.6


def _laminate(rng: np.random.Generator) -> tuple[Labels, Image, float, float]:
    grain = _grains(rng, 18)[0]
    phase = _two_kinds(rng, grain)
    normal = rng.standard_normal((grain.max() + 1, 3))
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    depth = np.einsum("azyx,zyxa->zyx", np.indices(SHAPE), normal[grain])
    stripes = 0.3 * np.sin(2 * np.pi * depth / 6) * (phase == 3)
    return phase, np.where(phase == 1, 0, 1 + stripes), 0.1, 0.6


def _electrode(rng: np.random.Generator) -> tuple[Labels, Image, float, float]:
    (_, gap), field = _grains(rng, 11), _field(rng, 4)
    phase = np.where(gap < 2.6, 2, 3)
    open_to = np.where(gap < 2.6, np.quantile(field, 0.2), np.quantile(field, 0.35))
    phase[field < open_to] = 1
    return phase.astype(np.uint8), np.choose(phase - 1, [0, 0.5, 1]), 0.11, 0.8


def _inclusions(rng: np.random.Generator, offsets: Image, count: int) -> Image:
    """Return the pattern of particles at random places, each turned at random; mean 0, deviation 1.

    `offsets`: (points, 3): voxels of a particle, from its centre.
    """
    turned = np.linalg.qr(rng.standard_normal((count, 3, 3)))[0]
    points = rng.uniform(0, SHAPE, (count, 1, 3)) + offsets @ turned
    values = np.zeros(SHAPE)
    values[tuple((np.rint(points).astype(int) % SHAPE).reshape(-1, 3).T)] = 1
    values = ndimage.gaussian_filter(values, 0.7, mode="wrap")
    return (values - values.mean()) / values.std()


def _needles(rng: np.random.Generator) -> tuple[Labels, Image, float, float]:
    phase = _two_kinds(rng, _grains(rng, 16)[0])
    along = np.arange(-8, 8.5, 0.5)
    needle = np.stack([along, 0 * along, 0 * along], axis=1)
    u, v = (each.reshape(-1) for each in np.meshgrid(along, along))
    plate = np.stack([u, v, 0 * u], axis=1)[np.hypot(u, v) <= 4.5]
    room = np.prod(SHAPE) / 100
    pattern = np.where(
        phase == 2,
        _inclusions(rng, needle, int(room / 1.0)),
        _inclusions(rng, plate, int(room / 4.0)),
    )
    return phase, np.where(phase == 1, 0, 1 + 0.25 * pattern), 0.1, 0.6


def _streaks(rng: np.random.Generator) -> tuple[Labels, Image, float, float]:
    phase = _two_kinds(rng, _grains(rng, 14)[0])
    z, y, x = np.indices(SHAPE)
    artefacts = 0.4 * (y / SHAPE[1] - 0.5) + 0.2 * (z / SHAPE[0] - 0.5)
    for _ in range(5):  # dense grains, from which streaks go out within slices
        centre = rng.uniform(0, SHAPE)
        angle = np.arctan2(y - centre[1], x - centre[2])
        profile = ndimage.gaussian_filter1d(rng.standard_normal(180), 1.5, mode="wrap")
        fading = np.exp(-np.hypot(y - centre[1], x - centre[2]) / 50 - ((z - centre[0]) / 8) ** 2)
        artefacts += 0.4 * profile[(angle / np.pi * 90).astype(int) % 180] * fading
    away = np.hypot(y - SHAPE[1] / 2, x - SHAPE[2] / 2)
    turn = np.arctan2(y - SHAPE[1] / 2, x - SHAPE[2] / 2)
    for _ in range(6):  # rings over a part of the turn, as of a detector that drifts
        ring = np.exp(-(((away - rng.uniform(8, SHAPE[1] / 2)) / 1.2) ** 2))
        artefacts += rng.choice([-0.2, 0.2]) * ring * (np.cos(turn - rng.uniform(0, 6.3)) > 0)
    return phase, np.choose(phase - 1, [0, 0.65, 1]) + artefacts, 0.1, 0.6


def _granules(rng: np.random.Generator) -> tuple[Labels, Image, float, float]:
    (_, gap), field = _grains(rng, 14), _field(rng, 4)
    phase = np.where(gap < 5, 2, 3)
    phase[field < np.quantile(field, 0.2)] = 1
    crystal = _grains(rng, 4)[0]
    coarse = rng.standard_normal(crystal.max() + 1)[crystal]
    grey = 1 + np.where(phase == 2, 0.25 * _field(rng, 0.9), 0.15 * coarse)
    return phase.astype(np.uint8), np.where(phase == 1, 0, grey), 0.1, 0.7


def _foams(rng: np.random.Generator) -> tuple[Labels, Image, float, float]:
    coarse, fine = _grains(rng, 7)[1] < 3.0, _grains(rng, 3.5)[1] < 1.5
    z, y, x = np.indices(SHAPE)
    past = x - SHAPE[2] * (0.5 + 0.06 * np.sin(y / 13) + 0.04 * np.sin(z / 9 + 1))
    phase = np.where(past < -4, 1, np.where(past > 4, 2, 3))
    grey = np.choose(phase - 1, [coarse, fine, np.ones(SHAPE, bool)])
    return phase.astype(np.uint8), grey.astype(float), 0.11, 0.7


KINDS = {
    "texture": _texture, "cupping": _cupping, "cracks": _cracks, "crumb": _crumb,
    "fibres": _fibres, "ramp": _ramp, "laminate": _laminate, "electrode": _electrode,
    "needles": _needles, "streaks": _streaks, "granules": _granules, "foams": _foams,
}  # fmt: skip

#: Kinds on which nothing was chosen; they stay as they were before the first run.
UNSEEN = ("needles", "streaks", "granules", "foams")


def simulate(kind: str) -> tuple[Labels, npt.NDArray[np.uint16]]:
    """Return the phases of a kind and its scan, always the same."""
    rng = np.random.default_rng((list(KINDS).index(kind), 63))
    phase, grey, noise, blur = KINDS[kind](rng)
    grey = ndimage.gaussian_filter(grey, blur) + noise * _field(rng, (0.3, 0.6, 0.6))
    return phase, np.rint(np.clip(3000 + 1000 * grey, 0, 65535)).astype(np.uint16)


def stroke(rng: np.random.Generator, phase: Labels, at: Any, size: int) -> list[tuple[int, ...]]:
    """Return the voxels of a stroke within one phase of a slice: a walk that bends slowly."""
    z, y, x = map(int, at)
    found, angle, place = [(z, y, x)], rng.uniform(0, 2 * np.pi), np.array([y, x], float)
    for _ in range(10 * size):
        turned = angle + rng.normal(0, 0.4)
        then = place + np.array([np.sin(turned), np.cos(turned)])
        voxel = (z, *np.rint(then).astype(int).tolist())
        is_inside = all(0 <= c < n for c, n in zip(voxel[1:], phase.shape[1:], strict=True))
        if not is_inside or phase[voxel] != phase[z, y, x]:
            angle = rng.uniform(0, 2 * np.pi)
            continue
        angle, place = turned, then
        if voxel not in found:
            found.append(voxel)
        if len(found) == size:
            break
    return found


def first_strokes(phase: Labels, seed: int, painted: int, slices: int, size: int) -> Labels:
    """Return strokes at random places, as many of each phase."""
    rng = np.random.default_rng((7, seed))
    strokes = np.zeros_like(phase)
    heights = ((np.arange(slices) + 0.5) * len(phase) / slices).astype(int)
    for number in itertools.count():
        kind = 1 + number % int(phase.max())
        z = heights[number // int(phase.max()) % slices]
        places = np.argwhere(phase[z] == kind)
        if not len(places):
            continue
        voxels = stroke(rng, phase, (z, *places[rng.integers(len(places))]), size)
        if np.count_nonzero(strokes) + len(voxels) > painted:
            return strokes
        strokes[tuple(np.transpose(voxels))] = kind


def corrected(
    phase: Labels, strokes: Labels, doubt: Labels, rng: np.random.Generator, radius: int = 8
) -> Labels:
    """Return strokes with further ones of each phase around the places of the greatest doubt."""
    left = ndimage.gaussian_filter(doubt.astype(np.float32), (1, 2, 2))
    left[ndimage.binary_dilation(strokes > 0, iterations=2)] = 0
    found = strokes.copy()
    for _ in range(PLACES):
        z, y, x = np.unravel_index(int(left.argmax()), left.shape)
        corner = np.maximum((y - radius, x - radius), 0)
        near = phase[z, corner[0] : y + radius, corner[1] : x + radius]
        for kind in np.unique(near[near > 0]):
            places = np.argwhere(near == kind) + corner
            nearest = places[((places - (y, x)) ** 2).sum(axis=1).argmin()]
            found[tuple(np.transpose(stroke(rng, phase, (z, *nearest), CORRECTION)))] = kind
        left[max(z - 2, 0) : z + 3, max(y - 14, 0) : y + 14, max(x - 14, 0) : x + 14] = 0
    return found


def overlap(phase: Labels, found: Labels) -> float:
    """Return the mean IoU of the phases; voxels outside the sample do not count."""
    inside = phase > 0
    each = []
    for kind in range(1, int(phase.max()) + 1):
        truth, own = phase == kind, (found == kind) & inside
        each.append((truth & own).sum() / max((truth | own).sum(), 1))
    return float(np.mean(each))


def multi_otsu(phase: Labels, scan: Any) -> float:
    """Return the IoU of multi-Otsu whose phases are named so that it is greatest."""
    count, best = int(phase.max()), 0.0
    for sigma in (0.0, 1.0):
        grey = ndimage.gaussian_filter(scan.astype(float), sigma)
        histogram = Histogram(*_counted(grey))
        darker = np.digitize(grey, find_thresholds(histogram, count))
        for names in itertools.permutations(range(1, count + 1)):
            best = max(best, overlap(phase, np.array(names)[darker]))
    return best


def _counted(grey: Image) -> tuple[Any, Any]:
    counts, edges = np.histogram(grey, 256)
    return counts, (edges[1:] + edges[:-1]) / 2


def _rounds(
    phase: Labels, features: Any, strokes: Labels, seed: int, threads: KernelThreads
) -> tuple[list[float], list[int]]:
    """Return the IoU and the painted voxels before and after each correction.

    The forest is that of a run, whose features are found once.
    """
    rng, overlaps, painted = np.random.default_rng((8, seed)), [], []
    for number in range(ROUNDS + 1):
        where = strokes > 0
        samples = np.ascontiguousarray(features[:, where].T)
        forest = Forest.grown(samples, strokes[where].astype(np.int64) - 1, threads)
        likely = forest.probabilities(features, threads)
        overlaps.append(overlap(phase, likely.argmax(axis=0) + 1))
        painted.append(int(np.count_nonzero(where)))
        if number < ROUNDS:
            doubt = doubt_of(np.rint(100 * likely).astype(np.uint8))
            strokes = corrected(phase, strokes, doubt, rng)
    return overlaps, painted


def _part(scan: Any, first: int, last: int) -> Any:
    return scan[first:last]


def network_of(scan: Any, steps: int) -> TextureNetwork:
    """Return the denoiser of a scan, trained as the program does it, for its features."""
    volume = Volume(scan, name="scan")
    model = hushpore.denoise(volume, steps=steps, device="cpu").model
    return TextureNetwork(np.frombuffer(model.content, np.uint8), volume)


def _of_kind(phase: Labels, scan: Any, network: TextureNetwork | None) -> dict[str, Any]:
    """Return the IoU after each round, and the processor time."""
    before = time.process_time()
    box = [(0, n) for n in SHAPE]
    extent = Extent.of((1.0, 1.0, 1.0), False)
    with KernelThreads() as threads:
        features = features_of(partial(_part, scan), SHAPE, box, extent, threads, network)
        between = time.process_time()
        rounds = [
            _rounds(
                phase, features, first_strokes(phase, seed, PAINTED, SLICES, STROKE), seed, threads
            )
            for seed in range(SEEDS)
        ]
    seconds = (time.process_time() - between) / (SEEDS * (ROUNDS + 1))
    return {
        "after_rounds": np.mean([each[0] for each in rounds], axis=0).round(3).tolist(),
        "worst_seed": np.min([each[0] for each in rounds], axis=0).round(3).tolist(),
        "painted": np.max([each[1] for each in rounds], axis=0).tolist(),
        "microseconds_a_voxel": {
            "features": round(1e6 * (between - before) / phase.size, 1),
            "forest": round(1e6 * seconds / phase.size, 1),
        },
    }


def measure() -> Iterator[dict[str, Any]]:
    """Yield the IoU by kind, without and with features of the denoiser, and the processor time."""
    figures: dict[str, Any] = {"kinds": {}, "with_texture": {}}
    for kind in KINDS:
        phase, scan = simulate(kind)
        otsu = {"multi_otsu": round(multi_otsu(phase, scan), 3)}
        figures["kinds"][kind] = otsu | _of_kind(phase, scan, None)
        before = time.process_time()
        network = network_of(scan, STEPS)
        seconds = {"seconds_of_training": round(time.process_time() - before)}
        figures["with_texture"][kind] = seconds | _of_kind(phase, scan, network)
        yield figures
    for name, half in {"mean": set(KINDS) - set(UNSEEN), "mean_unseen": UNSEEN}.items():
        for own, more in {"kinds": "", "with_texture": "_with_texture"}.items():
            every = [figures[own][kind]["after_rounds"] for kind in half]
            figures[name + more] = np.mean(every, axis=0).round(3).tolist()
    yield figures
