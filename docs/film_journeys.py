"""The journeys of the documentation that are shown as films: each drives a window by the mouse."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import tifffile
from screenshots import has_preview, settle, wait
from screenshots_walk import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

    from film_recorder import Recorder

    from hushpore.base.volume import Volume

#: Shape of the scans in the films.
SHAPE = (40, 128, 128)

#: Progress of a training, in thousandths, at which its preview is recorded.
PREVIEWS = (5, 30, 110)


def denoise(film: Recorder, scratch: Path) -> None:
    """Drop a noisy scan, denoise it, and compare both."""
    from hushpore.sample_data import foam_phantom

    path = _saved(foam_phantom(SHAPE).volume, scratch / "foam.tif")
    job = film.widget("Denoise")
    film.caption = "Drop a scan on the window"
    scan = film.bring(path)
    wait(lambda: "noise" in job._facts.text(), PATIENCE)
    wait(lambda: "ooking" not in job.device.native.line.text(), PATIENCE)
    film.caption = "Its shape, voxel size and noise are below Layer"
    film.hold()
    film.caption = "Run: the network trains on this scan alone"
    film.press(job._buttons.run)
    for share in PREVIEWS:
        wait(lambda share=share: has_preview(job, share), PATIENCE)
        film.hold(500)
    film.caption = "Finish now: end the training and denoise all slices"
    film.press(job._buttons.finish)
    film.finished(job)
    film.caption = "Before | after: drag the line over the slice"
    film.press_link(job._result, "Before")
    middle = (SHAPE[0] // 2, SHAPE[1] // 2)
    columns = (SHAPE[2] // 2, 30, 95)
    film.drag(scan, *[(*middle, column - 0.5) for column in columns])


def pores(film: Recorder, scratch: Path) -> None:
    """Segment pores, and look at them in the table and in 3D."""
    job = _segmented(film, scratch)
    film.caption = "The link below the result opens the table"
    film.press_link(job._result, "Open results table")
    results = film.widget("Table")
    film.caption = "Click a row: the window shows its pore"
    film.press_row(results.pores, 1)
    film.press_row(results.pores, 3)
    film.caption = "3D: all pores inside the transparent sample"
    film.press(results._in_3d)
    settle(2)
    film.hold(2500)


def correct(film: Recorder, scratch: Path) -> None:
    """Merge two pores, split one, and undo both."""
    job = _segmented(film, scratch)
    film.press_link(job._result, "Open results table")
    film.forget()
    results = film.widget("Table")
    panel = results.corrections
    layer = results.view.layer
    film.caption = "Results > Correct pores"
    fold = panel.parentWidget().parentWidget()
    film.press(fold.button, after=200)
    film.scroll_to(panel)
    first, second = _neighbours(np.asarray(layer.data), film.viewer.dims.current_step[0])
    film.caption = "Select two pores by a click; Ctrl adds the second"
    film.drag(layer, first)
    film.drag(layer, second, with_control=True)
    film.caption = "Merge"
    film.press(panel._buttons[0], after=200)
    _corrected(film, panel)
    film.caption = "Split: click two places in one pore"
    film.press(panel._buttons[3])
    film.drag(layer, first)
    film.drag(layer, second)
    film.caption = "Split again: the pore is cut at its neck"
    film.press(panel._buttons[3], after=200)
    _corrected(film, panel)
    film.caption = "Undo"
    film.press(panel._undo, after=200)
    _corrected(film, panel)


def crop(film: Recorder, scratch: Path) -> None:
    """Open a folder of slices, and keep the part with the sample."""
    from hushpore.sample_data import core_phantom

    folder = scratch / "core slices"
    folder.mkdir()
    for number, plane in enumerate(core_phantom((40, 160, 160)).volume.array()):
        tifffile.imwrite(folder / f"core_{number:04}.tif", plane)
    film.caption = "Drop a folder of slices on the window"
    film.bring(folder)
    film.caption = "Prepare: crop and bin the scan"
    panel = film.widget("Crop")
    settle(1)
    film.hold()
    film.caption = "Crop to sample: the box leaves out the air around it"
    film.press(panel._sample)
    wait(panel._sample.isEnabled, PATIENCE)
    film.hold()
    film.caption = "Crop: a new layer; the scan is unchanged"
    film.press(panel._run)
    wait(lambda: "Added" in panel._result.text(), PATIENCE)
    film.hold(2500)


def compare(film: Recorder, scratch: Path) -> None:
    """Drop two result folders, and compare them."""
    import hushpore
    from hushpore.runs.result_folder import write_result
    from hushpore.sample_data import foam_phantom

    film.caption = "Drop two result folders on the window"
    for number, voxel in enumerate((0.05, 0.06), 1):
        scan = foam_phantom(SHAPE, number, voxel=voxel, noise=0.12, rings=0.0).volume
        folder = scratch / f"loaf {number}"
        scan = dataclasses.replace(scan, name=folder.name)
        write_result(folder, [hushpore.segment_pores(scan)], scan)
        film.bring(folder)
        film.viewer.layers[-1].visible = number == 2
    film.caption = "Results: compare both"
    panel = film.widget("Compare")
    settle(1)
    wait(lambda: panel.result is not None, PATIENCE)
    film.hold(2500)
    film.caption = "Click a row of the table to plot it"
    for name in ("volume", "sphericity"):
        film.press_row(panel.table, panel.table._quantities.index(f"median {name} of pores"))


def strokes(film: Recorder, scratch: Path) -> None:
    """Paint strokes on phases of equal grey values, correct, run, and reuse the classifier."""
    from screenshots_phases import striped_grains

    (grains, phase), (later, _) = (striped_grains(seed) for seed in (1, 2))
    paths = [
        _saved(volume, scratch / f"{name}.tif")
        for name, volume in {"grains": grains, "later": later}.items()
    ]
    job = film.widget("Phases")
    film.caption = "Drop a scan on the window: two materials of one grey value"
    scan = film.bring(paths[0])
    panel = job.strokes_panel
    wait(lambda: not job.panel.is_busy and job.panel.greys is not None, PATIENCE)
    film.caption = "Plugins > hushpore > Pores, Phases: Paint"
    film.press(panel.paint)
    layer = film.viewer.layers["grains · strokes"]
    z = film.viewer.dims.current_step[0]
    for label, name in enumerate(("pores", "stripes along y", "stripes along x"), 1):
        film.caption = f"Label {label}: short strokes on {name}"
        layer.selected_label = label
        first, *others = _lines(phase[z] == label, 6, label)
        film.drag(layer, *[(z, *place) for place in first])
        # as the brush does
        for (y, x), *_ in others:
            for step in range(8):
                layer.paint((z, y, x + step), label)
        wait(lambda: not panel.is_busy, PATIENCE)
        film.hold()
    film.caption = "The slice follows each stroke"
    film.hold(2000)
    film.caption = "Doubt: paint where it is bright"
    film.press(panel.doubt)
    wait(lambda: not panel.is_busy, PATIENCE)
    film.hold()
    doubt = np.asarray(panel.previews[panel.doubt].layer.data)[0].astype(float)
    layer.selected_label = 3
    (line,) = _lines((phase[z] == 3) & (doubt > np.quantile(doubt, 0.8)), 1, 3)
    film.drag(layer, *[(z, *place) for place in line])
    wait(lambda: not panel.is_busy, PATIENCE)
    film.hold()
    film.press(panel.doubt)
    film.caption = "Run: the phases of all slices, in 3D"
    film.press(job._buttons.run, after=200)
    film.finished(job)
    film.caption = "Drop the next scan: Reuse takes the classifier, in one click"
    for each in film.viewer.layers:
        each.visible = False
    job.layer.value = film.bring(paths[1])
    scan.visible = False
    film.hold()
    film.press(panel.reuse, after=200)
    film.finished(job)
    film.hold(2500)


def _lines(where: Any, count: int, seed: int) -> list[list[tuple[int, int]]]:
    """Return lines of 8 pixels along x within a region of a slice, apart from each other."""
    rng = np.random.default_rng(seed)
    inside = np.lib.stride_tricks.sliding_window_view(where, 8, axis=1).all(axis=2)
    found: list[list[tuple[int, int]]] = []
    for y, x in rng.permutation(np.argwhere(inside)):
        if all(np.hypot(y - line[0][0], x - line[0][1]) > 20 for line in found):
            found.append([(int(y), int(x) + step) for step in (0, 4, 7)])
        if len(found) == count:
            break
    return found


def _segmented(film: Recorder, scratch: Path) -> Any:
    """Drop a scan and segment its pores; return the widget."""
    from hushpore.sample_data import foam_phantom

    path = _saved(foam_phantom(SHAPE, noise=0.06, rings=0.0).volume, scratch / "foam.tif")
    job = film.widget("Pores")
    film.caption = "Drop a scan on the window"
    film.bring(path)
    film.caption = "Pores: the histogram with the threshold"
    film.press_tab("Pores")
    wait(lambda: not job.greys.is_busy and job.greys.greys is not None, PATIENCE)
    film.hold()
    film.caption = "Run: porosity, number of pores and median diameter"
    film.press(job._buttons.run, after=200)
    film.finished(job)
    return job


def _saved(volume: Volume, path: Path) -> Path:
    from hushpore.io.results import write_image

    write_image(path, volume)
    return path


def _corrected(film: Recorder, panel: Any) -> None:
    wait(lambda: not panel.is_busy, PATIENCE)
    film.hold()


def _neighbours(labels: Any, z: int) -> tuple[Any, Any]:
    """Return the middles of the two largest pores that touch in a slice."""
    plane = labels[z]
    pairs = np.stack([plane[:, :-1].ravel(), plane[:, 1:].ravel()], 1)
    pairs = pairs[(pairs[:, 0] != pairs[:, 1]) & pairs.all(1)]
    areas = np.bincount(plane.ravel())
    pair = max(pairs.tolist(), key=lambda pair: min(areas[pair]))
    return tuple((z, *np.argwhere(plane == label).mean(0)) for label in pair)


JOURNEYS = {each.__name__: each for each in (denoise, pores, correct, crop, compare, strokes)}
