"""Optional files that a command writes beside a result: models, figures, data sets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.atomic import new_file
from hushpore.base.errors import InputError, OutputError, import_optional
from hushpore.io.output_target import new_directory

if TYPE_CHECKING:
    from hushpore.base.volume import Volume
    from hushpore.denoising.result import Denoised
    from hushpore.patches.result import Patches


def save_model(target: Path, result: Denoised, noisy: Volume, overwrite: bool) -> None:
    """Save the trained model."""
    result.model.save(target, overwrite=overwrite)


def save_picture(target: Path, result: Denoised, noisy: Volume, overwrite: bool) -> None:
    """Draw the removed noise and the loss."""
    from hushpore.denoising.picture import denoising_picture

    with new_file(target, overwrite) as part:
        part.write_bytes(denoising_picture(noisy, result))


def check_data_set(path: str, overwrite: bool = False) -> Path:
    """Check before the run that a data set can be written.

    Raises InputError if the name does not end in ``.npz`` or ``.zarr``; OutputError if it cannot be
    written there; MissingPackageError if Zarr is asked for and not installed.
    """
    target = Path(path).expanduser()
    if target.suffix not in (".npz", ".zarr"):
        raise InputError(f"The name of a data set must end in .npz or .zarr; got {target.name}.")
    if target.suffix == ".zarr":
        import_optional("zarr", "A data set that ends in .zarr", "zarr")
    if not target.parent.is_dir():
        raise OutputError(f"Cannot write {target}: the folder {target.parent} does not exist.")
    if target.is_dir() or (target.exists() and not overwrite):
        raise OutputError(f"{target} already exists. Choose another name.")
    return target


def save_data_set(target: Path, found: Patches, volume: Volume, overwrite: bool) -> None:
    """Write patches, their positions and features as one set of arrays.

    `target`: as `check_data_set` returned it.
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
        return
    import zarr

    with new_directory(target, overwrite=False) as folder:
        group = zarr.open_group(folder, mode="w")
        for name, values in arrays.items():
            group.create_array(name, data=values)
