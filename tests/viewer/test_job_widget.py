import gc
import html
import re
import weakref
from pathlib import Path

import numpy as np
import pytest
from napari.components import ViewerModel
from napari.layers import Image
from napari.utils._proxies import PublicOnlyProxy
from napari.utils.notifications import notification_manager
from napari.utils.progress import progress as napari_progress
from napari.utils.theme import get_theme
from qtpy.QtCore import QTimer
from qtpy.QtWidgets import QApplication

from hushpore import InputError
from hushpore.base.events import Metric, Note, Preview, Progress, StageTime, StopEarly, Timing
from hushpore.viewer.denoise.widget import DenoiseWidget
from hushpore.viewer.layers.conversion import METADATA_KEY, Lineage, scan_of, set_lineage
from hushpore.viewer.running import progress
from hushpore.viewer.running.problem import explain
from hushpore.viewer.running.worker_container import PATIENCE
from hushpore.viewer.segment.widget import PoresWidget

pytestmark = pytest.mark.usefixtures("small_network")

SOON = 10_000
PLACE = {"scale": (2.0, 0.5, 0.5), "units": ("mm",) * 3, "axis_labels": ("z", "y", "x")}


@pytest.fixture
def viewer(scan):
    """A viewer without its window, which is all that most of this needs."""
    viewer = ViewerModel()
    viewer.add_image(scan, name="scan", **PLACE)
    return viewer


@pytest.fixture
def widget(qtbot, viewer, fake_job):
    widget = DenoiseWidget(viewer)
    qtbot.addWidget(widget.native)
    return widget


@pytest.fixture
def window(make_napari_viewer, scan, fake_job):
    """A whole napari, with the widget in its dock."""
    viewer = make_napari_viewer()
    viewer.add_image(scan, name="scan", **PLACE)
    docked = DenoiseWidget(viewer)
    viewer.window.add_dock_widget(docked, name="Denoise")
    return viewer, docked


def names(viewer):
    return [layer.name for layer in viewer.layers]


def said():
    return [(note.severity.value, note.message) for note in notification_manager.records]


@pytest.fixture(autouse=True)
def nothing_said():
    notification_manager.records.clear()


def until_done(qtbot, widget):
    qtbot.waitUntil(lambda: not widget.is_running, timeout=SOON)


def start(qtbot, widget):
    widget._buttons.run.click()
    qtbot.waitUntil(lambda: widget._progress.bar.value() == 250, timeout=SOON)


def test_it_says_what_the_layer_is(widget):
    line = "8 x 32 x 32 · 2 x 0.5 x 0.5 mm · float32 · 32.8 kB"
    assert widget._facts.text().replace("\xa0", " ") == line
    # no line of it ends before a unit
    assert "0.5\xa0mm\xa0· float32\xa0· 32.8\xa0kB" in widget._facts.text()


def test_it_repeats_what_was_odd_about_the_file(viewer, widget):
    metadata = {METADATA_KEY: {"notes": ["Slice 6 is missing."]}}
    viewer.add_image(np.zeros((4, 8, 8)), name="holed", metadata=metadata)
    assert widget._facts.text().splitlines()[1:] == ["Slice 6 is missing."]


def test_cancel_is_beside_run_and_only_one_of_them_is_enabled(qtbot, widget, fake_job):
    run, cancel = widget._buttons.run, widget._buttons.cancel
    assert (run.text(), cancel.text()) == ("Run", "Cancel")
    assert (run.isEnabled(), cancel.isEnabled()) == (True, False)
    start(qtbot, widget)
    assert (run.text(), cancel.text()) == ("Run", "Cancel")
    assert (run.isEnabled(), cancel.isEnabled()) == (False, True)
    assert widget._progress.bar.format().startswith("25 %")
    assert widget._progress.stage.text() == "Training: 1 of 4 steps"
    assert not widget._progress.isHidden()
    fake_job.gate.set()
    until_done(qtbot, widget)
    assert (run.isEnabled(), cancel.isEnabled()) == (True, False)
    assert widget._progress.isHidden()


def test_a_result_becomes_a_layer_in_the_same_place_with_its_record(
    qtbot, viewer, widget, fake_job
):
    start(qtbot, widget)
    fake_job.gate.set()
    until_done(qtbot, widget)
    scan, result = viewer.layers
    assert result.name == "scan · denoised"
    assert tuple(result.scale) == PLACE["scale"]
    assert result.units == scan.units
    assert result.axis_labels == PLACE["axis_labels"]
    assert result.contrast_limits == scan.contrast_limits
    assert result.metadata[METADATA_KEY]["provenance"]["job"] == "denoise"
    assert viewer.layers.selection.active is result
    assert widget.layer.value is scan
    assert "It is done" in widget._result.text()
    assert widget.timing.button.text().strip() == "Timing: 4 s (training 75 %)"


