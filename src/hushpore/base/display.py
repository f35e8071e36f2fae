"""How volumes and results are shown in a console, in a notebook, and in napari."""

from __future__ import annotations

import base64
import html
import struct
import zlib
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hushpore.base.errors import MissingPackageError

if TYPE_CHECKING:
    from hushpore.base.arrays import Array, UInt8s

#: Rows of a table and pixels of a side of the picture in a notebook.
ROWS, SIDE = 5, 256

_SHOW = "hushpore.viewer.launch:show"


class Displayed:
    """A volume, or a result with a ``volume`` and a ``headline``."""

    #: Attribute with the table that a notebook shows.
    _table: ClassVar[str] = ""

    def __repr__(self) -> str:
        """Return one line: kind, name and headline, or the facts of a volume."""
        of: Any = self
        volume = getattr(of, "volume", of)
        headline = of.facts if volume is of else of.headline
        return f"{type(self).__name__} {'' if volume is of else 'of '}{volume.name!r}: {headline}"

    def _repr_html_(self) -> str:
        """Return the line, the slice in the middle, and the first rows of the table."""
        of: Any = self
        volume, labels = getattr(of, "volume", of), getattr(of, "labels", None)
        image, labels = _middle(volume.data), None if labels is None else _middle(labels)
        picture = base64.b64encode(png(drawn(image, labels))).decode()
        (high, wide), (dy, dx) = image.shape, volume.spacing[-2:]
        size = f'width="{SIDE}" height="{max(1, round(SIDE * high * dy / (wide * dx)))}"'
        parts = [f"<p>{html.escape(repr(self))}</p>"]
        parts.append(f'<img {size} alt="middle slice" src="data:image/png;base64,{picture}">')
        if self._table:
            table = getattr(self, self._table)
            parts.append(table.head(ROWS).to_html(index=False, float_format="{:.4g}".format))
            if len(table) > ROWS:
                parts.append(f"<p>{len(table):,} rows in all</p>")
        return "".join(parts)

    def show(self, viewer: Any = None) -> Any:
        """Show the volume, or the layers of the result over its volume, in napari.

        Parameters
        ----------
        viewer : napari.Viewer, optional
            Where the layers are added. By default the current viewer, or else a new one.

        Returns
        -------
        napari.Viewer
            The viewer; in a script, ``napari.run()`` keeps its window open.

        Raises
        ------
        MissingPackageError
            If napari or Qt is not installed. A notebook shows a picture without them.

        Examples
        --------
        >>> viewer = hushpore.segment_pores(scan).show()  # doctest: +SKIP
        """
        try:
            show = resolve_name(_SHOW)
        except ImportError as error:
            raise MissingPackageError(
                'Layers need napari and Qt. Install them with: pip install "hushpore[all]"'
            ) from error
        return show(self, viewer)


def _middle(data: Any) -> Array:
    """Return the slice in the middle: of the first time and channel, in 2D the image."""
    first = (0,) * max(data.ndim - 3, 0)
    return np.asarray(data[(*first, data.shape[-3] // 2)] if data.ndim > 2 else data[...])


def drawn(image: Array, labels: Array | None = None) -> UInt8s:
    """Return a slice in grey, with labels in colours over it, as an RGB picture of at most `SIDE`.

    Parameters
    ----------
    image : numpy.ndarray
        (y, x), any numbers; grey from the 0.5th to the 99.5th percentile.
    labels : numpy.ndarray, optional
        (y, x), integers; 0 is transparent.

    Returns
    -------
    numpy.ndarray
        (y, x, 3), uint8.
    """
    every = (slice(None, None, -(-max(image.shape) // SIDE)),) * 2
    values = np.asarray(image[every], np.float64)
    finite = values[np.isfinite(values)]
    low, high = np.percentile(finite, (0.5, 99.5)) if finite.size else (0.0, 1.0)
    grey = np.nan_to_num((values - low) / max(high - low, 1e-300), posinf=1, neginf=0).clip(0, 1)
    picture = np.repeat(255 * grey[..., None], 3, axis=-1)
    if labels is not None:
        numbers = np.asarray(labels[every], np.int64)
        # multiples of large primes: neighbouring labels differ in colour
        colours = numbers[..., None] * np.array([9973, 7919, 6101]) % 192 + 64
        picture = np.where(numbers[..., None] > 0, (picture + colours) / 2, picture)
    return picture.astype(np.uint8)


def png(picture: UInt8s) -> bytes:
    """Return an RGB picture (y, x, 3), uint8, as a PNG file."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + check

    high, wide, _ = picture.shape
    # each row begins with the number of its filter
    rows = np.insert(picture.reshape(high, -1), 0, 0, axis=1).tobytes()
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", wide, high, 8, 2, 0, 0, 0))
    end = chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows)) + end
