"""The network of pores and throats that flow is computed on, and what runs through it.

Each throat is two cones: from the radius of the largest ball in a pore, at its centre of mass, to
that of the throat, at its widest way through. Pores that reach a face of the volume open into it
by a tube of their own radius. Of a tube of radius r(s) the flow is the pressure drop over the
integral of ``8 mu / (pi r**4)``, the electrical or diffusive current that over the integral of
``1 / (pi r**2)``; of a cone both are known in closed form. Mass is conserved in each pore, and the
sparse system is solved by elimination, of large networks by conjugate gradients.

References
----------
M. J. Blunt, B. Bijeljic, H. Dong, O. Gharbi, S. Iglauer, P. Mostaghimi, A. Paluszny and C. Pentland
(2013), "Pore-scale imaging and modelling", Advances in Water Resources 51, 197-216.
https://doi.org/10.1016/j.advwatres.2012.03.003

J. T. Gostick (2017), "Versatile and efficient pore network extraction method using marker-based
watershed segmentation", Physical Review E 96, 023307. https://doi.org/10.1103/PhysRevE.96.023307
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hushpore.base.arrays import Array, Float64s, Int32s, Int64s, Mask
    from hushpore.base.volume import Volume


#: Pores up to which the system is solved by elimination, which takes a time that rises with their
#: square: 0.2 s for 20,000.
_DIRECT = 50_000

#: Residual, over that of a start from zero, at which conjugate gradients end, and their most steps.
_RESIDUAL, _STEPS = 1e-9, 20_000


class NotSolvedError(ArithmeticError):
    """The flow through a network was not found."""


@dataclass(frozen=True, eq=False)
class Network:
    """Pores, throats between them, and the pores that reach each face.

    Attributes
    ----------
    pore_diameter : numpy.ndarray
        (pores,), float64: of the largest ball in each.
    pore_volume : numpy.ndarray
        (pores,), float64.
    ends : numpy.ndarray
        (throats, 2), int64: indices of the two pores.
    throat_diameter : numpy.ndarray
        (throats,), float64: of the largest ball that passes.
    lengths : numpy.ndarray
        (throats, 2), float64: from the centre of each of the two pores to the throat.
    faces : numpy.ndarray
        (axes, 2, pores), bool: which pores reach the first and the last face along each axis.
    to_face : numpy.ndarray
        (axes, 2, pores), float64: distance of their centres from these faces.
    size : numpy.ndarray
        (axes,), float64: edges of the volume.
    """

    pore_diameter: Float64s
    pore_volume: Float64s
    ends: Int64s
    throat_diameter: Float64s
    lengths: Float64s
    faces: Mask
    to_face: Float64s
    size: Float64s

    @classmethod
    def of(
        cls, pores: Mapping[str, Array], throats: Mapping[str, Array], volume: Volume
    ) -> Network:
        """Return the network of a segmentation.

        Parameters
        ----------
        pores, throats : mapping of str to numpy.ndarray
            Columns of the tables; labels in ascending order.
        volume : Volume
            What was segmented, for shape, spacing and origin.

        Returns
        -------
        Network
            In the unit of the volume.
        """
        axes = "zyx"[-volume.n_spatial :]
        spacing, origin = np.asarray(volume.spacing), np.asarray(volume.origin)
        shape = np.asarray(volume.spatial_shape)
        centres = np.stack([pores[f"centroid_{axis}"] for axis in axes], axis=-1)
        at_throat = np.stack([throats[f"position_{axis}"] for axis in axes], axis=-1)
        ends = np.stack([throats["pore_1"], throats["pore_2"]], axis=-1)
        ends = np.searchsorted(pores["label"], ends)  # labels of corrected pores have gaps
        # a pore is never narrower than a way out of it, and of few voxels it has no ball
        volume_of = np.asarray(pores["volume"], np.float64)
        ball = np.asarray(pores["inscribed_diameter"], np.float64)
        of_ball = np.asarray(pores["equivalent_diameter"], np.float64)
        ball = np.where(np.isfinite(ball), ball, of_ball)
        throat = np.asarray(throats["inscribed_diameter"], np.float64)
        np.maximum.at(ball, ends, np.broadcast_to(throat[:, None], ends.shape))
        lengths = np.linalg.norm(centres[ends] - at_throat[:, None], axis=-1)
        from_start = (centres - origin + spacing / 2).T
        edge = (shape * spacing).astype(np.float64)
        low = np.stack([pores[f"bbox_{axis}_start"] == 0 for axis in axes])
        high = np.stack(
            [pores[f"bbox_{axis}_stop"] == end for axis, end in zip(axes, shape, strict=True)]
        )
        return cls(
            ball,
            volume_of,
            ends,
            throat,
            np.maximum(lengths, spacing.min() / 2),
            np.stack([low, high], axis=1),
            np.stack([from_start, edge[:, None] - from_start], axis=1),
            edge,
        )

    @property
    def count(self) -> int:
        """Number of pores."""
        return int(self.pore_diameter.size)

    def widened(self, by: float) -> Network:
        """Return the network with all diameters changed by a length; throats that close are lost.

        Parameters
        ----------
        by : float
            Added to the diameters of pores and throats; negative to narrow them.

        Returns
        -------
        Network
            With the same pores, of at least the diameter 0.
        """
        is_open = self.throat_diameter + by > 0
        return replace(
            self,
            pore_diameter=np.maximum(self.pore_diameter + by, 0.0),
            ends=self.ends[is_open],
            throat_diameter=self.throat_diameter[is_open] + by,
            lengths=self.lengths[is_open],
        )

    def conductances(self, *, hydraulic: bool) -> Float64s:
        """Return the conductance of each throat, two cones in a row.

        Parameters
        ----------
        hydraulic : bool
            Of a liquid of viscosity 1; else of a current, for conductivity 1.

        Returns
        -------
        numpy.ndarray
            (throats,), float64.
        """
        wide, narrow = self.pore_diameter[self.ends] / 2, self.throat_diameter[:, None] / 2
        # of a cone the integrals of 1 / r**4 and of 1 / r**2 over its length
        if hydraulic:
            squares = wide**2 + wide * narrow + narrow**2
            resistance = 8 * self.lengths * squares / (3 * np.pi * wide**3 * narrow**3)
        else:
            resistance = self.lengths / (np.pi * wide * narrow)
        conductance: Float64s = 1 / resistance.sum(axis=1)
        return conductance

    def face_conductances(self, axis: int, end: int, *, hydraulic: bool) -> Float64s:
        """Return the conductance from each pore to a face, 0 if it does not reach it (pores,)."""
        radius = self.pore_diameter / 2
        of_length = np.pi * radius**4 / 8 if hydraulic else np.pi * radius**2
        conductance: Float64s
        conductance = np.where(self.faces[axis, end], of_length / self.to_face[axis, end], 0.0)
        return conductance

    def conductance_along(self, axis: int, *, hydraulic: bool) -> float:
        """Return the flow through the network for a drop of 1 between two opposite faces.

        Parameters
        ----------
        axis : int
            Index of the axis.
        hydraulic : bool
            As for `conductances`.

        Returns
        -------
        float
            0 if nothing connects the faces.
        """
        from scipy import sparse
        from scipy.sparse.linalg import cg, splu

        link = self.conductances(hydraulic=hydraulic)
        inlet, outlet = (self.face_conductances(axis, end, hydraulic=hydraulic) for end in (0, 1))
        part = self._parts(np.ones(self.throat_diameter.size, np.bool_))
        through = np.intersect1d(part[inlet > 0], part[outlet > 0])
        used = np.flatnonzero(np.isin(part, through))
        if not used.size:
            return 0.0
        place = np.full(self.count, -1)
        place[used] = np.arange(used.size)
        a, b = place[self.ends].T
        inside = a >= 0
        a, b, link = a[inside], b[inside], link[inside]
        inlet, outlet = inlet[used], outlet[used]
        diagonal = inlet + outlet
        diagonal += np.bincount(a, link, used.size) + np.bincount(b, link, used.size)
        # scaled by its diagonal, to ones there: conductances go with the fourth power of widths
        scale = 1 / np.sqrt(diagonal)
        rows, columns = np.concatenate([a, b]), np.concatenate([b, a])
        values = -np.concatenate([link, link]) * scale[rows] * scale[columns]
        off = sparse.csc_array((values, (rows, columns)), (used.size, used.size))
        matrix = off + sparse.eye_array(used.size, format="csc")
        right = inlet * scale
        if used.size <= _DIRECT:
            order = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0}
            found = splu(matrix, **order, options={"SymmetricMode": True}).solve(right)
        else:
            found, unfinished = cg(matrix, right, rtol=_RESIDUAL, maxiter=_STEPS)
            if unfinished:
                raise NotSolvedError("The flow through the network did not converge.")
        return float((outlet * (found * scale)).sum())

    def _parts(self, is_used: Mask) -> Int32s:
        """Return the connected component of each pore, over the throats that are used (pores,)."""
        from scipy import sparse
        from scipy.sparse.csgraph import connected_components

        ends = self.ends[is_used]
        ones = np.ones(len(ends), np.int8)
        graph = sparse.coo_array((ones, tuple(ends.T)), (self.count, self.count))
        part: Int32s = connected_components(graph, directed=False)[1]
        return part

    def breakthrough(self, axis: int) -> Breakthrough:
        """Return the largest ball that passes from face to face, and the pores on its way.

        Parameters
        ----------
        axis : int
            Index of the axis.

        Returns
        -------
        Breakthrough
            With a diameter of 0 and no pores if nothing connects the faces.
        """
        low, high = self.faces[axis]
        both = np.flatnonzero(low & high)
        best = Breakthrough(0.0, np.zeros(0, np.int64))
        if both.size:
            widest = both[np.argmax(self.pore_diameter[both])]
            best = Breakthrough(float(self.pore_diameter[widest]), np.array([widest]))
        widths = np.unique(self.throat_diameter)
        first, last = 0, widths.size  # the widest that passes is before `last`
        while first < last:
            middle = (first + last) // 2
            part = self._parts(self.throat_diameter >= widths[middle])
            if np.intersect1d(part[low], part[high]).size:
                first = middle + 1
            else:
                last = middle
        if first and widths[first - 1] > best.diameter:
            width = float(widths[first - 1])
            best = Breakthrough(width, self._shortest_path(axis, width))
        return best

    def _shortest_path(self, axis: int, width: float) -> Int64s:
        """Return the pores on the shortest way through throats of at least a width."""
        from scipy import sparse
        from scipy.sparse.csgraph import dijkstra

        is_used = self.throat_diameter >= width
        low, high = (np.flatnonzero(each) for each in self.faces[axis])
        # a node before the first face and one behind the last
        source, sink = self.count, self.count + 1
        a, b = self.ends[is_used].T
        rows = np.concatenate([a, np.full(low.size, source), high])
        columns = np.concatenate([b, low, np.full(high.size, sink)])
        lengths = [
            self.lengths[is_used].sum(axis=1),
            self.to_face[axis, 0, low],
            self.to_face[axis, 1, high],
        ]
        graph = sparse.coo_array((np.concatenate(lengths), (rows, columns)), (sink + 1,) * 2)
        before = dijkstra(graph.tocsr(), directed=False, indices=source, return_predecessors=True)[
            1
        ]
        path = [int(before[sink])]
        while before[path[-1]] != source:
            path.append(int(before[path[-1]]))
        return np.array(path[::-1], np.int64)

    def access_diameters(self, sources: Mask) -> Float64s:
        """Return the largest diameter at which each pore is invaded from outside.

        A non-wetting liquid enters a pore through the widest of all ways, which is as wide as its
        narrowest throat; a pore at a face is entered as wide as it is.

        Parameters
        ----------
        sources : numpy.ndarray
            (pores,), bool: the pores at the faces that it comes from.

        Returns
        -------
        numpy.ndarray
            (pores,), float64; 0 for pores that it does not reach.
        """
        from scipy import sparse
        from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

        at_face, outside = np.flatnonzero(sources), self.count
        access = np.zeros(self.count + 1)
        if not at_face.size:
            return access[:-1]
        rows = np.concatenate([self.ends[:, 0], at_face])
        columns = np.concatenate([self.ends[:, 1], np.full(at_face.size, outside)])
        width = np.concatenate([self.throat_diameter, self.pore_diameter[at_face]])
        # a tree of the widest ways; weights must not be 0
        graph = sparse.coo_array((-width, (rows, columns)), (outside + 1,) * 2).tocsr()
        tree = minimum_spanning_tree(graph)
        tree = (tree + tree.T).tocsr()
        order, before = breadth_first_order(tree, outside, directed=False)
        access[outside] = np.inf
        step = -np.asarray(tree[order[1:], before[order[1:]]]).ravel()
        for node, parent, wide in zip(order[1:], before[order[1:]], step, strict=True):
            access[node] = min(access[parent], wide)
        return access[:-1]


class Breakthrough(NamedTuple):
    """The largest ball that passes from face to face."""

    diameter: float
    path: Int64s  # indices of the pores on its way, from the first face to the last


def path_columns(
    network: Network, pores: Mapping[str, Array], volume: Volume
) -> dict[str, list[Any]]:
    """Return the paths of the largest balls that pass from face to face, as columns of a table.

    Parameters
    ----------
    network : Network
        Of a volume that is all sample.
    pores : mapping of str to numpy.ndarray
        Columns of the table of pores.
    volume : Volume
        What was segmented.

    Returns
    -------
    dict of str to list
        A row for each point of a path, in order: ``axis`` (``"z"``, ``"y"``, ``"x"``; without an
        axis along which nothing passes), ``diameter`` of the ball, ``pore`` (label; 0 at the
        faces, where a path starts and ends), ``position_z`` and so on: centroids of the pores, in
        the unit of the volume.
    """
    axes = "zyx"[-volume.n_spatial :]
    spacing, origin = np.asarray(volume.spacing), np.asarray(volume.origin)
    low = origin - spacing / 2
    columns: dict[str, list[Any]] = {
        name: [] for name in ("axis", "diameter", "pore", *(f"position_{axis}" for axis in axes))
    }
    for place, axis in enumerate(axes):
        found = network.breakthrough(place)
        if not found.path.size:
            continue
        centres = np.stack([pores[f"centroid_{each}"][found.path] for each in axes], axis=-1)
        ends = centres[[0, -1]].copy()
        ends[:, place] = low[place], low[place] + network.size[place]
        points = np.concatenate([ends[:1], centres, ends[1:]])
        columns["axis"] += [axis] * len(points)
        columns["diameter"] += [found.diameter] * len(points)
        columns["pore"] += [0, *(int(each) for each in pores["label"][found.path]), 0]
        for number, each in enumerate(axes):
            columns[f"position_{each}"] += points[:, number].tolist()
    return columns


def permeability(network: Network, axis: int) -> float:
    """Return the permeability of the volume along an axis, by Darcy's law.

    Parameters
    ----------
    network : Network
        Of a 3D volume that is all sample.
    axis : int
        Index of the axis.

    Returns
    -------
    float
        In the unit of length squared; 0 if nothing connects the faces.
    """
    area = network.size.prod() / network.size[axis]
    return float(network.conductance_along(axis, hydraulic=True) * network.size[axis] / area)


def formation_factor(network: Network, axis: int) -> float:
    """Return the formation factor along an axis: resistance over that of a volume of void alone.

    Parameters
    ----------
    network : Network
        Of a 3D volume that is all sample.
    axis : int
        Index of the axis.

    Returns
    -------
    float
        At least 1; infinite if nothing connects the faces.
    """
    area = network.size.prod() / network.size[axis]
    conductance = network.conductance_along(axis, hydraulic=False)
    return float(area / (conductance * network.size[axis])) if conductance else float("inf")


#: Surface tension of mercury, N/m, and its contact angle, degrees: usual values of porosimetry.
MERCURY_TENSION, MERCURY_ANGLE = 0.485, 140.0


def capillary_pressure(
    diameter: float, tension: float = MERCURY_TENSION, angle: float = MERCURY_ANGLE
) -> float:
    """Return the pressure at which a liquid enters a round throat, by Washburn's equation.

    Parameters
    ----------
    diameter : float
        Of the throat, in metres.
    tension : float
        Surface tension in N/m; by default that of mercury.
    angle : float
        Contact angle in degrees, above 90 for a liquid that does not wet.

    Returns
    -------
    float
        In pascal.

    Examples
    --------
    Mercury enters a throat of 1 um at 1.49 MPa:

    >>> round(capillary_pressure(1e-6) / 1e6, 2)
    1.49
    """
    return -4 * tension * math.cos(math.radians(angle)) / diameter


def drainage_columns(network: Network, metres: float | None) -> dict[str, Float64s]:
    """Return the drainage curve of a network as the columns of a table, ``drainage.csv``.

    Parameters
    ----------
    network : Network
        Of a volume that is all sample.
    metres : float, optional
        Of its unit of length; None if that is not known.

    Returns
    -------
    dict of str to numpy.ndarray
        ``diameter``, falling; ``mercury_pressure`` (Pa), if the unit is known; ``saturation``, the
        share of the volume of all pores that is entered from all faces; and ``saturation_z``,
        ``_y``, ``_x``, from the first face along that axis. Each change has a row.
    """
    axes = "zyx"[-len(network.size) :]
    sources: dict[str, Mask]
    sources = {"saturation": np.logical_or.reduce(network.faces, axis=(0, 1))}
    sources |= {f"saturation_{axis}": network.faces[k, 0] for k, axis in enumerate(axes)}
    access = {name: network.access_diameters(at) for name, at in sources.items()}
    widths = np.unique(np.concatenate(list(access.values())))[::-1]
    widths = widths[widths > 0]
    total = network.pore_volume.sum() or 1.0
    found = {"diameter": widths}
    if metres is not None:
        found["mercury_pressure"] = np.array([capillary_pressure(d * metres) for d in widths])
    for name, own in access.items():
        order = np.argsort(-own, kind="stable")
        entered = np.concatenate([[0.0], np.cumsum(network.pore_volume[order])])
        found[name] = entered[np.searchsorted(-own[order], -widths, side="right")] / total
    return found


def threshold_diameter(
    curve: dict[str, Float64s], saturation: float = 0.5, column: str = "saturation"
) -> float:
    """Return the throat diameter at which a share of the void is entered; NaN if none is.

    Parameters
    ----------
    curve : dict of str to numpy.ndarray
        As `drainage_columns` returns it.
    saturation : float
        The share.
    column : str
        Which curve.

    Returns
    -------
    float
        In the unit of the curve.
    """
    reached = np.flatnonzero(curve[column] >= saturation)
    return float(curve["diameter"][reached[0]]) if reached.size else float("nan")
