import pytest
from qtpy.QtGui import QPainter

from hushpore.base.events import Metric
from hushpore.viewer.running.messages import MAX_POINTS, RATE, SLOWER, Curve, TimingPanel


@pytest.fixture
def curve(qtbot, viewer):
    curve = Curve(viewer)
    qtbot.addWidget(curve)
    curve.resize(260, 84)
    return curve


def loss(*values):
    return [Metric("loss", 25 * (n + 1), value) for n, value in enumerate(values)]


def colours(curve):
    image = curve.grab().toImage()
    return {image.pixelColor(x, y).name() for x in range(image.width()) for y in range(20, 80)}


def test_it_is_hidden_until_there_is_a_value(curve):
    assert curve.isHidden()
    curve.add([])
    assert curve.isHidden()
    curve.add(loss(0.5))
    assert not curve.isHidden()
    curve.clear()
    assert curve.isHidden()


def test_it_says_the_newest_value(curve):
    curve.add(loss(0.9, 0.5, 0.4123))
    assert curve.text() == "loss 0.412 after 75 steps"
    assert "flat" in curve.toolTip()


def test_a_rate_is_drawn_over_time(qtbot, viewer):
    pace = Curve(viewer, RATE, SLOWER)
    qtbot.addWidget(pace)
    pace.add_point("steps/s", 12.4, 18.25)
    pace.add_point("tiles/s", 13.0, 2.0)
    assert pace.text() == "18.2 steps/s after 12 s"
    assert len(pace.points) == 1


def test_a_high_beginning_does_not_flatten_the_rest(curve):
    curve.add(loss(50.0, *[1 - 0.01 * n for n in range(40)]))
    low, high = curve.limits()
    assert (low, high) == pytest.approx((0.61, 0.97), abs=0.011)


def test_a_constant_can_be_drawn(curve):
    curve.add(loss(0.5, 0.5))
    assert curve.limits() == (0.0, 1.0)
    assert len(colours(curve)) > 1


def test_numbers_that_are_none_are_left_out(curve):
    curve.add(loss(0.5, float("nan"), float("inf"), 0.4))
    assert [value for _, value in curve.points] == [0.5, 0.4]


def test_other_numbers_are_not_mixed_in(curve):
    curve.add([Metric("loss", 1, 0.5), Metric("rate", 1, 4e-4), Metric("loss", 2, 0.4)])
    assert [value for _, value in curve.points] == [0.5, 0.4]


def test_a_very_long_curve_keeps_its_size_and_its_shape(curve):
    curve.add(Metric("loss", n, 1 / (1 + n)) for n in range(100_000))
    assert len(curve.points) <= MAX_POINTS
    steps = [step for step, _ in curve.points]
    assert steps == sorted(steps)
    assert steps[-1] > 99_000
    assert curve.points[-1][1] == pytest.approx(1e-5, rel=0.02)


def test_it_is_drawn_in_the_colours_of_each_theme(viewer, curve):
    curve.add(loss(0.9, 0.5, 0.4))
    dark = colours(curve)
    viewer.theme = "light"
    light = colours(curve)
    assert len(dark) > 1
    assert len(light) > 1
    assert not dark & light


def test_a_resumed_training_goes_on_with_the_curve(qtbot, viewer):
    panel = TimingPanel(viewer)
    qtbot.addWidget(panel)
    panel.curve.add(loss(0.9, 0.8, 0.7))
    panel.begin(resumes=True)
    # the last step before the cancel was not in the checkpoint
    panel.curve.add([Metric("loss", 75, 0.6), Metric("loss", 100, 0.5)])
    assert panel.curve.points == [(25, 0.9), (50, 0.8), (75, 0.6), (100, 0.5)]
    panel.begin()
    assert not panel.curve.points


def test_the_limits_of_both_axes_are_written(curve, monkeypatch):
    written = []

    class Painter(QPainter):
        def drawText(self, *given):  # noqa: N802
            written.append(given[-1])
            super().drawText(*given)

    monkeypatch.setattr("hushpore.viewer.forms.layout.QPainter", Painter)
    curve.add(loss(0.9, 0.5, 0.4123))
    curve.grab()
    assert written[1:] == ["0.9", "0.412", "25", "75"]
