"""Items arrive in order; once either side has ended, the other neither waits nor stays."""

import multiprocessing
import queue
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

import pytest

from trainer.checkpoint.worker_queue import WorkerQueue

TOO_LARGE = bytes(1 << 20)
"""For a pipe."""


def spawned(target: Callable[..., object], *arguments: object) -> SpawnProcess:
    process = multiprocessing.get_context("spawn").Process(target=target, args=arguments)
    process.start()
    return process


def ended(process: SpawnProcess) -> int | None:
    """Its exit code, if it ends within 10 s."""
    process.join(10)
    code = process.exitcode
    process.kill()
    process.join()
    return code


def answer(questions: WorkerQueue, answers: WorkerQueue) -> None:
    while True:
        answers.put(len(questions.get()))


def senders() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "worker-queue"]


def test_items_of_any_size_arrive_in_order_and_nobody_waits_to_put_one() -> None:
    questions, answers = WorkerQueue(), WorkerQueue()
    worker = spawned(answer, questions, answers)
    for item in (TOO_LARGE, b"1", TOO_LARGE + b"2", b""):
        questions.put(item)
    assert [answers.get() for _ in range(4)] == [1 << 20, 1, (1 << 20) + 1, 0]
    questions.close()
    assert ended(worker) == 0


def test_a_worker_ends_if_whoever_started_it_ended_before_the_first_call() -> None:
    questions = WorkerQueue()
    worker = spawned(questions.get)
    questions.close()  # as by the kernel
    assert ended(worker) == 0


def test_nothing_more_is_got_from_a_worker_that_has_ended() -> None:
    answers = WorkerQueue()
    assert ended(spawned(answers.task_done)) == 0
    with pytest.raises(queue.Empty):
        answers.get_nowait()


def test_what_a_worker_left_before_it_ended_is_got() -> None:
    answers = WorkerQueue()
    assert ended(spawned(put_and_leave, answers)) == 0
    assert answers.get_nowait() == "last"
    with pytest.raises(queue.Empty):
        answers.get_nowait()


def put_and_leave(answers: WorkerQueue) -> None:
    answers.put("last")
    answers.close()
    for thread in senders():
        thread.join()


def test_no_thread_stays_with_what_a_worker_will_never_read() -> None:
    before = senders()
    questions = WorkerQueue()
    worker = spawned(questions.task_done)
    questions.put(TOO_LARGE)
    (sender,) = set(senders()) - set(before)
    assert ended(worker) == 0
    questions.close()
    sender.join(10)
    assert not sender.is_alive()


def test_an_item_that_a_restart_cut_in_two_is_not_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = WorkerQueue()
    assert ended(spawned(put_and_leave, answers)) == 0

    def cut(reader: Connection) -> None:
        reader.recv_bytes()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Connection, "recv", cut)
        with pytest.raises(KeyboardInterrupt):
            answers.get_nowait()
    with pytest.raises(queue.Empty):
        answers.get_nowait()


def test_what_cannot_be_pickled_is_refused_where_it_is_put() -> None:
    with pytest.raises(AttributeError, match="local object"):
        WorkerQueue().put(lambda: None)
