"""The widgets of jobs as scripts and notebooks drive them: by magicgui's conventions."""

import gc
import weakref
from concurrent.futures import CancelledError
from dataclasses import dataclass, field

import numpy as np
import pytest
from magicgui import magicgui
from magicgui.widgets import CheckBox, Container
from magicgui.widgets.bases import BaseValueWidget
from napari.layers import Image
from qtpy.QtCore import QTimer
from qtpy.QtWidgets import QApplication
from scipy.ndimage import median_filter

from hushpore import InputError, jobs
from hushpore.base.errors import HushporeError
from hushpore.base.events import Note, Progress
from hushpore.base.settings import Settings, option
from hushpore.pores.settings import PoreSettings
from hushpore.runs.presets import remember, remembered
from hushpore.viewer.denoise.widget import DenoiseWidget
from hushpore.viewer.forms.form import SettingsForm
from hushpore.viewer.job_widget import JobWidget
from hushpore.viewer.layers.conversion import METADATA_KEY
from hushpore.viewer.patches.widget import PatchesWidget
from hushpore.viewer.running.worker import JobWorker
from hushpore.viewer.segment.widget import PoresWidget

WIDGETS = [DenoiseWidget, PoresWidget, PatchesWidget]
SOON = 20.0


@dataclass(frozen=True)
class MedianSettings(Settings):
    size: int = option(3, "Side of the window.", minimum=1, unit="px")
    mode: str = option("reflect", "What lies beyond the border.", choices=("reflect", "wrap"))


@dataclass(frozen=True)
class Filtered:
    volume: object
    provenance: dict
    headline: str = "Filtered"
    timings: dict = field(default_factory=lambda: {"filtering": 0.1})
    remarks: tuple = ()


def median(volume, settings, backend):
    if settings.size == 13:
        raise InputError("size 13 is unlucky.")
    if settings.size == 14:
        raise ZeroDivisionError("by zero")
    while settings.size == 15:
        yield Progress("filtering", 1, 2, "slices", 0.5)
    yield Note("It is not learnt.")
    values = median_filter(np.asarray(volume.data), settings.size, mode=settings.mode)
    return Filtered(volume.replace(values), {"job": "median", "settings": settings.to_dict()})


@pytest.fixture
def median_job(monkeypatch):
    entry = jobs.JobDescription("Median", f"{__name__}:MedianSettings", f"{__name__}:median")
    monkeypatch.setattr(jobs.JobDescription, "load", lambda kind: median)
    monkeypatch.setitem(jobs.JOBS, "median", entry)


class MedianWidget(JobWidget):
    job = "median"


@pytest.fixture
def widget(qtbot, viewer, scan, median_job):
    viewer.add_image(scan, name="scan", scale=(2, 1, 1))
    widget = MedianWidget(viewer)
    qtbot.addWidget(widget.native)
    return widget


def test_a_job_needs_no_more_than_its_entry_to_be_run_in_the_window(widget, viewer, scan):
    widget.size.value = 5
    worker = widget.run()
    assert isinstance(worker, JobWorker)
    assert widget.worker is worker
    result = widget.wait(SOON)
    assert widget.worker is None
    assert result is widget.result
    np.testing.assert_array_equal(result.volume.data, median_filter(scan, 5))
    made = viewer.layers["scan · median"]
    assert isinstance(made, Image)
    assert tuple(made.scale) == (2, 1, 1)
    np.testing.assert_array_equal(made.data, median_filter(scan, 5))
    assert made.metadata[METADATA_KEY]["provenance"]["settings"] == {"size": 5, "mode": "reflect"}
    # its own result is not what it works on next
    assert widget.layer.value is viewer.layers["scan"]


def test_folded_settings_are_items_in_the_order_of_the_form(qtbot, viewer):
    widget = PatchesWidget(viewer)
    qtbot.addWidget(widget.native)
    widget.seed.value = 3
    names = [item.name for item in widget]
    assert names == ["layer", *(field.name for field in widget.form), "device"]
    assert widget["seed"] is widget.form.seed
    assert widget.settings().seed == 3


def test_the_end_of_a_job_is_told_with_its_result(widget):
    ends = []
    widget.called.connect(ends.append)
    widget.failed.connect(ends.append)
    widget.run()
    result = widget.wait(SOON)
    assert ends == [result]
    widget.size.value = 15
    widget.run()
    widget.cancel()
    with pytest.raises(CancelledError, match="cancelled"):
        widget.wait(SOON)
    assert ends == [result, None]


def test_what_cannot_be_done_is_raised_to_a_script_and_told(widget):
    problems = []
    widget.failed.connect(problems.append)
    widget.size.value = 13
    widget.run()
    with pytest.raises(HushporeError, match="size 13 is unlucky"):
        widget.wait(SOON)
    widget.size.value = 14
    widget.run()
    with pytest.raises(RuntimeError, match="ZeroDivisionError: by zero"):
        widget.wait(SOON)
    assert [problem.expected for problem in problems] == [True, False]
    assert widget.result is None


