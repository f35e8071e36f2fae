"""Compilation of the kernels by several processes at once, if the disk cache is empty.

Numba compiles on one core, whatever the number of threads. Compiling all kernels takes 10 s of a
core and is divided into three independent parts, each of which calls the functions of a stage with
a few voxels. Other processes compile some of the parts into the disk cache, from which the warm-up
of this process loads them. If such a process cannot start or fails, the warm-up compiles the
missing kernels.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hushpore.base.volume import Volume
from hushpore.device.backend import cpu_threads
from hushpore.pores.parallel import KernelThreads, is_on_disk
from hushpore.pores.slabs import Slabs
from hushpore.pores.tables.measures import pore_columns, throat_columns
from hushpore.pores.topology import euler_of_slab
from hushpore.pores.void.components import OPEN, Components, find_runs
from hushpore.pores.watershed.basins import apply_labels, watershed_slab
from hushpore.pores.watershed.distance import carry, edge_plane, squared_distance
from hushpore.pores.watershed.graph import Tables
from hushpore.pores.watershed.merging import _merge, find_overlapping, merge_by_height, number_pores

if TYPE_CHECKING:
    from collections.abc import Generator

#: Shape of the test volume: rows long enough for more edges than the table of edges first holds.
_SHAPE = (6, 8, 78)

#: Seconds between two checks whether the other processes are done.
_LOOK = 0.05


def compile_void() -> None:
    """Compile the kernels of the connected components of the void and of the distance map."""
    void = np.random.default_rng(0).random(_SHAPE) < 0.5
    slabs = Slabs(len(void), 3)
    no_walls = (False, False, False)
    with KernelThreads(1) as threads:
        components = Components((True, True, True), slabs)
        for first, last in slabs:
            components.add(find_runs(void[first:last], threads))
        components.join()
        phase_of = np.full(components.voxels.size, OPEN + 1, np.uint8)
        squared_distance(void, (1.0, 1.0, 1.0), no_walls, threads)
        edge = edge_plane(void.shape, solid_outside=False)
        carry(void.view(np.uint8), edge, threads)
        components.paint(0, void[:3].view(np.uint8), phase_of, threads)


def compile_basins(faces_only: bool) -> None:
    """Compile the kernels that find basins and write labels."""
    heights = np.random.default_rng(0).random(_SHAPE).astype(np.float32)
    basins = np.empty(_SHAPE, np.int32)
    with KernelThreads(1) as threads:
        where = heights, basins, threads, 0, len(heights)
        found = watershed_slab(*where, faces_only=faces_only)
        apply_labels(basins, np.zeros(found.peaks.size + 1, np.int32), threads)


def compile_tables(faces_only: bool) -> None:
    """Compile the kernels that measure and merge basins and make the tables."""
    # each voxel a basin of its own
    basins = np.arange(1, np.prod(_SHAPE) + 1, dtype=np.int32).reshape(_SHAPE)
    volume = Volume(np.ones(_SHAPE, np.bool_))
    with KernelThreads(1) as threads:
        tables = Tables(_SHAPE, np.arange(basins.size))
        tables.add(basins, np.ones(_SHAPE, np.float32), threads)
        graph = tables.graph()
        ends = graph.peak, graph.peak_squared_distance, graph.a, graph.b
        near = find_overlapping(*ends, _SHAPE, volume.spacing)
        numbering = number_pores(graph, merge_by_height(graph, 0.5, near), 1, None)
        pore_columns(graph, numbering, volume, throat_columns(graph, numbering, volume), 1)
        euler_of_slab(basins, len(basins), threads, faces_only)


def compile_beside(faces_only: bool) -> Generator[None, None, None]:
    """Compile all kernels, unless they are in the disk cache, by up to three processes.

    `faces_only`: whether voxels are connected through faces only. Yields while it waits for the
    other processes; closing the generator ends them.
    """
    is_python = Path(sys.executable or "").stem.startswith("python")
    if cpu_threads() < 2 or not is_python or is_on_disk(_merge):
        return
    parts = (compile_tables, compile_basins)
    others = [_begin(part.__name__, faces_only) for part in parts[: cpu_threads() - 1]]
    try:
        yield
        compile_void()
        yield
        for part in parts[len(others) :]:
            part(faces_only)
        while any(each.poll() is None for each in others):
            time.sleep(_LOOK)
            yield
    finally:
        for each in others:
            each.terminate()
            each.wait()


def _begin(part: str, faces_only: bool) -> subprocess.Popen[bytes]:
    """Start a process that compiles one part of the kernels."""
    code = f"from hushpore.pores.compiling import {part}; {part}({faces_only})"
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # keep Windows from opening a console window
        creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
    )
