"""Make the pictures of the form of pores: lines that are dragged, and pores coloured by kinds.

    xvfb-run -a -s "-screen 0 1600x1000x24" python docs/screenshots_pores.py [FOLDER]

Writes ``pores-threshold.png`` (two thresholds in the histogram, and the void that they make) and
``pores-kinds.png`` (pores by whether a face of the volume cuts them) into FOLDER, by default
``docs/images``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from screenshots import SIZE, finish, own_settings, press_run, save, settle, wait, widget


def main(folder: Path) -> None:
    own_settings()
    import napari

    from hushpore.sample_data.phantom import foam_phantom
    from hushpore.viewer.layers.conversion import layer_data

    viewer = napari.Viewer(title="hushpore")
    viewer.window._qt_window.resize(*SIZE)
    # as quiet as a foam is once it is denoised
    data, keywords, _ = layer_data(foam_phantom(noise=0.12, rings=0.0).volume)
    viewer.add_image(data, **keywords)
    viewer.reset_view()
    pores, _ = widget(viewer, "Segment pores")
    wait(lambda: not pores.greys.is_busy, 60)
    wait(lambda: "looking" not in pores.device.native.line.text(), 60)
    pores.greys._hysteresis.setChecked(True)
    pores.greys.histogram.moved.emit("threshold", -150.0)
    pores.greys.histogram.moved.emit("hysteresis", -700.0)
    wait(lambda: not pores.greys.is_busy, 60)
    save(viewer, folder / "pores-threshold.png")
    pores.form.reset()
    press_run(pores)
    finish(pores)
    results, _ = widget(viewer, "Results")
    settle()
    viewer.reset_view()
    results.colours.by.choose("touches_border")
    save(viewer, folder / "pores-kinds.png")
    viewer.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "images")
