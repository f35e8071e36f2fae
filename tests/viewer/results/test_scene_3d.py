from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image as Picture
from qtpy.QtCore import QObject
from qtpy.QtGui import QColor, QImage

from hushpore.viewer.results import record_panel, scene_3d
from hushpore.viewer.results.pore_view import PoreView
from hushpore.viewer.results.scene_3d import ANGLES, FRAMES, SIZE, Scene3D, paint_legend


@pytest.fixture
def sample(viewer, layer):
    """The image that the pores are of: dark pores in bright material, and another image."""
    values = np.where(layer.data > 0, 0.0, 100.0).astype(np.float32)
    image = viewer.add_image(values, name="po", scale=layer.scale, translate=layer.translate)
    viewer.add_image(np.zeros((3, 4, 5)), name="other")
    viewer.layers.selection.active = layer
    return image


@pytest.fixture
def view(viewer, layer):
    view = PoreView.of(viewer, layer)
    user = QObject()
    view.attach(user)
    yield view
    view.detach(user)


@pytest.fixture
def scene(qtbot, viewer, view):
    scene = Scene3D(viewer)
    yield scene
    scene.leave()


def show(qtbot, scene, view):
    with qtbot.waitSignal(scene.shown, timeout=20_000):
        scene.show(view)


def test_pores_are_turned_and_coloured_by_size_in_a_ghost_of_their_sample(
    qtbot, viewer, view, sample, scene
):
    view.select(view.labels == 1)
    show(qtbot, scene, view)
    assert viewer.dims.ndisplay == 3
    assert not view.selected.any()
    assert tuple(viewer.scene.camera.angles) == pytest.approx(ANGLES)
    assert view.column == SIZE
    assert not sample.visible
    assert not viewer.layers["other"].visible
    assert view.layer.visible
    ghost = viewer.layers["po (transparent)"]
    # in the place of the sample, and solid where that is bright
    assert ghost.extent.world[1] == pytest.approx(sample.extent.world[1], rel=0.2)
    assert ghost.data.max() == 1
    assert viewer.layers.selection.active is view.layer


def test_leaving_gives_the_window_back(qtbot, viewer, view, sample, scene):
    viewer.layers["other"].visible = False
    view.layer.opacity = 0.4
    before = tuple(viewer.scene.camera.center), viewer.scene.camera.zoom
    show(qtbot, scene, view)
    scene.leave()
    assert viewer.dims.ndisplay == 2
    assert (tuple(viewer.scene.camera.center), viewer.scene.camera.zoom) == before
    assert [layer.visible for layer in viewer.layers] == [True, True, False]
    assert view.layer.opacity == 0.4
    assert not view.column
    assert not scene.is_shown


def test_a_column_that_the_user_has_chosen_stays(qtbot, view, sample, scene):
    view.colour_by("sphericity")
    show(qtbot, scene, view)
    assert view.column == "sphericity"
    scene.leave()
    assert view.column == "sphericity"


@pytest.mark.parametrize("how", ["flat", "gone"])
def test_it_ends_when_the_user_goes_back_or_removes_the_pores(
    qtbot, viewer, view, sample, scene, how
):
    show(qtbot, scene, view)
    if how == "flat":
        viewer.dims.ndisplay = 2
    else:
        viewer.layers.remove(view.layer)
    assert not scene.is_shown
    assert "po ghost" not in viewer.layers


def test_it_may_end_before_it_learns_that_the_pores_are_gone(qtbot, viewer, view, sample, scene):
    """As when the table, which hears of the removal first, lets go of its pores."""
    show(qtbot, scene, view)
    viewer.layers.events.removed.connect(lambda event: scene.leave(), position="first")
    viewer.layers.remove(view.layer)
    assert not scene.is_shown


def test_without_the_image_the_pores_are_shown_alone(viewer, view, scene):
    scene.show(view)
    assert scene.is_ready
    assert len(viewer.layers) == 1


