"""Each kind of fault is the real thing, as the kernel and the interpreter see it."""

import ctypes
import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.victims import Victim, injector_for, victim
from trainer.events import read_events
from trainer.faults.device import ask_for_too_much, break_the_context

Tell = Callable[[Any], None]

pytestmark = pytest.mark.distributed
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def suffer(tell: Tell, run_directory: Path, kind: str, **faults: Any) -> None:
    injector = injector_for(run_directory, (kind, 5, 1), rank=1, **faults)
    tell("ready")
    injector.fire_due(5)
    tell("lives on")


def told(run_directory: Path) -> list[tuple[str, bool]]:
    """The kinds that the events know, and whether the file of each is there."""
    return [
        (event["kind"], (run_directory / "faults" / event["fault"]).exists())
        for event in read_events(run_directory)
    ]


def test_sigkill_ends_the_process_and_leaves_its_file(tmp_path: Path) -> None:
    with victim(suffer, tmp_path, "sigkill") as process:
        assert process.word() == "ready"
        assert process.exit_code() == -signal.SIGKILL
    assert told(tmp_path) == [("sigkill", True)]


@pytest.mark.parametrize("code", [0, 17])
def test_exit_ends_with_the_code_asked_for_and_no_farewell(code: int, tmp_path: Path) -> None:
    with victim(suffer_with_a_farewell, tmp_path, code) as process:
        assert process.word() == "ready"
        assert process.word() is None
        assert process.exit_code() == code
    assert told(tmp_path) == [("exit", True)]


def suffer_with_a_farewell(tell: Tell, run_directory: Path, code: int) -> None:
    try:
        suffer(tell, run_directory, "exit", exit_code=code)
    finally:
        tell("farewell")


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def comes_to(state: str, pid: int) -> bool:
    deadline = time.monotonic() + 10
    while state_of(pid) != state and time.monotonic() < deadline:
        time.sleep(0.005)
    return state_of(pid) == state


def test_stop_stops_every_thread_until_somebody_continues_it(tmp_path: Path) -> None:
    with victim(suffer, tmp_path, "stop") as process:
        assert process.word() == "ready"
        assert comes_to("T", process.pid)
        os.kill(process.pid, signal.SIGTERM)
        assert process.lives_on_for(0.2)
        os.kill(process.pid, signal.SIGKILL)
        assert process.exit_code() == -signal.SIGKILL
    assert told(tmp_path) == [("stop", True)]


def test_a_stopped_process_that_is_continued_trains_on(tmp_path: Path) -> None:
    with victim(suffer, tmp_path, "stop") as process:
        assert process.word() == "ready"
        assert comes_to("T", process.pid)
        os.kill(process.pid, signal.SIGCONT)
        assert process.word() == "lives on"