def test_the_job_gets_the_volume_and_the_settings_of_the_form(qtbot, widget, fake_job, scan):
    widget.seed.value = 7
    widget.device.value = "cpu"
    start(qtbot, widget)
    volume, settings, backend = fake_job.calls[0]
    assert volume.data is scan
    assert volume.spacing == (2.0, 0.5, 0.5)
    assert settings.seed == 7
    assert backend.device == "cpu"


def test_a_second_press_never_starts_another(qtbot, widget, fake_job):
    start(qtbot, widget)
    widget.run()
    widget._buttons.run.click()
    widget._buttons.run.click()
    assert widget.is_running
    fake_job.gate.set()
    until_done(qtbot, widget)
    assert len(fake_job.calls) == 1


def test_cancel_closes_the_job_and_says_what_became_of_it(qtbot, viewer, widget, fake_job):
    start(qtbot, widget)
    widget._buttons.cancel.click()
    assert widget._buttons.cancel.text() == "Cancelling …"
    assert not widget._buttons.cancel.isEnabled()
    until_done(qtbot, widget)
    assert fake_job.closed.is_set()
    assert names(viewer) == ["scan"]
    assert "Cancelled" in widget._result.text()
    assert "scan is unchanged" in widget._result.text()
    assert widget._buttons.run.isEnabled()


def test_cancel_keeps_what_the_preview_shows_and_says_so(qtbot, viewer, widget, fake_job):
    fake_job.script = previews(fake_job, (7.0, 5))
    start(qtbot, widget)
    widget.cancel()
    until_done(qtbot, widget)
    kept = "scan · denoised, slice 5 (cancelled)"
    # under the scan, which it would hide
    assert names(viewer) == [kept, "scan"]
    assert not viewer.layers[kept].visible
    assert "Show last preview" in widget._result.text()
    widget._result.linkActivated.emit("show")
    assert names(viewer) == ["scan", kept]
    assert viewer.layers[kept].visible
    # it is no result: the next job does not take it for one, nor for its input
    assert widget.layer.value is viewer.layers["scan"]
    fake_job.gate.set()
    fake_job.script = fake_job.wait_at_gate
    widget.run()
    until_done(qtbot, widget)
    assert names(viewer) == ["scan", "scan · denoised"]


def cut_short(fake_job):
    def script(volume):
        try:
            while True:
                yield Progress("training", 1, 4, "steps", 0.25)
                fake_job.gate.wait(0.005)
        except StopEarly:
            yield Progress("denoising", 1, 1, "tiles", 1.0)
        return fake_job.result(volume)

    return script


def test_finish_now_keeps_what_there_is_and_says_so(qtbot, viewer, widget, fake_job):
    fake_job.script = cut_short(fake_job)
    start(qtbot, widget)
    assert widget._buttons.finish.text() == "Finish now"
    assert widget._buttons.finish.isEnabled()
    widget._buttons.finish.click()
    assert widget._buttons.finish.text() == "Finishing …"
    assert not widget._buttons.finish.isEnabled()
    assert widget._buttons.cancel.isEnabled()
    until_done(qtbot, widget)
    assert names(viewer) == ["scan", "scan · denoised"]
    assert "It is done" in widget._result.text()
    assert not widget._buttons.finish.isEnabled()


def test_finish_now_cannot_be_pressed_before_anything_is_learnt(qtbot, widget, fake_job):
    assert not widget._buttons.finish.isEnabled()

    def script(volume):
        while not fake_job.gate.wait(0.005):
            yield Progress("preparing", 1, 4, "steps", 0.25)
        return fake_job.result(volume)

    fake_job.script = script
    start(qtbot, widget)
    assert not widget._buttons.finish.isHidden()
    assert not widget._buttons.finish.isEnabled()
    assert "preparing" in widget._buttons.finish.toolTip()


def test_a_job_that_is_finishing_can_still_be_cancelled(qtbot, viewer, widget, fake_job):
    fake_job.script = cut_short(fake_job)
    start(qtbot, widget)
    widget.finish()
    widget.cancel()
    until_done(qtbot, widget)
    assert names(viewer)[0] == "scan"
    assert widget._buttons.run.isEnabled()


def test_the_loss_is_drawn_while_the_job_runs_and_stays(qtbot, widget, fake_job):
    def script(volume):
        for number in range(1, 31):
            yield Metric("loss", 25 * number, 1 / number)
        yield Timing({"training": StageTime(2, 1.0, 0.6)}, 1.0)
        return (yield from fake_job.wait_at_gate(volume))

    fake_job.script = script
    start(qtbot, widget)
    curve = widget.timing.curve
    qtbot.waitUntil(lambda: curve.text() == "loss 0.0333 after 750 steps", timeout=SOON)
    assert not widget.timing.isHidden()
    fake_job.gate.set()
    until_done(qtbot, widget)
    assert len(widget.timing.curve.points) == 30
    assert {entry["ph"] for entry in widget.timing._trace.to_dict()["traceEvents"]} == {"M", "C"}


