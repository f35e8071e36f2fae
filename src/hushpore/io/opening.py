"""What is in a file or folder: finds the reader for it, and leaves the values on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from hushpore.base.errors import InputError
from hushpore.base.text import harmless
from hushpore.base.volume import Volume
from hushpore.io.folders import files_below, natural_key, read_beginnings_ahead, shortened
from hushpore.io.registry import READERS, kind_of_one, resolved, titles

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence, Set
    from pathlib import Path

    from hushpore.io.registry import Function, Reader

    #: Yields the share of the headers that was read; returns volumes that lie on disk still.
    Opening: TypeAlias = Generator[float, None, list[Volume]]

#: Pictures that people drop by mistake.
_PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")


def opening(path: Path) -> Opening:
    """Open every image stack of a file or folder without reading its values.

    Yields: the share of the headers that was read.
    Raises InputError, MissingPackageError: as for `hushpore.io.read_all`; OSError if the system
    refuses.
    """
    path.stat()
    _require_text(path)
    kind = kind_of_one(path)
    if kind is not None:
        return (yield from _read(READERS[kind], READERS[kind].read, path))
    if not path.is_dir():
        raise InputError(_why_not(path))
    files = files_below(path)
    if not files:
        raise InputError(f"The folder {path} is empty; expected slices as {_titles_of_slices()}.")
    return (yield from _slices(files, path, {path}))


def opening_files(files: Sequence[Path], folder: Path) -> Opening:
    """Open some files as if they were all that a folder holds; as `opening`.

    `files`: at least two, as a user picks them out of a folder. `folder`: where they lie, for names
    and messages.
    """
    for path in files:
        path.stat()
    _require_text(folder)
    return (yield from _slices(sorted(files, key=natural_key), folder, {p.parent for p in files}))


def _require_text(path: Path) -> None:
    """Refuse a name that is no text: no record, table or image could hold it."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise InputError(
            f"{harmless(str(path))} has a name that is no text in UTF-8. Rename it, or the folder "
            "that it lies in."
        ) from None


def _slices(files: Sequence[Path], folder: Path, places: Set[Path]) -> Opening:
    """Open the slices among some files; those that their names order only right in `places`."""
    read_beginnings_ahead(files)
    kinds = [(path, kind_of_one(path)) for path in files]
    for name, reader in READERS.items():
        if not reader.slices_by:
            continue
        own = [path for path, kind in kinds if kind == name]
        if not own:
            continue
        here = [path for path in own if reader.slices_by == "header" or path.parent in places]
        if not here:
            where = sorted({str(path.parent.relative_to(folder)) for path in own})
            raise InputError(
                f"The folder {folder} holds no images itself; the {reader.title} files are in its "
                f"folders {shortened(where)}. Open one of these."
            )
        others = [path for path, kind in kinds if kind != name]
        return (yield from _read(reader, reader.read_slices, here, folder, others))
    raise InputError(
        f"The folder {folder} holds no image stack: none of its {len(files)} files "
        f"({shortened([path.name for path in files])}) is {_titles_of_slices()}."
    )


def _read(reader: Reader, function: Function, *what: Any) -> Opening:
    reader.require()
    found = resolved(function)(*what)
    if not isinstance(found, list | Volume):
        found = yield from found
    return [found] if isinstance(found, Volume) else found


def _why_not(path: Path) -> str:
    """Return why a file is not read."""
    if path.stat().st_size == 0:
        return f"{path.name} is empty (0 bytes)."
    meant = next((each for each in READERS.values() if each.is_named_like(path)), None)
    if meant is not None and meant.hint:
        return f"{path.name} cannot be read as {meant.title}: {meant.hint}."
    if meant is not None:
        with path.open("rb") as file:
            start = file.read(12)
        return f"{path.name} is named like {meant.title} but is not: it begins with {start!r}."
    suffix = path.suffix.lower()
    if suffix in _PICTURES:
        return (
            f"{path.name} is a photograph or picture format ({suffix}); "
            f"{titles(READERS.values(), 'and')} are read. Save it as a greyscale TIFF first, for "
            "example in ImageJ."
        )
    return f"{path.name} is not a file that can be read; expected {titles(READERS.values())}."


def _titles_of_slices() -> str:
    return titles(reader for reader in READERS.values() if reader.slices_by)
