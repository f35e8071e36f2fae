import json
import threading
from functools import cache, partial

import numpy as np
import pandas as pd
import pytest
import tifffile
from napari.components import ViewerModel
from napari.utils._proxies import PublicOnlyProxy
from qtpy.QtCore import Qt
from qtpy.QtGui import QShortcut
from qtpy.QtWidgets import QApplication

from hushpore.base.errors import InputError
from hushpore.base.volume import Volume
from hushpore.device.backend import Backend
from hushpore.io import guards
from hushpore.io.results import write_image
from hushpore.jobs import JOBS
from hushpore.runs import presets
from hushpore.runs.batch import Batch
from hushpore.runs.batch_groups import scan_figures
from hushpore.runs.batch_workers import State
from hushpore.viewer.batch import BatchWidget
from hushpore.viewer.forms import choices
from hushpore.viewer.running.status import LoadingTask
from hushpore.viewer.running.worker import JobWorker, calling

pytestmark = pytest.mark.usefixtures("small_network")

#: Milliseconds: a batch runs the real jobs, whose kernels may have to be compiled first.
LONG = 120_000


@pytest.fixture
def scans(tmp_path):
    z, y, x = np.ogrid[:16, :16, :16]
    grey = np.where((z - 8) ** 2 + (y - 8) ** 2 + (x - 8) ** 2 < 16, 100, 900).astype(np.uint16)
    (tmp_path / "scans").mkdir()
    (tmp_path / "scans" / "bad.tif").write_text("no pixels")
    for name in ("one", "two"):
        write_image(tmp_path / "scans" / f"{name}.tif", Volume(grey, spacing=2, unit="um"))
    return [str(path) for path in sorted((tmp_path / "scans").iterdir())]


@pytest.fixture
def widget(qtbot):
    viewer = ViewerModel()
    widget = BatchWidget(viewer)
    qtbot.addWidget(widget.native)
    widget.denoise.value = False
    return widget


def column(widget, number):
    return [
        widget.scans.native.topLevelItem(row).text(number) for row in range(len(widget.scans.value))
    ]


def test_all_that_is_chosen_says_what_it_is(widget):
    widget.native.show()
    assert [each.name for each in widget if not each.native.toolTip()] == []
    # what is only asked which device there is, is not on the way of the tab key
    assert not widget._device.isVisible()


def test_run_says_what_is_missing(widget, scans, tmp_path):
    assert "Add scans first" in widget._buttons.run.toolTip()
    widget.add(scans)
    assert "Choose a folder for the results" in widget._buttons.run.toolTip()
    assert not widget._buttons.run.isEnabled()
    widget.output.value = tmp_path / "out"
    assert widget._buttons.run.isEnabled()


def test_each_scan_is_listed_once_and_taken_off_again(widget, scans):
    widget.add(scans)
    widget.add(scans[:1])
    assert widget.scans.value == scans
    assert column(widget, 0) == ["bad", "one", "two"]
    said = "Porosity 4.1 % (open 0.7 %, closed 3.4 %) · 207 pores"
    widget.scans.native.show_states({"one": State("one", "done", 1.0, said)})
    assert column(widget, 2)[1] == said
    widget.scans.native.topLevelItem(0).setSelected(True)
    widget._remove.click()
    assert widget.scans.value == scans[1:]


def test_a_batch_runs_and_says_how_each_scan_ended(widget, scans, tmp_path, qtbot):
    presets.save_preset("closed", "pores", JOBS["pores"].settings(pore_type="closed"))
    widget.pores_preset.value = "closed"
    widget.add(scans)
    widget.output.value = tmp_path / "out"
    widget._buttons.run.click()
    assert widget._buttons.cancel.isEnabled()
    assert not widget._buttons.run.isEnabled()
    assert not widget._files.isEnabled()
    qtbot.waitUntil(lambda: not widget.is_running, timeout=LONG)
    assert column(widget, 1) == ["failed", "done", "done"]
    assert "its content is not TIFF" in column(widget, 2)[0]
    assert "1 pore" in column(widget, 2)[1]
    assert column(widget, 4) == ["", "1", "1"]
    assert "2 of 3 scans have a result, 1 failed" in widget._result.text()
    assert pd.read_csv(tmp_path / "out" / "summary.csv")["count"].tolist()[1:] == [1, 1]
    assert widget._files.isEnabled()
    # once more: nothing is done twice
    widget._buttons.run.click()
    qtbot.waitUntil(lambda: not widget.is_running, timeout=LONG)
    assert column(widget, 1) == ["failed", "skipped", "skipped"]


