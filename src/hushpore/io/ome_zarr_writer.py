"""Volumes to OME-Zarr (NGFF 0.4): a pyramid, and labels beside the image, slab by slab."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError, MissingPackageError
from hushpore.io.slabs import slabs
from hushpore.io.target import check_target, new_directory, require_zarr

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from pathlib import Path
    from types import ModuleType

    import numpy.typing as npt

    from hushpore.base.volume import Volume

_VERSION = "0.4"
# names of units as NGFF spells them
_UNITS = {"m": "meter", "cm": "centimeter", "mm": "millimeter", "um": "micrometer",
          "nm": "nanometer"}  # fmt: skip
_CHUNK = 64  # voxels along each axis, 0.5 MB of int16; viewers cut in any direction
_LAYER = 256_000_000  # bytes of a layer of chunks, which is held in memory; at least one slice
_SMALLEST = 256  # pixels of the coarsest level


def import_zarr() -> ModuleType:
    """Import zarr, which the library works without until OME-Zarr is met.

    Raises
    ------
    MissingPackageError
        If it is not installed.
    """
    try:
        import zarr
    except ImportError as error:
        raise MissingPackageError("OME-Zarr needs a further package: pip install zarr") from error
    return zarr


def write_zarr(
    path: str | os.PathLike[str],
    volume: Volume,
    *,
    labels: Mapping[str, Volume] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a volume as an OME-Zarr image (NGFF 0.4), complete or not there at all.

    Values, axes, spacing, unit and origin survive a round trip through `hushpore.read`. Levels of
    half the resolution are added until the largest is no wider than 256 pixels. What lies on disk
    is read a layer of chunks at a time.

    Parameters
    ----------
    path : str or path-like
        A folder, usually named ``.ome.zarr``.
    volume : Volume
        2D or 3D, with leading axes or without.
    labels : mapping of str to Volume, optional
        Integers of the same shape, written into the group ``labels`` under these names.
    overwrite : bool, optional
        Replace an OME-Zarr folder of that name.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    OutputError
        If it cannot be written; nothing is left behind then.
    InputError
        If the volume is empty, or labels do not fit it.
    MissingPackageError
        If zarr is not installed.
    """
    zarr = import_zarr()
    labels = labels or {}
    if 0 in volume.shape:
        raise InputError(f"{volume.name} is empty (shape {volume.shape}); nothing to write.")
    for name, each in labels.items():
        if each.shape != volume.shape or each.dtype.kind not in "iub":
            raise InputError(
                f"The labels {name} ({each.facts}) do not fit the image ({volume.facts}): integers "
                "of the same shape are expected."
            )
    target = check_target(path, overwrite, replaceable=require_zarr)
    with new_directory(target, overwrite, replaceable=require_zarr) as part:
        group = zarr.open_group(str(part), mode="w", zarr_format=2)
        _write_image(group, volume, volume.name, are_labels=_look_like_labels(volume))
        if labels:
            inner = group.create_group("labels")
            inner.attrs["labels"] = list(labels)
            for name, each in labels.items():
                own = inner.create_group(name)
                whole = each if each.dtype.kind != "b" else _as_integers(each)
                _write_image(own, whole, name, are_labels=True)
                own.attrs["image-label"] = {"version": _VERSION, "source": {"image": "../../"}}
    return target


def _look_like_labels(volume: Volume) -> bool:
    """Whether values are classes or numbers of pores, which have no mean."""
    return volume.dtype.kind == "b" or (volume.dtype.kind in "iu" and volume.dtype.itemsize > 2)


def _as_integers(volume: Volume) -> Volume:
    return volume.replace(np.asarray(volume.data).view(np.uint8))


def _write_image(group: Any, volume: Volume, name: str, *, are_labels: bool) -> None:
    n_spatial = volume.n_spatial
    dtype = volume.dtype.newbyteorder("=")
    level = _create(group, 0, volume.shape, dtype, n_spatial)
    for index, values in slabs(volume.data, 2, _depth(level, n_spatial)):
        level[index] = values
    scale = np.ones(n_spatial)
    steps = [_transformations(volume, scale, are_labels)]
    while max(level.shape[-n_spatial:]) > _SMALLEST:
        factors = _factors(level.shape[-n_spatial:], np.asarray(volume.spacing) * scale)
        level = _halved(group, len(steps), level, factors, are_labels)
        scale = scale * factors
        steps.append(_transformations(volume, scale, are_labels))
    group.attrs.update(_attributes(volume, name, steps))


