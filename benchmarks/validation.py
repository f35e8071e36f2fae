"""Real images with a published number: what hushpore gives by default, and what peers give.

With a folder of images (``--images``), which are not in the repository because their licences
differ: fiberform.tif (nasa/puma), soil.npz (EMSL-Computing/Pore2Chip), weave.npz (nasa/puma),
bone.tif, cement.tif and fibers.tif (qim3d), leopard.npz (porespy), berea110.npz (dpm_tools),
electrode.npz (taufactor), stokes.npz (LukasMosser/PorousMediaGan) and lcd_ct.npz (DIDSR/LCD_CT).
``python docs/validation.py`` then writes the tables of docs/validation.md.

Peers are run if they are installed: PoreSpy, localthickness, and quantimpy, which is built for an
earlier NumPy and runs in the Python that ``QUANTIMPY_PYTHON`` names.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tifffile
from scipy import ndimage

import hushpore
from benchmarks._missing import require_files
from benchmarks.flow_peers import network_of
from benchmarks.pores import CPU
from hushpore.pores.flow import formation_factor, permeability

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    Mask = npt.NDArray[np.bool_]

#: Training steps of each image, and the circle in which it is judged, in pixels.
STEPS, RADIUS = 400, 90
DOSES = ("010", "055", "100")
#: Published values; see docs/validation.md for who published them.
POROSITY = {"carbon fibre preform": 0.83286, "soil": 0.43067}
PREFORM = {"effective diffusivity": 0.63415, "tortuosity factor": 1.31335}
PORES_BY_SNOW = {"pores": 73, "throats": 122}
TORTUOSITY = {"z": 2.0776, "y": 2.0766}
FBP, TRAINED = (71.0, 30.1, 22.4), (66.2, 26.3, 18.9)  # HU
#: What the Python of quantimpy runs: its surface is an eighth, its Euler number 3 / (4 pi). Around
#: the volume it counts nothing, so void that reaches the faces has no surface there; padded, it
#: has, and its voxels and its Euler number are whole.
QUANTIMPY = """
import math, sys, numpy, quantimpy.minkowski as minkowski
void = numpy.load(sys.argv[1])
volume, _, _, euler = minkowski.functionals(numpy.pad(void, 1))
print(volume, 8 * minkowski.functionals(void)[1], euler * 4 * math.pi / 3)
"""


def packed(file: Path, shape: tuple[int, ...] = ()) -> Mask:
    """Return the void of a file whose bits are packed."""
    with np.load(file) as kept:
        shape = shape or tuple(kept["shape"])
        return np.unpackbits(kept["void"], count=int(np.prod(shape))).reshape(shape).astype(bool)


def porosities(images: Path) -> dict[str, Any]:
    """Segment all grey scans by default, with intervals, and by Otsu's threshold."""
    with np.load(images / "soil.npz") as soil, np.load(images / "weave.npz") as weave:
        scans = {
            "carbon fibre preform": tifffile.imread(images / "fiberform.tif"),
            "soil": np.ascontiguousarray(soil["scan"][:100, :100, :100]),
            "soil, larger piece": soil["scan"],
            "woven composite": weave["scan"],
            "bone": tifffile.imread(images / "bone.tif"),
            "cement": tifffile.imread(images / "cement.tif"),
            "fibres": tifffile.imread(images / "fibers.tif"),
        }
        published = {**POROSITY, "woven composite": float((weave["tag"] == 0).mean())}
    found = {}
    for name, scan in scans.items():
        result = hushpore.segment_pores(scan, intervals=True, device=CPU)
        totals = result.provenance["result"]
        otsu = hushpore.segment_pores(scan, threshold="otsu", device=CPU)
        whole = hushpore.segment_pores(scan, exterior="keep", device=CPU)
        found[name] = {
            "published": published.get(name),
            "hushpore": result.porosity,
            "interval": [totals["porosity_low"], totals["porosity_high"]],
            "Otsu": otsu.porosity,
            "exterior air counted": whole.porosity,
            "first remark is a warning": bool(result.remarks and result.remarks[0].warning),
        }
    return found


