"""The injector: each kind does what it says, once, whatever process comes after."""

import ctypes
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from trainer.faults.injector import FaultInjector, InjectedFault
from trainer.faults.plan import Fault
from trainer.faults.settings import FaultKind

EXCEPTION = Fault(name="1-exception-step-5-rank-1", step=5, rank=1, kind=FaultKind.EXCEPTION)
HANG = Fault(name="2-hang-step-9-rank-1", step=9, rank=1, kind=FaultKind.HANG)


def ignore(fault: Fault) -> None:
    pass


def test_exception_is_raised_at_its_step_and_named(tmp_path: Path) -> None:
    injector = FaultInjector(tmp_path, (EXCEPTION,), rank=1)
    injector.fire_due(4, ignore)
    with pytest.raises(InjectedFault, match="1-exception-step-5-rank-1"):
        injector.fire_due(5, ignore)


def test_another_rank_suffers_nothing(tmp_path: Path) -> None:
    FaultInjector(tmp_path, (EXCEPTION,), rank=0).fire_due(5, ignore)
    assert list((tmp_path / "faults").iterdir()) == []


def test_a_restored_run_does_not_suffer_it_twice(tmp_path: Path) -> None:
    first = FaultInjector(tmp_path, (EXCEPTION,), rank=1)
    with pytest.raises(InjectedFault):
        first.fire_due(5, ignore)
    first.fire_due(5, ignore)
    FaultInjector(tmp_path, (EXCEPTION,), rank=1).fire_due(5, ignore)


def test_what_another_process_fired_meanwhile_is_seen(tmp_path: Path) -> None:
    waiting = FaultInjector(tmp_path, (EXCEPTION,), rank=1)
    with pytest.raises(InjectedFault):
        FaultInjector(tmp_path, (EXCEPTION,), rank=1).fire_due(5, ignore)
    assert waiting.already_fired() == {EXCEPTION.name}
    waiting.fire_due(5, ignore)


def test_fault_is_on_disk_before_it_is_recorded(tmp_path: Path) -> None:
    recorded: list[tuple[Fault, bool]] = []

    def before(fault: Fault) -> None:
        recorded.append((fault, (tmp_path / "faults" / fault.name).exists()))

    with pytest.raises(InjectedFault):
        FaultInjector(tmp_path, (EXCEPTION,), rank=1).fire_due(5, before)
    assert recorded == [(EXCEPTION, True)]


def test_sigkill_ends_the_process_and_leaves_its_file(tmp_path: Path) -> None:
    script = (
        "from pathlib import Path\n"
        "from trainer.faults.injector import FaultInjector\n"
        "from trainer.faults.plan import Fault\n"
        "from trainer.faults.settings import FaultKind\n"
        "fault = Fault(name='1-sigkill', step=1, rank=0, kind=FaultKind.SIGKILL)\n"
        f"injector = FaultInjector(Path({str(tmp_path)!r}), (fault,), rank=0)\n"
        "injector.fire_due(1, lambda fault: print('recorded', fault.name, flush=True))\n"
    )
    root = Path(__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=False
    )
    assert result.returncode == -signal.SIGKILL
    assert result.stdout == "recorded 1-sigkill\n"
    assert [path.name for path in (tmp_path / "faults").iterdir()] == ["1-sigkill"]


def test_a_hang_lasts_until_an_asynchronous_exception_breaks_it(tmp_path: Path) -> None:
    class Abort(BaseException):
        pass

    hanging = threading.Event()
    ended_by: list[type[BaseException]] = []

    def train() -> None:
        try:
            FaultInjector(tmp_path, (HANG,), rank=1).fire_due(9, lambda _: hanging.set())
        except Abort:
            ended_by.append(Abort)

    thread = threading.Thread(target=train, daemon=True)
    thread.start()
    assert hanging.wait(timeout=10)
    thread.join(timeout=0.2)
    assert thread.is_alive()
    assert thread.ident is not None
    interrupt = ctypes.pythonapi.PyThreadState_SetAsyncExc
    interrupt(ctypes.c_ulong(thread.ident), ctypes.py_object(Abort))
    thread.join(timeout=10)
    assert ended_by == [Abort]