def _create(
    group: Any, number: int, shape: tuple[int, ...], dtype: np.dtype[Any], n_spatial: int
) -> Any:
    plane = shape[-1] * shape[-2] * dtype.itemsize
    chunks = [min(_CHUNK, n) for n in shape]
    chunks[:-n_spatial] = [1] * (len(shape) - n_spatial)
    if n_spatial == 3:
        chunks[-3] = max(1, min(chunks[-3], _LAYER // plane))
    return group.create_array(
        str(number), shape=shape, chunks=tuple(chunks), dtype=dtype,
        chunk_key_encoding={"name": "v2", "separator": "/"},
    )  # fmt: skip


def _depth(array: Any, n_spatial: int) -> int:
    return int(array.chunks[-3]) if n_spatial == 3 else 1


def _factors(shape: tuple[int, ...], spacing: npt.NDArray[np.float64]) -> list[int]:
    """Return by what to divide each axis: those that are finest, so that voxels become cubes."""
    finest = min(step for step, n in zip(spacing, shape, strict=True) if n > 1)
    return [2 if n > 1 and step < 2 * finest else 1 for step, n in zip(spacing, shape, strict=True)]


def _halved(group: Any, number: int, finer: Any, factors: list[int], are_labels: bool) -> Any:
    """Add a level of half the resolution: the mean of eight voxels, or of labels the first one."""
    n_spatial = len(factors)
    divided = (n // f for n, f in zip(finer.shape[-n_spatial:], factors, strict=True))
    shape = (*finer.shape[:-n_spatial], *divided)
    level = _create(group, number, shape, finer.dtype, n_spatial)
    step = factors[0] if n_spatial == 3 else 1
    for index, values in slabs(finer, 2, _depth(level, n_spatial) * step):
        coarse = _reduced(values, factors, are_labels)
        if index and len(coarse):
            *leading, place = index
            assert isinstance(place, slice)
            start = place.start // step
            level[(*leading, slice(start, start + len(coarse)))] = coarse
        elif not index:
            level[...] = coarse
    return level


def _reduced(values: npt.NDArray[Any], factors: list[int], are_labels: bool) -> npt.NDArray[Any]:
    """Return every second voxel, or the mean of neighbours; a last odd one is left out."""
    exact = np.float32 if values.dtype.itemsize <= 2 or values.dtype == np.float32 else np.float64
    reduced = values
    for axis, factor in zip(range(-len(factors), 0), factors, strict=True):
        if factor == 1:
            continue
        first, second = (
            np.take(reduced, range(start, reduced.shape[axis] // 2 * 2, 2), axis)
            for start in (0, 1)
        )
        reduced = first if are_labels else (first.astype(exact) + second) / 2
    if not are_labels and values.dtype.kind in "iu":
        reduced = np.rint(reduced)
    return reduced.astype(values.dtype, copy=False)


def _transformations(
    volume: Volume, scale: npt.NDArray[np.float64], are_labels: bool
) -> list[dict[str, Any]]:
    leading = len(volume.leading_shape)
    steps = np.asarray(volume.spacing) * scale
    # the mean of two voxels lies between them
    shift = 0 if are_labels else (scale - 1) / 2 * np.asarray(volume.spacing)
    places = np.asarray(volume.origin) + shift
    return [
        {"type": "scale", "scale": [*[1.0] * leading, *map(float, steps)]},
        {"type": "translation", "translation": [*[0.0] * leading, *map(float, places)]},
    ]


def _attributes(volume: Volume, name: str, steps: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """Return the metadata of an image by NGFF 0.4."""
    kinds = {"t": "time", "c": "channel"}
    axes: list[dict[str, str]] = []
    for letter in volume.axes:
        axis = {"name": letter, "type": kinds.get(letter, "space")}
        if letter in "zyx" and volume.unit in _UNITS:
            axis["unit"] = _UNITS[volume.unit]
        axes.append(axis)
    image = {
        "version": _VERSION,
        "name": name,
        "axes": axes,
        "datasets": [
            {"path": str(number), "coordinateTransformations": step}
            for number, step in enumerate(steps)
        ],
    }
    return {"multiscales": [image], "hushpore": {"axes": volume.axes}}
