"""Make the pictures of the documentation from real runs in napari.

    xvfb-run -a -s "-screen 0 1600x1000x24" python docs/screenshots.py [FOLDER [SECONDS]]

Writes ``napari.png`` (slices, both jobs done), ``napari-live.png`` (a denoising in four steps, from
Run to its result), ``results.png`` (the table) and ``results-brush.png`` (a plot) into FOLDER, by
default ``docs/images``. The denoiser trains for SECONDS, by default 40; on two slow cores more look
better.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE = (1366, 768)

#: Rows and columns of the window that hold the canvas and the dock beside it.
LIVE = (slice(22, 720), slice(333, 1366))


def main(folder: Path, seconds: float) -> None:
    own_settings()
    import napari

    from hushpore.viewer.launch import arrange

    folder.mkdir(parents=True, exist_ok=True)
    viewer = napari.Viewer(title="hushpore")
    viewer.window._qt_window.resize(*SIZE)
    arrange(viewer)
    viewer.open_sample("hushpore", "foam")
    viewer.layers.selection.active = viewer.layers[0]
    viewer.reset_view()
    denoise, _ = widget(viewer, "Denoise")
    denoise.time_budget.value = seconds
    wait(lambda: "looking" not in denoise.device.native.line.text(), 300)
    press_run(denoise)
    steps = []
    for share in (0, 40, 450):
        wait(lambda share=share: has_preview(denoise, share), 3 * seconds)
        if share == 450:
            wait(lambda: denoise.timing.has_content, 3 * seconds)
            denoise.timing.set_open(True)
            denoise._lower.bring_into_view(denoise.timing)
        steps.append(take(viewer))
    denoise.timing.set_open(False)
    finish(denoise)
    steps.append(take(viewer))
    save_steps(steps, folder / "napari-live.png")
    pores, dock = widget(viewer, "Pores")
    dock.raise_()
    press_run(pores)
    finish(pores)
    labels = viewer.layers.selection.active
    labels.opacity = 0.5
    save(viewer, folder / "napari.png")
    picture_results(viewer, labels, folder)
    viewer.close()


def own_settings() -> Path:
    """Use a new configuration folder without saved settings, and return it.

    Must be called before napari is imported.
    """
    folder = Path(tempfile.mkdtemp())
    os.environ["NAPARI_CONFIG"] = str(folder / "settings.yaml")
    os.environ["HUSHPORE_CONFIG"] = str(folder / "hushpore")
    os.environ.setdefault("NAPARI_ASYNC", "0")
    # files of other programs in the common folder should not show in the pictures
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    return folder


def picture_results(viewer: Any, labels: Any, folder: Path) -> None:
    """Write ``results.png`` (table and colours) and ``results-brush.png`` (a brush, linked)."""
    viewer.dims.ndisplay = 2
    viewer.reset_view()
    for layer in viewer.layers:
        layer.visible = not layer.name.startswith("true") and "removed" not in layer.name
    viewer.layers.selection.active = labels
    results, _ = widget(viewer, "Table")
    settle()
    labels.opacity = 0.7
    results.colours.by.choose("equivalent_diameter")
    save(viewer, folder / "results.png")
    results._filter.setText("not touches_border")
    results.apply_filter()
    plots, _ = widget(viewer, "Plots")
    plots._kind.setCurrentText("Scatter plot")
    sizes = plots.view.tables.pores["equivalent_diameter"]
    corners = [SimpleNamespace(xdata=float(sizes.quantile(0.6)), ydata=0.0)]
    corners += [SimpleNamespace(xdata=float(sizes.quantile(0.8)), ydata=1.0)]
    plots._brushed(*corners)
    save(viewer, folder / "results-brush.png")


def widget(viewer: Any, name: str) -> tuple[Any, Any]:
    from hushpore.viewer.docks import dock_of, open_page

    inner = open_page(viewer, name)
    return inner, dock_of(getattr(inner, "native", inner))


def press_run(job: Any) -> None:
    job._buttons.run.click()
    if not job.is_running:
        sys.exit(f"{type(job).__name__} did not start: {job._result.text()}")


def finish(job: Any) -> None:
    wait(lambda: not job.is_running, 900)
    print(type(job).__name__, job._result.text())


def wait(done: Callable[[], bool], seconds: float) -> None:
    """Process events until a condition holds."""
    from qtpy.QtWidgets import QApplication

    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            sys.exit("waited too long")
        QApplication.processEvents()
        time.sleep(0.02)


def has_preview(denoise: Any, share: int) -> bool:
    """Return whether a job has reached a progress, in thousandths, and shows a preview."""
    shown = denoise._progress
    return not share or (shown.bar.value() >= share and "preview" in shown.stage.text())


def settle(seconds: float = 0.8) -> None:
    """Process events until the window is drawn."""
    start = time.monotonic()
    wait(lambda: time.monotonic() - start > seconds, seconds + 5)


def take(viewer: Any) -> Any:
    """Return the canvas and the dock beside it as an array."""
    settle()
    return viewer.screenshot(canvas_only=False, flash=False)[LIVE]


def save_steps(steps: list[Any], path: Path) -> None:
    """Lay four pictures out in two rows, with white between them."""
    import imageio.v3 as iio
    import numpy as np

    framed = [np.pad(step, ((0, 12), (0, 12), (0, 0)), constant_values=255) for step in steps]
    rows = [np.hstack(framed[:2]), np.hstack(framed[2:])]
    iio.imwrite(path, np.vstack(rows)[:-12, :-12])


def save(viewer: Any, path: Path) -> None:
    settle()
    viewer.screenshot(str(path), canvas_only=False, flash=False)


if __name__ == "__main__":
    where = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "images"
    main(where, float(sys.argv[2]) if len(sys.argv) > 2 else 40.0)
