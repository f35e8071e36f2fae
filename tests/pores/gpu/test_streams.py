"""Slabs on streams of an emulated GPU, each of which runs on by itself until an event holds it."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict, deque
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from scipy import ndimage as ndi

import hushpore
from hushpore import InputError, Volume
from hushpore.device.backend import Backend
from hushpore.device.clocks import HostClock
from hushpore.device.memory import POOLED
from hushpore.device.switches import Switches
from hushpore.device.timing import StageTimer
from hushpore.device.transfers import Transfers
from hushpore.pores import pipeline
from hushpore.pores.gpu import opening
from hushpore.pores.gpu.engine import SOURCES, Gpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHAPE = (23, 24, 28)
VOXELS, PLANE = 23 * 24 * 28, 24 * 28
SLABS = 5
_WRONG = 0x5A


class Streams:
    """The streams of a device, in the place of its bus; see `hushpore.device.transfers.CudaBus`.

    Computing is done at once, and so are copies on its stream. A copy up happens when somebody
    waits for it and not before: until then there are wrong values. A copy down of what was computed
    later than the last event that its stream has waited for brings wrong values. `deaf`: streams
    whose waits for events are forgotten.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.deaf: set[str] = set()
        self.copied: list[tuple[str, int]] = []
        self.computed = 0
        self.before_download: Callable[[int], None] = lambda number: None
        self._own = threading.local()
        self._waiting: dict[str, deque[Callable[[], None]]] = defaultdict(deque)
        self._begun: Counter[str] = Counter()
        self._done: Counter[str] = Counter()
        self._seen = 0
        # of each array: where it lies, how long it is, and which launch was given it last
        self._touched: dict[int, tuple[int, int]] = {}

    @property
    def now(self) -> str:
        return getattr(self._own, "stream", "computing")

    def compute(self, name: str, count: int, *arguments: Any) -> None:
        with self.changed:
            self.computed += 1
            for each in arguments:
                if isinstance(each, np.ndarray):
                    self._touched[each.ctypes.data] = each.nbytes, self.computed

    def pinned(self, nbytes: int) -> torch.Tensor:
        return torch.empty(nbytes, dtype=torch.uint8)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        if self.now == "down":
            self.before_download(sum(stream == "down" for stream, _ in self.copied))
        with self.changed:
            is_early = self.now == "down" and self._made(source.data_ptr()) > self._seen

            def happen() -> None:
                target.copy_(source)
                if is_early:
                    target.fill_(_WRONG)

            if self.now == "up":
                target.fill_(_WRONG)
            self.copied.append((self.now, target.numel()))
            if self.now == "computing":
                # in its order
                happen()
                return
            self._waiting[self.now].append(happen)
            self._begun[self.now] += 1
            self.changed.notify_all()

    def _made(self, address: int) -> int:
        return max(
            (when for at, (nbytes, when) in self._touched.items() if at <= address < at + nbytes),
            default=0,
        )

    def record_event(self) -> Happening:
        return Happening(self, self.now, self._begun[self.now], self.computed)

    @contextmanager
    def side_stream(self, way: str = "up") -> Iterator[None]:
        self._own.stream = way
        yield
        del self._own.stream

    def wait_event(self, values: torch.Tensor, event: Happening) -> None:
        if event.stream in self.deaf:
            return
        if event.stream == "computing":
            self._seen = max(self._seen, event.computed)
        event.synchronize()

    def reach(self, stream: str, number: int) -> None:
        with self.changed:
            while self._done[stream] < number:
                self._waiting[stream].popleft()()
                self._done[stream] += 1


@dataclass
class Happening:
    """An event: how far a stream was when it was recorded."""

    streams: Streams
    stream: str
    number: int
    computed: int

    def query(self) -> bool:
        return self.streams._done[self.stream] >= self.number

    def synchronize(self) -> None:
        self.streams.reach(self.stream, self.number)


@dataclass(frozen=True)
class StreamedGpu(Backend):
    """What a job takes for a GPU with streams."""

    device: str = "cuda:0"
    name: str = "a GPU"
    streams: Any = None
    slices: int = 9

    @property
    def transfers(self) -> Transfers:
        return self.__dict__.setdefault(
            "_transfers", Transfers("cpu", self.streams, self.choices, 1 << 20)
        )

    def timer(self) -> StageTimer:
        return StageTimer(choices=self.choices)

    def clock(self) -> HostClock:
        return HostClock()

    def free_memory(self) -> int:
        return int(self.slices * PLANE * opening.BYTES_IN_SLABS / POOLED) + 1

    def release(self) -> None:
        self.transfers.release()


@pytest.fixture
def streams(emulated: Any, monkeypatch: pytest.MonkeyPatch) -> Streams:
    """The streams of the emulated GPU that jobs get; room for nine slices, four beside a slab."""
    emulated.run_threads("parallel")
    kernels = dict(zip(SOURCES, emulated.sources(), strict=True))
    made = Streams()
    emulated.watch(monkeypatch, made.compute)
    monkeypatch.setattr(
        Gpu, "of", lambda backend: Gpu(emulated.xp, lambda source, _: kernels[source], backend)
    )
    # the class itself is patched above
    monkeypatch.setattr(opening, "_WARMED_UP", {"cuda:0"})
    return made


