"""Flow through the pore network against OpenPNM, and drainage against PoreSpy.

Permeability and formation factor of ten artificial rocks are solved by OpenPNM too, on the same
network, with the conductances of its own model of cones over the same lengths. Drainage from the
first face is compared with the image-based porosimetry of PoreSpy, which inserts balls into the
image, at all radii of whole voxels: in three artificial rocks and in Berea sandstone. Seconds are
of processor time; the segmentation that gives the network has its own.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
from scipy import ndimage
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

import hushpore
from benchmarks._missing import require_package
from benchmarks.pores import CPU, berea
from hushpore import Volume
from hushpore.pores.flow import Network, drainage_columns, formation_factor, permeability

if TYPE_CHECKING:
    from collections.abc import Callable

EDGE, SMOOTHING = 100, 3.0  # voxels
POROSITIES = (0.25, 0.3, 0.35)
ROCKS = 10
PORES = 20_000
NOTHING = 1e-12  # length of a part of a throat that is not there, voxels


def rock(porosity: float, seed: int) -> np.ndarray:
    """Return the void of an artificial rock: smooth noise above a threshold."""
    noise = np.random.default_rng(seed).normal(size=(EDGE,) * 3)
    smooth = ndimage.gaussian_filter(noise, SMOOTHING, mode="wrap")
    void: np.ndarray = smooth > np.quantile(smooth, 1 - porosity)
    return void


def network_of(void: np.ndarray) -> Network:
    """Segment pores and return their network, in voxels."""
    volume = Volume(void)
    found = hushpore.segment_pores(void, exterior="keep", device=CPU)
    columns = [
        {name: table[name].to_numpy() for name in table} for table in (found.pores, found.throats)
    ]
    return Network.of(*columns, volume)


def openpnm_conductance(network: Network, axis: int, *, hydraulic: bool) -> float:
    """Return the flow through a network for a drop of 1 between two faces, by OpenPNM."""
    import openpnm

    low, high = (np.flatnonzero(each) for each in network.faces[axis])
    # each opening at a face is a pore behind a tube as wide as the pore that it opens into
    openings = np.arange(low.size + high.size) + network.count
    behind = np.concatenate([low, high])
    conns = np.concatenate([network.ends, np.stack([behind, openings], axis=1)])
    pore = np.concatenate([network.pore_diameter, network.pore_diameter[behind]])
    throat = np.concatenate([network.throat_diameter, network.pore_diameter[behind]])
    tube = np.concatenate([network.to_face[axis, 0, low], network.to_face[axis, 1, high]])
    lengths = np.concatenate([network.lengths, np.stack([tube, np.full_like(tube, NOTHING)], 1)])
    inlet, outlet = openings[: low.size], openings[low.size :]

    graph = coo_array((np.ones(len(conns)), tuple(conns.T)), (pore.size,) * 2)
    part = connected_components(graph, directed=False)[1]
    used = np.isin(part, np.intersect1d(part[inlet], part[outlet]))  # OpenPNM needs all connected
    if not used.any():
        return 0.0
    place = np.cumsum(used) - 1
    kept = used[conns[:, 0]]
    conns = place[conns[kept]]
    net = openpnm.network.Network(conns=conns, coords=np.zeros((used.sum(), 3)))
    net["pore.diameter"], net["throat.diameter"] = pore[used], throat[kept]
    parts = np.insert(lengths[kept], 1, NOTHING, axis=1)

    from openpnm.models.geometry import (
        conduit_lengths,
        diffusive_size_factors,
        hydraulic_size_factors,
    )

    factors = hydraulic_size_factors if hydraulic else diffusive_size_factors
    with mock.patch.object(conduit_lengths, "cones_and_cylinders", return_value=parts):
        size = factors.cones_and_cylinders(net)
    phase = openpnm.phase.Phase(network=net)
    kind = "hydraulic" if hydraulic else "diffusive"
    phase[f"throat.{kind}_conductance"] = 1 / (1 / size).sum(axis=1)
    algorithm = openpnm.algorithms.StokesFlow if hydraulic else openpnm.algorithms.FickianDiffusion
    flow = algorithm(network=net, phase=phase)
    inlet, outlet = (place[each[used[each]]] for each in (inlet, outlet))
    flow.set_value_BC(pores=inlet, values=1.0)
    flow.set_value_BC(pores=outlet, values=0.0)
    flow.run()
    return float(abs(flow.rate(pores=outlet)[0]))


def _over_own_lengths(network: Network) -> np.ndarray:
    """Return the conductance of each throat over that of OpenPNM with a straight section in it."""
    import openpnm
    from openpnm.models.geometry.hydraulic_size_factors import cones_and_cylinders

    net = openpnm.network.Network(conns=network.ends, coords=network.to_face[:, 0].T)
    net["pore.diameter"], net["throat.diameter"] = network.pore_diameter, network.throat_diameter
    ratio: np.ndarray = network.conductances(hydraulic=True) * (1 / cones_and_cylinders(net)).sum(1)
    return ratio


def against_openpnm() -> dict[str, Any]:
    """Compare permeability and formation factor along all axes; differences are relative."""
    figures: dict[str, Any] = {}
    for number in range(ROCKS):
        porosity = POROSITIES[number % len(POROSITIES)]
        network = network_of(rock(porosity, number))
        differences, seconds = {}, [0.0, 0.0]
        for name, own, hydraulic in (
            ("permeability", permeability, True),
            ("formation factor", formation_factor, False),
        ):
            worst = 0.0
            for axis, length in enumerate(network.size):
                value, used = _timed(own, network, axis)
                peers, its = _timed(openpnm_conductance, network, axis, hydraulic=hydraulic)
                seconds = [seconds[0] + used, seconds[1] + its]
                scale = length**2 / network.size.prod()
                expected = peers * scale if hydraulic else 1 / (peers * scale)
                worst = max(worst, abs(value / expected - 1))
            differences[f"largest difference of {name}"] = float(f"{worst:.1e}")
        figures[f"rock {number + 1}"] = {
            "porosity, %": round(100 * porosity),
            "pores": network.count,
            "throats": len(network.ends),
            **differences,
            "conductance over that of OpenPNM's own lengths, median throat": round(
                float(np.median(_over_own_lengths(network))), 2
            ),
            "hushpore, cpu s": round(seconds[0], 3),
            "OpenPNM, cpu s": round(seconds[1], 3),
        }
    return figures


def against_porespy() -> dict[str, Any]:
    """Compare the saturation from the first face at the radii of PoreSpy."""
    import porespy

    porespy.settings.tqdm = {"disable": True}
    rocks = {f"artificial rock {100 * each:.0f} %": rock(each, 0) for each in POROSITIES}
    rocks["Berea sandstone"] = berea()
    figures = {}
    small = rock(0.5, 0)[:20]
    porespy.filters.porosimetry(small, inlets=np.ones_like(small), sizes=[1, 2])  # compiles it
    for name, void in rocks.items():
        network, cut = _timed(network_of, void)
        curve, own = _timed(drainage_columns, network, None)
        inlets = np.zeros_like(void)
        inlets[0] = True
        radii = np.arange(1, int(ndimage.distance_transform_edt(void).max()) + 1)
        entered, its = _timed(porespy.filters.porosimetry, void, inlets=inlets, sizes=radii[::-1])
        expected = np.array([(entered[void] >= radius).mean() for radius in radii])
        # of the narrowest throats that are at least as wide, the last row of a falling column
        row = np.searchsorted(-curve["diameter"], -2 * radii, side="right") - 1
        found = np.where(row >= 0, curve["saturation_z"][row], 0.0)
        figures[name] = {
            "porosity, %": round(100 * float(void.mean()), 1),
            "pores": network.count,
            "radii": radii.size,
            "difference of saturation (root mean square)": round(
                float(np.sqrt(np.mean((found - expected) ** 2))), 3
            ),
            "segmentation of hushpore, cpu s": round(cut, 2),
            "drainage of hushpore, cpu s": round(own, 3),
            "porosimetry of PoreSpy, cpu s": round(its, 2),
        }
    return figures


def cost() -> dict[str, Any]:
    """Time everything that the form of rock computes on a large random network."""
    rng = np.random.default_rng(0)
    size = np.full(3, 10 * PORES ** (1 / 3))
    places = rng.uniform(0, size[0], (PORES, 3))
    apart, near = cKDTree(places).query(places, k=4)
    ends = np.stack([np.repeat(np.arange(PORES), 3), near[:, 1:].ravel()], axis=1)
    ends, first = np.unique(np.sort(ends, axis=1), axis=0, return_index=True)
    pore = rng.uniform(3, 8, PORES)
    throat = pore[ends].min(axis=1) * rng.uniform(0.1, 0.9, len(ends))
    lengths = np.repeat(apart[:, 1:].ravel()[first, None] / 2, 2, axis=1)
    to_face = np.stack([places.T, (size[:, None] - places.T)], axis=1)
    network = Network(pore, pore**3, ends, throat, lengths, to_face < 10, to_face, size)

    def everything() -> None:
        for axis in range(3):
            permeability(network, axis)
            formation_factor(network, axis)
            network.breakthrough(axis)
        drainage_columns(network, None)

    return {
        "pores": network.count,
        "throats": len(ends),
        "permeability, formation factor, breakthrough and drainage, cpu s": round(
            _timed(everything)[1], 2
        ),
    }


def _timed(work: Callable[..., Any], *given: Any, **options: Any) -> tuple[Any, float]:
    """Return a result and the processor time that it took, of all threads."""
    start = time.process_time()
    return work(*given, **options), time.process_time() - start


def measure() -> dict[str, Any]:
    """Run all of it; about a minute."""
    for package in ("openpnm", "porespy"):
        require_package(package, "pip install --group bench --group peers")
    network_of(rock(POROSITIES[0], 0))  # compiles the kernels
    return {"OpenPNM": against_openpnm(), "PoreSpy": against_porespy(), "cost": cost()}
