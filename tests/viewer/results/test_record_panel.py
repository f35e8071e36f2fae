import json

import numpy as np
import pytest
from qtpy.QtWidgets import QApplication, QFileDialog

import hushpore
from hushpore._version import __version__
from hushpore.viewer.layers.conversion import METADATA_KEY, layer_data
from hushpore.viewer.results.record_panel import RecordWidget, provenance_of

PROVENANCE = {
    "job": "denoise",
    "date": "2026-01-02T03:04:05+00:00",
    "hushpore": "0.1.0",
    "settings": {"steps": 1000, "learning_rate": 4e-4, "time_budget": None},
    "device": "CPU, 2 threads",
    "input": {"name": "scan", "shape": [8, 32, 32], "blake2b": "ab12"},
    "timings": {"training": 41.2},
    "notes": ["Slice 6 is missing.", "Memory ran out."],
    "versions": {"numpy": "2.0"},
    "result": {"steps": 1000, "noise_removed": 39.5},
}


@pytest.fixture
def panel(qtbot, viewer):
    panel = RecordWidget(viewer)
    qtbot.addWidget(panel)
    return panel


def lines(panel):
    """All rows of the panel as (path, value)."""

    def walk(item, path):
        path = (*path, item.text(0))
        yield path, item.text(1)
        for number in range(item.childCount()):
            yield from walk(item.child(number), path)

    tops = [panel.tree.topLevelItem(n) for n in range(panel.tree.topLevelItemCount())]
    return dict(row for top in tops for row in walk(top, ()))


def result(viewer, **more):
    metadata = {METADATA_KEY: {"source": "scan.tif", "notes": [], "provenance": PROVENANCE}}
    return viewer.add_image(np.zeros((4, 8, 8)), name="result", metadata=metadata, **more)


def test_the_record_of_the_active_layer_is_shown(viewer, panel):
    result(viewer)
    shown = lines(panel)
    assert "Denoise" in panel._title.text()
    assert shown["settings", "training steps"] == "1000"
    assert shown["settings", "learning rate"] == "0.0004"
    assert shown["settings", "time limit"] == "none"
    assert shown["input", "shape"] == "8 x 32 x 32"
    assert shown["notes", "1"] == "Slice 6 is missing."
    assert shown["device",] == "CPU, 2 threads"
    assert shown["input", "fingerprint"] == "ab12"


def test_settings_have_the_names_and_units_of_the_form(viewer, panel):
    provenance = {
        **PROVENANCE,
        "job": "pores",
        "settings": {"merge_height": 0.5, "pore_type": "all", "gone": 1},
    }
    viewer.add_labels(np.zeros((4, 8, 8), int), metadata={METADATA_KEY: {"provenance": provenance}})
    shown = lines(panel)
    assert shown["settings", "merge height"] == "0.5 voxels"
    assert shown["settings", "pore type"] == "All"
    assert shown["settings", "gone"] == "1"


def test_figures_have_the_words_and_units_of_the_tables(viewer, panel):
    result = {
        "unit": "mm", "sample_voxels": 442368, "porosity": 0.54077, "closed_porosity": 4.5e-6,
        "specific_surface": 2.59928, "median_diameter": 0.9384, "count": 1350,
        "euler_number": -78, "tortuosity_z": None,
    }  # fmt: skip
    provenance = {**PROVENANCE, "job": "pores", "settings": {}, "result": result}
    viewer.add_labels(np.zeros((4, 8, 8), int), metadata={METADATA_KEY: {"provenance": provenance}})
    shown = lines(panel)
    assert shown["job",] == "Segment pores"
    assert shown["date",] == "2026-01-02 03:04:05+00:00"
    assert shown["result", "porosity"] == "54.1 %"
    assert shown["result", "closed porosity"] == "<0.01 %"
    assert shown["result", "specific surface"] == "2.599 mm⁻¹"
    assert shown["result", "median equivalent diameter (D50)"] == "0.9384 mm"
    assert shown["result", "pores"] == "1,350"
    assert shown["result", "sample voxels"] == "442,368"
    assert shown["result", "Euler number of the pores"] == "-78"
    assert shown["result", "tortuosity z"] == "none"


def test_nothing_of_the_record_is_left_out(viewer, panel):
    assert provenance_of(result(viewer)) == PROVENANCE