def scan() -> Volume:
    smooth = ndi.gaussian_filter(np.random.default_rng(3).normal(size=SHAPE), 2)
    return Volume((smooth * 4000 + 3000).astype(np.uint16), spacing=(2.0, 1.0, 1.0), unit="um")


def segmented(streams: Streams, **how: Any) -> Any:
    switches = Switches(pinned="on", stream="on")
    return hushpore.run("pores", scan(), how, StreamedGpu(switches=switches, streams=streams))


@pytest.mark.parametrize("how", [{}, {"exterior": "remove", "connectivity": "faces"}], ids=str)
def test_slabs_on_streams_give_what_the_cpu_gives(
    how: dict[str, Any],
    streams: Streams,
    monkeypatch: pytest.MonkeyPatch,
    assert_same_pores: Callable[..., None],
) -> None:
    def put(self: Gpu, values: np.ndarray) -> None:
        pytest.fail("all that a slab needs was sent ahead")

    monkeypatch.setattr(Gpu, "put", put)
    found = segmented(streams, **how)
    assert found.notes[-1] == f"Worked on in {SLABS} slabs of 5 slices on the GPU."
    assert_same_pores(found, hushpore.run("pores", scan(), how, "cpu"))
    # distance and basins come down once; what is not small goes up on a stream of its own
    moved = Counter[str]()
    for stream, nbytes in streams.copied:
        moved[stream] += nbytes
    assert moved["down"] == 2 * 4 * VOXELS
    # void, the planes beside each slab but at the ends, its distance with slices beside it, basins
    # and distance, grey values
    beside, behind = 2 * 2 * (SLABS - 1), SLABS - 1
    planes = 23 + 4 * (2 * (SLABS - 1) + 23 + beside + 2 * (23 + behind) + 23)
    assert moved["up"] == planes * PLANE


@pytest.mark.parametrize("stream", ["", "up", "computing"])
def test_without_one_of_the_events_what_is_found_would_be_wrong(
    stream: str, streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[np.ndarray] = []

    def enough(work: Any, distance: Any) -> Any:
        found.append(distance.array().copy())
        raise InputError("that is enough: basins of wrong distances have no end")
        yield

    monkeypatch.setattr(pipeline, "find_basins", enough)
    with pytest.raises(InputError, match="that is enough"):
        hushpore.run("pores", scan(), None, "cpu")
    streams.deaf = {stream}
    with pytest.raises(InputError, match="that is enough"):
        segmented(streams)
    expected, distance = found
    assert np.array_equal(distance, expected) == (stream == "")


def test_a_slab_goes_up_and_one_comes_down_while_another_is_computed(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, assert_same_pores: Callable[..., None]
) -> None:
    met: dict[str, list[bool]] = {"next is sent": [], "next is computed": []}
    distance, begun = Gpu.squared_distance, 0

    def waited(what: str, until: Callable[[], bool]) -> None:
        with streams.changed:
            met[what].append(streams.changed.wait_for(until, timeout=10))

    def sent() -> int:
        return sum(stream == "up" for stream, _ in streams.copied)

    def computing(self: Gpu, *args: Any, **rest: Any) -> Any:
        nonlocal begun
        with streams.changed:
            begun += 1
            number = begun
            streams.changed.notify_all()
        if number < SLABS:
            # void and two planes of each, of the first and the last one
            ends = 1 + (number + 1 == SLABS)
            waited("next is sent", lambda: sent() >= 3 * (number + 1) - ends)
        return distance(self, *args, **rest)

    def before_download(number: int) -> None:
        if number + 1 < SLABS:
            waited("next is computed", lambda: begun > number + 1)

    monkeypatch.setattr(Gpu, "squared_distance", computing)
    streams.before_download = before_download
    found = segmented(streams)
    assert met == {"next is sent": [True] * 4, "next is computed": [True] * 4}
    assert_same_pores(found, hushpore.run("pores", scan(), None, "cpu"))


def test_where_memory_runs_out_slabs_get_thinner_and_then_it_is_the_cpu(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, assert_same_pores: Callable[..., None]
) -> None:
    watershed, most = Gpu.watershed, [6]

    def little_room(self: Gpu, distance: Any, *args: Any, **rest: Any) -> Any:
        if len(distance) > most[0]:
            raise torch.OutOfMemoryError
        return watershed(self, distance, *args, **rest)

    monkeypatch.setattr(Gpu, "watershed", little_room)
    expected = hushpore.run("pores", scan(), None, "cpu")
    found = segmented(streams)
    assert found.notes[-1].endswith("worked on in 12 slabs of 2 slices on the GPU.")
    assert_same_pores(found, expected)
    most[0] = 0
    found = segmented(streams)
    assert found.notes[-1] == "Pores are segmented on the CPU: the GPU's memory ran out."
    assert_same_pores(found, expected)
    left = [each.name for each in threading.enumerate() if "hushpore" in each.name]
    assert not [name for name in left if "reads ahead" in name or "downloads" in name]
