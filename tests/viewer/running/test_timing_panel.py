import json
import re

import pytest
from napari.components import ViewerModel
from qtpy.QtWidgets import QApplication, QFileDialog, QLabel

from hushpore.base.events import Metric, StageTime, Timing
from hushpore.device.timing import Trace
from hushpore.viewer.running.messages import TimingPanel, readable_seconds


@pytest.fixture
def panel(qtbot):
    panel = TimingPanel(ViewerModel())
    qtbot.addWidget(panel)
    return panel


def shares(panel):
    return [int(share) for share in re.findall(r"(\d+)\s%</td>", panel._table.text())]


def test_nothing_is_shown_before_anything_was_timed(panel):
    assert panel.isHidden()
    panel.show_totals({})
    assert panel.isHidden()


def test_stages_are_shown_with_their_shares_and_the_longest_is_named(panel):
    panel.show_totals({"reading": 1.0, "training": 3.0})
    assert not panel.isHidden()
    assert not panel.button.isChecked()
    assert shares(panel) == [25, 75]
    assert panel.button.text().strip() == "Timing: 4 s (training 75 %)"


def test_a_second_look_updates_the_rows(panel):
    panel.show_totals({"reading": 1.0, "training": 1.0})
    panel.show_totals({"training": 3.0, "denoising": 1.0})
    assert sorted(shares(panel)) == [25, 75]
    assert "reading" not in panel._table.text()


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.00237, "2.4 ms"), (0.05, "50 ms"), (0.486, "0.49 s"), (3.14, "3.1 s"), (41.2, "41 s")],
)
def test_times_can_be_read_at_a_glance(seconds, words):
    assert readable_seconds(seconds) == words


def test_long_times_are_in_minutes():
    assert readable_seconds(744) == "12.4 min"


RUNNING = Timing(
    {
        "upload": StageTime(1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, bytes_per_second=12.1e9),
        "training": StageTime(40, 4.5, 0.6, 0.6, 0.1, 0.1, 0.13, voxels_per_second=34.2e6),
    },
    5.1,
    host_memory=1_230_000_000,
)


def texts(panel):
    return [label.text() for label in panel.findChildren(QLabel)]


def test_a_stage_without_a_rate_shows_how_long_each_run_takes(panel):
    panel.show_timing(Timing({"training": StageTime(40, 4.5, 0.6, 0.6, 0.1, 0.1, 0.13)}, 5.0))
    assert "0.1\u00a0s each" in panel._table.text()


def test_a_running_job_shows_rates_and_the_bottleneck(panel):
    panel.show_timing(RUNNING)
    assert shares(panel) == [10, 90]
    assert any(text.startswith("Limited by computing (88 %") for text in texts(panel))
    assert "12\u00a0GB/s" in panel._table.text()
    assert "34 M voxels/s" in panel._table.text()
    assert any(text.startswith("Peak memory 1.2 GB") for text in texts(panel))
    tip = panel._table.toolTip().splitlines()[1]
    assert tip == (
        "training: 40 runs, the first 0.6 s, then 0.1 s (median), 0.13 s (95th percentile); "
        "longest 0.6 s"
    )


def test_the_end_adds_what_came_last_and_keeps_what_is_known(panel):
    panel.show_timing(RUNNING)
    panel.show_totals({"upload": 0.5, "training": 4.5, "denoising": 5.0})
    assert shares(panel) == [5, 45, 50]
    assert panel.record()["stages"]["training"]["p95"] == 0.13
    assert panel.record()["elapsed"] == 10.0


def test_a_new_job_begins_with_an_empty_panel(panel):
    panel.show_timing(RUNNING)
    panel.curve.add([Metric("loss", 25, 0.5)])
    panel.rate.add_point("steps/s", 12.0, 18.3)
    panel.begin()
    assert panel.isHidden()
    assert panel.record()["curve"] == panel.record()["pace"] == []
    panel.show_totals({"training": 1.0})
    assert panel.record()["stages"]["training"]["count"] == 1


def test_it_fits_into_a_narrow_dock(panel):
    panel.begin(Trace("Denoise"))
    panel.show_timing(RUNNING)
    panel.curve.add([Metric("loss", 25, 0.5)])
    panel.rate.add_point("steps/s", 12.0, 18.3)
    panel.set_open(True)
    assert panel.minimumSizeHint().width() <= 260


def test_the_table_can_be_copied(panel):
    panel.show_timing(RUNNING)
    panel._copy()
    assert QApplication.clipboard().text().splitlines()[2].startswith("training")


def test_timings_and_trace_can_be_saved(qtbot, panel, tmp_path, monkeypatch):
    trace = Trace("Denoise")
    trace.add(Metric("loss", 25, 0.5))
    panel.begin(trace)
    panel.show_timing(RUNNING)
    panel.curve.add([Metric("loss", 25, 0.5)])
    for press, name in ((panel._save, "timings.json"), (panel._save_trace_file, "trace.json")):
        path = tmp_path / name
        monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_, p=path: (str(p), ""))
        press()
        qtbot.waitUntil(path.exists)
    timings = json.loads((tmp_path / "timings.json").read_text())
    assert timings["stages"]["training"]["count"] == 40
    assert timings["curve"] == [[25, 0.5]]
    assert len(json.loads((tmp_path / "trace.json").read_text())["traceEvents"]) == 2
