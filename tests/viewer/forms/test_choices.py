from __future__ import annotations

import numpy as np
import pytest
from napari.layers import Image

from hushpore import jobs
from hushpore.base.errors import DeviceError
from hushpore.device.backend import Backend
from hushpore.jobs import JOBS
from hushpore.viewer.forms import choices
from hushpore.viewer.forms.choices import DeviceChoice, LayerChoice
from hushpore.viewer.layers.conversion import METADATA_KEY, is_result

STACK = np.zeros((3, 8, 8))
RESULT = {METADATA_KEY: {"provenance": {"job": "denoise"}}}


@pytest.fixture
def choice(qtbot, viewer):
    """A choice as the denoiser makes it: images, but not its own results."""
    return make(qtbot, viewer)


def make(qtbot, viewer):
    choice = LayerChoice(
        viewer,
        lambda layer: isinstance(layer, Image) and not layer.rgb,
        lambda layer: isinstance(layer, Image) and not is_result(layer, "denoise"),
    )
    qtbot.addWidget(choice.native)
    return choice


def names(choice):
    return [choice.native.itemText(number) for number in range(choice.native.count())]


def test_an_empty_viewer_offers_nothing_and_says_so(choice):
    assert choice.value is None
    assert not choice.native.isEnabled()
    assert names(choice) == ["no suitable layer"]


def test_only_suitable_layers_are_listed_the_newest_first(viewer, choice):
    viewer.add_image(STACK, name="a")
    viewer.add_labels(STACK.astype(int), name="labels")
    viewer.add_image(np.zeros((8, 8, 3), np.uint8), rgb=True, name="photo")
    viewer.add_image(STACK, name="b")
    assert names(choice) == ["b", "a"]


def test_it_begins_with_the_active_layer(qtbot, viewer):
    first = viewer.add_image(STACK, name="a")
    viewer.add_image(STACK, name="b")
    viewer.layers.selection.active = first
    assert make(qtbot, viewer).value is first


def test_a_file_just_opened_is_taken(viewer, choice):
    viewer.add_image(STACK, name="a")
    newest = viewer.add_image(STACK, name="b")
    assert choice.value is newest


def test_the_jobs_own_result_is_listed_but_not_taken(viewer, choice):
    noisy = viewer.add_image(STACK, name="a")
    viewer.add_image(STACK, name="a · denoised", metadata=RESULT)
    assert names(choice) == ["a · denoised", "a"]
    assert choice.value is noisy


def test_a_preview_is_never_listed(viewer, choice):
    viewer.add_image(STACK, name="a")
    viewer.add_image(STACK, name="preview", metadata={METADATA_KEY: {"preview": True}})
    assert names(choice) == ["a"]


def test_a_choice_of_the_user_stays(viewer, choice):
    first = viewer.add_image(STACK, name="a")
    viewer.add_image(STACK, name="b")
    choice.native.setCurrentIndex(1)
    choice.native.activated.emit(1)
    assert choice.value is first
    viewer.add_image(STACK, name="c")
    assert choice.value is first


def test_selecting_a_layer_in_napari_does_not_change_the_target(viewer, choice):
    first = viewer.add_image(STACK, name="a")
    second = viewer.add_image(STACK, name="b")
    viewer.layers.selection.active = first
    assert choice.value is second


def test_a_renamed_layer_is_shown_with_its_new_name(viewer, choice):
    layer = viewer.add_image(STACK, name="a")
    layer.name = "scan of foam"
    assert names(choice) == ["scan of foam"]
    assert choice.value is layer


def test_another_is_taken_when_the_layer_is_deleted(viewer, choice):
    first = viewer.add_image(STACK, name="a")
    second = viewer.add_image(STACK, name="b")
    told = []
    choice.changed.connect(told.append)
    viewer.layers.remove(second)
    assert told == [first]
    assert choice.value is first
    viewer.layers.remove(first)
    assert choice.value is None
    assert names(choice) == ["no suitable layer"]


def test_moving_layers_changes_the_order_but_not_the_choice(viewer, choice):
    viewer.add_image(STACK, name="a")
    second = viewer.add_image(STACK, name="b")
    viewer.layers.move(1, 0)
    assert names(choice) == ["a", "b"]
    assert choice.value is second
    assert choice.native.currentText() == "b"


def test_a_change_of_the_layers_scale_is_told(viewer, choice):
    layer = viewer.add_image(STACK)
    told = []
    choice.changed.connect(told.append)
    layer.scale = (2, 1, 1)
    assert told == [layer]


@pytest.fixture
def two_gpus(monkeypatch):
    def choose(device):
        number = {"auto": 0, "cuda:0": 0, "cuda:1": 1}.get(device)
        if number is None:
            raise DeviceError("there are 2")
        return Backend(f"cuda:{number}", f"GPU {number}", "a GPU is available")

    monkeypatch.setattr(choices, "choose_backend", choose)


def make_choice(qtbot, kind=None):
    choice = DeviceChoice(kind)
    qtbot.addWidget(choice)
    qtbot.waitSignal(choice.found, timeout=10_000).wait()
    return choice


def entries(choice):
    return [choice._box.itemText(number) for number in range(choice._box.count())]