def test_the_text_on_the_canvas_is_left_to_the_user(qtbot, viewer, widget, fake_job):
    overlay = viewer.canvas.overlays.text
    overlay.text, overlay.visible = "Fig. 1", True
    start(qtbot, widget)
    qtbot.waitUntil(lambda: "25 %" in widget._progress.bar.format(), timeout=SOON)
    assert (overlay.text, overlay.visible) == ("Fig. 1", True)
    fake_job.gate.set()
    until_done(qtbot, widget)


def test_a_job_that_soon_ends_is_shown_in_its_widget_alone(
    qtbot, viewer, widget, fake_job, monkeypatch
):
    # on a busy machine a second is over soon
    monkeypatch.setattr(progress, "OUTSIDE_DELAY", 60)
    start(qtbot, widget)
    qtbot.waitUntil(lambda: "25 %" in widget._progress.bar.format(), timeout=SOON)
    fake_job.gate.set()
    until_done(qtbot, widget)
    assert list(napari_progress._all_instances) == []


def test_a_job_whose_end_is_not_known_shows_how_long_it_took_so_far(qtbot, widget, fake_job):
    def script(volume):
        while not fake_job.gate.wait(0.005):
            yield Progress("preparing", 0, 0, "", 0.0)
        return fake_job.result(volume)

    fake_job.script = script
    widget._buttons.run.click()
    bar = widget._progress.bar
    qtbot.waitUntil(lambda: re.fullmatch(r"\d+:\d\d", bar.format()) is not None)
    first = bar.format()
    qtbot.waitUntil(lambda: bar.format() not in (first, "0:00"))
    # a bar without an end would be drawn all the time
    assert (bar.minimum(), bar.maximum(), bar.value()) == (0, 1000, 0)


def test_a_job_that_has_nothing_before_its_end_offers_cancel_alone(qtbot, viewer):
    widget = PoresWidget(viewer)
    qtbot.addWidget(widget.native)
    widget._buttons.run.click()
    assert widget._buttons.finish.isHidden()
    widget.cancel()
    until_done(qtbot, widget)


def test_cancel_is_prompt(qtbot, widget, fake_job):
    steps = []

    def script(volume):
        while True:
            steps.append(widget._now.worker.is_cancelling)
            yield Progress("training", 1, 4, "steps", 0.25)

    fake_job.script = script
    start(qtbot, widget)
    widget.cancel()
    until_done(qtbot, widget)
    # one may be at work when it is asked for
    assert sum(steps) <= 1


def test_cancel_in_the_activity_dock_stops_the_job(qtbot, widget, fake_job, monkeypatch):
    monkeypatch.setattr(progress, "OUTSIDE_DELAY", 60)
    start(qtbot, widget)
    # not at once: a short job does not come into the dock
    assert not napari_progress._all_instances
    monkeypatch.setattr(progress, "OUTSIDE_DELAY", 1)
    qtbot.waitUntil(lambda: len(napari_progress._all_instances) == 1, timeout=SOON)
    (activity,) = napari_progress._all_instances
    assert activity.desc.startswith("Denoise scan")
    assert activity.n == 250
    activity.cancel()
    until_done(qtbot, widget)
    assert fake_job.closed.is_set()
    assert not napari_progress._all_instances


@pytest.mark.parametrize(
    ("error", "severity", "words"),
    [
        (InputError("scan is constant: every value is 0."), "warning", "every value is 0"),
        (RuntimeError("CUDA out of memory. Tried"), "error", "GPU ran out of memory"),
        (MemoryError(), "error", "not enough memory"),
        (RuntimeError("broken"), "error", "broken"),
        (ZeroDivisionError("by zero"), "error", "by zero"),
    ],
    ids=["input", "cuda memory", "memory", "runtime", "bug"],
)
def test_an_error_is_said_in_words_and_leaves_everything_as_it_was(
    qtbot, viewer, widget, fake_job, error, severity, words
):
    def fails(volume):
        yield Progress("training", 1, 4, "steps", 0.25)
        yield Preview("denoised", grey(0), (4,))
        raise error

    fake_job.script = fails
    widget._buttons.run.click()
    until_done(qtbot, widget)
    assert words in html.unescape(widget._result.text())
    assert "Traceback" not in widget._result.text()
    assert [(kind, words in text) for kind, text in said()] == [(severity, True)]
    assert names(viewer) == ["scan"]
    assert widget._buttons.run.isEnabled()
    assert not napari_progress._all_instances


def test_the_details_of_an_error_can_be_copied(qtbot, widget, fake_job):
    def fails(volume):
        yield Progress("training", 1, 4, "steps", 0.25)
        raise ZeroDivisionError("by zero")

    fake_job.script = fails
    widget._buttons.run.click()
    until_done(qtbot, widget)
    assert 'href="copy"' in widget._result.text()
    widget._result.linkActivated.emit("copy")
    assert "Traceback" in QApplication.clipboard().text()


