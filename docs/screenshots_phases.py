"""Make the pictures of docs/howto/phases.md and strokes.md: a rock, and striped grains.

    xvfb-run -a -s "-screen 0 1366x768x24" python docs/screenshots_phases.py [THEME [FOLDER]]

Writes ``phases.png`` and ``strokes.png`` into FOLDER, by default docs/images.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from screenshots import finish, own_settings, press_run, save, settle, wait

if TYPE_CHECKING:
    from hushpore.base.volume import Volume

SIZE = (1366, 768)
IMAGES = Path(__file__).parent / "images"

#: Shares of the four phases, from the darkest, and their grey values.
SHARES, GREYS = (0.15, 0.35, 0.35, 0.15), (40, 110, 160, 220)


def main(theme: str, folder: Path) -> None:
    from hushpore.viewer.docks import open_page

    own_settings()
    import napari
    import numpy as np
    from scipy import ndimage

    rng = np.random.default_rng(0)
    field = ndimage.gaussian_filter(rng.normal(size=(64, 128, 128)), 5)
    phase = np.digitize(field, np.quantile(field, np.cumsum(SHARES)[:-1]))
    rock = (np.array(GREYS)[phase] + rng.normal(0, 9, field.shape)).clip(0, 255).astype(np.uint8)
    viewer = napari.Viewer(title="hushpore")
    viewer.theme = theme
    viewer.window._qt_window.resize(*SIZE)
    layer = viewer.add_image(rock, name="rock", scale=(1.5,) * 3, units=("um",) * 3)
    layer.axis_labels = ("z", "y", "x")
    widget = open_page(viewer, "Phases")
    widget.phases.value = 4
    widget.names.value = "pores, clay, quartz, pyrite"
    wait(lambda: not widget.panel.is_busy, 300)
    viewer.reset_view()
    settle(1)
    # as after dragging a line
    widget.panel.histogram.moved.emit("1", 80.0)
    settle(1)
    wait(lambda: not widget.panel.is_busy, 300)
    press_run(widget)
    finish(widget)
    settle(1)
    save(viewer, folder / "phases.png")
    viewer.close()


def striped_grains(seed: int) -> tuple[Volume, Any]:
    """Return a scan of grains striped along y and along x, with pores, and its phases."""
    import numpy as np
    from scipy import ndimage

    from hushpore import Volume

    rng = np.random.default_rng(seed)
    z, y, x = np.indices((24, 160, 160))
    fields = [ndimage.gaussian_filter(rng.normal(size=z.shape), sigma) for sigma in (12, 4)]
    phase = np.where(fields[0] > 0, 2, 3)
    grey = 2000 + 300 * np.sin(np.pi / 3 * np.where(phase == 2, x, y))
    pores = fields[1] < np.quantile(fields[1], 0.15)
    phase[pores], grey[pores] = 1, 1000
    grey = ndimage.gaussian_filter(grey + rng.normal(0, 250, z.shape), 0.6).astype(np.uint16)
    return Volume(grey, spacing=1.5, unit="um", name="grains"), phase


def strokes(theme: str, folder: Path) -> None:
    """A few strokes on one slice of striped grains."""
    import napari
    import numpy as np

    from hushpore.viewer.docks import open_page

    scan, phase = striped_grains(1)
    rng = np.random.default_rng(1)
    viewer = napari.Viewer(title="hushpore")
    viewer.theme = theme
    viewer.window._qt_window.resize(*SIZE)
    layer = viewer.add_image(scan.data, name="grains", scale=(1.5,) * 3, units=("um",) * 3)
    # without them napari calls the slider "-3"
    layer.axis_labels = ("z", "y", "x")
    widget = open_page(viewer, "Phases")
    wait(lambda: not widget.panel.is_busy, 300)
    panel = widget.strokes_panel
    panel.paint.click()
    layer = viewer.layers["grains · strokes"]
    for label in (1, 2, 3):
        for row, column in rng.permutation(np.argwhere(phase[12] == label))[:8]:
            for step in range(8):
                place = (12, int(row), min(int(column) + step, 159))
                if phase[place] == label:
                    layer.paint(place, label)
    viewer.reset_view()
    settle(1)
    wait(lambda: not panel.is_busy, 300)
    settle(1)
    save(viewer, folder / "strokes.png")
    viewer.close()


if __name__ == "__main__":
    words = (
        sys.argv[1] if len(sys.argv) > 1 else "dark",
        Path(sys.argv[2]) if len(sys.argv) > 2 else IMAGES,
    )
    main(*words)
    strokes(*words)