def test_the_numbers_of_results_stand_in_columns_and_sort_as_numbers(widget, tmp_path, qtbot):
    names = ["nine", "ten", "failed", "hundred"]
    widget.add(str(tmp_path / f"{name}.tif") for name in names)
    table = pd.DataFrame(
        {
            "name": names,
            "porosity": [0.09, 0.1, np.nan, 0.5],
            "count": [9, 1000, np.nan, 100],
            "median_diameter": [5.0, 0.04, np.nan, 6.0],
            "unit": ["um", "mm", None, "um"],
        }
    )
    table["limits"] = ["passed", "failed", None, "not decided"]
    tree = widget.scans.native
    tree.show_figures(scan_figures(table))
    titles = [tree.headerItem().text(number) for number in range(7)]
    assert titles == ["Scan", "State", "Result", "Porosity (%)", "Pores", "D50 (µm)", "Limits"]
    assert column(widget, 6) == ["passed", "failed", "", "not decided"]
    assert column(widget, 3) == ["9", "10", "", "50"]
    assert column(widget, 4) == ["9", "1,000", "", "100"]
    assert column(widget, 5) == ["5", "40", "", "6"]
    assert tree.header().visualIndex(2) == 6
    for number, expected in {
        4: ["failed", "nine", "hundred", "ten"],
        5: ["failed", "nine", "hundred", "ten"],
        6: ["failed", "ten", "hundred", "nine"],
        3: ["failed", "nine", "ten", "hundred"],
    }.items():
        tree.header().sectionClicked.emit(number)
        assert column(widget, 0) == expected
    tree.header().sectionClicked.emit(3)
    assert column(widget, 0) == ["hundred", "ten", "nine", "failed"]
    # the paths follow their rows
    assert widget.scans.value[0].endswith("hundred.tif")
    # a scan added later has no number yet
    widget.add([str(tmp_path / "later.tif")])
    tree.header().sectionClicked.emit(4)
    assert column(widget, 0)[-1] == "ten"
    tree.setColumnCount(3)
    assert tree.columnCount() == 3


def test_scans_that_may_fill_the_memory_are_read_only_where_they_are_trusted(
    widget, tmp_path, qtbot, monkeypatch
):
    phantom = np.full((8, 64, 64), 900, np.uint16)
    phantom[2:6, 20:40, 20:40] = 100
    tifffile.imwrite(tmp_path / "phantom.tif", phantom, compression="zstd", photometric=1)
    monkeypatch.setattr(guards, "LARGEST_RATIO", 2)
    monkeypatch.setattr(guards, "SMALL", 0)
    widget.add([tmp_path / "phantom.tif"])
    widget.output.value = tmp_path / "out"
    for _ in range(2):
        widget.run()
        qtbot.waitUntil(lambda: not widget.is_running, timeout=LONG)
        if not widget.trust.value:
            assert column(widget, 1) == ["failed"]
            assert "'Allow high compression' = on" in column(widget, 2)[0]
        widget.trust.value = True
    assert column(widget, 1) == ["done"]
    # nobody's habit
    assert not BatchWidget(ViewerModel()).trust.value


def test_a_problem_with_the_whole_batch_is_told(widget, scans, tmp_path, qtbot):
    widget.add(scans)
    widget.output.value = tmp_path / "no" / "out"
    widget.run()
    qtbot.waitUntil(lambda: not widget.is_running, timeout=LONG)
    assert "its folder does not exist" in widget._result.text()


@pytest.mark.parametrize("name", ["labels.tif", "labels.ome.zarr"])
def test_a_double_click_opens_the_scan_and_over_it_its_pores(
    widget, scans, tmp_path, qtbot, monkeypatch, name
):
    viewer, opened = widget._viewer, []

    def open_at_once(self, path, plugin):
        opened.append((path, [layer.name for layer in self.layers]))

    monkeypatch.setattr(ViewerModel, "open", open_at_once)
    widget.add(scans)
    widget.output.value = tmp_path / "out"
    widget.open_result(1)
    assert not LoadingTask.running
    (tmp_path / "out" / "one").mkdir(parents=True)
    labels = tmp_path / "out" / "one" / name
    labels.touch() if name.endswith("tif") else labels.mkdir()
    widget.scans.native.itemDoubleClicked.emit(widget.scans.native.topLevelItem(1), 0)
    qtbot.waitUntil(lambda: bool(opened))
    assert opened == [(str(labels), ["one"])]
    assert [layer.name for layer in viewer.layers] == ["one"]


def test_a_result_is_opened_in_napari_which_gives_widgets_a_proxy(
    make_napari_viewer, scans, tmp_path, qtbot
):
    viewer = make_napari_viewer()
    widget = BatchWidget(PublicOnlyProxy(viewer))
    qtbot.addWidget(widget.native)
    widget.add(scans[1:2])
    widget.denoise.value, widget.output.value = False, tmp_path / "out"
    widget.run()
    widget.wait()
    widget.open_result(0)
    qtbot.waitUntil(lambda: len(viewer.layers) == 2)
    assert [layer.name for layer in viewer.layers] == ["one", "one · pores"]