def test_messages_can_be_read_in_every_theme(viewer, widget):
    widget._show_problem(explain(ZeroDivisionError("by zero")))
    dark = widget._result.text()
    viewer.theme = "light"
    light = widget._result.text()
    for theme, text in (("dark", dark), ("light", light)):
        assert str(get_theme(theme).text.as_hex()) in text
        assert "@" not in text


def test_a_setting_that_is_not_accepted_is_said_and_nothing_runs(widget, fake_job):
    widget.time_budget.native.setValue(0.5)
    widget._buttons.run.click()
    assert not widget.is_running
    assert "'Time limit' must be" in html.unescape(widget._result.text())
    assert fake_job.calls == []


def test_notes_are_shown_and_stay(qtbot, widget, fake_job):
    def notes(volume):
        yield Note("Slice 6 is missing.", warning=True)
        return (yield from fake_job.wait_at_gate(volume))

    fake_job.script = notes
    start(qtbot, widget)
    assert "Slice 6 is missing." in widget._remarks.text()
    fake_job.gate.set()
    until_done(qtbot, widget)
    assert "Slice 6 is missing." in widget._remarks.text()
    assert not widget._remarks.isHidden()


def grey(value, contrast=200.0):
    """Stripes around a grey value, as of a slice in which something can be seen."""
    image = np.full((32, 32), value, np.float32)
    image[1::2] += contrast
    return image


def previews(fake_job, *images):
    def script(volume):
        for value, index in images:
            yield Preview("denoised", grey(value), (index,))
        return (yield from fake_job.wait_at_gate(volume))

    return script


def test_a_preview_refines_in_its_slice_and_gives_way_to_the_result(
    qtbot, viewer, widget, fake_job
):
    fake_job.script = previews(fake_job, (7.0, 5))
    start(qtbot, widget)
    preview = viewer.layers["scan · denoised (preview)"]
    assert preview.data.shape == (1, 32, 32)
    assert tuple(preview.data_to_world((0, 0, 0))) == (10.0, 0.0, 0.0)
    assert preview.contrast_limits == viewer.layers["scan"].contrast_limits
    assert preview.data[0, 0, 0] == 7.0
    widget._now.show_preview(Preview("denoised", grey(9), (5,)))
    assert preview.data[0, 0, 0] == 9.0
    assert widget.layer.value.name == "scan"
    fake_job.gate.set()
    until_done(qtbot, widget)
    assert names(viewer) == ["scan", "scan · denoised"]


def test_a_job_that_is_soon_over_begins_no_preview(qtbot, viewer, widget, fake_job, monkeypatch):
    monkeypatch.setattr(progress, "MIN_REMAINING", 1e6)

    def script(volume):
        yield Progress("training", 1, 2, "steps", 0.5)
        yield Preview("denoised", grey(7), (5,))
        return (yield from fake_job.wait_at_gate(volume))

    fake_job.script = script
    start(qtbot, widget)
    assert names(viewer) == ["scan"]
    fake_job.gate.set()
    until_done(qtbot, widget)
    assert names(viewer) == ["scan", "scan · denoised"]


def test_a_preview_that_shows_nothing_yet_does_not_hide_the_slice(qtbot, viewer, widget, fake_job):
    def script(volume):
        yield Preview("denoised", grey(7, contrast=0.5), (5,))
        return (yield from fake_job.wait_at_gate(volume))

    fake_job.script = script
    start(qtbot, widget)
    assert names(viewer) == ["scan"]
    widget._now.show_preview(Preview("denoised", grey(7), (5,)))
    assert names(viewer) == ["scan", "scan · denoised (preview)"]


@pytest.mark.parametrize("given", [lambda viewer: viewer, PublicOnlyProxy], ids=["itself", "proxy"])
def test_a_preview_does_not_take_the_selection_away(qtbot, viewer, fake_job, given):
    # napari hands its widgets proxies
    widget = DenoiseWidget(given(viewer))
    qtbot.addWidget(widget.native)
    fake_job.script = previews(fake_job, (7.0, 5))
    start(qtbot, widget)
    assert "scan · denoised (preview)" in viewer.layers
    scan = viewer.layers["scan"]
    qtbot.waitUntil(lambda: viewer.layers.selection.active is scan, timeout=SOON)
    assert viewer.layers.selection == {scan}


def test_the_preview_can_be_gone_to(qtbot, viewer, widget, fake_job):
    viewer.dims.set_current_step(0, 1)
    fake_job.script = previews(fake_job, (7.0, 5))
    start(qtbot, widget)
    qtbot.waitUntil(lambda: "preview: slice 5" in widget._progress.stage.text(), timeout=SOON)
    assert viewer.dims.current_step[0] == 1
    widget._progress.stage.linkActivated.emit("preview")
    assert viewer.dims.current_step[0] == 5


def test_a_preview_in_the_next_slice_is_shown_at_once(qtbot, viewer, widget, fake_job):
    viewer.dims.set_current_step(0, 3)
    fake_job.script = previews(fake_job, (7.0, 4))
    start(qtbot, widget)
    assert viewer.dims.current_step[0] == 4


