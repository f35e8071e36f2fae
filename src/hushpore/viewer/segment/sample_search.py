"""The search for the sample of the input layer, and the lines on what the histogram covers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QObject, QTimer, Signal

from hushpore.base.events import Progress, mapped
from hushpore.base.formatting import percent_digits, readable_grey, readable_percent
from hushpore.viewer.running.worker import LatestOnlyWorker
from hushpore.viewer.segment.grey_panel import prepare_kernels

if TYPE_CHECKING:
    from hushpore.base.events import Job
    from hushpore.base.volume import Volume
    from hushpore.pores.preview import GreySurvey, SampleFinder, SampleGreys
    from hushpore.pores.settings import PoreSettings

#: Milliseconds for which settings must be left alone before the sample is searched again, so that
#: the search does not slow down a drag of the threshold.
PAUSE = 300

_NBSP = "\u00a0"

#: Settings that do not change the sample much: while it is searched again, the last one is shown.
_GRADUAL = ("threshold", "hysteresis", "otsu_classes")


class SampleSearch(QObject):
    """Finds the sample in a thread.

    `sample`: grey values of the sample; None if all voxels count, or until it is found.
    """

    #: Emitted when `sample` has changed.
    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.sample: SampleGreys | None = None
        self._finder: SampleFinder | None = None
        # plausible thresholds, and the shares of void at these
        self._range: tuple[tuple[float, float], list[float]] | None = None
        self._wanted: tuple[Volume, PoreSettings, GreySurvey] | None = None
        self._pause = QTimer(self, singleShot=True, interval=PAUSE, timeout=self._start)
        self._worker = LatestOnlyWorker("sample")
        self._worker.returned.connect(self._found)
        self._worker.failed.connect(self._failed)

    @property
    def is_busy(self) -> bool:
        """Whether the sample of the newest settings is not known yet."""
        return bool(self._pause.isActive() or self._worker.is_busy)

    def follow(self, volume: Volume | None, settings: PoreSettings, greys: GreySurvey) -> None:
        """Search the sample for settings, unless that is done already.

        `volume`: 2D or 3D, with its masks; None: there is nothing to search.
        """
        from hushpore.pores.preview import sample_settings

        used = None if volume is None else sample_settings(settings, greys)
        if volume is None or used is None:
            self.clear()
            return
        before = self._wanted
        is_same = before is not None and before[2] is greys and _masks(before[0]) == _masks(volume)
        if is_same and before is not None and before[1] == used:
            return
        self._worker.cancel()
        if not is_same:
            self._finder = None
        self._wanted = volume, used, greys
        if is_same and before is not None and _steady(before[1]) == _steady(used):
            self._pause.start()
            return
        self._show(None)
        self._start()

    def clear(self) -> None:
        """Forget the sample."""
        self._wanted = self._finder = None
        self._pause.stop()
        self._worker.cancel()
        self._show(None)

    def describe(
        self, settings: PoreSettings, greys: GreySurvey, ends: tuple[float, float] | None
    ) -> str:
        """Return two lines: what the histogram covers, and void at plausible thresholds.

        `ends`: range of these; None: there is none.
        """
        sample = self.sample
        where = "Whole scan"
        if greys.share < 1:
            where = f"{readable_percent(greys.share)} of the scan, in slices"
        if sample is not None and sample.excluded:
            where = f"Sample, in {sample.slices} slices" if sample.slices else "Sample"
            covered = f"{where}; {readable_percent(sample.excluded)} of the scan is exterior."
        elif sample is not None:
            covered = f"{where}; no exterior air found."
        elif (self._wanted and self.is_busy) or not greys.is_known(settings):
            covered = f"{where}; looking for exterior air …"
        elif settings.keeps_all:
            covered = f"{where}; exterior air counts as pore."
        else:
            covered = f"{where}."
        # a second line in any case, so that nothing below moves
        return f"{covered}\n{self._void_between(ends, settings, greys) if ends else _NBSP}"

    def _void_between(
        self, ends: tuple[float, float], settings: PoreSettings, greys: GreySurvey
    ) -> str:
        """Return the void at plausible thresholds; it stays as it is while a number is dragged."""
        if self._range is None or self._range[0] != ends or isinstance(settings.threshold, str):
            histogram = (self.sample or greys.of(settings)).histogram
            bright = settings.pores_are == "bright"
            self._range = ends, sorted(histogram.share_beyond(end, bright) for end in ends)
        low, high = (readable_grey(end) for end in ends)
        least, most = (percent_digits(share) for share in self._range[1])
        return f"Plausible: {low} to {high}, void {least} to {most} %."

    def _start(self) -> None:
        if self._wanted is None:
            return
        volume, used, greys = self._wanted
        if self._finder is None:
            from hushpore.pores.preview import SampleFinder

            self._finder = SampleFinder(volume)
        self._worker.submit(partial(_find, self._finder, used, greys), self._wanted)

    def _found(self, tag: object, sample: SampleGreys) -> None:
        if tag is self._wanted:
            self._show(sample)

    def _failed(self, tag: object, problem: object) -> None:
        # Run reports it; until then shares are those of the whole scan
        if tag is self._wanted:
            self._show(None)

    def _show(self, sample: SampleGreys | None) -> None:
        if self.sample is None or sample is None:
            self._range = None
        self.sample = sample
        self.changed.emit()


def _steady(settings: PoreSettings) -> dict[str, Any]:
    return {key: value for key, value in settings.to_dict().items() if key not in _GRADUAL}


def _masks(volume: Volume) -> list[int]:
    return [id(volume.data), *map(id, volume.auxiliary.values())]


def _find(finder: SampleFinder, settings: PoreSettings, greys: GreySurvey) -> Job:
    from hushpore.pores.parallel import KernelThreads

    yield from prepare_kernels(settings)
    with KernelThreads() as threads:
        found = finder.find(settings, greys, threads)
        return (yield from mapped(found, lambda share: Progress("sample", 0, 0, "", share)))
