"""The recipe to read a scan again, with a stamp that shows whether its files have changed."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from hushpore.base.errors import InputError
from hushpore.base.events import result_of
from hushpore.base.formatting import METRES, is_thousands, listed, readable_unit, unit_of
from hushpore.device.backend import choose_backend
from hushpore.io import choose, describe, is_on_disk, is_uneven, read, resample_evenly
from hushpore.io.flatten import flattened
from hushpore.io.loading import into_memory
from hushpore.io.parts import binned, cropped, resampled, with_rescaled_positions
from hushpore.io.raw import open_raw_as
from hushpore.io.results import read_points
from hushpore.io.undefined import with_checked_size, with_fill_value
from hushpore.runs.reading import ALL, Reading
from hushpore.runs.sample_crop import box_of, crop_to

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from hushpore.base.settings import Settings
    from hushpore.base.volume import Volume
    from hushpore.io.flatten import Solid

    T = TypeVar("T", bound=Settings)

#: Marks notes on a voxel size that was set by the user.
GIVEN = "set by the user"

_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_COMMA = _NUMBER.replace(r"\.", "[.,]")  # also with a decimal comma
#: Placeholder for the name of the scan in names of files that belong to it.
_PATTERN = re.compile(r"\{name(?:%(?P<end>[^{}]+))?\}")
_VOXEL_SIZE = re.compile(
    rf"(?P<numbers>{_NUMBER}(?:\s*,\s*{_NUMBER})*|{_COMMA}(?:\s*;\s*{_COMMA})+)"
    r"\s*(?P<unit>[^\W\d_]+)"
)


@dataclass(frozen=True)
class ScanRecipe(Reading):
    """An image stack on disk and how it is read.

    `path`: a file or folder, as `hushpore.read` takes it.
    """

    path: str

    @classmethod
    def read_as(cls, path: str | os.PathLike[str], reading: Reading | None) -> Self:
        """Return the recipe to read a path in some way; by default as its file says."""
        how = reading or Reading()
        return cls(str(path), **{opt.name: getattr(how, opt.name) for opt in Reading.options()})

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Return the recipe in a record, see `to_dict`.

        Raises InputError if the record names no file.
        """
        if not values.get("path"):
            raise InputError(
                "The record names no file or folder, because the input was an array or a layer. "
                "Save the input as a file and run the job on that file; its result can be "
                "reproduced."
            )
        names = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: values[name] for name in names & set(values)})

    def to_dict(self) -> dict[str, Any]:
        """Return the recipe as JSON values, with an absolute path and the `stamp` of the files."""
        place = str(Path(self.path).expanduser().resolve())
        values = {name: value for name, value in super().to_dict().items() if value}
        always = {"path": place, "series": self.series, "resample": self.resample}
        return {**values, **always, "at": list(self.at), **self.stamp()}

    def stamp(self) -> dict[str, Any]:
        """Return a stamp that shows changes of the files without reading them.

        Returns: ``files``: their number; ``bytes``: their total size; ``stamp``: a digest of names,
        sizes and times of change. Empty if there are no files.
        """
        place = Path(self.path).expanduser().resolve()
        digest, count, total = hashlib.blake2b(digest_size=16), 0, 0
        files = sorted(place.rglob("*")) if place.is_dir() else [place]
        for file in files:
            if not file.is_file():
                continue
            state = file.stat()
            name = file.relative_to(place.parent).as_posix()
            digest.update(
                f"{name}\0{state.st_size}\0{state.st_mtime_ns}\n".encode(errors="surrogateescape")
            )
            count, total = count + 1, total + state.st_size
        return {"files": count, "bytes": total, "stamp": digest.hexdigest()} if count else {}

    def changes_since(self, origin: Mapping[str, Any]) -> list[str]:
        """Return a note if the files have changed since `origin`, an earlier `to_dict`."""
        now = self.stamp()
        if all(origin.get(name) == value for name, value in now.items()) and now:
            return []
        return [
            f"The files of {Path(self.path).name} changed during the run, so the result may be a "
            "mixture of old and new data. Run the job again."
        ]

    def read(self, device: str | None = None) -> Volume:
        """Read the scan into memory.

        `device`: where the values will be copied, as for `hushpore.device.backend.choose_backend`;
        uses memory from which that is fastest. Raises InputError, MissingPackageError: as for
        `hushpore.read`, or if a position lies outside the volume.
        """
        empty = None if device is None else choose_backend(device).empty
        if self.crop or self.bin or self.flatten:
            # arranged first, so that no more than the part is read
            (volume,) = result_of(into_memory([self.describe()], empty=empty))
            return with_fill_value(volume)
        if self.shape:
            (volume,) = result_of(into_memory([self._raw()], empty=empty))
            return self.arrange(with_fill_value(volume))
        series = self.series or None
        volume = read(self.path, series=series, empty=empty, trust=self.trust)
        return self.arrange(with_fill_value(volume))

    def describe(self) -> Volume:
        """Return the scan as a lazy volume; raises as `read` does."""
        if self.shape:
            return self.arrange(self._raw())
        volumes = describe(self.path, trust=self.trust)
        chosen = choose(volumes, self.series)
        others = [volume.name for volume in volumes if volume is not chosen]
        if others and not self.series:
            note = (
                f"Of {len(volumes)} image stacks the largest was read. Choose another with series= "
                f"(the others: {'; '.join(others)})."
            )
            chosen = dataclasses.replace(chosen, notes=[note, *chosen.notes])
        return self.arrange(chosen)

    def _raw(self) -> Volume:
        """Open a raw file with the given layout."""
        path = Path(self.path).expanduser()
        if not path.is_file():
            raise InputError(f"--shape describes one raw file, but {path} is not a file.")
        try:
            shape = [int(length) for length in self.shape.split(",")]
        except ValueError:
            shape = []
        if len(shape) not in (2, 3) or min(shape) < 1:
            raise InputError(
                f"--shape {self.shape}: expected whole numbers along z,y,x, for example "
                "400,512,512."
            )
        volume = open_raw_as(path, shape, self.dtype, self.byte_order, self.offset)
        return dataclasses.replace(volume, source=str(path))

    def arrange(self, volume: Volume) -> Volume:
        """Apply voxel size, resampling, positions, crop, bin and flattening; lazily if on disk.

        Raises InputError if one of them is invalid or does not fit the volume.
        """
        if self.axes:
            volume = with_axes(volume, self.axes)
        if self.voxel_size:
            volume = with_voxel_size(volume, self.voxel_size)
        if self.resample and is_uneven(volume):
            volume = resampled(volume) if is_on_disk(volume) else resample_evenly(volume)
        if ALL in self.at:
            raise InputError(
                "--at all makes a result for each time and channel, which is a batch: use hushpore "
                "batch, or give one position, for example --at t=0."
            )
        for position in self.at:
            axis, _, number = position.partition("=")
            try:
                index = int(number)
            except ValueError:
                raise InputError(
                    f"--at {position} is not a position. Give an axis and a number, for "
                    "example t=0."
                ) from None
            volume = volume.at(**{axis: index})
        if self.crop:
            volume = crop_to(volume, self.crop)
        if self.bin:
            volume = binned(volume, self.bin)
        if not self.flatten:
            return volume
        return flattened(volume, cast("Solid", self.flatten))