def test_a_preview_of_labels_is_shown_as_labels(qtbot, viewer, widget, fake_job):
    def script(volume):
        yield Preview("labels", np.ones((32, 32), np.int32), (4,))
        return (yield from fake_job.wait_at_gate(volume))

    fake_job.script = script
    start(qtbot, widget)
    assert type(viewer.layers["scan · labels (preview)"]).__name__ == "Labels"


def test_a_deleted_preview_does_not_come_back(qtbot, viewer, widget, fake_job):
    fake_job.script = previews(fake_job, (7.0, 5))
    start(qtbot, widget)
    viewer.layers.remove("scan · denoised (preview)")
    widget._now.show_preview(Preview("denoised", grey(0), (5,)))
    assert names(viewer) == ["scan"]
    fake_job.gate.set()
    until_done(qtbot, widget)
    assert names(viewer) == ["scan", "scan · denoised"]


def test_a_preview_that_cannot_be_shown_does_not_stop_the_job(qtbot, viewer, widget, fake_job):
    def script(volume):
        yield Preview("denoised", grey(0), (1, 2, 3))
        return (yield from fake_job.wait_at_gate(volume))

    fake_job.script = script
    start(qtbot, widget)
    assert "preview could not be shown" in widget._remarks.text()
    fake_job.gate.set()
    until_done(qtbot, widget)
    assert names(viewer) == ["scan", "scan · denoised"]


def test_deleting_the_layer_meanwhile_breaks_nothing(qtbot, viewer, widget, fake_job):
    start(qtbot, widget)
    viewer.layers.clear()
    assert widget._buttons.cancel.isEnabled()
    fake_job.gate.set()
    until_done(qtbot, widget)
    (result,) = viewer.layers
    assert result.name == "scan · denoised"
    assert tuple(result.scale) == PLACE["scale"]


def test_memory_of_a_layer_deleted_meanwhile_can_be_had_again(qtbot, viewer, widget, fake_job):
    held = [np.zeros((8, 8))]
    held.append(held)  # found by a search for garbage alone
    viewer.add_image(np.zeros((4, 8, 8)), name="other", metadata={"held": held})
    gone = weakref.ref(held[0])
    viewer.layers.selection.active = viewer.layers["scan"]
    del held
    start(qtbot, widget)
    viewer.layers.remove("other")

    def is_gone():
        gc.collect()
        return gone() is None

    qtbot.waitUntil(is_gone)


def test_renaming_the_layer_meanwhile_breaks_nothing(qtbot, viewer, widget, fake_job):
    start(qtbot, widget)
    viewer.layers["scan"].name = "other"
    fake_job.gate.set()
    until_done(qtbot, widget)
    assert names(viewer) == ["other", "scan · denoised"]


def test_moving_the_layer_meanwhile_does_not_move_the_result(qtbot, viewer, widget, fake_job):
    start(qtbot, widget)
    viewer.layers["scan"].translate = (9, 9, 9)
    fake_job.gate.set()
    until_done(qtbot, widget)
    assert tuple(viewer.layers["scan · denoised"].translate) == (0, 0, 0)


def test_a_job_runs_in_a_whole_napari(qtbot, window, fake_job):
    viewer, widget = window
    fake_job.script = previews(fake_job, (7.0, 5))
    start(qtbot, widget)
    assert names(viewer) == ["scan", "scan · denoised (preview)"]
    fake_job.gate.set()
    until_done(qtbot, widget)
    assert names(viewer) == ["scan", "scan · denoised"]
    assert not napari_progress._all_instances


def test_closing_the_widget_cancels_and_waits(qtbot, window, fake_job):
    viewer, widget = window
    start(qtbot, widget)
    worker = widget._now.worker
    viewer.window.remove_dock_widget(widget.native)
    assert not worker.is_running
    assert fake_job.closed.is_set()


def test_closing_the_viewer_cancels_and_waits(qtbot, window, fake_job):
    viewer, widget = window
    start(qtbot, widget)
    worker = widget._now.worker
    viewer.window._qt_window._save_current_window_settings = lambda: None
    viewer.close()
    qtbot.waitUntil(lambda: not worker.is_running, timeout=SOON)
    assert fake_job.closed.is_set()


def test_quitting_the_application_cancels_and_waits(qtbot, widget, fake_job):
    start(qtbot, widget)
    worker = widget._now.worker
    QApplication.instance().aboutToQuit.emit()
    assert not worker.is_running


def slow_step(fake_job):
    def script(volume):
        yield Progress("training", 1, 4, "steps", 0.25)
        # a step that nothing can interrupt
        fake_job.gate.wait(60)
        return fake_job.result(volume)

    return script


