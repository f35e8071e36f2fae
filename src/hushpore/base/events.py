"""Events that a job yields while it runs, and the protocol of its result."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeAlias, TypeVar, get_args

from hushpore.base.settings import flag_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import pandas as pd

    from hushpore.base.arrays import Array
    from hushpore.base.volume import Volume

T = TypeVar("T")
E = TypeVar("E")
F = TypeVar("F")


@dataclass(frozen=True)
class Progress:
    """Work completed so far.

    Attributes
    ----------
    stage : str
        Name of the current stage for users: ``"training"``.
    done, total : int
        Completed and total work in `unit`; ``total == 0`` means that the total is unknown.
    unit : str
        Unit of `done` and `total`: ``"steps"``, ``"slices"``.
    fraction : float
        Share of the whole job that is complete, 0 to 1.
    """

    stage: str
    done: int
    total: int
    unit: str
    fraction: float


@dataclass(frozen=True, eq=False)
class Preview:
    """Preview of one slice of the current result; receivers may drop it.

    Attributes
    ----------
    name : str
        Name of the previewed result: ``"denoised"``.
    image : numpy.ndarray
        2D array (y, x), owned by the receiver.
    index : tuple of int
        Position of the slice on the leading axes of the volume (time, channel, z).
    """

    name: str
    image: Array
    index: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Batch:
    """Training batch of one step; receivers may drop it.

    Attributes
    ----------
    step : int
        Number of the step, from 1.
    corners : numpy.ndarray
        int64, shape (n_patches, ndim): first voxel of each patch, on every axis of the volume.
    patch_shape : tuple of int
        Shape of a patch, (y, x) or (z, y, x).
    losses : numpy.ndarray
        float64, shape (n_patches,): mean squared error of each patch at its masked pixels.
    """

    step: int
    corners: Array
    patch_shape: tuple[int, ...]
    losses: Array


@dataclass(frozen=True)
class Metric:
    """One value of a curve, for example the loss after a step."""

    name: str
    step: int
    value: float


@dataclass(frozen=True)
class StageTime:
    """Accumulated time of one stage in seconds, by the clock of the device if it has one.

    Attributes
    ----------
    count : int
        Number of runs of the stage.
    seconds : float
        Total time.
    worst : float
        Longest single run.
    first, last : float
        First run, which includes memory allocation and compilation, and newest run.
    p50, p95 : float
        Median and 95th percentile of the runs to within 4 %, without the first if there are more.
    host : float
        Total time on the host's clock; on a GPU the time to launch the work.
    nbytes, voxels : int
        Bytes moved and voxels processed, as reported by the stage.
    syncs : int
        Number of times that the host waited for the device.
    bytes_per_second, voxels_per_second : float
        Throughput, without the first run if there are more; 0 if unknown.
    """

    count: int
    seconds: float
    worst: float
    first: float = 0.0
    last: float = 0.0
    p50: float = 0.0
    p95: float = 0.0
    host: float = 0.0
    nbytes: int = 0
    voxels: int = 0
    syncs: int = 0
    bytes_per_second: float = 0.0
    voxels_per_second: float = 0.0

    @property
    def mean(self) -> float:
        """Mean time of a run, without the first if there are more."""
        if self.count > 1:
            return (self.seconds - self.first) / (self.count - 1)
        return self.seconds


@dataclass(frozen=True)
class Span:
    """One run of a stage: its start by `time.perf_counter` and its duration, in seconds."""

    stage: str
    start: float
    seconds: float


@dataclass(frozen=True)
class Timing:
    """Time of a job so far, by stage.

    Attributes
    ----------
    stages : dict of str to StageTime
        In the order in which the stages first ran.
    elapsed : float
        Seconds since the timer was made, whether in a stage or not.
    spans : tuple of Span
        The newest runs, those since the `Timing` before; the oldest are left out of very many.
    dropped : int
        Runs that were not timed.
    host_memory, device_memory : int
        The most that was in use so far, in bytes: by the whole process, and on the device by
        PyTorch and CuPy.
    choices : dict of str to str
        Whether each optimisation is used, and why: ``{"graphs": "off, no CUDA device"}``.
    """

    stages: dict[str, StageTime] = field(default_factory=dict)
    elapsed: float = 0.0
    spans: tuple[Span, ...] = ()
    dropped: int = 0
    host_memory: int = 0
    device_memory: int = 0
    choices: dict[str, str] = field(default_factory=dict)

    @property
    def syncs(self) -> int:
        """Number of times that the host waited for the device, in all stages."""
        return sum(stage.syncs for stage in self.stages.values())


@dataclass(frozen=True)
class Remedy:
    """Settings with which a job can be run again, or another job, offered beside a note."""

    label: str  # text of the link, an imperative: ``"Exclude them"``
    settings: Mapping[str, Any]  # by their names
    job: str = ""  # key of `hushpore.jobs.JOBS` of another job; empty for the same one

    @property
    def flags(self) -> str:
        """The settings as flags of the command line: ``--minimum-voxels 8``."""
        words = [f"hushpore {self.job}"] if self.job else []
        for name, value in self.settings.items():
            flag = flag_of(name)
            if isinstance(value, bool):
                words.append(flag if value else flag.replace("--", "--no-", 1))
            else:
                words.append(f"{flag} {value}")
        return " ".join(words)


#: Subjects of notes, the most important first.
Subject: TypeAlias = Literal["result", "scan", "run"]


@dataclass(frozen=True)
class Note:
    """A sentence for the user, kept in the record of the result; a remark once the job is done.

    Attributes
    ----------
    message : str
        The sentence.
    warning : bool
        True where the result may not be what the user expects.
    subject : str
        ``"result"``, ``"scan"`` (the input) or ``"run"`` (device, memory, progress).
    remedy : Remedy, optional
        Settings that answer it.
    """

    message: str
    warning: bool = False
    subject: Subject = "run"
    remedy: Remedy | None = None

    @property
    def with_flags(self) -> str:
        """The message with its remedy as flags of the command line."""
        remedy = self.remedy
        return self.message if remedy is None else f"{self.message} {remedy.label}: {remedy.flags}"

    @classmethod
    def of_dict(cls, record: Mapping[str, Any]) -> Note:
        """Return a note from its entry in a record, see `to_dict`."""
        remedy = record.get("remedy")
        return cls(
            record["text"],
            record["warning"],
            record["subject"],
            None if remedy is None else Remedy(**remedy),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the note as plain JSON values: text, remedy, warning and subject."""
        remedy = None if self.remedy is None else asdict(self.remedy)
        return {
            "text": self.message,
            "remedy": remedy,
            "warning": self.warning,
            "subject": self.subject,
        }


