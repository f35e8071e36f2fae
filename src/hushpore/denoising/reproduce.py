"""Settings that reproduce an earlier denoising, or earlier patches."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from hushpore.base.errors import InputError
from hushpore.denoising.trained_model import load_model

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def repeated_denoising(
    values: Mapping[str, Any], made: Mapping[str, Any], file: Path
) -> dict[str, Any]:
    """Return the settings that reproduce an earlier denoising.

    `values`: its settings. `made`: its record. `file`: path of the record.
    Raises InputError if the applied model no longer exists, or has changed.
    """
    _require_same_model(values, made)
    # trained anew instead of resumed; a training that reached its time limit is repeated with the
    # number of steps and the learning rates in its provenance
    repeat = str(file) if made.get("training") else ""
    return {**values, "checkpoint": "", "repeat": repeat}


def repeated_patches(
    values: Mapping[str, Any], made: Mapping[str, Any], file: Path
) -> dict[str, Any]:
    """Return the settings that sample the same patches again; see `repeated_denoising`."""
    _require_same_model(values, made)
    return dict(values)


def _require_same_model(values: Mapping[str, Any], made: Mapping[str, Any]) -> None:
    """Check that the model in the settings exists, and is the one in a record.

    Raises InputError with the remedy if not.
    """
    name = values.get("model")
    if not name:
        return
    if not os.path.isfile(os.path.expanduser(name)):
        raise InputError(
            f"The trained model of this result is missing: there is no file {name[:200]}. Put it "
            "back and run again."
        )
    if load_model(name).fingerprint != made["auxiliary"]["model"]["blake2b"]:
        raise InputError(
            f"{name} is not the model of this result: its fingerprint differs. Put the original "
            "model back and run again. Nothing was run."
        )