def test_closing_the_viewer_does_not_wait_for_a_long_step(qtbot, window, fake_job):
    viewer, widget = window
    fake_job.script = slow_step(fake_job)
    start(qtbot, widget)
    worker = widget._now.worker
    viewer.window._qt_window._save_current_window_settings = lambda: None
    viewer.close()
    assert PATIENCE < 1
    assert worker.is_running
    # the thread ends by itself after its step, and its result lands nowhere
    fake_job.gate.set()
    assert worker.wait(60)
    qtbot.wait(50)
    assert fake_job.closed.is_set()


def test_a_widget_taken_away_in_a_long_step_leaves_no_layer_behind(qtbot, window, fake_job):
    viewer, widget = window
    fake_job.script = slow_step(fake_job)
    start(qtbot, widget)
    worker = widget._now.worker
    viewer.window.remove_dock_widget(widget.native)
    fake_job.gate.set()
    assert worker.wait(60)
    qtbot.wait(50)
    assert names(viewer) == ["scan"]


def test_a_second_job_waits_for_the_first_and_says_so(qtbot, viewer, widget, fake_job):
    second = DenoiseWidget(viewer)
    qtbot.addWidget(second.native)
    start(qtbot, widget)
    second._buttons.run.click()
    assert second._progress.stage.text() == "Waiting for Denoise scan to finish …"
    assert second._buttons.cancel.isEnabled()
    assert len(fake_job.calls) == 1
    fake_job.gate.set()
    until_done(qtbot, widget)
    until_done(qtbot, second)
    assert len(fake_job.calls) == 2
    assert names(viewer) == ["scan", "scan · previous denoised", "scan · denoised"]


def test_a_job_that_waits_can_be_cancelled_and_does_not_disturb_the_first(
    qtbot, viewer, widget, fake_job
):
    second = DenoiseWidget(viewer)
    qtbot.addWidget(second.native)
    start(qtbot, widget)
    second._buttons.run.click()
    second._buttons.cancel.click()
    until_done(qtbot, second)
    assert "Cancelled" in second._result.text()
    assert widget.is_running
    fake_job.gate.set()
    until_done(qtbot, widget)
    assert names(viewer) == ["scan", "scan · denoised"]


def test_without_a_layer_it_says_how_to_begin(qtbot, fake_job):
    widget = DenoiseWidget(ViewerModel())
    qtbot.addWidget(widget.native)
    assert "Drop a CT stack" in widget._facts.text()
    assert not widget._buttons.run.isEnabled()
    assert widget._buttons.run.toolTip() == widget._facts.text()


def test_a_colour_photograph_is_not_offered_and_the_reason_is_given(qtbot, fake_job):
    viewer = ViewerModel()
    viewer.add_image(np.zeros((20, 20, 3), np.uint8), rgb=True, name="photo")
    widget = DenoiseWidget(viewer)
    qtbot.addWidget(widget.native)
    assert widget.layer.value is None
    assert "photo is a colour image" in widget._facts.text()


def test_labels_alone_are_not_offered_and_the_reason_is_given(qtbot, fake_job):
    viewer = ViewerModel()
    viewer.add_labels(np.zeros((4, 20, 20), int), name="pores")
    widget = DenoiseWidget(viewer)
    qtbot.addWidget(widget.native)
    assert widget.layer.value is None
    assert "pores contains labels" in widget._facts.text()
    assert not widget._buttons.run.isEnabled()


def test_a_stack_with_channels_after_z_is_explained_before_run(viewer, widget):
    viewer.add_image(np.zeros((3, 2, 8, 8)), axis_labels=("z", "c", "y", "x"), name="odd")
    assert "time and channels must come before" in widget._facts.text()
    assert not widget._buttons.run.isEnabled()


def test_the_next_step_is_one_click_away(window):
    viewer, widget = window
    (page,) = widget.next_steps
    widget._result.linkActivated.emit(page)
    assert "Pores (hushpore)" in viewer.window.dock_widgets


def test_the_record_of_the_result_is_one_click_away(qtbot, window, fake_job):
    viewer, widget = window
    start(qtbot, widget)
    fake_job.gate.set()
    until_done(qtbot, widget)
    assert "Record" in widget._result.text()
    widget._result.linkActivated.emit("record")
    panel = viewer.window.dock_widgets["Results (hushpore)"].open("Record")
    assert panel.provenance()["job"] == "denoise"


def test_the_window_never_waits_for_a_busy_job(qtbot, viewer, widget, fake_job):
    def busy(volume):
        image = np.random.default_rng(0).normal(size=(512, 512)).astype(np.float32)
        for number in range(150):
            yield Preview("denoised", image + number, (4,))
            yield Progress("training", number, 150, "steps", number / 150)
        return (yield from fake_job.wait_at_gate(volume))

    fake_job.script = busy
    # how long its turns take is a figure of `benchmarks live`
    turns, shown = [], []
    heart = QTimer()
    heart.timeout.connect(lambda: turns.append(len(turns)))
    heart.start()
    widget._progress.bar.valueChanged.connect(shown.append)
    widget._progress.bar.valueChanged.connect(lambda _: fake_job.gate.set())
    widget._buttons.run.click()
    until_done(qtbot, widget)
    heart.stop()
    # of all that comes meanwhile it takes in the newest, and turns in between
    assert len(turns) > len(shown) > 0


