"""Make the pictures of the form of Segment pores, its intervals and its local thickness.

    xvfb-run -a -s "-screen 0 1600x1000x24" python docs/screenshots_pores.py [FOLDER]

Writes ``pores-threshold.png`` (two thresholds in the histogram, and the void that they make),
``pores-kinds.png`` (pores by whether a face of the volume cuts them), ``form.png`` (the foam form),
``intervals.png`` (the band of thresholds in the histogram, and the intervals), ``rev.png`` (the
porosity of cubes by their edge) and ``thickness.png`` (local thickness as a layer and as a
distribution) into FOLDER, by default ``docs/images``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from screenshots import SIZE, finish, own_settings, press_run, save, settle, wait, widget
from screenshots_results import close_docks


def main(folder: Path) -> None:
    own_settings()
    import napari

    from hushpore.sample_data.phantom import foam_phantom
    from hushpore.viewer.layers.conversion import layer_data

    viewer = napari.Viewer(title="hushpore")
    viewer.window._qt_window.resize(*SIZE)
    # the noise of a denoised foam
    data, keywords, _ = layer_data(foam_phantom(noise=0.12, rings=0.0).volume)
    viewer.add_image(data, **keywords)
    viewer.reset_view()
    pores, _ = widget(viewer, "Pores")
    wait(lambda: not pores.greys.is_busy, 300)
    wait(lambda: "looking" not in pores.device.native.line.text(), 300)
    pores.greys._hysteresis.setChecked(True)
    pores.greys.histogram.moved.emit("threshold", -150.0)
    pores.greys.histogram.moved.emit("hysteresis", -700.0)
    wait(lambda: not pores.greys.is_busy, 300)
    save(viewer, folder / "pores-threshold.png")
    pores.form.reset()
    press_run(pores)
    finish(pores)
    results, _ = widget(viewer, "Table")
    settle()
    viewer.reset_view()
    results.colours.by.choose("touches_border")
    save(viewer, folder / "pores-kinds.png")
    results.form.choice.setCurrentIndex(results.form.choice.findData("foam"))
    results._tabs.setCurrentWidget(results.form)
    wait(lambda: results.form.table is not None, 300)
    save(viewer, folder / "form.png")
    viewer.layers.remove(viewer.layers[-1])
    close_docks(viewer)
    picture_measures(viewer, folder)
    viewer.close()


def picture_measures(viewer: Any, folder: Path) -> None:
    """Measure intervals and local thickness, and picture each."""
    pores, _ = widget(viewer, "Pores")
    wait(lambda: not pores.greys.is_busy, 300)
    pores.form.local_thickness.value = "both"
    pores.form.tortuosity.value = pores.form.intervals.value = True
    press_run(pores)
    finish(pores)
    save(viewer, folder / "intervals.png")
    from hushpore.viewer.results.plots import REV

    plots, _ = widget(viewer, "Plots")
    settle()
    plots._kind.setCurrentText(REV)
    save(viewer, folder / "rev.png")
    for layer in viewer.layers:
        layer.visible = layer.name.endswith("thickness (pores)")
    plots._kind.setCurrentText("Local thickness")
    save(viewer, folder / "thickness.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "images")
