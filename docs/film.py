"""Make the films of the documentation.

    xvfb-run -a -s "-screen 0 1600x1000x24" python docs/film.py [NAME ...]

Writes ``film.gif`` (NAME slice: a slice that clears while the denoiser trains) and
``film-NAME.gif`` for each journey of docs/film_journeys.py (a window driven by drops and clicks)
into ``docs/images``; by default all.

For the slice the sample phantom is denoised on the CPU for about a minute, and each preview of its
middle slice is taken. The noisy slice comes first, and the denoised slice stays longest.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from film_journeys import JOURNEYS
from PIL import Image, ImageDraw, ImageFont
from screenshots import own_settings

import hushpore
from hushpore.base.events import Preview, Progress
from hushpore.sample_data import foam_phantom

if TYPE_CHECKING:
    import numpy.typing as npt

FILE = Path(__file__).with_name("images") / "film.gif"

#: Seconds of training, pixels on the screen for each pixel of the slice, and number of frames.
TIME_BUDGET, ZOOM, FRAMES = 60.0, 2, 30

#: Height of the caption in pixels.
CAPTION = 24

#: How long the first and the last slice are shown, and the previews: the early ones longer.
FIRST_MS, LAST_MS, EARLY_MS, LATE_MS, EARLY = 2000, 4000, 700, 180, 6

#: Previews with less contrast than this share of that of the result show nothing yet.
LEAST_CONTRAST = 0.3


def main(names: list[str]) -> None:
    """Make the named films, each journey in a new window."""
    scratch = own_settings()
    for name in names or ["slice", *JOURNEYS]:
        if name == "slice":
            film_slice()
        else:
            film_journey(name, scratch / name)


def film_journey(name: str, scratch: Path) -> None:
    """Film one journey."""
    import napari
    from film_recorder import SIZE, Recorder

    from hushpore.viewer.launch import arrange

    scratch.mkdir()
    viewer = napari.Viewer(title="hushpore")
    viewer.window._qt_window.resize(*SIZE)
    arrange(viewer)
    film = Recorder(viewer, FILE.with_name(f"film-{name}.gif"))
    JOURNEYS[name](film, scratch)
    film.save()
    viewer.close()


def film_slice(file: Path = FILE) -> None:
    """Train, collect the previews, and write them with the first and the last slice."""
    volume = foam_phantom().volume
    middle = (volume.shape[0] - 1) // 2
    previews: list[npt.NDArray[Any]] = []
    steps: list[int] = []
    trained = 0

    def collect(event: object) -> None:
        nonlocal trained
        if isinstance(event, Progress) and event.unit == "steps":
            trained = event.done
        if isinstance(event, Preview) and event.index == (middle,):
            previews.append(np.array(event.image, np.float32))
            steps.append(trained)

    settings = {"time_budget": TIME_BUDGET, "seed": 0}
    denoised = hushpore.run("denoise", volume, settings, "cpu", collect)
    clean = np.asarray(denoised.volume.data[middle], np.float32)
    shown = [each.std() > LEAST_CONTRAST * clean.std() for each in previews]
    kept = _evenly([step for step, is_shown in zip(steps, shown, strict=True) if is_shown], FRAMES)
    chosen = [index for index, step in enumerate(steps) if step in kept]
    # wider than the contrast of the result, so that the noise does not turn black and white
    low, high = np.percentile(clean, (0.5, 99.5))
    low, high = low - (high - low) / 2, high + (high - low) / 2
    frames = [_frame(volume.data[middle], low, high, "noisy CT slice")]
    frames += [_frame(previews[index], low, high, f"step {steps[index]}") for index in chosen]
    frames.append(_frame(clean, low, high, f"denoised, {trained} steps on the CPU"))
    early = min(EARLY, len(chosen))
    durations = [FIRST_MS, *[EARLY_MS] * early, *[LATE_MS] * (len(chosen) - early), LAST_MS]
    frames[0].save(
        file, save_all=True, append_images=frames[1:], duration=durations, loop=0, optimize=True
    )
    print(f"{file.name}: {len(frames)} frames, {file.stat().st_size / 1e6:.1f} MB")


def _evenly(steps: list[int], count: int) -> set[int]:
    """Return at most `count` of the steps, spread evenly over the square root of their number.

    The slice clears fastest at the beginning, so most frames come from there.
    """
    wanted = np.linspace(0, np.sqrt(steps[-1]), count) ** 2
    return {min(steps, key=lambda step: abs(step - each)) for each in wanted}


def _frame(slice_: npt.NDArray[Any], low: float, high: float, caption: str) -> Image.Image:
    """Return a slice as a grey image of 64 levels, with a caption below it."""
    grey = np.clip((np.asarray(slice_, np.float32) - low) / (high - low), 0, 1)
    levels = np.round(grey * 63).astype(np.uint8) * 4
    picture = Image.fromarray(levels).resize(
        (levels.shape[1] * ZOOM, levels.shape[0] * ZOOM), Image.Resampling.BICUBIC
    )
    whole = Image.new("L", (picture.width, picture.height + CAPTION))
    whole.paste(picture.point(lambda level: level // 4 * 4))
    font = ImageFont.load_default(size=14)
    ImageDraw.Draw(whole).text((6, picture.height + 3), caption, fill=252, font=font)
    return whole


if __name__ == "__main__":
    main(sys.argv[1:])