def test_a_widget_opens_with_what_was_last_run(qtbot, monkeypatch, viewer, widget, fake_job):
    # as by a click, and not by a script
    monkeypatch.setattr("hushpore.viewer.job_widget.is_script", lambda: False)
    widget.seed.value = 3
    widget.time_budget.value = 90  # meant for one run
    widget.checkpoint.value = "/scans/of a patient.safetensors"
    start(qtbot, widget)
    fake_job.gate.set()
    until_done(qtbot, widget)
    widget.seed.value = 4  # not run with
    again = DenoiseWidget(viewer)
    qtbot.addWidget(again.native)
    assert again.form.value == type(again.form.value)(seed=3)
    assert again.presets._box.currentText() == "Last used"
    again.form.reset()
    assert again.form.value.seed == 0


def run_once(qtbot, widget, fake_job):
    fake_job.gate.set()
    widget._buttons.run.click()
    until_done(qtbot, widget)


def test_a_rerun_takes_the_place_of_what_the_run_before_has_made(qtbot, viewer, widget, fake_job):
    run_once(qtbot, widget, fake_job)
    first = viewer.layers["scan · denoised"]
    run_once(qtbot, widget, fake_job)
    second = viewer.layers["scan · denoised"]
    assert second is not first
    assert names(viewer) == ["scan", "scan · previous denoised", "scan · denoised"]
    assert (first.visible, second.visible) == (False, True)
    run_once(qtbot, widget, fake_job)
    # one to compare with, and no more
    assert names(viewer) == ["scan", "scan · previous denoised", "scan · denoised"]
    assert second is viewer.layers["scan · previous denoised"]
    assert first not in viewer.layers


def test_what_the_user_has_named_is_hidden_and_never_taken_away(qtbot, viewer, widget, fake_job):
    run_once(qtbot, widget, fake_job)
    mine = viewer.layers["scan · denoised"]
    mine.name = "for the paper"
    for _ in range(3):
        run_once(qtbot, widget, fake_job)
    assert mine in viewer.layers
    assert mine.name == "for the paper"
    assert not mine.visible


def test_the_same_job_on_another_layer_leaves_results_alone(qtbot, viewer, widget, fake_job):
    run_once(qtbot, widget, fake_job)
    viewer.add_image(np.ones((8, 32, 32)), name="other")
    run_once(qtbot, widget, fake_job)
    assert names(viewer) == ["scan", "scan · denoised", "other", "other · denoised"]
    assert viewer.layers["scan · denoised"].visible


def test_what_is_said_of_a_run_goes_with_its_scan_and_comes_back_with_it(
    qtbot, viewer, widget, fake_job
):
    def script(volume):
        yield Note("The noise has stripes.")
        return fake_job.result(volume)

    fake_job.script = script
    run_once(qtbot, widget, fake_job)
    result = viewer.layers["scan · denoised"]
    assert "It is done" in widget._result.text()
    other = viewer.add_image(np.ones((8, 32, 32)), name="other")
    assert widget.layer.value is other
    assert "It is done" not in widget._result.text()
    assert widget._remarks.isHidden()
    assert widget.timing.isHidden()
    # what was made of the same scan: the sentence stays, and says what it is about
    widget.layer.value = result
    assert widget._result.text().startswith("scan: <b>It is done</b>")
    widget.layer.value = viewer.layers["scan"]
    assert "It is done" in widget._result.text()
    assert not widget._remarks.isHidden()
    assert not widget.timing.isHidden()


def test_a_run_on_another_layer_than_the_one_chosen_is_named(qtbot, viewer, widget, fake_job):
    start(qtbot, widget)
    viewer.add_image(np.ones((8, 32, 32)), name="other")
    assert widget.layer.value is viewer.layers["other"]
    qtbot.waitUntil(lambda: widget._progress.stage.text().startswith("scan: Training"))
    fake_job.gate.set()
    until_done(qtbot, widget)
    # its result waits with its scan
    assert widget._result.isHidden()
    widget.layer.value = viewer.layers["scan"]
    assert "It is done" in widget._result.text()


def test_the_links_after_a_cancel_are_of_the_layer_that_was_worked_on(
    qtbot, viewer, widget, fake_job
):
    start(qtbot, widget)
    Path(widget._kept.settings.checkpoint).write_bytes(b"learnt")
    widget.cancel()
    until_done(qtbot, widget)
    fake_job.gate.set()
    copy = Image(np.zeros((8, 32, 32), np.float32), name="copy")
    set_lineage(copy, Lineage(scan_of(viewer.layers["scan"]), "", "", "copy"))
    viewer.add_layer(copy)
    assert widget._result.text().startswith("scan: Cancelled")
    widget._result.linkActivated.emit("resume")
    until_done(qtbot, widget)
    assert fake_job.calls[-1][0].name == "scan"


