"""The options of reading a scan: command line, batch, conversion and record follow from them."""

from __future__ import annotations

from dataclasses import dataclass

from hushpore.base.settings import Settings, option

#: Position that stands for every time and channel, in batches.
ALL = "all"


@dataclass(frozen=True, kw_only=True)
class Reading(Settings):
    """How a scan is read, independent of its path.

    `resample` and what is above it in this list come first, then `crop`, `bin` and `flatten`.
    """

    series: str = option(
        "", "Image stack to use, by its number or name in the output of info. Empty: the largest.",
        metavar="N|NAME",
    )  # fmt: skip
    resample: bool = option(
        False,
        "Interpolate unevenly spaced or missing slices to an even spacing first.",
        label="Resample uneven slices",
    )
    at: tuple[str, ...] = option(
        (),
        "Position on a time or channel axis, for example t=0; several for more axes. In a batch, "
        "all gives a result and a row for each position.",
        metavar="AXIS=N",
    )
    voxel_size: str = option(
        "",
        "Voxel size, if the file gives none or a wrong one: 15.4um, or as z,y,x: 5,0.49,0.49mm.",
        metavar="SIZE",
    )
    axes: str = option(
        "",
        "Axes of the image, if wrong in the file: zyx for slices labelled as frames (tyx).",
        metavar="AXES",
    )
    shape: str = option(
        "", "Shape of a raw file without header, in voxels along z,y,x: 400,512,512.",
        metavar="Z,Y,X",
    )  # fmt: skip
    dtype: str = option(
        "",
        "Data type of a raw file: uint8, uint16, int16, float32. Empty: guessed from the file "
        "size.",
        metavar="TYPE",
    )
    byte_order: str = option(
        "", "Byte order of a raw file, little or big (endian). Empty: little.",
        choices=("", "little", "big"), metavar="ORDER",
    )  # fmt: skip
    offset: int = option(
        0, "Header size of a raw file to skip, in bytes.", minimum=0, metavar="BYTES"
    )
    crop: str = option(
        "",
        "Read only a box, in voxels along z,y,x: 100:300,0:512,0:512 (ends are excluded); sample: "
        "the box around the sample; cylinder: the largest upright cylinder inside it.",
        metavar="BOX",
    )
    bin: str = option(
        "", "Average blocks of voxels, after cropping: 2, or along z,y,x: 1,2,2.", metavar="N"
    )
    flatten: str = option(
        "",
        "Remove drift and cupping (beam hardening) of the grey value of the solid, after cropping "
        "and binning.",
        choices=("", "bright", "dark"),
        flag_value="bright",
    )
    trust: bool = option(
        False,
        "Also read files compressed more than 1,000:1 or with more than 100,000 frames or pages "
        "(only from a source that you trust).",
        label="Allow high compression",
        of_run=True,
    )
