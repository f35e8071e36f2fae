"""Make the pictures of comparisons, batches and preferences.

    xvfb-run -a -s "-screen 0 1600x1000x24" python docs/screenshots_results.py [FOLDER [SECONDS]]

Segments the foam phantom before and after denoising, and writes ``compare.png`` (both side by
side), ``batch.png`` (a batch of five scans at work, one of them broken), ``batch-plot.png`` (these
scans by groups) and ``preferences.png`` into FOLDER, by default ``docs/images``. The denoiser
trains for SECONDS, by default 40.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from screenshots import SIZE, own_settings, save, settle, wait, widget


def main(folder: Path, seconds: float) -> None:
    scratch = own_settings()
    import napari

    folder.mkdir(parents=True, exist_ok=True)
    viewer = napari.Viewer(title="hushpore")
    viewer.window._qt_window.resize(*SIZE)
    viewer.canvas.overlays.scale_bar.visible = True
    picture_compare(viewer, folder / "compare.png", seconds)
    picture_batch(viewer, folder / "batch.png", scratch)
    picture_preferences(viewer, folder / "preferences.png")
    viewer.close()


def picture_compare(viewer: Any, path: Path, seconds: float) -> None:
    """Compare the pores of the phantom before and after denoising."""
    from napari.layers import Layer

    import hushpore
    from hushpore.sample_data import foam_phantom
    from hushpore.viewer.layers.conversion import layer_data
    from hushpore.viewer.results.pore_layer import pore_layer

    noisy = foam_phantom().volume
    denoised = hushpore.denoise(noisy, time_budget=seconds).volume
    viewer.add_layer(Layer.create(*layer_data(denoised, name="foam phantom · denoised")))
    for volume, name in ((noisy, "noisy"), (denoised, "denoised")):
        # smaller pores are noise and would fill the picture
        found = hushpore.segment_pores(volume, minimum_voxels=30)
        viewer.add_layer(Layer.create(*pore_layer(found, f"pores, {name}")))
    viewer.layers[-1].opacity = 0.5
    viewer.layers[-2].visible = False
    viewer.reset_view()
    compare, _ = widget(viewer, "Compare")
    wait(lambda: compare.result is not None, 300)
    save(viewer, path)


def picture_batch(viewer: Any, path: Path, scratch: Path) -> None:
    """Run a batch, and picture it meanwhile."""
    from hushpore.io.results import write_image
    from hushpore.sample_data import foam_phantom

    scans = []
    for number in range(1, 6):
        group, voxel = ("wheat", 0.05) if number <= 3 else ("rye", 0.04)
        (scratch / group).mkdir(exist_ok=True)
        scans.append(scratch / group / f"bread {number}.tif")
        volume = foam_phantom((40, 128, 128), seed=number, voxel=voxel, noise=0.12).volume
        write_image(scans[-1], volume)
    scans[2].write_text("The disk was full.")
    close_docks(viewer)
    batch, _ = widget(viewer, "Batch")
    batch.add(map(str, scans))
    batch.groups.value = "folder"
    batch.output.value = scratch / "results"
    batch.denoise.value = False
    batch.run()
    wait(lambda: done(batch) >= 3 or not batch.is_running, 300)
    save(viewer, path)
    wait(lambda: not batch.is_running, 300)
    # in a separate window
    plot = batch.plot()
    settle()
    plot.window().grab().save(str(path.with_stem("batch-plot")))


def close_docks(viewer: Any) -> None:
    """Close the widgets that are open."""
    for inner in list(viewer.window.dock_widgets.values()):
        viewer.window.remove_dock_widget(getattr(inner, "native", inner))


def done(batch: Any) -> int:
    """Return the number of finished scans in the list."""
    rows = range(batch.scans.native.topLevelItemCount())
    states = [batch.scans.native.topLevelItem(row).text(1) for row in rows]
    return sum(state in ("done", "failed") for state in states)


def picture_preferences(viewer: Any, path: Path) -> None:
    close_docks(viewer)
    from hushpore.viewer.docks import open_preferences

    open_preferences()
    (page,) = viewer.window.dock_widgets.values()
    wait(lambda: "Looking" not in page._files.text() + page._device.text(), 300)
    page.form.memory.value = 8
    save(viewer, path)


if __name__ == "__main__":
    where = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "images"
    main(where, float(sys.argv[2]) if len(sys.argv) > 2 else 40.0)
