"""What belongs to a job only while it runs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QTimer

from hushpore.base.events import Note, Preview
from hushpore.viewer.running.activity import Activity
from hushpore.viewer.running.previews import Previews
from hushpore.viewer.running.priority import freeze_again, thaw
from hushpore.viewer.running.progress import Eta, RateMeter
from hushpore.viewer.running.status_line import StatusLine
from hushpore.viewer.running.target import slice_on_screen

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.base.events import Event, Progress
    from hushpore.viewer.running.target import Target
    from hushpore.viewer.running.worker import JobWorker


#: Seconds that a job has run when it comes into the activity dock: napari takes some hundredths of
#: a second to put it there, and who has waited no longer has not looked for it.
ACTIVITY_DELAY = 1.0


@dataclass
class RunState:
    """The worker of a running job, and its traces in the viewer: previews, canvas, activity dock.

    `cancel`: what Cancel in the activity dock does.
    """

    viewer: Any
    worker: JobWorker
    target: Target
    cancel: Callable[[], None]
    notes: list[Note] = field(default_factory=list)  # what it has remarked so far
    notes_shown: int = 0  # how many of them have been shown
    eta: Eta = field(default_factory=Eta)
    meter: RateMeter = field(default_factory=RateMeter)

    def __post_init__(self) -> None:
        self.previews = Previews(self.viewer, self.target)
        self.worker.prepare = self._prepare
        self.line = StatusLine(self.viewer)
        self._activity: Activity | None = None
        self._is_over = False
        # napari looks for garbage when a layer goes, which may have held gigabytes
        self.viewer.layers.events.removing.connect(self._layer_removing)

    def send_attention(self) -> None:
        """Tell the job which of its slices is on the screen."""
        index = slice_on_screen(self.viewer, self.target)
        if index is not None:
            self.worker.attend(index)

    def _prepare(self, event: Event) -> None:
        """Make ready in the thread of the job what is shown of an event."""
        if isinstance(event, Preview):
            # what goes wrong does so again when it is shown, and is said then
            with suppress(Exception):
                self.previews.make(event)

    def show_preview(self, preview: Preview) -> None:
        """Show a preview; what goes wrong with it becomes a note and must not touch the job."""
        try:
            self.previews.show(preview)
        except Exception as error:
            self.notes.append(Note(f"The preview could not be shown: {error}", warning=True))

    def show_activity(self, progress: Progress) -> None:
        """Say in the activity dock how far the job is; napari handles other events in it."""
        if self._activity is None and self.meter.elapsed >= ACTIVITY_DELAY:
            self._activity = Activity(self.worker.name, self.cancel)
            if self._is_over:
                # the end of this very job was among them
                self._activity.close()
        if self._activity is not None:
            self._activity.show(progress)

    def remove(self) -> None:
        """Take away every trace."""
        self._is_over = True
        self.viewer.layers.events.removing.disconnect(self._layer_removing)
        self.previews.remove()
        self.line.remove()
        if self._activity is not None:
            self._activity.close()

    def _layer_removing(self, event: Any) -> None:
        thaw()
        QTimer.singleShot(0, freeze_again)
