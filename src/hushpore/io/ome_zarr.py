"""OME-Zarr (NGFF 0.1 to 0.5) to volumes, and volumes to OME-Zarr 0.4."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import HushporeError, InputError, MissingPackageError
from hushpore.base.volume import Volume
from hushpore.io.target import check_target, new_directory, require_zarr
from hushpore.io.units import METRES, unit_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from types import ModuleType

    import numpy.typing as npt

_ORDER = "tczyx"
# names of units as NGFF spells them
_UNITS = {"m": "meter", "cm": "centimeter", "mm": "millimeter", "um": "micrometer",
          "nm": "nanometer"}  # fmt: skip
_CHUNK = 64  # voxels along each axis, 0.5 MB of int16; viewers cut in any direction


class ZarrStack:
    """A Zarr array as a volume's values: read when indexed, or by whole chunks.

    Parameters
    ----------
    array : zarr.Array
        The array.
    index : tuple
        Applied first: drops axes of length one.
    """

    def __init__(self, array: Any, index: tuple[int | slice, ...]) -> None:
        self._array, self._index = array, index
        kept = [axis for axis, each in enumerate(index) if isinstance(each, slice)]
        self._chunk = int(array.chunks[kept[0]])
        self.shape: tuple[int, ...] = tuple(int(array.shape[axis]) for axis in kept)
        self.dtype = np.dtype(array.dtype)
        self.ndim = len(self.shape)
        self.size = int(np.prod(self.shape))
        self.nbytes = self.size * self.dtype.itemsize

    def __deepcopy__(self, memo: dict[int, Any]) -> ZarrStack:
        return self  # nothing of it changes

    def __getitem__(self, key: Any) -> npt.NDArray[Any]:
        keys = list(key) if isinstance(key, tuple) else [key]
        if Ellipsis in keys:
            place = keys.index(Ellipsis)
            keys[place : place + 1] = [slice(None)] * (self.ndim - len(keys) + 1)
        rest = iter(keys)
        full = [next(rest, slice(None)) if isinstance(i, slice) else i for i in self._index]
        return np.asarray(self._array[tuple(full)])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("The values lie on disk: an array of them is always a copy.")
        values = self[...]
        return values if dtype is None else values.astype(dtype, copy=False)

    def loading(self, values: npt.NDArray[Any]) -> Iterator[int]:
        """Fill an array of this shape, and yield the number of planes read so far."""
        planes = int(np.prod(self.shape[1:-2]))
        for start in range(0, self.shape[0], self._chunk):
            end = min(start + self._chunk, self.shape[0])
            try:
                values[start:end] = self[start:end]
            except (OSError, MemoryError):
                raise
            except Exception as error:
                # codecs raise errors of any kind
                raise InputError(
                    f"A chunk of the Zarr array {self._array.path or 'here'} is damaged "
                    f"({type(error).__name__}). Copy or export it again."
                ) from error
            yield end * planes if self.ndim > 2 else 1


def open_zarr(folder: Path) -> list[Volume]:
    """Open the images of an OME-Zarr folder; their values stay on disk.

    Parameters
    ----------
    folder : Path
        An OME-Zarr image, several as bioformats2raw writes them, or a bare Zarr array.

    Returns
    -------
    list of Volume
        Of a pyramid its full resolution; with spacing, unit and origin. Time and channel axes of
        length one are dropped, unless hushpore wrote them.

    Raises
    ------
    InputError
        If there is no image in it, or it is damaged.
    MissingPackageError
        If zarr is not installed.
    """
    zarr = _import_zarr()
    try:
        node = zarr.open(str(folder), mode="r")
        if not hasattr(node, "keys"):
            plain = tuple(slice(None) for _ in node.shape)
            return [Volume(ZarrStack(node, plain), name=folder.stem)]
        images = {folder.name.removesuffix(".zarr").removesuffix(".ome"): node}
        if _multiscales(node) is None:
            groups = {key: node[key] for key in sorted(node.keys()) if hasattr(node[key], "keys")}
            images = {key: group for key, group in groups.items() if _multiscales(group)}
        volumes = [_image(group, name) for name, group in images.items()]
    except (HushporeError, OSError, MemoryError):
        raise
    except Exception as error:
        # damaged metadata make zarr raise errors of any kind
        raise InputError(
            f"{folder.name} is damaged and cannot be read as Zarr ({type(error).__name__}: "
            f"{error}). Copy or export it again."
        ) from error
    if not volumes:
        raise InputError(
            f"{folder.name} is a Zarr group without an OME image (no 'multiscales'). Open one of "
            "its arrays."
        )
    return volumes


def write_zarr(path: str | os.PathLike[str], volume: Volume, *, overwrite: bool = False) -> Path:
    """Write a volume as an OME-Zarr image (NGFF 0.4), complete or not there at all.

    Values, axes, spacing, unit and origin survive a round trip through `hushpore.read`.

    Parameters
    ----------
    path : str or path-like
        A folder, usually named ``.ome.zarr``.
    volume : Volume
        2D or 3D, with leading axes or without.
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
        If the volume is empty.
    MissingPackageError
        If zarr is not installed.
    """
    zarr = _import_zarr()
    if 0 in volume.shape:
        raise InputError(f"{volume.name} is empty (shape {volume.shape}); nothing to write.")
    target = check_target(path, overwrite, replaceable=require_zarr)
    with new_directory(target, overwrite, replaceable=require_zarr) as part:
        group = zarr.open_group(str(part), mode="w", zarr_format=2)
        chunks = tuple(min(_CHUNK, n) for n in volume.shape)
        array = group.create_array(
            "0", shape=volume.shape, chunks=chunks, dtype=volume.dtype.newbyteorder("="),
            chunk_key_encoding={"name": "v2", "separator": "/"},
        )  # fmt: skip
        for start in range(0, volume.shape[0], chunks[0]):
            array[start : start + chunks[0]] = np.asarray(volume.data[start : start + chunks[0]])
        group.attrs.update(_attributes(volume))
    return target


def _import_zarr() -> ModuleType:
    try:
        import zarr
    except ImportError as error:
        raise MissingPackageError("OME-Zarr needs a further package: pip install zarr") from error
    return zarr


def _multiscales(group: Any) -> Any:
    attributes: Mapping[str, Any] = group.attrs
    # since 0.5 everything lies under one key
    return attributes.get("ome", attributes).get("multiscales")


def _image(group: Any, name: str) -> Volume:
    image = _multiscales(group)[0]
    dataset = image["datasets"][0]
    array = group[dataset["path"]]
    stated = image.get("axes") or [{"name": letter} for letter in _ORDER[-array.ndim :]]
    axes = [axis if isinstance(axis, dict) else {"name": axis} for axis in stated]
    letters = "".join(str(axis["name"])[:1].lower() for axis in axes)
    if len(axes) != array.ndim or not set(letters) <= set(_ORDER) or not letters.endswith("yx"):
        raise InputError(
            f"{name}: its axes are {[axis['name'] for axis in axes]} for {array.ndim} dimensions; "
            "time, channel, z, y and x are known, in this order."
        )
    scale, shift = np.ones(array.ndim), np.zeros(array.ndim)
    for step in [*dataset.get("coordinateTransformations", []),
                 *image.get("coordinateTransformations", [])]:  # fmt: skip
        if step["type"] == "scale":
            factors = np.asarray(step["scale"], float)
            scale, shift = scale * factors, shift * factors
        elif step["type"] == "translation":
            shift = shift + np.asarray(step["translation"], float)
    ours = "hushpore" in group.attrs
    index: tuple[int | slice, ...] = tuple(
        0 if letter in "tc" and array.shape[axis] == 1 and not ours else slice(None)
        for axis, letter in enumerate(letters)
    )
    kept = [axis for axis, each in enumerate(index) if isinstance(each, slice)]
    spatial = [axis for axis in kept if letters[axis] in "zyx"]
    unit, factor, notes = _common_unit([str(axes[axis].get("unit", "")) for axis in spatial])
    return Volume(
        ZarrStack(array, index),
        spacing=tuple(abs(float(scale[axis])) * f for axis, f in zip(spatial, factor, strict=True)),
        origin=tuple(float(shift[axis]) * f for axis, f in zip(spatial, factor, strict=True)),
        unit=unit,
        axes="".join(letters[axis] for axis in kept),
        name=str(image.get("name") or name),
        notes=notes,
    )


def _common_unit(units: list[str]) -> tuple[str, list[float], list[str]]:
    """Return the unit of x, and the factor that brings every axis to it."""
    known = [unit_of(unit) for unit in units]
    last = known[-1]
    if last is None or any(each is None for each in known):
        note = f"The units of the axes ({', '.join(units)}) are not known; shown as pixels."
        return "pixel", [1.0] * len(units), [note]
    name = last[0]
    found = [each for each in known if each is not None]
    if {"pixel"} < {each[0] for each in found}:
        note = "Only some axes state a unit; the voxel size is shown as pixels."
        return "pixel", [1.0] * len(units), [note]
    factors = [f if own == name else f * METRES[own] / METRES[name] for own, f in found]
    return name, factors, []


def _attributes(volume: Volume) -> dict[str, Any]:
    """Return the metadata of an image by NGFF 0.4."""
    kinds = {"t": "time", "c": "channel"}
    axes: list[dict[str, str]] = []
    for letter in volume.axes:
        axis = {"name": letter, "type": kinds.get(letter, "space")}
        if letter in "zyx" and volume.unit in _UNITS:
            axis["unit"] = _UNITS[volume.unit]
        axes.append(axis)
    leading = len(volume.leading_shape)
    steps = [
        {"type": "scale", "scale": [*[1.0] * leading, *volume.spacing]},
        {"type": "translation", "translation": [*[0.0] * leading, *volume.origin]},
    ]
    image = {
        "version": "0.4",
        "name": volume.name,
        "axes": axes,
        "datasets": [{"path": "0", "coordinateTransformations": steps}],
    }
    return {"multiscales": [image], "hushpore": {"axes": volume.axes}}
