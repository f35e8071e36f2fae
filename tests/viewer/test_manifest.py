from pathlib import Path
from pkgutil import resolve_name

import pytest
from napari._app_model.constants._menus import is_menu_contributable
from npe2 import PluginManifest

import hushpore
from hushpore.io.registry import READERS, exporters_of
from hushpore.jobs import JOBS
from hushpore.viewer.docks import DOCKS, OF_JOB
from hushpore.viewer.forms.layout import CROP, FLATTEN
from hushpore.viewer.running.messages import RECORD, RESULT_WIDGETS

MANIFEST = Path(hushpore.__file__).parent / "napari.yaml"


@pytest.fixture(scope="module")
def manifest():
    manifest = PluginManifest.from_file(MANIFEST)
    manifest.validate_imports()
    return manifest


def test_every_command_can_be_imported(manifest):
    assert manifest.name == "hushpore"
    assert manifest.contributions.commands


def test_the_plugins_menu_has_the_docks_in_the_order_of_the_work(manifest):
    names = [widget.display_name for widget in manifest.contributions.widgets]
    assert names == list(DOCKS) == ["Prepare", "Denoise", "Pores", "Results", "Patches"]


def test_links_lead_to_pages_that_exist():
    pages = {page: place for dock in DOCKS.values() for page, place in dock.items()}
    assert {*OF_JOB.values(), *RESULT_WIDGETS, RECORD, CROP, FLATTEN} <= set(pages)
    assert set(OF_JOB) == set(JOBS)
    for place in pages.values():
        assert resolve_name(f"hushpore.viewer.{place}")


def test_every_page_has_its_command_in_a_menu_that_napari_accepts(manifest):
    menus = manifest.contributions.menus
    assert all(is_menu_contributable(menu) for menu in menus)
    listed = {item.command for items in menus.values() for item in items}
    of_pages = {
        command.id
        for command in manifest.contributions.commands
        if command.python_name.startswith("hushpore.viewer.docks:open_")
    }
    # of docks with one page
    assert listed == of_pages | {"hushpore.denoise", "hushpore.patches", "hushpore.resample"}
    assert len(of_pages) == sum(map(len, DOCKS.values())) - 2 + 1


def test_the_patterns_of_files_are_those_of_the_readers(manifest):
    with_extension, without = manifest.contributions.readers
    patterns = [pattern for reader in READERS.values() for pattern in reader.patterns]
    assert with_extension.filename_patterns == [each for each in patterns if each[:2] == "*."]
    assert without.filename_patterns == [each for each in patterns if each[:2] != "*."]


def test_images_are_saved_by_the_endings_of_the_exporters(manifest):
    image, labels, both = manifest.contributions.writers
    endings = [end for each in exporters_of("image").values() for end in each.endings]
    # the longest ending that a plugin names wins, so others must not have a longer one
    whole = [*endings, *(f".ome{end}" for end in endings)]
    assert image.filename_extensions == labels.filename_extensions == whole
    assert both.filename_extensions == [".zarr", ".ome.zarr"]


@pytest.mark.parametrize(
    ("name", "ours"),
    [("scan.dcm", True), ("SCAN.IMA", True), ("IM0001", True), ("DICOMDIR", True), ("I10", True),
     ("1.2.840.113619.2.55.3", True), ("photo.gif", False), ("slice.png", True),
     ("notes.txt", False), ("data.2024.csv", False)],
)  # fmt: skip
def test_files_are_offered_by_extension_or_where_they_have_none(npe2pm, manifest, name, ours):
    npe2pm.register(manifest)
    found = list(npe2pm.iter_compatible_readers(f"/a.b/{name}"))
    assert bool(found) == ours


def test_the_manifest_beside_the_project_is_the_one_in_the_package():
    beside = MANIFEST.parents[2] / "napari.yaml"
    if not beside.exists():
        pytest.skip("not in a checkout")
    assert beside.resolve() == MANIFEST.resolve()