def with_axes(volume: Volume, axes: str) -> Volume:
    """Return a volume with renamed axes, and a note if a z axis was added.

    `axes`: a letter for each axis, the last ``zyx`` or ``yx``: ``"zyx"`` for ``"tyx"``.
    Raises InputError if they do not fit.
    """
    more = (3 if axes.endswith("zyx") else 2) - volume.n_spatial
    if more < 1:
        kept: dict[str, Any] = {"spacing": volume.spacing[-more:], "origin": volume.origin[-more:]}
        return dataclasses.replace(volume, axes=axes, **kept)
    step = volume.spacing[0]
    note = f"The axes {volume.axes} were read as {axes}, as requested"
    if volume.unit in METRES:
        note += (
            f"; the distance between slices was set to the pixel size, {step:g} "
            f"{readable_unit(volume.unit)} (set it with --voxel-size)"
        )
    return dataclasses.replace(
        volume, axes=axes, spacing=(step, *volume.spacing), origin=(),
        notes=[*volume.notes, f"{note}."],
    )  # fmt: skip


def with_voxel_size(volume: Volume, text: str) -> Volume:
    """Return a volume with the voxel size given as text, and a note on it.

    `text`: one number for all axes or one for each of z, y, x (in 2D y, x), and a unit.
    Raises InputError if the text is invalid or does not fit the volume.
    """
    found = _VOXEL_SIZE.fullmatch(text.strip())
    unit = None if found is None else unit_of(found["unit"])
    stated = "" if found is None else found["numbers"]
    if re.fullmatch(r"\d+,\d+", stated):
        # one number with a decimal comma, or two
        if volume.n_spatial == 2 or is_thousands(stated):
            raise InputError(
                f"The voxel size {text!r} is ambiguous. Write a decimal point "
                f"({text.replace(',', '.')}), or semicolons between the axes "
                f"({text.replace(',', ';')})."
            )
        stated = stated.replace(",", ".")
    numbers = [float(number) for number in listed(stated)] if stated else []
    if unit is None or unit[0] not in METRES or not all(0 < number < inf for number in numbers):
        raise InputError(
            f"{text!r} is not a voxel size. Give one number, or one for each of z,y,x, and a unit "
            f"({', '.join(METRES)}), for example 15.4um or 5,0.49,0.49mm."
        )
    if len(numbers) not in (1, volume.n_spatial):
        raise InputError(
            f"The voxel size {text!r} has {len(numbers)} numbers, but {volume.name} has "
            f"{volume.n_spatial} spatial axes. Give one number, or one for each axis."
        )
    name, factor = unit
    each = numbers * volume.n_spatial if len(numbers) == 1 else numbers
    sizes = " x ".join(f"{factor * number:g}" for number in numbers)
    note = f"Voxel size {GIVEN}: {sizes} {readable_unit(name)}"
    if volume.unit in METRES:
        before = " x ".join(f"{size:g}" for size in volume.spacing)
        note += f" (in the file: {before} {readable_unit(volume.unit)})"
    spacing = tuple(factor * number for number in each)
    given = dataclasses.replace(
        volume,
        spacing=spacing,
        unit=name,
        origin=(),
        # notes that ask for a voxel size are answered
        notes=[said for said in volume.notes if "--voxel-size" not in said],
        metadata=with_rescaled_positions(volume.metadata, spacing[0] / volume.spacing[0]),
    )
    given = with_checked_size(given)
    return dataclasses.replace(given, notes=[*given.notes, f"{note}."])


