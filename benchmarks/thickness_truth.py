"""Local thickness of shapes with a known one: hushpore, and PoreSpy where it is installed.

Balls, cylinders, plates and lattices of round and square struts, turned and shifted at random:
twelve of each that are 6 to 20 voxels wide (plates along the faces 4 to 18, lattices 4 to 12), and
forty of few voxels, 4 to 8 wide (2 to 6, 2 to 5). The mean over each is compared with the truth,
away from where a face of the volume cuts it and where struts cross: about a crossing there is room
for wider balls, but none of them reaches farther along a strut than that is wide. PoreSpy's is with
every distance as a size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.thickness import hushpore_thickness, porespy_every_size

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNT, COUNT_SMALL = 12, 40  # shapes of each kind
SMALLEST, SMALL, LARGEST = 2.0, 3.0, 10.0  # radius of a ball or cylinder; half the width of a plate
SEED = 23  # not that with which the widths were made

Shape = tuple[np.ndarray, np.ndarray, float]


def _grid(size: int, rng: np.random.Generator) -> np.ndarray:
    return np.stack(np.indices((size,) * 3), axis=-1) - size / 2 + rng.uniform(-0.5, 0.5, 3)


def _inner(phase: np.ndarray, margin: float) -> np.ndarray:
    inner = np.zeros_like(phase)
    inner[(slice(int(margin) + 1, -int(margin) - 1),) * 3] = True
    return phase & inner


def _normal(rng: np.random.Generator, *, is_tilted: bool) -> np.ndarray:
    normal = rng.normal(size=3) if is_tilted else np.eye(3)[rng.integers(3)]
    return np.asarray(normal / np.linalg.norm(normal))


def ball(radius: float, rng: np.random.Generator) -> Shape:
    """A ball with its middle anywhere."""
    phase = (_grid(int(2 * radius) + 5, rng) ** 2).sum(axis=-1) < radius**2
    return phase, phase, 2 * radius


def cylinder(radius: float, rng: np.random.Generator, *, is_tilted: bool) -> Shape:
    """A cylinder that runs through the volume."""
    grid = _grid(int(5 * radius) + 6, rng)
    along = grid @ _normal(rng, is_tilted=is_tilted)
    phase = (grid**2).sum(axis=-1) - along**2 < radius**2
    return phase, _inner(phase, 2 * radius), 2 * radius


def plate(width: float, rng: np.random.Generator, *, is_tilted: bool) -> Shape:
    """A plate that runs through the volume; along the faces of whole voxels."""
    if is_tilted:
        grid = _grid(int(3 * width) + 8, rng)
        phase = abs(grid @ _normal(rng, is_tilted=True)) < width / 2
        return phase, _inner(phase, 1.2 * width), width
    phase = np.zeros((int(width) + 8,) * 3, bool)
    np.moveaxis(phase, rng.integers(3), 0)[3 : 3 + int(width)] = True
    return phase, phase, int(width)


def lattice(width: float, rng: np.random.Generator, *, is_round: bool) -> Shape:
    """Struts along the axes, half way between crossings; square ones of whole voxels."""
    period = int(2.6 * width) + 4
    if not is_round:
        width = int(width)
    shift = rng.uniform(0, period, 3) if is_round else rng.integers(0, period, 3) + width % 2 / 2
    shift = shift + (0 if is_round else 0.5)
    at = np.stack(np.indices((2 * period,) * 3), axis=-1) + shift
    at = np.sort(abs((at + period / 2) % period - period / 2), axis=-1)
    near = np.hypot(at[..., 0], at[..., 1])
    phase = near < width / 2 if is_round else at[..., 1] < width / 2
    is_between = (near < 0.45 * width) & (at[..., 2] > width)
    return phase, _inner(phase & is_between, width / 2), width


KINDS: dict[str, Any] = {
    "ball": ball,
    "cylinder along an axis": lambda radius, rng: cylinder(radius, rng, is_tilted=False),
    "cylinder, tilted": lambda radius, rng: cylinder(radius, rng, is_tilted=True),
    "plate along the faces": lambda radius, rng: plate(2 * radius - 2, rng, is_tilted=False),
    "plate, tilted": lambda radius, rng: plate(2 * radius, rng, is_tilted=True),
    "lattice, round": lambda radius, rng: lattice(1.2 * radius, rng, is_round=True),
    "lattice, square": lambda radius, rng: lattice(1.2 * radius, rng, is_round=False),
}
CONTESTANTS = {"hushpore": hushpore_thickness, "porespy": porespy_every_size}


def measure() -> Iterator[dict[str, Any]]:
    """Run all of it: a minute, and some more for PoreSpy."""
    figures: dict[str, Any] = {"unit": "voxels of diameter"}
    sizes = {"": (SMALL, LARGEST, COUNT), "of few voxels": (SMALLEST, SMALL + 1, COUNT_SMALL)}
    for size, (low, high, count) in sizes.items():
        for kind, make in KINDS.items():
            rng = np.random.default_rng(SEED)
            shapes = [make(rng.uniform(low, high), rng) for _ in range(count)]
            told = figures.setdefault(size, {}) if size else figures
            told[kind] = _errors(shapes)
            yield figures


def _errors(shapes: list[Shape]) -> dict[str, Any]:
    """How far each contestant is from the truth."""
    told: dict[str, Any] = {}
    # so small that no voxel of it counts
    shapes = [(phase, where, width) for phase, where, width in shapes if where.any()]
    for name, run in CONTESTANTS.items():
        try:
            found = [(run(phase)[where], width) for phase, where, width in shapes]
        except ImportError:
            continue
        errors = np.array([values.mean(dtype=np.float64) - width for values, width in found])
        shares = errors / [width for _, width in found]
        spread = [values.std(dtype=np.float64) for values, _ in found]
        told[name] = {
            "mean_error": round(float(errors.mean()), 3),
            "lowest_error": round(float(errors.min()), 3),
            "highest_error": round(float(errors.max()), 3),
            "mean_error_percent": round(float(100 * shares.mean()), 2),
            "within_half_a_voxel": round(float((abs(errors) <= 0.51).mean()), 3),
            "mean_deviation": round(float(np.mean(spread)), 3),
        }
    return told
