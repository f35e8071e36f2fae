"""Demonstration: from a noisy phantom to a pore table, compared with the true pores."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from hushpore.cli.flags import in_flags
from hushpore.cli.terminal import drive, echo, echo_result
from hushpore.io import read
from hushpore.io.dicom import write_series
from hushpore.io.output_target import require_apart
from hushpore.io.results import check_target
from hushpore.jobs import start
from hushpore.runs.result_folder import write_result
from hushpore.sample_data import foam_phantom

if TYPE_CHECKING:
    from hushpore.base.volume import Volume
    from hushpore.sample_data.phantom import Phantom


def run_demo(
    path: str | None, folder: Path, overwrite: bool, time_budget: float, device: str
) -> None:
    """Denoise and segment the phantom, or a stack of the user, and print the results.

    `path`: the user's stack; None for the phantom, which is written as a DICOM series and read
    back. `device`: as for `hushpore.denoise`.
    """
    require_apart([check_target(folder, overwrite)], [path] if path else [])
    start_time = time.monotonic()
    phantom = None if path else foam_phantom()
    noisy = _through_dicom(phantom.volume) if phantom else read(path or "")
    echo(f"{noisy.name}: {noisy.facts}")
    for note in noisy.notes:
        echo(f"  - {in_flags(note)}")
    denoised = drive(start("denoise", noisy, {"time_budget": time_budget}, device), "Denoise")
    pores = drive(start("pores", denoised.volume, {}, device), "Segment pores")
    accuracy: dict[str, Any] = {}
    if phantom:
        pores_noisy = drive(start("pores", noisy, {}, device), "Segment pores, noisy")
        accuracy = {
            "noisy": _accuracy(phantom, noisy, pores_noisy),
            "denoised": _accuracy(phantom, denoised.volume, pores),
            "truth": _truth(phantom),
        }
    write_result(
        folder, [denoised, pores], noisy, extra={"accuracy": accuracy}, overwrite=overwrite
    )
    if accuracy:
        _print_table(accuracy)
    echo_result(pores.headline, pores.remarks)
    echo(f"Written: {folder}/ in {time.monotonic() - start_time:.0f} s")


def _through_dicom(volume: Volume) -> Volume:
    """Write a volume as a DICOM series and read it back, like the export of a scanner."""
    with tempfile.TemporaryDirectory() as scratch:
        series = Path(scratch) / "series"
        write_series(volume, series)
        return read(series)


def _accuracy(phantom: Phantom, volume: Volume, pores: Any) -> dict[str, float]:
    """Compare a volume and its pores with the true ones of the phantom."""
    clean = phantom.clean.array().astype(np.float64)
    error = np.mean((volume.array() - clean) ** 2)
    totals = pores.provenance["result"]
    return {
        "psnr": float(10 * np.log10(np.ptp(clean) ** 2 / error)),
        "pores": totals["count"],
        "small_pores": totals["small_pores"],
        "porosity": pores.porosity,
        "median_diameter": totals["median_diameter"],
        "correct_voxels": float(np.mean((pores.labels > 0) == phantom.void)),
    }


def _truth(phantom: Phantom) -> dict[str, float]:
    voxels = np.bincount(phantom.labels.ravel())[1:]
    diameters = np.cbrt(6 / np.pi * voxels * phantom.volume.voxel_size)
    return {
        "pores": phantom.n_pores,
        "porosity": phantom.porosity,
        "median_diameter": float(np.median(diameters)),
        "correct_voxels": 1.0,
    }


def _print_table(accuracy: dict[str, dict[str, float]]) -> None:
    rows = {
        "psnr": ("PSNR, dB", "{:.1f}"),
        "pores": ("pores", "{:,}"),
        "small_pores": ("smaller pores, left out", "{:,}"),
        "porosity": ("porosity", "{:.1%}"),
        "median_diameter": ("median diameter", "{:.3g}"),
        "correct_voxels": ("correct voxels", "{:.2%}"),
    }
    table = Table("", *accuracy, box=box.SIMPLE_HEAD)
    for key, (name, form) in rows.items():
        # a result without pores has no diameter
        given = (each.get(key) for each in accuracy.values())
        values = ("" if value is None else form.format(value) for value in given)
        # a space before the per cent sign, as everywhere
        values = (value.replace("%", " %") for value in values)
        table.add_row(name, *values)
    for column in table.columns[1:]:
        column.justify = "right"
    Console().print(table)
