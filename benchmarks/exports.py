"""What other programs read of an export: the pores of Berea sandstone in OpenPNM and in VTK.

Needs the packages of the dependency group ``peers``: ``pip install --group peers``.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import hushpore
from benchmarks.pores import berea
from hushpore.base.errors import MissingPackageError


def measure() -> dict[str, object]:
    """Figures of ours, and the same as OpenPNM and the readers of VTK see them."""
    try:
        import openpnm
        import vtk
        from vtk.util.numpy_support import vtk_to_numpy
    except ImportError as error:
        raise MissingPackageError(f"{error}: pip install --group peers") from error
    found = hushpore.segment_pores(_berea())
    volume = found.volume.voxel_size * found.volume.data.size
    with tempfile.TemporaryDirectory() as scratch:
        network, sample = Path(scratch) / "berea.npz", Path(scratch) / "berea"
        hushpore.export(found, network)
        hushpore.export(found, sample, "vtk")
        net = openpnm.io.network_from_porespy(dict(np.load(network)))
        labels = _read(vtk.vtkXMLImageDataReader(), sample.with_suffix(".vti"))
        lines = _read(vtk.vtkXMLPolyDataReader(), sample.with_suffix(".vtp"))
        voxels = vtk_to_numpy(labels.GetCellData().GetArray("label"))
    pores = found.pores
    health = openpnm.utils.check_network_health(net)
    return {
        "hushpore": {
            "porosity": found.porosity,
            "pores": len(pores),
            "throats": len(found.throats),
        },
        "openpnm": {
            "version": openpnm.__version__,
            "porosity": float(net["pore.volume"].sum() / (volume * 1e-18)),
            "pores": int(net.Np),
            "throats": int(net.Nt),
            "problems in the network": {
                name: len(where) for name, where in health.items()
                if name in ("headless_throats", "looped_throats", "duplicate_throats")
            },
        },
        "vtk": {
            "version": vtk.VTK_VERSION,
            "porosity": float((voxels > 0).mean()),
            "pores": int(voxels.max()),
            "points": lines.GetNumberOfPoints(),
            "lines": lines.GetNumberOfLines(),
        },
    }  # fmt: skip


def _berea() -> hushpore.Volume:
    return hushpore.Volume(berea(), spacing=5.345, unit="um", name="Berea")


def _read(reader: object, path: Path) -> object:
    reader.SetFileName(str(path))
    reader.Update()
    return reader.GetOutput()