def by_importance(notes: Iterable[Note]) -> tuple[Note, ...]:
    """Return notes without duplicates: warnings first, within each kind those on the result.

    >>> slabs, noise = Note("Computed in 4 slabs."), Note("5 pores may be noise.", True, "result")
    >>> [note.message for note in by_importance([slabs, noise])]
    ['5 pores may be noise.', 'Computed in 4 slabs.']
    """
    subjects = get_args(Subject)
    unique = {note.message: note for note in notes}.values()
    return tuple(sorted(unique, key=lambda note: (not note.warning, subjects.index(note.subject))))


Event: TypeAlias = Progress | Preview | Batch | Metric | Timing | Note


class StopEarly(Exception):  # noqa: N818 - a request, not an error
    """Request to finish early with the current result, thrown into a job.

    Use ``job.throw(StopEarly())``. A job that improves with time, like training, goes straight to
    its last step and returns a result. Any other job does not catch it, and is cancelled.
    """


@dataclass(frozen=True)
class Attention:
    """Slice that the user is looking at, sent into a job (``job.send(Attention((12,)))``).

    It is the answer to a `Progress`; other events are not answered. A job with previews switches
    them to that slice as soon as possible; other jobs ignore it.

    Attributes
    ----------
    index : tuple of int
        Position on the leading axes of the volume (time, channel, z), as in `Preview`.
    """

    index: tuple[int, ...]


