"""A session in the window that goes on and on: what is left of it, and what it loses.

In random order, from a seed, scans are dropped, jobs run, cancelled and ended early, pores merged
anew, layers saved, removed and opened again, settings, theme and view changed, and files dropped
that cannot be read. Every so many actions all layers are removed, and memory is looked at: its
last third must be within 5 % of that after the warm-up. Layers may only go when they are removed
here; errors may only be notifications; in the end no thread and no temporary file may be left.

Needs no screen: xvfb-run is used where there is none. Linux only.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
import traceback
import weakref
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from benchmarks._window import own_settings
from benchmarks.live import in_window, until, wait
from hushpore.viewer.running import problem

SEED = int(os.environ.get("HUSHPORE_SEED", "0"))
#: Actions after which all layers are removed and memory is looked at.
ROUND = 15
#: Share of the session that is warm-up, in which caches are filled.
WARM_UP = 0.25
#: Layers from which one is removed before anything else is done.
MANY = 8
#: Seconds within which whatever was asked for must have happened.
PATIENCE = 300
WIDGETS = ("Denoise", "Segment pores", "Show patches", "Batch of scans", "Results", "Plots",
           "How it was made")  # fmt: skip
#: Values that settings are changed to, by widget.
VALUES: dict[str, dict[str, list[Any]]] = {
    "Denoise": {"steps": [2, 5, 20], "patch_size": [32, 64], "seed": [0, 1, 2], "dimensions": [2],
                "method": ["n2v2"], "test_time_augmentation": [False], "context": [0]},
    "Segment pores": {"threshold": ["otsu", "li", 500.0, -1e9], "h": [0.1, 0.5, 2.0],
                      "minimum_voxels": [1, 8], "local_thickness": ["none", "void"],
                      "mode": ["all", "closed"], "pores_are": ["dark", "bright"]},
    "Show patches": {"n_patches": [10, 100], "patch_size": [16, 32]},
}  # fmt: skip


def measure(limit: float = 3600.0) -> dict[str, object]:
    """Let a session of so many seconds go on, and say what came of it."""
    return in_window("soak", str(SEED), str(limit))


class Session:
    """A window, what is done in it, and what is noticed.

    `folder`: for scans, results and all else. `seed`: of what is done, in which order. `log`: where
    it is said.
    """

    def __init__(self, folder: Path, seed: int, log: TextIO) -> None:
        import napari
        from napari.utils.notifications import notification_manager

        self.rng, self.log = random.Random(seed), log
        self.out = folder / "out"
        self.out.mkdir()
        self.good, self.bad = write_files(folder)
        self.faults: list[str] = []
        self.done: Counter[str] = Counter()
        self.said: Counter[str] = Counter()
        # as `napari.run` has it: what is raised in the window is said there
        notification_manager.__enter__()
        notification_manager.notification_ready.connect(self._notified)
        self.viewer = napari.Viewer(title="hushpore")
        self.viewer.window._qt_window.resize(1366, 768)
        wait(1.5)
        self.widgets = {
            name: self.viewer.window.add_plugin_dock_widget("hushpore", name)[1] for name in WIDGETS
        }
        self.jobs = {name: self.widgets[name] for name in VALUES}
        self.batch = self.widgets["Batch of scans"]
        for widget in self.jobs.values():
            device = widget.device.native
            until(lambda device=device: "looking" not in device.line.text(), 120)
        # small enough that a job takes a few seconds
        few = {name: values[0] for name, values in VALUES["Denoise"].items()}
        self.jobs["Denoise"].form.update(few)
        self.layers: dict[int, tuple[str, weakref.ref[Any]]] = {}

    def _notified(self, event: Any) -> None:
        note = event.value if hasattr(event, "value") else event
        severity = str(note.severity).lower()
        self.said[severity] += 1
        if "error" in severity:
            self.faults.append(f"an error: {note.message[:300]}")

    # ---- what is done

    def act(self) -> None:
        """Do one thing, and see that no layer was lost."""
        action = self.rng.choices(list(ACTIONS), list(ACTIONS.values()))[0]
        if len(self.viewer.layers) > MANY:
            action = "remove"
        before, start = len(self.faults), time.monotonic()
        self.do(action)
        self.done[action] += 1
        self._look_for_layers(action)
        took = time.monotonic() - start
        print(f"{action} {took:.1f} s", *self.faults[before:], file=self.log, flush=True)

    def do(self, action: str) -> None:
        """Do one thing and wait for its end: what the window throws at whoever calls is a fault."""
        try:
            getattr(self, action)()
            self.settle()
        except Exception as error:
            self.faults.append(f"{type(error).__name__}: {str(error)[:300]}")
            traceback.print_exc(file=self.log)

    def _look_for_layers(self, action: str) -> None:
        from hushpore.viewer.layers.origin import BEFORE, CANCELLED

        here = {id(layer): layer for layer in self.viewer.layers}
        for key, (name, _) in self.layers.items():
            # what was set aside goes with the next run
            if key not in here and not name.endswith((BEFORE, CANCELLED)):
                self.faults.append(f"{action} lost {name}")
        self.layers = {key: (layer.name, weakref.ref(layer)) for key, layer in here.items()}

    def settle(self) -> None:
        """Wait until nothing runs any more."""
        from hushpore.viewer.running.worker import JobWorker

        wait(0.1)
        until(
            lambda: (
                not (
                    JobWorker.running
                    or any(each.is_running for each in (*self.jobs.values(), self.batch))
                    or self.jobs["Segment pores"].remerging.is_busy
                )
            ),
            PATIENCE,
        )
        wait(0.2)

    def drop(self) -> None:
        """Drop a scan, which must be there then."""
        count = len(self.viewer.layers)
        self._open(self.rng.choice(self.good))
        until(lambda: len(self.viewer.layers) > count, PATIENCE)

    def drop_damaged(self) -> None:
        """Drop what cannot be read, which must be said and add nothing."""
        count, said = len(self.viewer.layers), self.said.total()
        self._open(self.rng.choice(self.bad))
        until(lambda: self.said.total() > said, PATIENCE)
        self.settle()
        if len(self.viewer.layers) != count:
            self.faults.append("a damaged file became a layer")

    def run(self) -> None:
        """Run a job to its end."""
        self._start()

    def cancel(self) -> None:
        """Start a job, and cancel it within two seconds."""
        widget = self._start()
        wait(self.rng.uniform(0, 2))
        if widget is not None and widget.is_running:
            widget._buttons.run.click()

    def finish(self) -> None:
        """Start a job, and press Finish now, where it can be pressed."""
        widget = self._start()
        wait(self.rng.uniform(0.5, 3))
        if widget is not None and widget.is_running and widget._buttons.finish.isEnabled():
            widget._buttons.finish.click()

    def remove_while_running(self) -> None:
        """Start a job, and remove its layer."""
        widget = self._start()
        if widget is not None and widget.layer.value is not None:
            wait(self.rng.uniform(0, 1))
            if widget.layer.value is not None:
                self._take_away(widget.layer.value)

    def run_batch(self) -> None:
        """Send some scans through a batch, and maybe cancel it."""
        batch = self.batch
        batch.scans.value = [str(each) for each in self.rng.sample(self.good[:3] + self.bad, 3)]
        batch.output.value = self.out / "batch"
        batch.denoise.value, batch.overwrite.value = False, True
        batch._run_button.click()
        if self.rng.random() < 0.3:
            wait(self.rng.uniform(0, 2))
            batch.cancel()

    def remove(self) -> None:
        """Remove a layer."""
        if self.viewer.layers:
            self._take_away(self.rng.choice(list(self.viewer.layers)))

    def save(self) -> None:
        """Save a layer over what was saved before, or where that cannot be; open it again."""
        from hushpore.runs.pore_result import labels_file
        from hushpore.viewer.results import saving

        if not self.viewer.layers:
            return
        layer = self.rng.choice(list(self.viewer.layers))
        place = self.rng.choice((self.out, self.out, Path("/proc")))
        image = self.rng.choice(("a.tif", "b.ome.zarr"))

        def answer(_parent: Any, _title: str, _proposed: str, kinds: str) -> Path:
            return place / ("folder" if "folder" in kinds else image)

        saving.ask_for_file = answer
        worker = saving.ask_and_save_result(self.viewer.window._qt_window, layer)
        if worker is None:
            return
        written: list[Path] = []
        worker.returned.connect(written.append)
        self.settle()
        opened = [labels_file(each) if each.name == "folder" else each for each in written]
        for path in filter(Path.exists, opened):
            count = len(self.viewer.layers)
            self._open(path)
            self.settle()
            if len(self.viewer.layers) == count:
                self.faults.append(f"{path.name} was written and cannot be opened")

    def change_settings(self) -> None:
        """Give some settings other values."""
        name = self.rng.choice(list(VALUES))
        form = self.jobs[name].form
        for key, values in VALUES[name].items():
            if self.rng.random() < 0.5:
                form.update({key: self.rng.choice(values)})

    def change_view(self) -> None:
        """Change theme, dimensions, slice, or which layer is active."""
        viewer, rng = self.viewer, self.rng
        kind = rng.randrange(5)
        if kind == 0:
            viewer.theme = rng.choice(("dark", "light"))
        elif kind == 1:
            viewer.dims.ndisplay = rng.choice((2, 3))
        elif kind == 2 and viewer.layers:
            viewer.layers.selection.active = rng.choice(list(viewer.layers))
        elif kind == 3 and viewer.layers:
            layer = rng.choice(list(viewer.layers))
            layer.visible = not layer.visible
        else:
            viewer.dims.set_current_step(0, rng.randrange(32))

    def merge(self) -> None:
        """Move the slider of the merge height."""
        merging = self.jobs["Segment pores"].remerging
        if not merging.isVisible():
            return
        for _ in range(5):
            merging._slider.setValue(self.rng.randrange(merging._slider.maximum()))
            wait(0.05)

    def filter(self) -> None:
        """Filter the table of pores."""
        words = ("num_voxels > 30", "sphericity <", "is_open", "")
        self.widgets["Results"]._filter.setText(self.rng.choice(words))

    def clear(self) -> None:
        """Remove all layers, and dismiss what was said.

        napari does that itself after four seconds, but only in a window that is active, which none
        is without a window manager: it would keep a widget for each message.
        """
        from napari._qt.dialogs.qt_notification import NapariQtNotification

        for layer in list(self.viewer.layers):
            self._take_away(layer)
        self.viewer.dims.ndisplay = 2
        for said in list(NapariQtNotification._instances):
            said.close()

    def _open(self, path: Path) -> None:
        self.viewer.window._qt_viewer._qt_open([str(path)], stack=False, plugin="hushpore")

    def _start(self) -> Any:
        widget = self.jobs[self.rng.choice(list(self.jobs))]
        if not self.viewer.layers:
            self.drop()
        self.viewer.layers.selection.active = self.rng.choice(list(self.viewer.layers))
        if not widget._buttons.run.isEnabled():
            return None
        widget._buttons.run.click()
        return widget

    def _take_away(self, layer: Any) -> None:
        self.layers.pop(id(layer), None)
        self.viewer.layers.remove(layer)


#: What is done, and how often beside each other.
ACTIONS = {
    "drop": 6, "drop_damaged": 2, "run": 6, "cancel": 4, "finish": 1, "remove_while_running": 1,
    "run_batch": 1, "remove": 4, "save": 4, "change_settings": 4, "change_view": 4, "merge": 2,
    "filter": 1,
}  # fmt: skip


def write_files(folder: Path) -> tuple[list[Path], list[Path]]:
    """Write scans of several formats, and files that cannot be read; returns both."""
    from benchmarks.live import tiled_foam
    from hushpore.io.dicom import write_series
    from hushpore.io.results import write_image

    scan = tiled_foam((64, 128, 128))
    scan = scan.replace(np.ascontiguousarray(scan.data[:32, :64, :64]))
    scans = folder / "scans"
    scans.mkdir()
    write_image(scans / "foam.tif", scan)
    write_image(scans / "core.ome.zarr", scan)
    np.save(scans / "plain.npy", np.asarray(scan.data))
    write_series(scan, scans / "series", seed=0)
    good = [scans / each for each in ("foam.tif", "core.ome.zarr", "plain.npy", "series")]
    whole = (scans / "foam.tif").read_bytes()
    (scans / "cut.tif").write_bytes(whole[: len(whole) // 2])
    whole = next((scans / "series").iterdir()).read_bytes()
    (scans / "cut.dcm").write_bytes(whole[: len(whole) // 2])
    (scans / "odd.npy").write_bytes(b"\x93NUMPY\1\0" + bytes(100))
    return good, [scans / each for each in ("cut.tif", "cut.dcm", "odd.npy")]


def memory() -> float:
    """Memory of this process in MB."""
    import psutil

    return round(psutil.Process().memory_info().rss / 1e6, 1)


def go_on(folder: Path, seed: int, seconds: float, log: TextIO) -> dict[str, object]:
    """Go through a session; returns what was done, how memory went, and what was wrong."""
    temporary = folder / "temporary"
    temporary.mkdir()
    tempfile.tempdir = str(temporary)
    os.environ["TMPDIR"] = str(temporary)
    session = Session(folder, seed, log)
    threads_before = set(threading.enumerate())
    start = time.monotonic()
    taken: list[tuple[float, float]] = []
    while time.monotonic() - start < seconds:
        for _ in range(ROUND):
            session.act()
        session.do("clear")
        gc.collect()
        taken.append((round(time.monotonic() - start), memory()))
        print(*taken[-1], len(gc.get_objects()), len(session.faults), file=log, flush=True)
        census(log)
    session.do("settle")
    kept, others = threads_left(session.viewer, threads_before)
    late = [megabytes for at, megabytes in taken if at > WARM_UP * seconds]
    third = max(1, len(late) // 3)
    first, last = (statistics.median(part) for part in (late[:third], late[-third:]))
    left = [str(each.relative_to(folder)) for each in temporary.rglob("*")]
    parts = [str(each.relative_to(folder)) for each in folder.rglob("*.part*")]
    every = max(1, len(taken) // 60)
    return {
        "seed": seed,
        "seconds": round(time.monotonic() - start),
        "actions": dict(sorted(session.done.items())),
        "actions in all": session.done.total(),
        "notifications": dict(sorted(session.said.items())),
        "memory, MB, first third after the warm-up": first,
        "memory, MB, last third": last,
        "grown, %": round(100 * (last / first - 1), 2),
        "memory over time, s and MB": taken[::every],
        "threads that libraries keep": kept,
        "threads left": others,
        "temporary files left": left + parts,
        "faults": session.faults,
    }


def threads_left(viewer: Any, before: set[threading.Thread]) -> tuple[dict[str, int], list[str]]:
    """Return how many threads libraries have added to their pools, and the names of all others.

    The pools are of bounded size: napari slices in one thread; Zarr reads files in those of
    asyncio, 4 more than there are cores and 32 at most; dask has as many for a thread that computes
    something, and lets go of those of threads that have ended when another does.
    """
    import dask.threaded

    def added() -> list[threading.Thread]:
        return [each for each in threading.enumerate() if each not in before]

    # what looks at the noise of a layer that is gone ends with it
    with suppress(TimeoutError):
        until(lambda: not any(each.name.startswith("hushpore") for each in added()), 60)
    pools = {
        "napari": [viewer._layer_slicer._executor],
        "dask": [
            dask.threaded.default_pool,
            *(pool for each in dask.threaded.pools.values() for pool in each.values()),
        ],
    }
    owners = {
        thread: name
        for name, each in pools.items()
        for pool in filter(None, each)
        for thread in pool._threads
    }
    named = [
        (thread.name, "Zarr" if thread.name.startswith("asyncio_") else owners.get(thread, ""))
        for thread in added()
    ]
    kept = Counter(owner for _, owner in named if owner)
    return dict(sorted(kept.items())), sorted(name for name, owner in named if not owner)


def census(log: TextIO) -> None:
    """Say which kinds of objects have become more, where ``HUSHPORE_CENSUS`` is set."""
    if not os.environ.get("HUSHPORE_CENSUS"):
        return
    now = Counter(type(each).__name__ for each in gc.get_objects())
    print((now - _before).most_common(12), file=log, flush=True)
    _before.clear()
    _before.update(now)


_before: Counter[str] = Counter()


def _main(seed: int, seconds: float) -> None:
    own_settings()
    unexpected = problem._unexpected
    with tempfile.TemporaryDirectory() as scratch:
        # what anything prints is looked through; progress goes where it did
        log = os.fdopen(os.dup(2), "w")
        faulthandler.register(signal.SIGUSR1, log)

        def told(error: BaseException) -> str:
            traceback.print_exception(error, file=log)
            return unexpected(error)

        problem._unexpected = told
        said = Path(scratch, "said")
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
        try:
            figures = go_on(Path(scratch), seed, seconds, log)
        except BaseException:
            traceback.print_exc(file=log)
            raise
        finally:
            text = said.read_text(encoding="utf-8", errors="replace")
            print(text[-20_000:], file=log, flush=True)
        figures["tracebacks printed"] = text.count("Traceback (most recent call last)")
    print(json.dumps(figures), flush=True)
    # napari is not taken down: nothing of it is measured
    os._exit(0)


if __name__ == "__main__":
    _main(int(sys.argv[1]), float(sys.argv[2]))
