"""The settings with which what was denoised, or sampled, comes out the same again."""

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
    """Return the settings with which a denoising that was done comes out the same again.

    `values`: the settings that it was done with. `made`: its record. `file`: where that is.
    Raises InputError if the model that was applied is gone, or another.
    """
    _require_same_model(values, made)
    # trained anew, not gone on with; and where time has cut it, for as many steps at the same
    # rates, which its provenance has
    repeat = str(file) if made.get("training") else ""
    return {**values, "checkpoint": "", "repeat": repeat}


def repeated_patches(
    values: Mapping[str, Any], made: Mapping[str, Any], file: Path
) -> dict[str, Any]:
    """Return the settings with which the same patches are sampled again; as for a denoising."""
    _require_same_model(values, made)
    return dict(values)


def _require_same_model(values: Mapping[str, Any], made: Mapping[str, Any]) -> None:
    """Check that the model that settings name is there, and the one that a record tells of.

    Raises InputError if it is not; says what to do.
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
