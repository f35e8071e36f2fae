"""What belongs to a job only while it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hushpore.base.events import Note
from hushpore.viewer.previews import Previews
from hushpore.viewer.progress import Activity, Eta, Pace, canvas_text
from hushpore.viewer.status_line import StatusLine
from hushpore.viewer.target import slice_on_screen

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.base.events import Preview, Progress
    from hushpore.viewer.target import Target
    from hushpore.viewer.worker import JobWorker


@dataclass
class Running:
    """The worker of a running job, and its traces in the viewer: previews, canvas, activity dock.

    Parameters
    ----------
    viewer : napari.components.ViewerModel
        Where it runs.
    worker : JobWorker
        Drives the job.
    target : Target
        What the job works on.
    """

    viewer: Any
    worker: JobWorker
    target: Target
    notes: list[Note] = field(default_factory=list)
    eta: Eta = field(default_factory=Eta)
    pace: Pace = field(default_factory=Pace)

    def __post_init__(self) -> None:
        self.previews = Previews(self.viewer, self.target)
        self._line = StatusLine(self.viewer)
        self._activity: Activity | None = None

    def show_activity(self, cancel: Callable[[], None]) -> None:
        """Put the job into napari's activity dock, with what its Cancel does."""
        self._activity = Activity(self.worker.name, cancel)

    def attend(self) -> None:
        """Tell the job which of its slices is on the screen."""
        index = slice_on_screen(self.viewer, self.target)
        if index is not None:
            self.worker.attend(index)

    def show_preview(self, preview: Preview) -> None:
        """Show a preview; what goes wrong with it becomes a note and must not touch the job."""
        try:
            self.previews.show(preview)
        except Exception as error:
            self.notes.append(Note(f"The preview could not be shown: {error}", warning=True))

    def show_progress(self, progress: Progress, rate: float | None, left: float | None) -> None:
        """Say on the canvas and in the activity dock how far the job is."""
        self._line.show(canvas_text(self.worker.name, progress, rate, left))
        if self._activity is not None:
            # last, for napari handles other events here, the end of this very job among them
            self._activity.show(progress)

    def remove(self) -> None:
        """Take away every trace."""
        self.previews.remove()
        self._line.remove()
        if self._activity is not None:
            self._activity.close()
