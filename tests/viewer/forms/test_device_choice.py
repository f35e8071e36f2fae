import pytest

from hushpore import jobs
from hushpore.base.errors import DeviceError
from hushpore.device.backend import Backend
from hushpore.jobs import JOBS
from hushpore.viewer.forms import device_choice
from hushpore.viewer.forms.device_choice import DeviceChoice


@pytest.fixture
def two_gpus(monkeypatch):
    def choose(device):
        number = {"auto": 0, "cuda:0": 0, "cuda:1": 1}.get(device)
        if number is None:
            raise DeviceError("there are 2")
        return Backend(f"cuda:{number}", f"GPU {number}", "a GPU is available")

    monkeypatch.setattr(device_choice, "choose_backend", choose)


def make(qtbot, kind=None):
    choice = DeviceChoice(kind)
    qtbot.addWidget(choice)
    qtbot.waitSignal(choice.found, timeout=10_000).wait()
    return choice


def entries(choice):
    return [choice._box.itemText(number) for number in range(choice._box.count())]


def test_without_a_gpu_it_says_what_it_takes_and_why(qtbot):
    choice = make(qtbot)
    assert entries(choice) == ["Auto", "CPU"]
    assert choice.value() == "auto"
    assert choice.line.text().startswith("CPU, ")
    assert choice.line.text().endswith("(as the test says)")


def test_every_gpu_can_be_chosen(qtbot, two_gpus):
    choice = make(qtbot)
    assert entries(choice) == ["Auto", "CPU", "CUDA:0 GPU 0", "CUDA:1 GPU 1"]
    assert choice.line.text() == "GPU 0 (a GPU is available)"
    choice.set("cuda:1")
    assert choice.value() == "cuda:1"
    assert choice.line.isHidden()
    choice.set("cpu")
    assert choice.line.text().startswith("CPU, ")


@pytest.mark.parametrize("job", ["measure", "phases"])
def test_a_job_of_the_cpu_offers_no_gpu(qtbot, two_gpus, job):
    choice = make(qtbot, JOBS[job])
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

    monkeypatch.setattr(device_choice, "choose_backend", choose)
    choice = make(qtbot)
    assert entries(choice) == ["Auto", "CPU"]
    assert "PyTorch could not be loaded" in choice.line.text()


def test_it_says_which_device_auto_will_be(qtbot, two_gpus):
    choice = make(qtbot)
    assert choice.resolved() == "cuda:0"
    choice.set("cpu")
    assert choice.resolved() == "cpu"
    choice.set("cuda:1")
    assert choice.resolved() == "cuda:1"


def test_a_job_that_takes_no_gpu_by_itself_says_so(qtbot, two_gpus):
    choice = make(qtbot, JOBS["pores"])
    assert choice.resolved() == "cpu"
    assert choice.line.text().endswith("(GPU needs CuPy: not installed)")
    choice.set("cuda:1")
    assert choice.resolved() == "cuda:1"


def test_with_cupy_the_first_gpu_is_taken_for_pores(qtbot, two_gpus, monkeypatch):
    monkeypatch.setattr(jobs, "find_spec", lambda name: name)
    monkeypatch.setattr(jobs, "choose_backend", device_choice.choose_backend)
    choice = make(qtbot, JOBS["pores"])
    assert choice.resolved() == "cuda:0"
    assert choice.line.text() == "GPU 0 (a GPU is available)"


def test_what_is_preferred_is_shown_at_once_and_taken(qtbot, two_gpus, monkeypatch):
    choice = make(qtbot)
    monkeypatch.setenv("HUSHPORE_DEVICE", "cuda:1")
    preferred = Backend("cuda:1", "GPU 1", "as preferred")
    known = device_choice.choose_backend
    monkeypatch.setattr(
        device_choice, "choose_backend", lambda name: preferred if name == "auto" else known(name)
    )
    with qtbot.waitSignal(choice.found, timeout=10_000):
        device_choice.refresh_devices()
    assert entries(choice) == ["Auto", "CPU", "CUDA:0 GPU 0", "CUDA:1 GPU 1"]
    assert choice.line.text() == "GPU 1 (as preferred)"
    assert choice.resolved() == "cuda:1"


def test_more_about_the_device_is_told_when_it_is_unfolded(qtbot):
    choice = make(qtbot)
    assert choice.details.isHidden()
    choice._more.click()
    qtbot.waitUntil(lambda: "GB of memory free" in choice.details.text(), timeout=10_000)
    assert "pinned, graphs: " in choice.details.text()
    choice._more.click()
    assert choice.details.isHidden()


def test_what_is_unfolded_follows_the_choice(qtbot, two_gpus, monkeypatch):
    monkeypatch.setattr(Backend, "details", lambda self: [f"memory of {self.name}"])
    choice = make(qtbot)
    choice._more.click()
    qtbot.waitUntil(lambda: choice.details.text() == "• memory of GPU 0", timeout=10_000)
    choice.set("cuda:1")
    qtbot.waitUntil(lambda: choice.details.text() == "• memory of GPU 1", timeout=10_000)


def test_a_device_that_is_gone_says_so(qtbot, two_gpus):
    choice = make(qtbot)
    choice.set("cpu")
    choice._more.click()
    qtbot.waitUntil(lambda: choice.details.text() == "• there are 2", timeout=10_000)


def test_the_gpu_of_a_mac_is_offered_to_the_jobs_that_can_run_there(qtbot, monkeypatch):
    def choose(device):
        if device.startswith("cuda"):
            raise DeviceError("there are none")
        return Backend("mps", "Apple GPU") if device == "mps" else Backend()

    monkeypatch.setattr(device_choice, "choose_backend", choose)
    choice = make(qtbot, JOBS["denoise"])
    assert entries(choice) == ["Auto", "CPU", "Apple GPU"]
    choice.set("mps")
    assert choice.resolved() == "mps"
    assert entries(make(qtbot, JOBS["pores"])) == ["Auto", "CPU"]