def test_one_network_is_trained_for_all_scans(widget, scans, tmp_path, qtbot):
    assert not widget.one_network.enabled
    widget.denoise.value = True
    assert widget.one_network.enabled
    quick = JOBS["denoise"].settings(steps=1, patch_size=16)
    presets.save_preset("quick", "denoise", quick)
    widget.denoise_preset.value = "quick"
    widget.one_network.value = True
    widget.add(scans[1:])
    widget.output.value = tmp_path / "out"
    widget._buttons.run.click()
    qtbot.waitUntil(lambda: not widget.is_running, timeout=LONG)
    assert column(widget, 1) == ["done", "done"]
    record = json.loads((tmp_path / "out" / "network.json").read_text())
    assert [each["name"] for each in record["trained_on"]] == ["one", "two"]


@pytest.mark.parametrize("denoise", [True, False])
def test_it_waits_for_what_uses_its_device(scans, tmp_path, qtbot, monkeypatch, denoise):
    monkeypatch.setattr(choices, "find_devices", cache(lambda: (Backend("cuda:0"),)))
    widget = BatchWidget(ViewerModel())
    qtbot.addWidget(widget.native)
    with qtbot.waitSignal(widget._device.found):
        pass
    open_gate = threading.Event()
    device = "cuda:0" if denoise else "cpu"
    before = JobWorker(partial(calling, open_gate.wait, 60))
    before.start(device)
    widget.denoise.value = denoise
    widget.add(scans[1:2])
    widget.output.value = tmp_path / "out"
    worker = widget.run()
    assert worker.waits_for is before
    worker.cancel()
    open_gate.set()
    qtbot.waitUntil(lambda: not widget.is_running)


# PySide6 deprecates the only constructor that PyQt6 has
@pytest.mark.filterwarnings("ignore:Function. 'QDragEnterEvent:DeprecationWarning")
def test_files_that_are_dropped_are_listed(widget, scans):
    from qtpy.QtCore import QMimeData, QPoint, QPointF, QUrl
    from qtpy.QtGui import QDragEnterEvent, QDropEvent

    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(path) for path in scans])
    how = Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    enter = QDragEnterEvent(QPoint(1, 1), *how)
    QApplication.sendEvent(widget.native, enter)
    assert enter.isAccepted()
    QApplication.sendEvent(widget.native, QDropEvent(QPointF(1, 1), *how))
    assert widget.scans.value == scans


def test_it_opens_with_what_was_last_run_but_no_scans(monkeypatch, widget, scans, tmp_path, qtbot):
    # as by a click, and not by a script
    monkeypatch.setattr("hushpore.viewer.batch.is_script", lambda: False)
    widget.add(scans[:1])
    widget.output.value = tmp_path / "out"
    widget.resample.value = True
    widget.jobs.value = 2
    widget.run()
    widget.jobs.value = 3  # not run with
    qtbot.waitUntil(lambda: not widget.is_running, timeout=LONG)
    again = BatchWidget(ViewerModel())
    qtbot.addWidget(again.native)
    assert (again.denoise.value, again.resample.value) == (False, True)
    assert again.jobs.value == 2
    assert again.scans.value == []
    assert again.output.value == ""


def test_second_scans_are_named_for_all(widget, tmp_path):
    widget.output.value = tmp_path
    assert widget._arguments()["steps"]["denoise"] is None
    widget.denoise.value = True
    widget.pair.value = "{name}_odd"
    assert widget._arguments()["steps"]["denoise"].pair == "{name}_odd"
    widget.pair.value = ""
    assert widget._arguments()["steps"]["denoise"].pair == ""


def test_the_list_is_used_by_keys(widget, scans, qtbot):
    widget.add(scans)
    widget.scans.native.setCurrentItem(widget.scans.native.topLevelItem(0))
    qtbot.keyClick(widget.scans.native, Qt.Key.Key_Delete)
    assert widget.scans.value == scans[1:]
    opened = []
    widget.scans.native.wanted.connect(opened.append)
    widget.scans.native.setCurrentItem(widget.scans.native.topLevelItem(1))
    qtbot.keyClick(widget.scans.native, Qt.Key.Key_Return)
    assert opened == [1]
    widget._allow_changes(False)
    qtbot.keyClick(widget.scans.native, Qt.Key.Key_Delete)
    assert widget.scans.value == scans[1:]


