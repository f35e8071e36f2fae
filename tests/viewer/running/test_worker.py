import gc
import threading
import time
import tracemalloc

import numpy as np
import pint
import pytest

from hushpore.base.errors import InputError
from hushpore.base.events import Attention, Metric, Note, Preview, Progress, StopEarly, Timing
from hushpore.viewer.running.worker import JobWorker, calling, stop

SOON = 10_000


def step(fraction=0.5):
    return Progress("working", 1, 2, "steps", fraction)


def test_the_result_of_a_job_arrives(qtbot):
    def job():
        yield step()
        return "pores"

    worker = JobWorker(job)
    with qtbot.waitSignal(worker.returned, timeout=SOON) as heard:
        worker.start()
    assert heard.args == ["pores"]
    assert worker.wait(60)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"),
        MemoryError(),
        InputError("constant"),
        StopIteration(3),
        KeyboardInterrupt(),
        ZeroDivisionError("by zero"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_error_is_lost(qtbot, error):
    def job():
        yield step()
        raise error

    worker = JobWorker(job)
    with qtbot.waitSignal(worker.failed, timeout=SOON) as heard:
        worker.start()
    problem = heard.args[0]
    assert problem.message
    assert type(error).__name__ in problem.details
    assert not any(line.startswith("Traceback") for line in problem.message.splitlines())


def test_an_error_before_the_first_event_is_reported(qtbot):
    def make():
        raise ImportError("no torch")

    worker = JobWorker(make)
    with qtbot.waitSignal(worker.failed, timeout=SOON):
        worker.start()


def test_cancel_closes_the_generator_before_it_is_announced(qtbot):
    order = []

    def job():
        try:
            while True:
                yield step()
                time.sleep(0.001)
        finally:
            time.sleep(0.05)
            order.append("closed")

    worker = JobWorker(job)
    worker.cancelled.connect(lambda: order.append("announced"))
    worker.start()
    qtbot.wait(20)
    with qtbot.waitSignal(worker.cancelled, timeout=SOON):
        worker.cancel()
    assert order == ["closed", "announced"]
    # its thread has that to do yet
    qtbot.waitUntil(lambda: not worker.is_running, timeout=SOON)


def learns():
    """A job that can be cut short while it is training, and not before."""
    for _ in range(5):
        yield step()
        time.sleep(0.001)
    steps = 0
    try:
        while steps < 2000:
            yield Progress("training", steps, 2000, "steps", 0.5)
            time.sleep(0.001)
            steps += 1
    except StopEarly:
        yield Note("cut short")
    yield Progress("denoising", 1, 1, "tiles", 1.0)
    return steps


def test_a_job_that_is_finished_early_returns_what_it_has(qtbot):
    worker = JobWorker(learns)
    worker.finish("training")
    assert worker.is_finishing
    with qtbot.waitSignal(worker.returned, timeout=SOON) as heard:
        worker.start()
    assert heard.args == [0]
    assert worker.finished_early
    assert [note.message for note in worker.take().notes] == ["cut short"]


def test_progress_is_answered_with_what_is_looked_at(qtbot):
    told = []

    def job():
        # a list takes no answers
        yield from [Note("odd"), Timing({})]
        for _ in range(3):
            told.append((yield step()))

    worker = JobWorker(job)
    worker.attend((4,))
    with qtbot.waitSignal(worker.returned, timeout=SOON):
        worker.start()
    assert told == [Attention((4,))] * 3


def test_a_job_past_the_stage_that_can_be_cut_ends_as_it_would_have(qtbot):
    worker = JobWorker(learns)
    worker.finish("diagnosis")
    with qtbot.waitSignal(worker.returned, timeout=SOON) as heard:
        worker.start()
    assert heard.args == [2000]
    assert not worker.finished_early


def test_a_job_that_cannot_end_early_is_cancelled(qtbot):
    closed = threading.Event()

    def job():
        try:
            while True:
                yield step()
                time.sleep(0.001)
        finally:
            closed.set()

    worker = JobWorker(job)
    worker.finish("working")
    with qtbot.waitSignal(worker.cancelled, timeout=SOON):
        worker.start()
    assert closed.is_set()


def test_a_job_cancelled_in_its_last_step_has_no_result(qtbot):
    begun, gate = threading.Event(), threading.Event()

    def job():
        yield step()
        begun.set()
        gate.wait(60)
        return "unwanted"

    worker = JobWorker(job)
    worker.start()
    assert begun.wait(60)
    with qtbot.waitSignal(worker.cancelled, timeout=SOON):
        worker.cancel()
        gate.set()


def test_a_job_cancelled_before_it_starts_does_nothing(qtbot):
    made = []

    def job():
        made.append(1)
        yield step()

    worker = JobWorker(job)
    worker.cancel()
    with qtbot.waitSignal(worker.cancelled, timeout=SOON):
        worker.start()
    assert made == []


def test_an_error_in_the_clean_up_of_a_cancelled_job_is_reported(qtbot):
    def job():
        try:
            while True:
                yield step()
        finally:
            raise RuntimeError("the file could not be removed")

    worker = JobWorker(job)
    worker.start()
    with qtbot.waitSignal(worker.failed, timeout=SOON) as heard:
        worker.cancel()
    assert "could not be removed" in heard.args[0].message


def test_only_the_newest_progress_and_preview_are_kept_but_every_metric_and_note(qtbot):
    def job():
        for number in range(50):
            yield step(number / 50)
            yield Preview("denoised", np.full((2, 2), number), (number,))
            yield Metric("loss", number, 1.0)
            yield Timing({})
        yield Note("odd")
        yield Note("very odd", warning=True)

    worker = JobWorker(job)
    with qtbot.waitSignal(worker.returned, timeout=SOON):
        worker.start()
    update = worker.take()
    assert update.progress.fraction == 49 / 50
    assert update.previews["denoised"].index == (49,)
    assert [metric.step for metric in update.metrics] == list(range(50))
    assert [note.message for note in update.notes] == ["odd", "very odd"]
    assert worker.take().progress is None


def test_a_flood_of_previews_does_not_fill_the_memory(qtbot):
    def job():
        for number in range(2000):
            yield Preview("denoised", np.full(1 << 16, number, np.float32), (0,))

    gc.collect()
    tracemalloc.start()
    worker = JobWorker(job)
    with qtbot.waitSignal(worker.returned, timeout=SOON):
        worker.start()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5 * (1 << 18)


def test_a_flood_of_events_is_taken_in_by_a_living_window_and_fills_no_memory(qtbot):
    def job():
        for number in range(40_000):
            yield step(number / 40_000)
            if number % 10 == 0:
                yield Metric("loss", number, 1.0)
                yield Timing({})

    worker, taken, metrics = JobWorker(job), 0, 0
    gc.collect()
    tracemalloc.start()
    worker.start()
    end = time.monotonic() + 600
    while not worker.wait(0.02) and time.monotonic() < end:
        qtbot.wait(1)
        metrics += len(worker.take().metrics)
        taken += 1
    metrics += len(worker.take().metrics)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert metrics == 4000
    assert taken > 3
    # what stays is the trace: two entries of some 200 bytes for ten steps
    assert size < 4_000_000


def test_nothing_is_left_of_cancelled_jobs(qtbot):
    def job():
        room = np.ones(1 << 20)
        while True:
            yield step(float(room[0]) / 2)

    before = {thread.ident for thread in threading.enumerate()}
    sizes = []
    tracemalloc.start()
    for _ in range(5):
        worker = JobWorker(job)
        worker.start()
        qtbot.wait(10)
        with qtbot.waitSignal(worker.cancelled, timeout=SOON):
            worker.cancel()
        assert worker.wait(60)
        del worker
        gc.collect()
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert {thread.ident for thread in threading.enumerate()} <= before
    assert max(sizes) < 1 << 20


def test_the_job_runs_in_another_thread(qtbot):
    def job():
        yield step()
        return threading.current_thread()

    worker = JobWorker(job)
    with qtbot.waitSignal(worker.returned, timeout=SOON) as heard:
        worker.start()
    assert heard.args[0] is not threading.main_thread()


def waits_at(gate, order, name):
    def job():
        order.append(f"{name} begins")
        while not gate.wait(0.002):
            yield step()
        order.append(f"{name} ends")

    return job


def test_workers_in_one_line_run_one_after_another(qtbot):
    gate, order = threading.Event(), []
    workers = [JobWorker(waits_at(gate, order, name), name) for name in "abc"]
    for worker in workers:
        worker.start("cpu")
    qtbot.waitUntil(lambda: order == ["a begins"], timeout=SOON)
    assert [worker.waits_for for worker in workers] == [None, workers[0], workers[0]]
    with qtbot.waitSignal(workers[2].returned, timeout=SOON):
        gate.set()
    assert order == [f"{name} {what}" for name in "abc" for what in ("begins", "ends")]
    assert workers[1].waits_for is None


def test_workers_in_different_lines_do_not_wait_for_each_other(qtbot):
    gate, order = threading.Event(), []
    workers = [JobWorker(waits_at(gate, order, name), name) for name in "ab"]
    for worker, line in zip(workers, ("cpu", "cuda:0"), strict=True):
        worker.start(line)
    qtbot.waitUntil(lambda: len(order) == 2, timeout=SOON)
    gate.set()


def test_a_worker_that_waits_can_be_cancelled_without_its_turn_being_missed(qtbot):
    gate, order = threading.Event(), []
    first, second, third = (JobWorker(waits_at(gate, order, name), name) for name in "abc")
    for worker in (first, second, third):
        worker.start("cpu")
    with qtbot.waitSignal(second.cancelled, timeout=SOON):
        second.cancel()
    assert second.wait(60)
    assert first.is_running
    with qtbot.waitSignal(third.returned, timeout=SOON):
        gate.set()
    assert "b begins" not in order


def test_a_worker_that_ended_can_be_cancelled_while_the_next_in_its_queue_runs(qtbot):
    gate, order = threading.Event(), []
    first, second = JobWorker(lambda: calling(int)), JobWorker(waits_at(gate, order, "b"))
    with qtbot.waitSignal(first.returned, timeout=SOON):
        first.start("cpu")
        second.start("cpu")
    qtbot.waitUntil(lambda: "b begins" in order, timeout=SOON)
    # as a window does that is closed
    first.cancel()
    with qtbot.waitSignal(second.returned, timeout=SOON):
        gate.set()


def test_a_failure_lets_the_next_in_line_begin(qtbot):
    def fails():
        raise RuntimeError("broken")

    gate, order = threading.Event(), []
    gate.set()
    second = JobWorker(waits_at(gate, order, "b"))
    with qtbot.waitSignal(second.returned, timeout=SOON):
        JobWorker(fails).start("cpu")
        second.start("cpu")
    qtbot.waitUntil(lambda: JobWorker.queues["cpu"] == [])


def test_a_worker_leaves_its_queue_after_all_slots_of_its_end_have_run(qtbot):
    worker, queue = JobWorker(lambda: calling(int)), []
    worker.returned.connect(lambda _: queue.extend(JobWorker.queues["cpu"]))
    worker.start("cpu")
    qtbot.waitUntil(lambda: JobWorker.queues["cpu"] == [])
    assert queue == [worker]
    qtbot.waitUntil(lambda: not JobWorker.running)


def test_all_workers_can_be_stopped_at_once():
    def job():
        while True:
            yield step()
            time.sleep(0.001)

    workers = [JobWorker(job) for _ in range(3)]
    for worker in workers:
        worker.start()
    stop(list(workers), 5)
    assert not any(worker.is_running for worker in workers)


def test_units_are_there_when_a_worker_begins(qtbot, monkeypatch):
    monkeypatch.setattr(pint.application_registry, "_registry", pint.LazyRegistry())
    worker = JobWorker(lambda: calling(lambda: type(pint.application_registry.get())))
    with qtbot.waitSignal(worker.returned) as got:
        worker.start()
    assert got.args == [pint.UnitRegistry]