def cancelled(qtbot, widget):
    """Have a training cancelled, and return the file of what it has learnt."""
    start(qtbot, widget)
    file = Path(widget._kept.settings.checkpoint)
    file.write_bytes(b"learnt")
    widget.cancel()
    until_done(qtbot, widget)
    assert "Resume training" in widget._result.text()
    assert file.exists()
    return file


def test_what_a_cancelled_training_has_learnt_goes_with_its_layer(qtbot, viewer, widget):
    file = cancelled(qtbot, widget)
    other = Image(np.zeros((8, 32, 32), np.float32), name="other")
    set_lineage(other, Lineage(scan_of(viewer.layers["scan"]), "", "", "other"))
    viewer.add_layer(other)
    viewer.layers.remove("scan")
    assert not file.parent.exists()
    # nor is it offered for another layer of the same scan
    assert widget.layer.value is other
    assert widget._result.isHidden()


def test_what_a_training_has_learnt_goes_when_a_later_run_begins_or_it_has_ended(
    qtbot, widget, fake_job
):
    before = cancelled(qtbot, widget)
    file = cancelled(qtbot, widget)
    assert not before.parent.exists()
    fake_job.gate.set()
    widget._result.linkActivated.emit("resume")
    assert file.exists()
    until_done(qtbot, widget)
    assert not file.parent.exists()


def test_what_a_training_learns_has_its_place_though_its_layer_goes_meanwhile(
    qtbot, viewer, widget
):
    start(qtbot, widget)
    file = Path(widget._kept.settings.checkpoint)
    viewer.layers.remove("scan")
    assert file.parent.exists()
    file.write_bytes(b"learnt")
    widget.cancel()
    until_done(qtbot, widget)
    assert "Resume training" not in widget._result.text()
    assert not file.parent.exists()


def test_what_is_said_of_the_result_comes_before_what_was_odd_about_the_scan(
    qtbot, widget, fake_job
):
    def script(volume):
        yield Note("The noise has stripes.", warning=True)
        yield Note("Went on from the checkpoint.", warning=False)
        yield Note("Some of the image went with the noise.", True, "result")
        return fake_job.result(volume)

    fake_job.script = script
    run_once(qtbot, widget, fake_job)
    said = [widget._remarks.text().index(word) for word in ("image", "stripes", "checkpoint")]
    assert said == sorted(said)


def test_layers_of_the_previous_scan_can_be_removed(qtbot, viewer, widget, fake_job):
    run_once(qtbot, widget, fake_job)
    assert names(viewer) == ["scan", "scan · denoised"]
    other = viewer.add_image(np.zeros((4, 8, 8)), name="other")
    by_hand = viewer.add_points(np.zeros((1, 3)), name="by hand")
    widget.layer.value = other
    assert "Remove the previous scan's layers" in widget._result.text()
    widget._result.linkActivated.emit("remove others")
    assert list(viewer.layers) == [other, by_hand]
    assert "Remove the previous scan's layers" not in widget._result.text()


def test_layers_of_a_scan_stay_together_and_below_what_the_user_drew(
    qtbot, viewer, widget, fake_job
):
    scan = viewer.layers["scan"]
    viewer.add_image(np.ones((8, 32, 32)), name="other")
    run_once(qtbot, widget, fake_job)
    viewer.add_points(np.zeros((1, 3)), name="mine")
    widget.layer.value = scan
    run_once(qtbot, widget, fake_job)
    assert names(viewer) == ["other", "other · denoised", "scan", "mine", "scan · denoised"]


def test_a_rerun_keeps_one_layer_of_the_result_before(qtbot, viewer):
    widget = PoresWidget(viewer)
    qtbot.addWidget(widget.native)
    values = np.full((12, 24, 24), 200.0, np.float32)
    values[3:9, 4:10, 4:10] = values[3:9, 14:20, 14:20] = 0
    viewer.layers["scan"].data = values
    widget.form.update({"local_thickness": "both"})
    widget.run()
    widget.wait(60)
    helpers = ["scan · thickness (pores)", "scan · thickness (solid)"]
    assert names(viewer) == ["scan", "scan · pores", *helpers]
    assert [layer.visible for layer in viewer.layers] == [True, True, False, False]
    widget.run()
    widget.wait(60)
    assert names(viewer) == ["scan", "scan · previous pores", "scan · pores", *helpers]
    # from another layer of the scan
    clean = viewer.add_image(values, name="scan · denoised", **PLACE)
    set_lineage(clean, Lineage(scan_of(viewer.layers["scan"]), "", "denoise", clean.name))
    widget.layer.value = clean
    widget.run()
    widget.wait(60)
    assert names(viewer)[-3:] == ["scan · pores", *helpers]
    assert "scan · pores of scan" in viewer.layers
    assert not viewer.layers["scan · pores of scan"].visible