def test_a_job_that_takes_longer_than_one_waits_runs_on(widget):
    widget.size.value = 15
    worker = widget.run()
    with pytest.raises(TimeoutError, match=r"Median scan has not ended in 0\.05 s"):
        widget.wait(0.05)
    assert widget.run() is worker
    widget.cancel()
    with pytest.raises(CancelledError, match="cancelled"):
        widget.wait(SOON)


def test_without_a_layer_nothing_runs_and_why_is_raised(widget, viewer):
    viewer.layers.clear()
    with pytest.raises(InputError, match="Drop a CT stack"):
        widget.run()
    assert not widget.is_running


def test_a_value_that_is_not_accepted_is_refused_and_changes_nothing(widget, viewer):
    labels = viewer.add_labels(np.ones((4, 4), int), name="crumb")
    for name, value in (("size", 0), ("size", "large"), ("mode", "blue"), ("layer", labels)):
        before = widget[name].value
        with pytest.raises(ValueError, match=r"must be"):
            widget[name].value = value
        assert widget[name].value == before


def test_a_result_is_let_go_once_its_layers_are_gone(widget, viewer):
    widget.run()
    gone = weakref.ref(widget.wait(SOON))
    viewer.layers.remove("scan")
    assert widget.result is not None
    viewer.layers.remove("scan · median")
    assert widget.result is None
    # the last signal of the worker holds it, too
    QApplication.processEvents()
    gc.collect()
    assert gone() is None


def test_a_change_is_told_with_the_value_and_of_the_container_with_itself(widget):
    values, containers = [], []
    widget.size.changed.connect(values.append)
    widget.changed.connect(containers.append)
    widget.size.value = 7
    widget.size.native.stepUp()
    assert values == [7, 8]
    assert containers == [widget, widget]


def test_many_values_are_set_at_once(widget):
    told = []
    widget.changed.connect(told.append)
    widget.update(size=9, mode="wrap")
    assert told == [widget]
    assert widget.form.value == MedianSettings(9, "wrap")
    assert {**widget.asdict(), "layer": None} == {
        "layer": None, "size": 9, "mode": "wrap", "device": "auto",
    }  # fmt: skip


def test_it_shows_itself_as_a_function_of_what_can_be_set(widget):
    text = repr(widget)
    assert text.startswith("<MedianWidget (layer: ")
    assert "Image layer 'scan'" in text
    assert text.endswith("size: int = 3, mode: str = 'reflect', device: str = 'auto')>")
    assert list(widget.__signature__.parameters) == ["layer", "size", "mode", "device"]


def test_what_a_script_adds_lies_under_the_rest(widget):
    button = CheckBox(name="mine", value=True)
    widget.append(button)
    assert widget.mine is button
    assert widget.native.layout().itemAt(widget.native.layout().count() - 1).widget() is (
        button.native
    )


@pytest.mark.parametrize("kind", WIDGETS)
def test_every_setting_is_an_attribute_of_its_widget(qtbot, viewer, kind):
    widget = kind(viewer)
    qtbot.addWidget(widget.native)
    assert isinstance(widget, Container)
    # what is folded away joins the window when it is unfolded, or a moment later
    widget.form.more.set_open(True)
    names = [each.name for each in jobs.JOBS[kind.job].settings.options()]
    for name in [*names, "layer", "device"]:
        # none is hidden by a method of the widget
        assert getattr(widget, name) is widget[name], name
        assert isinstance(widget[name], BaseValueWidget)
        assert widget[name].native.window() is widget.native.window(), name
    assert set(widget.asdict()) >= {"layer", "device", *names}


def test_a_function_of_another_plugin_can_take_settings(viewer):
    @magicgui
    def use(settings: PoreSettings):
        return settings

    assert isinstance(use.settings, SettingsForm)
    use.settings.pore_type.value = "open"
    assert use() == PoreSettings(pore_type="open")


def test_a_name_that_is_no_setting_is_refused_and_nothing_is_set(widget):
    with pytest.raises(InputError, match=r"no setting 'sizes' here. Available: layer, size, mode"):
        widget.update(size=9, sizes=11)
    assert widget.size.value == 3


def test_a_script_starts_from_defaults_and_leaves_the_last_used_settings_alone(viewer):
    remember("pores", PoreSettings(minimum_voxels=64))
    viewer.add_image(np.arange(4 * 32 * 32, dtype=np.float32).reshape(4, 32, 32), name="ramp")
    pores = PoresWidget(viewer)
    assert pores.form.value == PoreSettings()
    pores.update(minimum_voxels=8)
    pores.run()
    pores.wait(SOON)
    assert remembered("pores", PoreSettings) == PoreSettings(minimum_voxels=64)


def test_the_window_starts_from_what_was_used_last(viewer, qtbot):
    remember("pores", PoreSettings(minimum_voxels=64))
    opened = []
    QTimer.singleShot(0, lambda: opened.append(PoresWidget(viewer)))
    qtbot.waitUntil(lambda: bool(opened))
    assert opened[0].form.value == PoreSettings(minimum_voxels=64)
