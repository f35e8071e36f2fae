"""A recorder of short films of the window, driven by real drops, clicks and drags of a mouse."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from screenshots import settle, wait
from screenshots_walk import PATIENCE, Walk, click, find_link

if TYPE_CHECKING:
    from pathlib import Path

#: Size of the recorded window, and width of the film, in pixels.
SIZE, WIDTH = (1200, 800), 800

#: Height of the caption in pixels, and the number of colours of a film.
CAPTION, COLOURS = 30, 64

#: Milliseconds for which a frame of a moving cursor, a pressed button and a result are shown.
GLIDE_MS, PRESS_MS, HOLD_MS = 90, 400, 1400

#: Frames for each movement of the cursor.
STEPS = 3

#: Outline of the cursor, from its tip.
_ARROW = ((0, 0), (0, 17), (4, 13), (7, 19), (10, 18), (7, 12), (12, 12))


class Recorder(Walk):
    """A window whose frames are recorded, with the cursor drawn in.

    `caption`: the text below the frames that follow.
    """

    def __init__(self, viewer: Any, file: Path) -> None:
        super().__init__(viewer, file.parent, "")
        self.caption = ""
        self._file = file
        self._frames: list[tuple[Image.Image, int]] = []
        self._shown: Any = None
        self._at = (SIZE[0] // 2, SIZE[1] - 90)

    # ---- frames

    def hold(self, milliseconds: int = HOLD_MS) -> None:
        """Record the window as it is now."""
        settle(0.4)
        self._shown = self.viewer.screenshot(canvas_only=False, flash=False)[..., :3]
        self._add(milliseconds)

    def forget(self) -> None:
        """Leave out everything that was recorded so far."""
        self._frames.clear()

    def _add(self, milliseconds: int, tag: str = "", is_pressed: bool = False) -> None:
        """Add a frame of the window as it was last recorded."""
        picture = Image.fromarray(self._shown)
        if picture.size != SIZE:
            sys.exit(f"the window has {picture.size} pixels instead of {SIZE}")
        scale = WIDTH / picture.width
        height = round(picture.height * scale)
        whole = Image.new("RGB", (WIDTH, height + CAPTION), "black")
        whole.paste(picture.resize((WIDTH, height), Image.Resampling.LANCZOS))
        draw = ImageDraw.Draw(whole)
        font = ImageFont.load_default(size=17)
        draw.text((10, height + 4), self.caption, fill="white", font=font)
        x, y = (round(each * scale) for each in self._at)
        if is_pressed:
            draw.ellipse((x - 14, y - 14, x + 14, y + 14), outline="yellow", width=3)
        draw.polygon([(x + dx, y + dy) for dx, dy in _ARROW], fill="white", outline="black")
        if tag:
            small = ImageFont.load_default(size=14)
            left, top, right, bottom = draw.textbbox((x + 18, y + 16), tag, font=small)
            draw.rectangle((left - 4, top - 3, right + 4, bottom + 3), fill="white")
            draw.text((x + 18, y + 16), tag, fill="black", font=small)
        self._frames.append((whole, milliseconds))

    def save(self) -> None:
        """Write the frames as an animated GIF with one palette."""
        pictures, times = zip(*self._frames, strict=True)
        chosen = np.vstack([np.asarray(each)[::3, ::3] for each in pictures[:: len(pictures) // 8]])
        palette = Image.fromarray(chosen).quantize(COLOURS, Image.Quantize.FASTOCTREE)
        flat = [each.quantize(palette=palette, dither=Image.Dither.NONE) for each in pictures]
        flat[0].save(
            self._file, save_all=True, append_images=flat[1:], duration=list(times), loop=0,
            optimize=False, disposal=1,
        )  # fmt: skip
        size = self._file.stat().st_size / 1e6
        print(f"{self._file.name}: {len(flat)} frames, {sum(times) / 1e3:.0f} s, {size:.2f} MB")

    # ---- the mouse

    def press(self, widget: Any, place: Any = None, after: int = HOLD_MS) -> None:
        """Move to a widget, click on it, and record its effect."""
        self._reach(widget, place)
        click(widget, place)
        self.hold(after)

    def press_tab(self, name: str) -> None:
        """Click on the tab of a widget."""
        self.press(*self.find_tab(name))

    def press_link(self, label: Any, words: str, after: int = HOLD_MS) -> None:
        """Click on the link in a label that begins with some words."""
        self.press(label, find_link(label, words), after)

    def press_row(self, table: Any, row: int, column: int = 0) -> None:
        """Scroll to a row of a table and click on it."""
        index = table.model().index(row, column)
        table.scrollTo(index)
        self.press(table.viewport(), table.visualRect(index).center())

    def scroll_to(self, widget: Any) -> None:
        """Scroll until a widget is in sight."""
        from qtpy.QtWidgets import QScrollArea

        area = widget.parentWidget()
        while not isinstance(area, QScrollArea):
            area = area.parentWidget()
        area.ensureWidgetVisible(widget)
        self.hold()

    def bring(self, path: Path, layers: int = 1) -> Any:
        """Drag a file or folder onto the canvas and drop it; return the new top layer."""
        canvas = self.viewer.window._qt_viewer
        self._at = (20, SIZE[1] - 40)
        self._glide(canvas, canvas.rect().center(), tag=path.name)
        layer = self.drop(path, layers)
        self.viewer.reset_view()
        self.hold()
        return layer

    def drag(self, layer: Any, *voxels: Any, with_control: bool = False) -> None:
        """Press the left button on a voxel of a layer, move to others, and let go."""
        from qtpy.QtCore import QEvent, Qt

        none, left = Qt.MouseButton.NoButton, Qt.MouseButton.LeftButton
        keys = Qt.KeyboardModifier
        held = keys.ControlModifier if with_control else keys.NoModifier
        places = [self._place(layer, voxel) for voxel in voxels]
        native = self.viewer.window._qt_viewer.canvas.native
        self._reach(native, places[0].toPoint())
        send = self._send
        # vispy and napari skip moves that follow within 10 and 5 ms
        send(QEvent.Type.MouseMove, places[0], none, none, held)
        settle(0.05)
        send(QEvent.Type.MouseButtonPress, places[0], left, left, held)
        for place in places[1:]:
            send(QEvent.Type.MouseMove, place, none, left, held)
            settle(0.05)
            self._move(native, place.toPoint())
            self.hold(GLIDE_MS * 2)
        send(QEvent.Type.MouseButtonRelease, places[-1], left, none, held)
        self.hold()

    def _send(self, kind: Any, place: Any, button: Any, held: Any, keys: Any) -> None:
        from qtpy.QtCore import QPointF
        from qtpy.QtGui import QMouseEvent
        from qtpy.QtWidgets import QApplication

        native = self.viewer.window._qt_viewer.canvas.native
        whole = QPointF(native.mapToGlobal(place.toPoint()))
        QApplication.sendEvent(native, QMouseEvent(kind, place, whole, button, held, keys))

    def _place(self, layer: Any, voxel: Any) -> Any:
        """Return where a voxel lies on the canvas."""
        from qtpy.QtCore import QPointF

        node = self.viewer.window._qt_viewer.canvas.layer_to_visual[layer].node
        shown = [voxel[axis] for axis in self.viewer.dims.displayed]
        # vispy has x first, and in 2D begins at the edge of a voxel
        place = [each + 0.5 * (len(shown) == 2) for each in reversed(shown)]
        to_canvas = node.get_transform("visual", "canvas")
        x, y, _, w = to_canvas.map([*place, *[0] * (3 - len(place)), 1])
        return QPointF(x / w, y / w)

    def _reach(self, widget: Any, place: Any) -> None:
        """Move the cursor to a widget and show that it presses."""
        self.hold(GLIDE_MS)
        self._glide(widget, widget.rect().center() if place is None else place)
        self._add(PRESS_MS, is_pressed=True)

    def _glide(self, widget: Any, place: Any, tag: str = "") -> None:
        if self._shown is None:
            self.hold(GLIDE_MS)
        start = np.array(self._at)
        self._move(widget, place)
        end = self._at
        for share in np.linspace(0, 1, STEPS + 1)[1:]:
            self._at = tuple(np.rint(start + share * (np.array(end) - start)).astype(int))
            self._add(GLIDE_MS, tag)

    def _move(self, widget: Any, place: Any) -> None:
        at = widget.mapTo(self.window, place)
        self._at = (at.x(), at.y())

    # ---- jobs

    def finished(self, job: Any) -> None:
        """Wait for the end of a job, and record its result."""
        wait(lambda: job.is_running or bool(job._result.text()), PATIENCE)
        wait(lambda: not job.is_running, PATIENCE)
        self.hold()