def counts(images: Path) -> dict[str, Any]:
    """Count the pores of Leopard sandstone."""
    void = packed(images / "leopard.npz")
    found: dict[str, Any] = {"published": PORES_BY_SNOW}
    for name, merging in (("hushpore", "height"), ("hushpore, merging=snow", "snow")):
        result = hushpore.segment_pores(void, merging=merging, exterior="keep", device=CPU)
        found[name] = {"pores": len(result.pores), "throats": len(result.throats)}
    if find_spec("porespy"):
        import porespy

        porespy.settings.tqdm = {"disable": True}
        network = porespy.networks.snow2(void, boundary_width=0).network
        found["PoreSpy"] = {
            "pores": len(network["pore.all"]), "throats": len(network["throat.all"]),
        }  # fmt: skip
    return found


def topology(images: Path) -> dict[str, Any]:
    """Measure volume, surface and Euler number, also by quantimpy."""
    voids = {
        "Berea sandstone": packed(images / "berea110.npz", (110,) * 3),
        "Leopard sandstone": packed(images / "leopard.npz"),
    }
    found: dict[str, Any] = {}
    for name, void in voids.items():
        result = hushpore.segment_pores(void, exterior="keep", device=CPU)
        totals = result.provenance["result"]
        found[name] = {
            "hushpore": {
                "volume": int(np.count_nonzero(result.labels)),
                "surface": totals["specific_surface"] * void.size,
                "Euler number": totals["euler_number"],
            }
        }
        python = os.environ.get("QUANTIMPY_PYTHON")
        if python:
            with tempfile.TemporaryDirectory() as folder:
                np.save(file := Path(folder) / "void.npy", void)
                words = subprocess.check_output([python, "-c", QUANTIMPY, str(file)], text=True)
            values = map(float, words.split())
            names = ("volume", "surface", "Euler number")
            found[name]["quantimpy"] = dict(zip(names, values, strict=True))
    return found


def covered(void: Mask) -> float:
    """Return the mean diameter of the largest ball that covers each voxel, ball size by ball size.

    Radii are distances to the centre of the nearest voxel of solid, in steps of half a voxel.
    """
    distance = ndimage.distance_transform_edt(void)
    radius = np.zeros(void.shape)
    for least in np.arange(0.5, distance.max() + 0.5, 0.5):
        centres = distance >= least
        if centres.any():
            radius[ndimage.distance_transform_edt(~centres) < least] = least
    # a radius lies half a step above its class on average
    return float(2 * (radius[void].mean() + 0.25))


def thicknesses(images: Path) -> dict[str, Any]:
    """Measure the mean local thickness of the void, also by localthickness; voxels."""
    voids = {
        "Leopard sandstone": packed(images / "leopard.npz"),
        "bone, its solid": tifffile.imread(images / "bone.tif") > 120,
        "carbon fibre preform": tifffile.imread(images / "fiberform.tif") <= 89,
    }
    found: dict[str, Any] = {}
    for name, void in voids.items():
        how = {"local_thickness": "void", "exterior": "keep", "device": CPU}
        result = hushpore.segment_pores(void, minimum_voxels=1, **how)
        found[name] = {
            "hushpore": result.provenance["result"]["void_thickness"],
            "covering balls": covered(void),
        }
        if find_spec("localthickness"):
            import localthickness

            # it gives radii
            thickness = 2 * localthickness.local_thickness(void)
            found[name]["localthickness"] = float(thickness[void].mean())
    return found