def result_text(headline: str, remarks: Iterable[Note]) -> dict[str, Any]:
    """Return the text of a result as entries of its record."""
    return {"headline": headline, "remarks": [note.to_dict() for note in remarks]}


@dataclass(frozen=True, eq=False)
class ResultFiles:
    """Files of a result, independent of how they are written."""

    images: Mapping[str, Volume]  # ``<name>.tif``; their fingerprints are recorded
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)  # ``<name>.csv``
    figures: Mapping[str, bytes] = field(default_factory=dict)  # ``<name>.png``
    # compressed sets of named arrays: ``<name>.npz``
    arrays: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # further entries of ``result.json``
    provenance: Mapping[str, Any] = field(default_factory=dict)
    # tables that only the report shows, made when it is drawn
    of_report: Mapping[str, Callable[[], pd.DataFrame]] = field(default_factory=dict)


class Result(Protocol):
    """Result of any job; most results have more attributes.

    If the entry of a job in `hushpore.jobs.JOBS` declares an image (`gives`), the result also has
    this image as ``volume``, the input of the next job in a chain.
    """

    @property
    def headline(self) -> str:
        """The main figures of the result in one line."""

    @property
    def remarks(self) -> tuple[Note, ...]:
        """Sentences on the result, each with its remedy, the most important first."""

    @property
    def timings(self) -> Mapping[str, float]:
        """Seconds by stage."""

    @property
    def provenance(self) -> dict[str, Any]:
        """Record of input and settings, see `hushpore.base.provenance.make_provenance`."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes from the run, in their order."""

    def files(self) -> ResultFiles:
        """Return the files to write."""


#: A job yields events and returns its result; ``close()`` cancels it. It may be sent `Attention`.
Job: TypeAlias = Generator[Event, Any, Any]


class Driver(Generic[E, T]):
    """Runs a job event by event, and closes it however the loop ends.

    ``with Driver(job) as driver:``, then ``for event in driver:``.

    Attributes
    ----------
    answer : object
        Sent to the job once, with the next step; a `StopEarly` is thrown into it.
    result : object
        Result of the job, available after the loop.
    """

    result: T

    def __init__(self, job: Generator[E, Any, T]) -> None:
        self._job = job
        self.answer: object = None

    def __enter__(self) -> Driver[E, T]:
        return self

    def __exit__(self, *raised: object) -> None:
        self._job.close()

    def __iter__(self) -> Driver[E, T]:
        return self

    def __next__(self) -> E:
        answer, self.answer = self.answer, None
        try:
            if isinstance(answer, StopEarly):
                return self._job.throw(answer)
            return self._job.send(answer)
        except StopIteration as end:
            self.result = end.value
            raise


def result_of(job: Generator[E, Any, T], on_event: Callable[[E], object] | None = None) -> T:
    """Run a job to its end and return its result.

    Parameters
    ----------
    job : generator
        The job; always closed at the end.
    on_event : callable, optional
        Called in this thread with each event. Its return value is sent to the job as the answer.
    """
    with Driver(job) as driver:
        for event in driver:
            if on_event is not None:
                driver.answer = on_event(event)
    return driver.result


def mapped(job: Generator[E, Any, T], change: Callable[[E], F]) -> Generator[F, Any, T]:
    """Run a job and yield its events, changed by a function; answers are passed to the job."""
    with Driver(job) as driver:
        for event in driver:
            try:
                driver.answer = yield change(event)
            except StopEarly as stop:
                driver.answer = stop
    return driver.result


def part_of(job: Generator[E, Any, T], first: float, last: float) -> Generator[E, Any, T]:
    """Run a job as a part of a longer one, mapping its progress to a range of fractions.

    Parameters
    ----------
    job : generator
        Yields events, or plain fractions of its completed work.
    first, last : float
        Fractions of the longer job at the start and at the end of this job.
    """

    def within(event: Any) -> Any:
        if isinstance(event, Progress):
            return replace(event, fraction=first + (last - first) * event.fraction)
        if isinstance(event, float | int):
            return first + (last - first) * event
        return event

    return mapped(job, within)
