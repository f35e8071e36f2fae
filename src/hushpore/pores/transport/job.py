"""Transport through a phase along all axes: as a function, and as a stage of other jobs."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError, MemoryLimitError
from hushpore.base.events import Driver, Note, result_of
from hushpore.base.volume import as_volume
from hushpore.device.backend import Backend, choose_backend
from hushpore.device.memory import free_pools, is_out_of_memory
from hushpore.pores.flow import NotSolvedError
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.transport import diffusion, stokes
from hushpore.pores.transport.result import Transport

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from hushpore.base.arrays import Array, UInt8s
    from hushpore.base.events import Event
    from hushpore.base.volume import Volume, VolumeLike
    from hushpore.pores.engine import Pass
    from hushpore.pores.phases.result import Phases
    from hushpore.pores.pipeline import Stages
    from hushpore.pores.result import Pores
    from hushpore.pores.transport.result import Solution

#: What each kind of transport solves.
KINDS = {"diffusion": ("diffusion",), "flow": ("flow",), "both": ("diffusion", "flow")}

#: Values of each kind along an axis.
_VALUES = {
    "diffusion": ("effective_diffusivity", "voxel_tortuosity_factor", "voxel_formation_factor"),
    "flow": ("voxel_permeability",),
}


def transport(
    volume: VolumeLike | Pores | Phases,
    kind: str = "diffusion",
    *,
    conductivities: Sequence[float] | Mapping[int, float] | None = None,
    periodic: bool = False,
    device: str = "auto",
) -> Transport:
    """Solve diffusion or flow through the voxels of a phase, from face to face along each axis.

    Diffusion: Laplace's equation with fixed concentrations at two opposite faces. Flow: Stokes'
    equations with a pressure drop between them, no slip at the solid. The other four faces are
    closed.

    Parameters
    ----------
    volume : Volume, array_like, Pores or Phases
        2D or 3D mask of the void, labels of phases, or a result. Flow is solved in 3D only.
    kind : str, optional
        ``"diffusion"``, ``"flow"`` or ``"both"``.
    conductivities : sequence or mapping of float, optional
        Conductivity of each phase, 0 if it does not conduct: for values 1, 2, ... of the labels,
        or by value. By default, a mask, pores and the darkest phase have 1. Flow is through the
        phase of the highest.
    periodic : bool, optional
        Whether the other faces are periodic, instead of closed.
    device : str, optional
        ``"cpu"``, ``"cuda"``, ``"cuda:1"`` and so on, for diffusion; flow is solved on the CPU. By
        default a CUDA GPU if there is one with enough memory.

    Returns
    -------
    Transport
        Values, maps of the flux and profiles; see there.

    Raises
    ------
    InputError
        If the volume holds grey values, a value is no label of a phase, or nothing connects two
        opposite faces.
    MemoryLimitError
        If it does not fit into memory. Diffusion needs 20 bytes for each conducting voxel, flow
        300, and both 4 for each voxel of each map.

    References
    ----------
    S. Cooper and others (2016), "TauFactor: An open-source application for calculating tortuosity
    factors from tomographic data", SoftwareX 5, 203-210.
    https://doi.org/10.1016/j.softx.2016.09.002

    Examples
    --------
    A straight channel over a quarter of the cross-section:

    >>> import numpy as np
    >>> import hushpore
    >>> void = np.zeros((8, 8, 8), bool)
    >>> void[:, :4, :4] = True
    >>> found = hushpore.transport(void).totals
    >>> round(found["effective_diffusivity_z"], 3), found["effective_diffusivity_y"]
    (0.25, None)
    """
    if kind not in KINDS:
        raise InputError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}.")
    given, labels = _labels_of(volume, conductivities is None)
    if given.axes not in ("yx", "zyx"):
        raise InputError(f"{given.name} has axes {given.axes!r}; one image, 2D or 3D, is needed.")
    if not isinstance(conductivities, Mapping):
        conductivities = dict(enumerate(conductivities or (1.0,), 1))
    phase, of_phase = _phases_of(labels, conductivities)
    check(phase, of_phase, given, kind)
    with KernelThreads() as threads:
        how = phase, of_phase, given, kind, threads, choose_backend(device)
        found = result_of(find_transport(*how, periodic=periodic))
    if all(value is None for value in found.totals.values()):
        raise InputError(f"Nothing in {given.name} connects two opposite faces.")
    return found


def _labels_of(volume: VolumeLike | Pores | Phases, is_void: bool) -> tuple[Volume, Array]:
    """Return the volume that is meant, and its labels; of a mask of the void 1 where it is."""
    from hushpore.pores.phases.result import Phases
    from hushpore.pores.result import Pores

    if isinstance(volume, Pores):
        return volume.volume, (volume.basins != 0).reshape(volume.volume.shape)
    if isinstance(volume, Phases):
        return volume.volume, volume.labels
    given = as_volume(volume)
    values = given.array()
    if values.dtype.kind not in "biu" or (is_void and np.unique(values).size > 2):
        raise InputError(
            f"{given.name} seems to hold grey values or several phases; transport needs a mask of "
            "the void, or labels of phases with their conductivities. Segment a scan with "
            "hushpore.segment_pores, or give conductivities."
        )
    return given, values != values.min() if is_void and values.size else values


def _phases_of(labels: Array, conductivities: Mapping[int, float]) -> tuple[UInt8s, list[float]]:
    """Return phases from 1, 0 for labels without a conductivity, (z, y, x), and what each has."""
    values = [float(each) for each in conductivities.values()]
    if not all(math.isfinite(each) and each >= 0 for each in values) or not any(values):
        raise InputError(
            "conductivities must be numbers of at least 0, one of them above 0; got "
            f"{', '.join(f'{each:g}' for each in values)}."
        )
    phase = np.zeros((1,) * (3 - labels.ndim) + labels.shape, np.uint8)
    for number, label in enumerate(conductivities, 1):
        phase[(labels == label).reshape(phase.shape)] = number
    return phase, [0.0, *values]


def check(phase: UInt8s, conductivity: Sequence[float], volume: Volume, kind: str) -> float:
    """Return the bytes that transport needs.

    Raises MemoryLimitError if they are not free, and InputError for flow in an image.
    """
    if volume.n_spatial == 2 and "flow" in KINDS[kind]:
        raise InputError(f"Flow is solved in 3D, and {volume.name} is an image. Choose diffusion.")
    voxels = np.bincount(phase.reshape(-1), minlength=len(conductivity))
    conducting = int(voxels[np.asarray(conductivity) > 0].sum())
    of_maps = 4 * volume.n_spatial * len(KINDS[kind])
    needed: float = max(
        conducting * solver.BYTES_A_VOID_VOXEL + phase.size * (solver.BYTES_A_VOXEL + of_maps)
        for solver in (diffusion if each == "diffusion" else stokes for each in KINDS[kind])
    )
    free = Backend().free_memory()
    if needed > free:
        raise MemoryLimitError(
            f"Transport through {volume.name} needs {needed / 1e9:.3g} GB of memory, and "
            f"{free / 1e9:.3g} GB are free. Crop it or bin it."
        )
    return needed


def find_transport(
    phase: UInt8s,
    conductivity: Sequence[float],
    volume: Volume,
    kind: str,
    threads: KernelThreads,
    backend: Backend,
    *,
    periodic: bool,
) -> Pass[Transport]:
    """Solve transport along each axis of a volume.

    `phase`, `conductivity`: as for `hushpore.pores.transport.diffusion.solve_diffusion`. `kind`: a
    key of `KINDS`. `volume`: for its axes and spacing. `backend`: whose GPU solves diffusion.
    """
    spacing = (1.0,) * (3 - volume.n_spatial) + tuple(map(float, volume.spacing))
    of_phase = np.asarray(conductivity, np.float64)
    voxels = np.bincount(phase.reshape(-1), minlength=of_phase.size)
    mean = float(voxels @ of_phase) / phase.size
    found = Transport(volume, {}, {}, {}, {})
    solutions = list(product(KINDS[kind], volume.axes))
    for number, (each, axis) in enumerate(solutions):
        how: Any = spacing, "zyx".index(axis), threads
        if each == "diffusion":
            solving = _diffusion(backend, phase, of_phase, *how, periodic=periodic)
        else:
            solving = stokes.solve_flow(phase == of_phase.argmax(), *how, periodic=periodic)
        with Driver(solving) as driver:
            for done in driver:
                yield (number + done) / len(solutions)
        solved: Solution | None = driver.result
        values: tuple[float | None, ...] = (None, None, None)
        if solved is not None:
            effective, name = solved.value, f"{each}_{axis}"
            values = effective, mean / effective, float(of_phase.max()) / effective
            found.steps[name] = {"iterations": solved.iterations, "residual": solved.residual}
            found.profiles[name] = solved.profile
            map_name = f"{'flux' if each == 'diffusion' else 'speed'}_{axis}"
            found.maps[map_name] = solved.flux.reshape(volume.shape)
        names = zip(_VALUES[each], values, strict=False)
        found.totals.update({f"{name}_{axis}": value for name, value in names})
    return found


def _diffusion(
    backend: Backend, phase: UInt8s, *arguments: Any, periodic: bool
) -> Pass[Solution | None]:
    """Solve diffusion on a GPU that has room for it, and otherwise on the CPU."""
    solve = functools.partial(diffusion.solve_diffusion, phase, *arguments, periodic=periodic)
    if backend.is_cuda:
        free_pools()
        needed = diffusion.GPU_BYTES_A_VOID_VOXEL * np.count_nonzero(phase)
        if needed + diffusion.GPU_BYTES_A_VOXEL * phase.size < backend.free_memory():
            try:
                return (yield from solve(device=backend.device))
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
    return (yield from solve())


def transport_of_job(
    phase: UInt8s,
    conductivity: Sequence[float],
    volume: Volume,
    settings: Any,
    threads: KernelThreads,
    backend: Backend,
    stages: Stages,
    notes: list[Note],
    *,
    is_all_sample: bool,
    until: float,
) -> Generator[Event, Any, Transport | None]:
    """Solve transport as a stage of a job; None, with a warning, if it cannot be solved.

    `settings`: with ``transport`` and ``periodic_sides``. `is_all_sample`: whether no voxel is
    outside the sample.
    """
    if settings.transport == "none":
        return None
    found, problem, how = None, "", (phase, conductivity, volume, settings.transport)
    try:
        if not is_all_sample:
            raise InputError(
                "It runs from face to face of a volume that is all sample, and here air around the "
                "sample was excluded. Crop the scan to the sample."
            )
        notes.append(Note(f"Transport is solved in {check(*how) / 1e9:.2g} GB of memory."))
        yield notes[-1]
        solving = find_transport(*how, threads, backend, periodic=settings.periodic_sides)
        found = yield from stages.run("transport", solving, until)
        closed = sorted({name[-1] for name, value in found.totals.items() if value is None})[::-1]
        if closed:
            problem = (
                f"There is no transport along {', '.join(closed)}: nothing that conducts is "
                "connected from face to face there."
            )
    except (InputError, MemoryLimitError, NotSolvedError) as error:
        problem = f"Transport was not solved. {error}"
    if problem:
        notes.append(Note(problem, True, "result"))
        yield notes[-1]
    return found
