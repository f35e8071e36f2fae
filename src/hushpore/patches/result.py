"""The result of a patch job: patches, their features, and a contact sheet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.events import Note, ResultFiles, by_importance
from hushpore.base.formatting import readable_count, readable_number
from hushpore.base.volume import Volume

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt
    import pandas as pd

    from hushpore.base.arrays import Array, Float32s, Float64s, Int64s

#: Pixels between tiles, and between the bands of a sheet.
GAP, BAND_GAP = 2, 8

#: Pixels on both sides of the names of rows.
CAPTION_GAP = 3


@dataclass(frozen=True, eq=False)
class Sheet:
    """A picture of many patches.

    Each patch has a tile in every row of its band; bands follow one another down the sheet.
    """

    # float32, shape (y, x); the lowest value of the tiles where there is none
    image: Float32s
    rows: tuple[str, ...]  # what the rows of a band show, from the top
    # int64: which patch each column is, from left to right, band by band
    patches: Int64s
    tile: tuple[int, int]  # (y, x) of a tile
    columns: int  # patches in a band

    @property
    def captioned(self) -> Float32s:
        """The picture with the name of each row at its left; `caption_width` pixels wider."""
        from PIL import Image, ImageDraw

        height, width = self.image.shape[0], self.caption_width
        page = Image.new("L", (width, height))
        pen, depth = ImageDraw.Draw(page), _depth(self.tile, len(self.rows))
        for top in range(0, height if len(self.patches) else 0, depth + BAND_GAP):
            for number, name in enumerate(self.rows):
                middle = top + number * (self.tile[0] + GAP) + self.tile[0] / 2
                where = width - CAPTION_GAP, middle
                pen.text(where, name, fill=255, font=self._font, anchor="rm")
        share = np.asarray(page, np.float32) / 255
        low, high = self.image.min(), self.image.max()
        return np.hstack([low + share * (high - low), self.image])

    @property
    def caption_width(self) -> int:
        """Width of the names of rows beside the picture, in pixels."""
        return int(max(self._font.getlength(name) for name in self.rows)) + 2 * CAPTION_GAP

    @property
    def _font(self) -> Any:
        from PIL import ImageFont

        return ImageFont.load_default(float(np.clip(self.tile[0] / 3, 8, 20)))

    def box_of(self, patch: int) -> tuple[int, int, int, int] | None:
        """Return first and last pixel, (y, x, y, x), of all tiles of a patch, or None."""
        places = np.flatnonzero(self.patches == patch)
        if not len(places):
            return None
        y, x = _corner(int(places[0]), self.columns, self.tile, len(self.rows))
        return y, x, y + _depth(self.tile, len(self.rows)) - 1, x + self.tile[1] - 1

    def at(self, y: float, x: float) -> tuple[int, str] | None:
        """Return the patch and the row at a pixel, or None between the tiles."""
        height, width = self.tile
        depth = _depth(self.tile, len(self.rows))
        band, down = divmod(round(y), depth + BAND_GAP)
        column, across = divmod(round(x), width + GAP)
        row, inside = divmod(down, height + GAP)
        place = band * self.columns + column
        outside = not 0 <= column < self.columns or not 0 <= place < len(self.patches)
        if outside or row >= len(self.rows) or inside >= height or across >= width or band < 0:
            return None
        return int(self.patches[place]), self.rows[row]


def contact_sheet(
    rows: Mapping[str, Array],
    patches: npt.NDArray[np.integer[Any]] | None = None,
    columns: int | None = None,
) -> Sheet:
    """Return a contact sheet of patches.

    `rows`: what to show of each patch, from the top: shape (n_patches, y, x), one shape for all.
    `patches`: the number of each patch, kept in the sheet; by default 0, 1, 2, ... `columns`:
    patches side by side; by default as many as make the sheet about square.
    """
    first = next(iter(rows.values()))
    count, *tile = first.shape
    numbers = np.arange(count) if patches is None else np.asarray(patches, np.int64)
    height, width = tile
    depth = _depth((height, width), len(rows))
    if columns is None:
        columns = max(1, round(np.sqrt(count * (depth + BAND_GAP) / (width + GAP))))
        # as many bands, evenly filled
        columns = -(-count // max(1, -(-count // columns)))
    columns = int(np.clip(columns, 1, max(count, 1)))
    bands = -(-count // columns)
    shape = (max(bands * (depth + BAND_GAP) - BAND_GAP, 1), max(columns * (width + GAP) - GAP, 1))
    lowest = min((float(row.min()) for row in rows.values() if row.size), default=0.0)
    image = np.full(shape, lowest, np.float32)
    for place in range(count):
        y, x = _corner(place, columns, (height, width), len(rows))
        for number, row in enumerate(rows.values()):
            top = y + number * (height + GAP)
            image[top : top + height, x : x + width] = row[place]
    return Sheet(image, tuple(rows), numbers, (height, width), columns)


def _depth(tile: tuple[int, int], n_rows: int) -> int:
    return n_rows * (tile[0] + GAP) - GAP


def _corner(place: int, columns: int, tile: tuple[int, int], n_rows: int) -> tuple[int, int]:
    band, column = divmod(place, columns)
    return band * (_depth(tile, n_rows) + BAND_GAP), column * (tile[1] + GAP)


# ---- what comes out

#: Patches on the contact sheet in a result folder.
TILES = 48


@dataclass(frozen=True, eq=False)
class BlindSpots:
    """Masked pixels of each patch, and their prediction by a network."""

    # int64, shape (n_patches, n_hidden, n_spatial): from the first voxel of the patch
    positions: Int64s
    # float32, shape (n_patches, n_hidden): grey values there, before and after hiding
    originals: Float32s
    replacements: Float32s
    # float32, shape (n_patches, *size): grey values that the network predicts of the patch with its
    # pixels hidden. None without a model.
    predictions: Float32s | None = None
    # float32, shape (n_patches,): mean squared error at the hidden pixels, in units of the variance
    # that the model was trained on, as the denoiser's loss
    losses: Float32s | None = None


@dataclass(frozen=True, eq=False)
class Patches:
    """Sampled patches."""

    # int64, shape (n_patches, volume.ndim): first voxel of each patch on every axis
    corners: Int64s
    patches: Array  # shape (n_patches, *patch_shape), dtype of the volume
    patch_shape: tuple[int, ...]  # (y, x) of a patch that lies in one slice, or (z, y, x)
    # shape (n_patches,) each: order, mean, sd, gradient; and loss where there is a model
    features: dict[str, Float64s]
    # int64, shape (n_groups, group_size): numbers of patches that are neighbours, each group's
    # centre first; n_groups is 0 where none were asked for
    groups: Int64s
    blind: BlindSpots | None  # hidden pixels, where they were looked at
    volume: Volume  # where they come from
    timings: dict[str, float]  # seconds by stage
    provenance: dict[str, Any]  # the record of the job

    @property
    def headline(self) -> str:
        """Number and size of the patches, their loss, and the groups."""
        edge = " x ".join(str(n) for n in self.patch_shape)
        text = f"{readable_count(len(self.corners), 'patch', 'patches')} of {edge} px"
        if "loss" in self.features:
            losses = self.features["loss"]
            median, most = (
                readable_number(float(end)) for end in (np.median(losses), losses.max())
            )
            text += f", loss {median} (median), {most} at most"
        if len(self.groups):
            text += f", {readable_count(len(self.groups), 'group')} of {self.groups.shape[1]}"
        return text

    @property
    def remarks(self) -> tuple[Note, ...]:
        """Notes on the patches, the most important first."""
        return by_importance(map(Note.of_dict, self.provenance["remarks"]))

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the input and on the sampling."""
        return tuple(self.provenance["notes"])

    def files(self) -> ResultFiles:
        """Return the files of the result: a contact sheet and tables.

        The sheet shows the hardest patches first where there is a model, else the first that were
        drawn; in the PNG the greys between the 0.1st and 99.9th percentile, in the TIFF all of
        them. Where groups were asked for there is ``groups.csv`` too; ``hidden.csv`` holds the
        hidden pixels of the patches on the sheet, with the values before and after hiding.
        """
        import pandas as pd

        shown = self.ranked("loss" if "loss" in self.features else "order", TILES)
        sheet = self.sheet(shown)
        tables = {"patches": self.table()}
        if len(self.groups):
            names = ["centre", *(f"neighbour_{n}" for n in range(1, self.groups.shape[1]))]
            tables["groups"] = pd.DataFrame(self.groups, columns=names)
        if self.blind is not None:
            tables["hidden"] = self._hidden_table(shown)
        return ResultFiles(
            {"sheet": Volume(sheet.image, name="contact sheet")},
            tables,
            {"sheet": _png(sheet.image)},
            provenance={"sheet": {"rows": list(sheet.rows), "patches": sheet.patches.tolist()}},
        )

    def _hidden_table(self, shown: Int64s) -> pd.DataFrame:
        import pandas as pd

        assert self.blind is not None
        where = np.concatenate([self.hidden_voxels(int(patch)) for patch in shown])
        return pd.DataFrame(
            {
                "patch": np.repeat(shown, self.blind.positions.shape[1]),
                **dict(zip(self.volume.axes, where.T, strict=True)),
                "original": self.blind.originals[shown].ravel(),
                "replacement": self.blind.replacements[shown].ravel(),
            }
        )

    @property
    def centres(self) -> Float64s:
        """Centre of each patch, in voxels: float64, shape (n_patches, volume.ndim)."""
        middle = np.zeros(self.corners.shape[1])
        middle[-len(self.patch_shape) :] = (np.array(self.patch_shape) - 1) / 2
        return self.corners + middle

    def at(self, point: Float64s) -> Int64s:
        """Return the patches that contain a point, the one with the nearest centre first.

        `point`: (volume.ndim,), in voxels.
        """
        size = np.ones(self.corners.shape[1])
        size[-len(self.patch_shape) :] = self.patch_shape
        from_first = point - self.corners + 0.5
        inside = np.flatnonzero(((from_first >= 0) & (from_first < size)).all(axis=1))
        away = (from_first[inside] - size / 2)[:, -len(self.patch_shape) :]
        return inside[np.argsort((away**2).sum(axis=1), kind="stable")]

    def table(self) -> pd.DataFrame:
        """Return a table of the patches: loss, first voxel (a column per axis), other features."""
        import pandas as pd

        corners = dict(zip(self.volume.axes, self.corners.T, strict=True))
        loss = {"loss": self.features["loss"]} if "loss" in self.features else {}
        numbers = np.arange(len(self.corners))
        return pd.DataFrame({"patch": numbers, **loss, **corners, **self.features})

    def hidden_voxels(self, patch: int) -> Int64s:
        """Return the positions of the masked pixels of a patch, (n_hidden, volume.ndim)."""
        assert self.blind is not None
        inside = self.blind.positions[patch]
        found = np.repeat(self.corners[patch][None], len(inside), axis=0)
        found[:, -inside.shape[1] :] += inside
        return found

    def ranked(self, feature: str, count: int) -> Int64s:
        """Return the first patches sorted by a feature, highest first; by order, lowest first."""
        values = self.features[feature]
        order = np.argsort(values if feature == "order" else -values, kind="stable")
        return order[:count].astype(np.int64)

    def sheet(self, patches: Int64s | None = None) -> Sheet:
        """Return a contact sheet of some patches, by default of all, in the order given.

        Its rows are, as far as they are known: original; masked, with the hidden pixels black or
        white, whichever stands out; replaced, which is what the network is given; prediction; and
        residual, which is original less prediction, about the middle of the grey values. Of a 3D
        patch the slice in the middle is shown.
        """
        chosen = np.arange(len(self.corners)) if patches is None else patches
        middle = self.patch_shape[0] // 2 if len(self.patch_shape) == 3 else None
        cut = (slice(None),) if middle is None else (slice(None), middle)
        original = self.patches[chosen][cut].astype(np.float32)
        rows = {"original": original}
        if self.blind is not None:
            rows |= self._hidden_rows(original, chosen, middle)
            if self.blind.predictions is not None:
                predicted = self.blind.predictions[chosen][cut]
                grey = np.float32((original.min() + original.max()) / 2)
                rows["prediction"] = predicted
                rows["residual"] = original - predicted + grey
        return contact_sheet(rows, chosen)

    def _hidden_rows(
        self, original: Float32s, chosen: Int64s, middle: int | None
    ) -> dict[str, Float32s]:
        assert self.blind is not None
        masked, replaced = original.copy(), original.copy()
        low, high = original.min(), original.max()
        positions = self.blind.positions[chosen]
        patch, hidden = np.nonzero(
            np.ones(positions.shape[:2], bool) if middle is None else positions[..., 0] == middle
        )
        y, x = positions[patch, hidden, -2], positions[patch, hidden, -1]
        means = original.reshape(len(original), -1).mean(1)
        stands_out = np.where(means > (low + high) / 2, low, high)
        masked[patch, y, x] = stands_out[patch]
        replaced[patch, y, x] = self.blind.replacements[chosen][patch, hidden]
        return {"masked": masked, "replaced": replaced}


def _png(image: Float32s) -> bytes:
    import imagecodecs

    low, high = np.percentile(image, (0.1, 99.9))
    grey = (image - low) / max(high - low, np.finfo(np.float32).tiny)
    return bytes(imagecodecs.png_encode((grey.clip(0, 1) * 255).astype(np.uint8)))