def files_of(settings: Iterable[Settings]) -> list[str]:
    """Return the input files named in settings: masks, points, models."""
    return [
        value
        for each in settings
        for opt in each.options()
        if (opt.auxiliary or opt.path == "file") and (value := str(getattr(each, opt.name)))
    ]


def origin_of(source: ScanRecipe, settings: Iterable[Settings]) -> dict[str, Any]:
    """Return the recipe of a scan as a record holds it, with stamps of further input files.

    These are under ``others`` by path, if the settings name any.
    """
    others = {path: ScanRecipe(path).stamp() for path in files_of(settings)}
    return {**source.to_dict(), **({"others": others} if others else {})}


def attach_files(volume: Volume, settings: Settings, source: ScanRecipe | None = None) -> Volume:
    """Read the input files named in settings and attach them to the volume.

    `source`: how the volume was read; a repeat scan is read in the same way, and a mask of the
    whole scan is cropped and binned with it.
    Raises InputError if a file cannot be read, or the repeat scan is the scan itself.
    """
    missing: dict[str, Any] = {}
    for opt in settings.options():
        path = getattr(settings, opt.name) if opt.auxiliary else ""
        if not path or path in volume.auxiliary:
            continue
        if "scan" in opt.auxiliary:
            if volume.source and _is_same_place(path, volume.source):
                raise InputError(
                    f"{opt.name} is the scan itself ({path}). Give a repeat scan of the same "
                    "sample, or the other half of the projections."
                )
            missing[path] = dataclasses.replace(source or ScanRecipe(""), path=path).read()
        elif Path(path).suffix.lower() == ".csv":
            missing[path] = read_points(path)
        else:
            found = read(path, trust=source is not None and source.trust)
            missing[path] = _part_like(found, volume, source).data
    auxiliary = {**volume.auxiliary, **missing}
    return dataclasses.replace(volume, auxiliary=auxiliary) if missing else volume


def _part_like(image: Volume, volume: Volume, source: ScanRecipe | None) -> Volume:
    """Return the part of a mask or labels that `source` takes of a scan.

    `image`: whole if it has the shape of the whole scan, else returned as it is. `volume`: the part
    of the scan.
    """
    if source is None or not (source.crop or source.bin) or image.shape == volume.shape:
        return image
    scan = dataclasses.replace(source, crop="", bin="", flatten="").describe()
    if image.shape != scan.shape:
        return image
    data = image.data if image.dtype.kind in "iub" else image.data > 0
    image = image.as_labels(data, image.name)
    if source.crop:
        image = cropped(image, box_of(scan, source.crop))
    if source.bin:
        image = binned(image, source.bin)
    return image.replace(image.array())


def settings_for(settings: T, scan: str | os.PathLike[str]) -> T:
    """Return settings with the placeholder ``{name}`` in file names filled in for a scan.

    ``{name}`` is the name of the scan without its suffix, ``{name%_even}`` the same without
    ``_even`` at its end. The files lie in the folder of the scan; without a suffix they have that
    of the scan.
    """
    named = {
        opt.name: str(_beside(Path(scan), value))
        for opt in settings.options()
        if opt.auxiliary and _PATTERN.search(value := getattr(settings, opt.name))
    }
    return dataclasses.replace(settings, **named) if named else settings


def _beside(scan: Path, pattern: str) -> Path:
    scan = scan.expanduser().resolve()
    name, ending = scan.name, ""
    if not scan.is_dir() or scan.suffix == ".zarr":
        is_ome = scan.suffixes[-2:-1] == [".ome"]
        ending = "".join(scan.suffixes[-2 if is_ome else -1 :])
        name = name.removesuffix(ending)

    filled = _PATTERN.sub(lambda match: name.removesuffix(match["end"] or ""), pattern)
    found = (scan.parent / filled).resolve()
    with_ending = found.with_name(found.name + ending)
    return with_ending if with_ending.exists() and not found.exists() else found


def _is_same_place(first: str, second: str) -> bool:
    return Path(first).expanduser().resolve() == Path(second).expanduser().resolve()