def test_without_a_gpu_it_says_what_it_takes_and_why(qtbot):
    choice = make_choice(qtbot)
    assert entries(choice) == ["Auto", "CPU"]
    assert choice.value() == "auto"
    assert choice.line.text().startswith("CPU, ")
    assert choice.line.text().endswith("(as the test says)")


def test_every_gpu_can_be_chosen(qtbot, two_gpus):
    choice = make_choice(qtbot)
    assert entries(choice) == ["Auto", "CPU", "CUDA:0 GPU 0", "CUDA:1 GPU 1"]
    assert choice.line.text() == "GPU 0 (a GPU is available)"
    choice.set("cuda:1")
    assert choice.value() == "cuda:1"
    assert choice.line.isHidden()
    choice.set("cpu")
    assert choice.line.text().startswith("CPU, ")


@pytest.mark.parametrize("job", ["measure", "phases"])
def test_a_job_of_the_cpu_offers_no_gpu(qtbot, two_gpus, job):
    choice = make_choice(qtbot, JOBS[job])
    assert entries(choice) == ["Auto", "CPU"]
    assert choice.line.text() == f"{Backend().name} (this job uses no GPU)"
    assert choice.resolved() == "cpu"


@pytest.mark.parametrize("job", ["measure", "phases"])
def test_a_job_of_the_cpu_runs_there_whatever_is_asked_for(monkeypatch, job):
    monkeypatch.setattr(jobs, "choose_backend", Backend)
    assert JOBS[job].backend("cuda:0").device == "cpu"


def test_a_broken_pytorch_leaves_the_cpu(qtbot, monkeypatch):
    def choose(device):
        raise ImportError("libtorch is missing")

    monkeypatch.setattr(choices, "choose_backend", choose)
    choice = make_choice(qtbot)
    assert entries(choice) == ["Auto", "CPU"]
    assert "PyTorch could not be loaded" in choice.line.text()


def test_it_says_which_device_auto_will_be(qtbot, two_gpus):
    choice = make_choice(qtbot)
    assert choice.resolved() == "cuda:0"
    choice.set("cpu")
    assert choice.resolved() == "cpu"
    choice.set("cuda:1")
    assert choice.resolved() == "cuda:1"


def test_a_job_that_takes_no_gpu_by_itself_says_so(qtbot, two_gpus):
    choice = make_choice(qtbot, JOBS["pores"])
    assert choice.resolved() == "cpu"
    assert choice.line.text().endswith("(GPU needs CuPy: not installed)")
    choice.set("cuda:1")
    assert choice.resolved() == "cuda:1"


def test_with_cupy_the_first_gpu_is_taken_for_pores(qtbot, two_gpus, monkeypatch):
    monkeypatch.setattr(jobs, "find_spec", lambda name: name)
    monkeypatch.setattr(jobs, "choose_backend", choices.choose_backend)
    choice = make_choice(qtbot, JOBS["pores"])
    assert choice.resolved() == "cuda:0"
    assert choice.line.text() == "GPU 0 (a GPU is available)"


def test_what_is_preferred_is_shown_at_once_and_taken(qtbot, two_gpus, monkeypatch):
    choice = make_choice(qtbot)
    monkeypatch.setenv("HUSHPORE_DEVICE", "cuda:1")
    preferred = Backend("cuda:1", "GPU 1", "as preferred")
    known = choices.choose_backend
    monkeypatch.setattr(
        choices, "choose_backend", lambda name: preferred if name == "auto" else known(name)
    )
    with qtbot.waitSignal(choice.found, timeout=10_000):
        choices.refresh_devices()
    assert entries(choice) == ["Auto", "CPU", "CUDA:0 GPU 0", "CUDA:1 GPU 1"]
    assert choice.line.text() == "GPU 1 (as preferred)"
    assert choice.resolved() == "cuda:1"


def test_more_about_the_device_is_told_when_it_is_unfolded(qtbot):
    choice = make_choice(qtbot)
    assert not choice.details.isVisibleTo(choice)
    choice._more.button.click()
    qtbot.waitUntil(lambda: "GB of memory free" in choice.details.text(), timeout=10_000)
    assert "pinned, graphs: " in choice.details.text()
    choice._more.button.click()
    assert not choice.details.isVisibleTo(choice)


def test_a_device_that_is_gone_says_so(qtbot, two_gpus):
    choice = make_choice(qtbot)
    choice.set("cpu")
    choice._more.button.click()
    qtbot.waitUntil(lambda: choice.details.text() == "• there are 2", timeout=10_000)


def test_the_gpu_of_a_mac_is_offered_to_the_jobs_that_can_run_there(qtbot, monkeypatch):
    def choose(device):
        if device.startswith("cuda"):
            raise DeviceError("there are none")
        return Backend("mps", "Apple GPU") if device == "mps" else Backend()

    monkeypatch.setattr(choices, "choose_backend", choose)
    choice = make_choice(qtbot, JOBS["denoise"])
    assert entries(choice) == ["Auto", "CPU", "Apple GPU"]
    choice.set("mps")
    assert choice.resolved() == "mps"
    assert entries(make_choice(qtbot, JOBS["pores"])) == ["Auto", "CPU"]
