"""Make the pictures of docs/patches.md: the patches widget on the phantom.

    xvfb-run -a -s "-screen 0 1600x1000x24" python docs/screenshots_patches.py [SECONDS]

Writes ``patches-phantom.png`` and ``patches-live.png`` into docs/images.
The denoiser trains for SECONDS, by default 30. ``patches-residual.png`` is of
``docs/patches_residual.py``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from screenshots import finish, own_settings, press_run, save, settle, wait

SIZE = (1500, 900)
IMAGES = Path(__file__).parent / "images"


def main(seconds: float) -> None:
    from hushpore.viewer.docks import dock_of, open_page

    own_settings()
    import napari

    from hushpore.viewer.launch import arrange

    viewer = napari.Viewer(title="hushpore")
    viewer.window._qt_window.resize(*SIZE)
    arrange(viewer)
    viewer.open_sample("hushpore", "foam")
    denoise = open_page(viewer, "Denoise")
    patches = open_page(viewer, "Patches")
    dock = dock_of(patches.native)
    viewer.layers.selection.active = viewer.layers[0]
    viewer.reset_view()
    denoise.time_budget.value = seconds
    # longer than the pictures take
    denoise.steps.value = 100_000
    wait(lambda: "looking" not in denoise.device.native.line.text(), 300)
    press_run(denoise)
    dock.raise_()
    patches.live.setChecked(True)
    wait(lambda: any("live" in layer.name for layer in viewer.layers), 120)
    settle(min(seconds / 3, 8))
    layer = next(layer for layer in viewer.layers if "live" in layer.name)
    viewer.dims.set_point(0, layer.data_to_world(layer.data[0, 0])[0])
    save(viewer, IMAGES / "patches-live.png")
    patches.live.setChecked(False)
    finish(denoise)
    dock.raise_()
    patches.n_patches.value = 400
    patches.sampler.value = "stratified"
    press_run(patches)
    finish(patches)
    panel = patches.panel
    panel.feature.setCurrentText("loss")
    result = panel.result
    order = result.features["loss"].argsort()[::-1]
    panel.mark(int(order[0]))
    panel.go_to(int(order[0]))
    viewer.reset_view()
    for layer in viewer.layers:
        if layer.name.endswith(("denoised", "removed noise")):
            layer.visible = False
    patches._lower.ensureWidgetVisible(panel.table)
    save(viewer, IMAGES / "patches-phantom.png")
    viewer.close()


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 30.0)
