"""Where labels are made of basins: on the host or on a GPU, whichever is faster; the same ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import ndimage as ndi

import hushpore
from hushpore import Volume
from hushpore.device.switches import Switches
from hushpore.pores.gpu import labels

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE = 40 * 20 * 24


@pytest.fixture(scope="module")
def scan() -> Volume:
    values = ndi.gaussian_filter(np.random.default_rng(5).normal(size=(40, 20, 24)), 2)
    return Volume((values * 9000 + 3000).astype(np.uint16))


@pytest.fixture
def launched(emulated: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The kernels that run, with how many threads."""
    calls: list[tuple[str, int]] = []
    for kernels in emulated.sources():

        def noted(name: str, count: int, *rest: Any, launch: Any = kernels.launch) -> None:
            calls.append((name, count))
            launch(name, count, *rest)

        monkeypatch.setattr(kernels, "launch", noted)
    return calls


@pytest.mark.parametrize(("name", "kernel"), [("void", "find_void"), ("labels", "relabel")])
@pytest.mark.parametrize("state", ["on", "off"])
def test_an_optimisation_is_used_where_it_is_switched_on_and_nowhere_else(
    name: str,
    kernel: str,
    state: str,
    scan: Volume,
    gpu_backend: Any,
    launched: list[tuple[str, int]],
    assert_same_pores: Callable[..., None],
) -> None:
    others = {"void": "off", "labels": "off"}
    backend = gpu_backend(switches=Switches(**{**others, name: state}))
    found = hushpore.run("pores", scan, None, backend)
    assert ((kernel, SIZE) in launched) == (state == "on")
    assert found.provenance["optimisations"][name] == f"{state}, as asked"
    assert_same_pores(found, hushpore.run("pores", scan, None, "cpu"))


def test_left_to_themselves_they_say_why_they_are_used_or_not(
    scan: Volume, gpu_backend: Any
) -> None:
    lines = hushpore.run("pores", scan, None, gpu_backend()).provenance["optimisations"]
    assert lines["void"] == "on, uint16 values cross as they are"
    assert lines["labels"] == "off, 0.0768 MB are too little to win by it"
    how = {"threshold": "niblack"}
    lines = hushpore.run("pores", scan, how, gpu_backend()).provenance["optimisations"]
    assert lines["void"] == "off, the host finds the local threshold niblack"
    # what has no way of its own on a GPU is not used when it is asked for either
    backend = gpu_backend(switches=Switches(void="on"))
    lines = hushpore.run("pores", scan, how, backend).provenance["optimisations"]
    assert lines["void"] == "off, the host finds the local threshold niblack"
    small = gpu_backend(free=SIZE * 19)
    lines = hushpore.run("pores", scan, None, small).provenance["optimisations"]
    assert lines["void"] == "off, the GPU does not hold the volume with its grey values"


@pytest.mark.parametrize(("host_is", "state", "slices"), [(2.0, "on", 38), (1.0, "off", 2)])
def test_the_first_slices_are_made_in_both_ways_and_the_rest_in_the_faster(
    host_is: float,
    state: str,
    slices: int,
    scan: Volume,
    gpu_backend: Any,
    launched: list[tuple[str, int]],
    monkeypatch: pytest.MonkeyPatch,
    assert_same_pores: Callable[..., None],
) -> None:
    monkeypatch.setattr(labels, "WORTH", 1)
    times = iter([host_is, 1.0])

    def timed(write: Callable[[int, int], None], first: int, last: int) -> float:
        write(first, last)
        return next(times)

    monkeypatch.setattr(labels, "_seconds", timed)
    found = hushpore.run("pores", scan, None, gpu_backend())
    assert sum(count for name, count in launched if name == "relabel") == slices * 20 * 24
    line = found.provenance["optimisations"]["labels"]
    assert line.startswith(f"{state}, 3.84e-06 GB/s made on the GPU and sent, where the host makes")
    expected = hushpore.run("pores", scan, None, "cpu")
    assert_same_pores(found, expected)
    # the basins of the host are still what they were
    assert_same_pores(found.remerge(2.0), expected.remerge(2.0))


def test_a_job_leaves_nothing_on_the_gpu(
    scan: Volume, gpu_backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[labels.GpuBasins] = []
    begin = labels.GpuBasins.__init__

    def noted(self: labels.GpuBasins, *args: Any) -> None:
        made.append(self)
        begin(self, *args)

    monkeypatch.setattr(labels.GpuBasins, "__init__", noted)
    monkeypatch.setattr(
        gpu_backend, "release", lambda self: held.append([each._basins for each in made])
    )
    held: list[list[Any]] = []
    hushpore.run("pores", scan, None, gpu_backend())
    assert held == [[None]]