def test_a_script_runs_it_and_waits(widget, scans, tmp_path):
    with pytest.raises(InputError, match="Add scans first"):
        widget.run()
    widget.scans.value = scans[1:]
    with pytest.raises(InputError, match="Choose a folder"):
        widget.run()
    widget.update(output=tmp_path / "out", jobs=1)
    ends = []
    widget.called.connect(ends.append)
    worker = widget.run()
    assert widget.run() is worker
    batch = widget.wait(LONG / 1000)
    assert batch is widget.result
    assert ends == [batch]
    assert batch.count("done") == 2
    with pytest.raises(InputError, match="There is no preset 'none'"):
        widget.pores_preset.value = "none"
    assert repr(widget).startswith("<BatchWidget (scans: ")


def test_a_batch_that_has_ended_is_plotted_by_groups(make_napari_viewer, tmp_path, qtbot):
    viewer = make_napari_viewer()
    widget = BatchWidget(viewer)
    qtbot.addWidget(widget.native)
    with pytest.raises(InputError, match="Nothing to plot yet"):
        widget.plot()
    figures = {"porosity": [0.1, 0.3, None], "count": [1, 2, None]}
    sizes = {"median_diameter": [2.0, 3.0, None], "unit": ["um", "um", None]}
    table = pd.DataFrame({"name": ["a", "b", "c"], **figures, **sizes})
    state = State("a", "done", 1.0, "")
    widget._returned(Batch(tmp_path, (state,), table))
    assert widget._show_plot.isVisibleTo(widget.native)
    canvas = widget.plot()
    assert canvas.numbers["scans"].tolist() == [2]
    porosity = canvas.figure.axes[0]
    assert sorted(porosity.lines[0].get_ydata()) == pytest.approx([10, 30])
    assert porosity.get_xticklabels()[0].get_text() == "all scans"
    assert "⚠" not in widget._result.text()
    widget._returned(Batch(tmp_path, (state,), table.assign(unit=["um", "pixel", None])))
    assert "lengths of 1 of 2 scans are in pixel" in widget._result.text()
    widget._returned(Batch(tmp_path, (state,), table.iloc[2:]))
    assert not widget._show_plot.isVisibleTo(widget.native)


def test_fields_keep_their_height_where_the_widget_is_low(qtbot, viewer):
    widget = BatchWidget(viewer)
    qtbot.addWidget(widget.native)
    widget.native.resize(350, 400)
    widget.native.show()
    qtbot.waitExposed(widget.native)
    for field in (widget.output, widget.pair, widget.groups, widget.jobs, widget.pores_preset):
        assert field.native.height() >= field.native.minimumSizeHint().height()
    run = widget._buttons.run
    assert run.visibleRegion().boundingRect() == run.rect()


def test_phases_are_measured_where_they_are_asked_for(widget, scans, tmp_path):
    widget.add(scans)
    widget.output.value = tmp_path / "out"
    assert list(widget._arguments()["steps"]) == ["denoise", "pores"]
    widget.measure.value = "phases"
    assert not widget.pores_preset.enabled
    assert widget.phases_preset.enabled
    steps = widget._arguments()["steps"]
    assert (steps["denoise"], steps["phases"]) == (None, JOBS["phases"].settings())


def test_the_voxel_size_is_that_of_all_scans_and_the_table_is_a_link(
    widget, scans, tmp_path, qtbot
):
    widget.add(scans[1:])
    widget.output.value = tmp_path / "out"
    widget.voxel_size.value = "7um"
    widget.native.show()
    qtbot.waitExposed(widget.native)
    keys = {key.key().toString(): key for key in widget.native.findChildren(QShortcut)}
    keys["Ctrl+Return"].activated.emit()
    qtbot.waitUntil(lambda: not widget.is_running, timeout=LONG)
    table = pd.read_csv(tmp_path / "out" / "summary.csv")
    assert set(table["unit"]) == {"um"}
    assert (tmp_path / "out" / "summary.csv").as_uri() in widget._result.html
    assert widget._result.openExternalLinks()


def test_each_scan_is_cropped_and_binned_and_that_is_not_remembered(
    monkeypatch, qtbot, widget, scans, tmp_path
):
    monkeypatch.setattr("hushpore.viewer.batch.is_script", lambda: False)
    widget.scans.value = [path for path in scans if "bad" not in path]
    widget.output.value = tmp_path / "out"
    widget.crop.value, widget.bin.value = "0:16,2:14,4:16", "2"
    widget.run()
    qtbot.waitUntil(lambda: not widget.is_running, timeout=LONG)
    assert widget.result.count("done") == 2
    for name in ("one", "two"):
        record = json.loads((tmp_path / "out" / name / "result.json").read_text())
        assert record["jobs"][-1]["input"]["shape"] == [8, 6, 6]
        assert (record["source"]["crop"], record["source"]["bin"]) == ("0:16,2:14,4:16", "2")
    again = BatchWidget(ViewerModel())
    qtbot.addWidget(again.native)
    assert (again.crop.value, again.bin.value) == ("", "")
