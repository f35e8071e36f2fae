from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hushpore import Volume
from hushpore.scan.noise import estimate_noise
from hushpore.viewer.denoise.widget import NoisePanel


@pytest.fixture
def panel(viewer: Any, qtbot: Any) -> NoisePanel:
    made = NoisePanel(viewer)
    qtbot.addWidget(made)
    return made


def noise(deviation: float) -> Any:
    values = np.random.default_rng(0).normal(100, deviation, (8, 48, 48))
    return estimate_noise(Volume(values))


def test_it_is_hidden_until_the_noise_is_known(panel: NoisePanel) -> None:
    assert panel.isHidden()
    panel.show_model(noise(5))
    assert not panel.isHidden()
    panel.show_model(None)
    assert panel.isHidden()


def test_opened_it_plots_correlation_and_spectrum_of_the_layer_that_is_chosen(
    panel: NoisePanel,
) -> None:
    panel.show_model(noise(5))
    assert panel._canvas is None
    panel.set_open(True)
    correlation, spectrum = panel._canvas.figure.axes
    assert [axes.get_title() for axes in (correlation, spectrum)] == ["Correlation", "Spectrum"]
    assert float(panel._words.text().split()[1]) == pytest.approx(5, rel=0.05)
    panel.show_model(noise(50))
    assert float(panel._words.text().split()[1]) == pytest.approx(50, rel=0.05)
    assert panel._canvas.figure.axes[0] is not correlation


def test_after_denoising_the_residual_is_plotted_beside_the_noise(panel: NoisePanel) -> None:
    model = noise(5)
    panel.set_open(True)
    panel.show_model(model)
    line = {"frequencies": [0.1], "noise": [1.0], "flat": [1.0], "edges": [2.0]}
    panel.show_model(model, {"share": 0.9, "image_lost": 0.1, "noise_left": 0.01, **line})
    titles = [axes.get_title() for axes in panel._canvas.figure.axes]
    assert titles == ["Correlation", "Spectrum", "Residual"]
    assert "Residual matches noise: 90 %" in panel._words.text()
    panel.show_model(model)
    assert len(panel._canvas.figure.axes) == 2
