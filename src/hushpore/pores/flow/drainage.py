"""Drainage curves: how much of the void a non-wetting liquid enters at which pressure.

References
----------
E. W. Washburn (1921), "The dynamics of capillary flow", Physical Review 17, 273-283.
https://doi.org/10.1103/PhysRev.17.273
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hushpore.base.arrays import Float64s, Mask
    from hushpore.pores.flow.network import Network

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