def test_a_picture_has_a_legend_with_the_ends_of_the_colour_map(view):
    view.colour_by(SIZE)
    image = QImage(400, 300, QImage.Format.Format_RGBA8888)
    image.fill(QColor("black"))
    paint_legend(image, view)
    colours = {image.pixelColor(x, y).name() for x in range(14, 194) for y in range(200, 300)}
    # viridis, as its authors give it
    assert {"#440154", "#fde725"} <= colours
    view.colour_by("is_open")
    paint_legend(image, view)
    colours = {image.pixelColor(x, y).name() for x in range(14, 194) for y in range(200, 300)}
    assert {"#e69f00", "#56b4e9"} <= colours


def test_a_film_is_one_turn_that_ends_where_it_began(
    qtbot, viewer, view, sample, scene, tmp_path, monkeypatch
):
    show(qtbot, scene, view)
    angles = []

    def picture():
        angles.append(viewer.scene.camera.angles[1])
        image = QImage(900, 300, QImage.Format.Format_RGBA8888)
        image.fill(QColor("navy"))
        for x in range(20 * len(angles), 20 * len(angles) + 20):
            for y in range(100, 200):
                image.setPixelColor(x, y, QColor("yellow"))
        return image

    monkeypatch.setattr(scene, "picture", picture)
    path = tmp_path / "turn.gif"
    scene.save(path)
    qtbot.waitUntil(path.exists, timeout=20_000)
    assert len(angles) == FRAMES
    turned = np.diff(np.unwrap(angles, period=360))
    assert turned == pytest.approx(360 / FRAMES)
    assert tuple(viewer.scene.camera.angles) == pytest.approx(ANGLES)
    with Picture.open(path) as film:
        assert film.n_frames == FRAMES
        assert film.size == (scene_3d.FILM_WIDTH, 213)


def test_a_picture_is_written_as_it_is_called(qtbot, view, sample, scene, tmp_path, monkeypatch):
    show(qtbot, scene, view)
    image = QImage(40, 30, QImage.Format.Format_RGBA8888)
    image.fill(QColor("red"))
    monkeypatch.setattr(scene, "picture", lambda: image)
    scene.save(tmp_path / "pores")
    path = tmp_path / "pores.png"
    qtbot.waitUntil(path.exists, timeout=20_000)
    with Picture.open(path) as picture:
        assert picture.convert("RGB").getpixel((5, 5)) == (255, 0, 0)


def picture():
    image = QImage(8, 8, QImage.Format.Format_RGB32)
    image.fill(QColor("black"))
    return image


@pytest.mark.parametrize("name", ["view.svg", "view v1.2", "view"])
def test_a_picture_is_png_where_qt_does_not_know_the_end_of_its_name(
    qtbot, scene, tmp_path, monkeypatch, name
):
    monkeypatch.setattr(scene, "picture", picture)
    (tmp_path / name).write_text("earlier work")
    scene.save(tmp_path / name)
    written = tmp_path / f"{name}.png"
    qtbot.waitUntil(written.exists)
    with Picture.open(written) as shown:
        assert shown.size == (8, 8)
    assert (tmp_path / name).read_text() == "earlier work"


def test_a_picture_that_cannot_be_written_is_said_and_leaves_the_one_before(
    qtbot, scene, tmp_path, monkeypatch
):
    said = []
    monkeypatch.setattr(record_panel, "show_warning", said.append)
    monkeypatch.setattr(scene, "picture", QImage)
    path = tmp_path / "view.png"
    path.write_text("earlier work")
    scene.save(path)
    qtbot.waitUntil(lambda: bool(said))
    assert "cannot be written as PNG" in said[0]
    assert path.read_text() == "earlier work"


def test_images_have_no_scene(viewer, scene):
    flat = SimpleNamespace(tables=SimpleNamespace(n_spatial=2))
    scene.show(flat)
    assert not scene.is_shown


def test_leaving_goes_back_to_the_slice(qtbot, viewer, view, sample, scene):
    viewer.dims.set_point(0, 6.0)
    before = viewer.dims.point
    show(qtbot, scene, view)
    viewer.dims.set_point(0, 0.0)
    scene.leave()
    assert viewer.dims.point == before