def transport(images: Path) -> dict[str, Any]:
    """Solve diffusion in the preform and the electrode, also in their networks."""
    solid = tifffile.imread(images / "fiberform.tif")
    by_default = hushpore.segment_pores(solid, device=CPU).labels > 0
    found: dict[str, Any] = {}
    for name, void in (
        ("carbon fibre preform, published threshold", solid <= 89),
        ("carbon fibre preform, default threshold", by_default),
    ):
        totals = hushpore.transport(void).totals
        found[name] = {
            "published": PREFORM,
            "hushpore": {
                "effective diffusivity": totals["effective_diffusivity_x"],
                "tortuosity factor": totals["voxel_tortuosity_factor_x"],
            },
            "network": {
                "tortuosity factor": float(void.mean()) * formation_factor(network_of(void), 2)
            },
        }
    with np.load(images / "electrode.npz") as kept:
        void = kept["phases"] == 0
    totals, network = hushpore.transport(void).totals, network_of(void)
    found["electrode"] = {
        "published": TORTUOSITY,
        "hushpore": {axis: totals[f"voxel_tortuosity_factor_{axis}"] for axis in TORTUOSITY},
        "network": {
            axis: float(void.mean()) * formation_factor(network, "zyx".index(axis))
            for axis in TORTUOSITY
        },
    }
    return found


def rocks(images: Path) -> dict[str, Any]:
    """Compare networks with published Stokes flow, and with formation factors of the voxels.

    Flow in the voxels is compared by the benchmark ``stokes``.
    """
    with np.load(images / "stokes.npz") as kept:
        shape, names, published = kept["shape"], kept["rock"], kept["k"]
        voids = np.unpackbits(kept["void"], count=int(np.prod(shape))).reshape(shape).astype(bool)
    ratios: dict[str, dict[str, list[float]]] = {str(each): {} for each in np.unique(names)}
    for void, rock, expected in zip(voids, names, published, strict=True):
        network, totals = network_of(void), hushpore.transport(void).totals
        for axis, of_stokes in enumerate(expected):
            factor = totals[f"voxel_formation_factor_{'zyx'[axis]}"]
            for what, ratio in (
                ("permeability, network over published", permeability(network, axis) / of_stokes),
                ("formation factor, network over voxels",
                 formation_factor(network, axis) / factor),
            ):  # fmt: skip
                ratios[str(rock)].setdefault(what, []).append(float(ratio))
    return {
        rock: {
            what: {
                "median": float(np.median(values)),
                "range": [min(values), max(values)],
                "figures": len(values),
            }
            for what, values in own.items()
        }
        for rock, own in ratios.items()
    }


def phases(images: Path) -> dict[str, Any]:
    """Separate the three phases of the woven composite by default."""
    with np.load(images / "weave.npz") as kept:
        scan, tag = kept["scan"], kept["tag"]
    labels = hushpore.measure_phases(scan, phases=3, exterior="keep", device=CPU).labels
    return {
        "published": (np.bincount(tag.ravel()) / tag.size).tolist(),
        "hushpore": (np.bincount(labels.ravel(), minlength=4)[1:] / labels.size).tolist(),
        "voxels of the same phase": float((labels == tag + 1).mean()),
    }


def denoised(images: Path) -> dict[str, Any]:
    """Denoise one slice at each dose; root mean square errors in HU."""
    with np.load(images / "lcd_ct.npz") as kept:
        truth = kept["truth"]
        noisy = {dose: kept[f"fbp_{dose}"][0].astype(np.float32) for dose in DOSES}
    y, x = np.ogrid[tuple(slice(0, n) for n in truth.shape)]
    inside = (y - truth.shape[0] / 2) ** 2 + (x - truth.shape[1] / 2) ** 2 < RADIUS**2
    found = {}
    for dose, before, trained in zip(DOSES, FBP, TRAINED, strict=True):
        image = hushpore.denoise(noisy[dose], steps=STEPS, seed=0, device=CPU).volume.array()
        error = float(np.sqrt(np.mean((image - truth)[inside] ** 2)))
        found[dose] = {"published, FBP": before, "published, trained": trained, "hushpore": error}
    return found


def measure(images: Path = Path("images")) -> Iterator[dict[str, Any]]:
    """Run all of it; some twenty minutes."""
    require_files(images, "fiberform.tif", "see the module for where each image comes from")
    found: dict[str, Any] = {}
    for name, work in {
        "porosity": porosities,
        "pores and throats of Leopard sandstone": counts,
        "volume, surface and Euler number": topology,
        "mean local thickness": thicknesses,
        "phases of the woven composite": phases,
        "diffusion": transport,
        "rocks": rocks,
        "error of denoised slices": denoised,
    }.items():
        found[name] = work(images)
        yield found