def suffer_with_a_handler(tell: Tell, run_directory: Path, kind: str, stacks: str) -> None:
    """A process that ends itself at SIGTERM, and whose other thread says once that it runs."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(3))
    injector = injector_for(run_directory, (kind, 5, 1), rank=1)
    if stacks:
        faulthandler.dump_traceback_later(0.2, file=Path(stacks).open("w"))  # noqa: SIM115
    fault = run_directory / "faults" / f"1-{kind}-step-5-rank-1"

    def watch() -> None:
        while not fault.exists():
            time.sleep(0.001)
        time.sleep(0.1)
        tell("another thread runs")

    threading.Thread(target=watch, daemon=True).start()
    tell("ready")
    injector.fire_due(5)


def hangs(process: Victim, run_directory: Path) -> bool:
    deadline = time.monotonic() + 10
    while not told(run_directory) and time.monotonic() < deadline:
        time.sleep(0.005)
    return bool(told(run_directory)) and process.lives_on_for(0.2)


def test_a_hang_of_python_runs_handlers_and_other_threads(tmp_path: Path) -> None:
    with victim(suffer_with_a_handler, tmp_path, "hang", "") as process:
        assert process.word() == "ready"
        assert hangs(process, tmp_path)
        assert process.word() == "another thread runs"
        os.kill(process.pid, signal.SIGTERM)
        assert process.exit_code() == 3


def test_a_hang_with_the_interpreter_ends_by_sigkill_alone(tmp_path: Path) -> None:
    stacks = tmp_path / "stacks"
    with victim(suffer_with_a_handler, tmp_path, "hang_gil", str(stacks)) as process:
        assert process.word() == "ready"
        assert hangs(process, tmp_path)
        os.kill(process.pid, signal.SIGTERM)
        os.kill(process.pid, signal.SIGINT)
        assert process.lives_on_for(0.3)
        os.kill(process.pid, signal.SIGKILL)
        assert process.exit_code() == -signal.SIGKILL
        assert process.word() is None  # its other thread has never run again
    assert told(tmp_path) == [("hang_gil", True)]
    # What watches it in C still sees where it is.
    assert "_hang_with_the_interpreter" in stacks.read_text()


def test_a_hang_lasts_until_an_asynchronous_exception_breaks_it(tmp_path: Path) -> None:
    class Abort(BaseException):
        pass

    ended_by: list[type[BaseException]] = []

    def train() -> None:
        try:
            injector_for(tmp_path, ("hang", 9, 1), rank=1).fire_due(9)
        except Abort:
            ended_by.append(Abort)

    thread = threading.Thread(target=train, daemon=True)
    thread.start()
    while not told(tmp_path):
        thread.join(timeout=0.005)
    thread.join(timeout=0.2)
    assert thread.is_alive()
    assert thread.ident is not None
    interrupt = ctypes.pythonapi.PyThreadState_SetAsyncExc
    interrupt(ctypes.c_ulong(thread.ident), ctypes.py_object(Abort))
    thread.join(timeout=10)
    assert ended_by == [Abort]


def test_oom_on_a_cpu_is_refused_by_the_allocator_and_touches_no_page(tmp_path: Path) -> None:
    def resident_pages() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1])

    injector = injector_for(tmp_path, ("oom", 5, 1), rank=1)
    before = resident_pages()
    with pytest.raises(MemoryError):
        injector.fire_due(5)
    assert resident_pages() - before < 1000


@needs_gpu
def test_oom_on_a_gpu_is_torchs_own_and_leaves_the_gpu_usable() -> None:
    device = torch.device("cuda", 0)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        ask_for_too_much(device)
    assert torch.ones(3, device=device).sum().item() == 3


@needs_gpu
def test_a_cuda_error_stays_for_as_long_as_the_process() -> None:
    with victim(meet_the_same_error_twice) as process:
        first, second = process.word(), process.word()
    assert "device-side assert" in first
    assert "device-side assert" in second


def meet_the_same_error_twice(tell: Tell) -> None:
    device = torch.device("cuda", 0)
    for _ in range(2):
        with pytest.raises(RuntimeError) as error:
            break_the_context(device)
        tell(str(error.value))


def test_slow_takes_so_many_steps_longer_and_ends_nothing(tmp_path: Path) -> None:
    plan = ("slow", 5, 1)
    seconds = {"slow_seconds": 0.05, "slow_steps": 3}
    injector = injector_for(tmp_path, plan, rank=1, **seconds)
    assert [is_slow(injector.fire_due, step) for step in range(4, 10)] == [
        False, True, True, True, False, False,
    ]  # fmt: skip
    assert told(tmp_path) == [("slow", True)]


def test_slow_does_not_go_on_after_a_restart(tmp_path: Path) -> None:
    plan = ("slow", 5, 1)
    injector_for(tmp_path, plan, rank=1, slow_seconds=0.05).fire_due(5)
    restarted = injector_for(tmp_path, plan, rank=1, slow_seconds=0.05)
    assert not is_slow(restarted.fire_due, 5)
    assert not is_slow(restarted.fire_due, 6)


def is_slow(fire_due: Callable[[int], None], step: int) -> bool:
    began = time.monotonic()
    fire_due(step)
    return time.monotonic() - began >= 0.05