def test_a_layer_just_read_says_where_from(viewer, panel):
    viewer._add_layer_from_data(*layer_data(hushpore.Volume(np.ones((4, 8, 8)), source="a.tif")))
    assert lines(panel)["source",] == "a.tif"
    assert "read from a file" in panel._title.text()


def test_a_layer_of_others_is_said_to_be_unknown(viewer, panel):
    viewer.add_image(np.zeros((4, 8, 8)))
    assert "not made by hushpore" in panel._why.text()
    assert panel.provenance() == {}
    assert not panel._copy.isEnabled()
    assert not panel._save.isEnabled()


def test_without_a_layer_it_says_what_to_do(panel):
    assert "Select one layer" in panel._why.text()


def test_a_preview_that_becomes_the_result_brings_its_record(viewer, panel):
    layer = viewer.add_image(np.zeros((4, 8, 8)), metadata={METADATA_KEY: {"preview": "denoised"}})
    assert "the record is made with the result" in panel._why.text()
    layer.metadata = {METADATA_KEY: {"provenance": PROVENANCE}}
    assert panel.provenance()["job"] == "denoise"


def test_it_follows_the_active_layer(viewer, panel):
    result(viewer)
    viewer.add_image(np.zeros((4, 8, 8)), name="other")
    assert panel.provenance() == {}
    viewer.layers.selection.active = viewer.layers["result"]
    assert panel.provenance()["job"] == "denoise"


def test_the_record_can_be_copied(viewer, panel):
    result(viewer)
    panel._copy.click()
    assert json.loads(QApplication.clipboard().text()) == PROVENANCE


def test_details_for_a_report_name_no_file(qtbot, viewer, panel):
    layer = result(viewer)
    layer.metadata = {METADATA_KEY: {"provenance": {
        **PROVENANCE,
        "input": {"name": "patient 7", "source": "/home/me/patient 7.tif", "unit": "mm"},
        "settings": {"void": "dark", "mask": "patient 7 mask"},
        "auxiliary": {"mask": {"name": "patient 7 mask"}},
        "notes": [
            "Read with C:\\scans\\flat.tif beside it.",
            "Of 2 stacks the largest was read.",
            "The voxel size is that of patient 7.",
            "In /home/a b/my new scans/second one.ome.tif. 1 slice, at 0.5 mm, is missing.",
            "The folder /home/us/2025, with 3 stacks, holds patient 7.tif.",
        ],
    }}}  # fmt: skip
    QApplication.clipboard().clear()
    panel._report.click()
    qtbot.waitUntil(lambda: bool(QApplication.clipboard().text()), timeout=20_000)
    text = QApplication.clipboard().text()
    known = json.loads(text)
    assert known["hushpore"] == __version__
    assert known["device"].startswith("CPU")
    assert "numpy" in known["versions"]
    assert known["record"]["input"] == {"unit": "mm"}
    assert known["record"]["notes"] == [
        "Read with … beside it.",
        "Of 2 stacks the largest was read.",
        "The voxel size is that of ….",
        "In …. 1 slice, at 0.5 mm, is missing.",
        "The folder … with 3 stacks, holds ….",
    ]
    assert known["record"]["settings"] == {"void": "dark", "mask": "…"}
    assert not any(each in text for each in ("patient", "flat", "home", "scans", "one"))


def test_the_record_can_be_saved(qtbot, viewer, panel, tmp_path, monkeypatch):
    result(viewer)
    path = tmp_path / "made.json"
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(path), ""))
    panel._save.click()
    qtbot.waitUntil(path.exists)
    assert json.loads(path.read_text()) == PROVENANCE


def test_values_have_half_of_the_default_width(qtbot, viewer, panel):
    long = "void connected from face to face along z"
    metadata = {METADATA_KEY: {"provenance": {**PROVENANCE, "result": {long: 0.25}}}}
    viewer.add_image(np.zeros((4, 8, 8)), metadata=metadata)
    panel.resize(354, 600)
    panel.show()
    qtbot.waitExposed(panel)
    assert panel.tree.columnWidth(0) <= panel.tree.viewport().width() // 2
    item = panel.tree.topLevelItem(2).child(0)
    assert item.toolTip(0) == long
