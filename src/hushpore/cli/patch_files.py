"""What sampled patches are on disk: a contact sheet, tables, and a data set to train with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError, MissingPackageError, OutputError
from hushpore.base.volume import Volume
from hushpore.io.results import write_results
from hushpore.io.target import new_file

if TYPE_CHECKING:
    import pandas as pd

    from hushpore.patches.result import Patches
    from hushpore.patches.sheet import Sheet

#: Patches on the contact sheet.
TILES = 48


def write_patches(folder: Path, found: Patches, overwrite: bool = False) -> Path:
    """Write ``sheet.png``, ``sheet.tif``, ``patches.csv`` and ``result.json``.

    The sheet shows the hardest patches first where there is a model, else the first that were
    drawn; in the PNG the greys between the 0.1st and 99.9th percentile, in the TIFF all of them.
    Where groups were asked for there is ``groups.csv`` too; ``hidden.csv`` holds the hidden pixels
    of the patches on the sheet, with the values before and after hiding.

    Parameters
    ----------
    folder : pathlib.Path
        Where to; it appears when everything is complete.
    found : Patches
        The patches.
    overwrite : bool, optional
        Replace an earlier result.
    """
    shown = found.ranked("loss" if "loss" in found.features else "order", TILES)
    sheet = found.sheet(shown)
    tables = {"patches": found.table()}
    if len(found.groups):
        tables["groups"] = _groups(found)
    if found.blind is not None:
        tables["hidden"] = _hidden(found, shown)
    return write_results(
        folder,
        images={"sheet": Volume(sheet.image, name="contact sheet")},
        tables=tables,
        provenance={
            "summary": found.summary,
            "jobs": [found.provenance],
            "sheet": {"rows": list(sheet.rows), "patches": sheet.patches.tolist()},
        },
        figures={"sheet": _png(sheet)},
        overwrite=overwrite,
    )


def check_data_set(path: str, overwrite: bool = False) -> Path:
    """Check that a data set can be written, before work goes into it.

    Raises
    ------
    InputError
        If the name does not end in ``.npz`` or ``.zarr``.
    OutputError
        If it cannot be written there.
    MissingPackageError
        If Zarr is asked for and not installed.
    """
    target = Path(path).expanduser()
    if target.suffix not in (".npz", ".zarr"):
        raise InputError(f"{target.name}: expected a name that ends in .npz or .zarr.")
    if target.suffix == ".zarr":
        try:
            import zarr  # noqa: F401
        except ImportError as error:
            raise MissingPackageError(
                "Zarr is not installed: pip install 'hushpore[zarr]', or write an .npz file."
            ) from error
    if not target.parent.is_dir():
        raise OutputError(f"Cannot write {target}: there is no folder {target.parent}.")
    if target.is_dir() or (target.exists() and not overwrite):
        raise OutputError(f"{target} is there already; choose another name.")
    return target


def write_data_set(target: Path, found: Patches, overwrite: bool = False) -> Path:
    """Write patches, where they lie and what is known of them as one set of arrays.

    Parameters
    ----------
    target : pathlib.Path
        As `check_data_set` returned it.
    found : Patches
        The patches.
    overwrite : bool, optional
        Replace an existing file.
    """
    arrays: dict[str, Any] = {
        "patches": found.patches,
        "corners": found.corners,
        "groups": found.groups,
        **{f"feature_{name}": values for name, values in found.features.items()},
    }
    if found.blind is not None:
        arrays |= {
            "hidden_positions": found.blind.positions,
            "hidden_originals": found.blind.originals,
            "hidden_replacements": found.blind.replacements,
        }
        if found.blind.predictions is not None:
            arrays["predictions"] = found.blind.predictions
    if target.suffix == ".npz":
        with new_file(target, overwrite) as part, part.open("wb") as file:
            np.savez_compressed(file, **arrays)
        return target
    _write_zarr(target, arrays)
    return target


def _write_zarr(target: Path, arrays: dict[str, Any]) -> None:
    import zarr

    part = target.with_name(f".{target.name}.part")
    group = zarr.open_group(part, mode="w")
    for name, values in arrays.items():
        kept = group.create_array(name, shape=values.shape, dtype=values.dtype)
        kept[...] = values
    part.replace(target)


def _groups(found: Patches) -> pd.DataFrame:
    import pandas as pd

    names = ["centre", *(f"neighbour_{n}" for n in range(1, found.groups.shape[1]))]
    return pd.DataFrame(found.groups, columns=names)


def _hidden(found: Patches, shown: Any) -> pd.DataFrame:
    import pandas as pd

    assert found.blind is not None
    where = np.concatenate([found.hidden_voxels(int(patch)) for patch in shown])
    return pd.DataFrame(
        {
            "patch": np.repeat(shown, found.blind.positions.shape[1]),
            **dict(zip(found.volume.axes, where.T, strict=True)),
            "original": found.blind.originals[shown].ravel(),
            "replacement": found.blind.replacements[shown].ravel(),
        }
    )


def _png(sheet: Sheet) -> bytes:
    import imagecodecs

    low, high = np.percentile(sheet.image, (0.1, 99.9))
    grey = (sheet.image - low) / max(high - low, np.finfo(np.float32).tiny)
    return bytes(imagecodecs.png_encode((grey.clip(0, 1) * 255).astype(np.uint8)))
