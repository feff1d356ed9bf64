"""Runs functions as processes that stop before and after every change they make to a folder.

One tracer per process, since it reaps every child. Everything that the functions
start is traced too, and killed with the tracer (PTRACE_O_EXITKILL), however that ends.
"""

import ctypes
import os
import platform
import signal
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, NoReturn

from tests.trainer.crashes.syscalls import (
    RESULT_REGISTER,
    ROOT,
    Operation,
    install_filter,
    numbers,
    paths_of,
    without_pids,
)

_TRACEME, _CONT, _SYSCALL, _SETOPTIONS, _GET_SYSCALL_INFO = 0, 7, 24, 0x4200, 0x420E
_GET_REGISTERS, _SET_REGISTERS, _GENERAL = 0x4204, 0x4205, 1
_SYSGOOD, _FORK, _VFORK, _CLONE, _EXEC, _SECCOMP, _EXITKILL = 1, 2, 4, 8, 16, 0x80, 0x100000
_OPTIONS = _SYSGOOD | _FORK | _VFORK | _CLONE | _EXEC | _SECCOMP | _EXITKILL
_EVENT_SECCOMP = 7
_WALL = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long] * 4
_libc.ptrace.restype = ctypes.c_long

When = Literal["before", "after"]
AtStop = Callable[["Tracer", int, When, Operation], None]
"""Called with the process that stands before or after (``when``) an operation."""


class Tracer:
    def __init__(self, folder: Path, at_stop: AtStop) -> None:
        self._folder = str(folder)
        self._at_stop = at_stop
        self._numbers = numbers()
        self._ranks: dict[int, int] = {}
        self._processes: dict[int, int] = {}
        self._under_way: dict[int, Operation] = {}
        self._held: set[int] = set()
        self._standing = 0
        """The thread for which ``at_stop`` was called."""

        self.statuses: dict[int, int] = {}
        """Exit code of each rank that has ended; negative for the signal that ended it."""

    def start(self, rank: int, function: Callable[[], object], calls: Collection[str]) -> None:
        """Fork ``rank``, which stops at these ``calls``."""
        pid = os.fork()
        if pid == 0:
            _become(function, calls)
        os.waitpid(pid, 0)  # it stops itself, once it is ours to trace
        self._ptrace(_SETOPTIONS, pid, 0, _OPTIONS)
        self._ranks[pid] = rank
        self._processes[pid] = pid
        self._ptrace(_CONT, pid, 0, 0)

    def run(self, seconds: float) -> list[str]:
        """Until all ranks and all that they started have ended; what had to be killed instead."""
        with _alarm(seconds):
            while self._processes:
                self._handle(*os.waitpid(-1, _WALL))
        left = [self.name(pid) for pid in sorted(set(self._processes.values()))]
        self._end_all()
        return left

    def name(self, pid: int) -> str:
        if pid in self._ranks:
            return f"rank {self._ranks[pid]}"
        return f"writer {self._ranks.get(self.parent(pid), '?')}"

    def rank_of(self, pid: int) -> int:
        """The process of the rank that ``pid`` is or belongs to."""
        return pid if pid in self._ranks else self.parent(pid)

    def parent(self, pid: int) -> int:
        return int(_status(pid, "PPid"))

    def everything(self) -> set[int]:
        """Every process that is still traced."""
        return set(self._processes.values())

    def hold(self, pid: int) -> None:
        """Do not let ``pid`` go on from where it stands, as if its storage never answered."""
        self._held.add(pid)

    def fail(self, number: int) -> None:
        """The call "after" which somebody stands was made, and says to have failed with this."""
        registers = (ctypes.c_uint64 * 64)()
        header = (ctypes.c_uint64 * 2)(ctypes.addressof(registers), ctypes.sizeof(registers))
        self._ptrace(_GET_REGISTERS, self._standing, _GENERAL, ctypes.addressof(header))
        registers[RESULT_REGISTER[platform.machine()]] = ctypes.c_uint64(-number).value
        self._ptrace(_SET_REGISTERS, self._standing, _GENERAL, ctypes.addressof(header))

    def _handle(self, tid: int, status: int) -> None:
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            self._processes.pop(tid, None)
            if tid in self._ranks:
                self.statuses[self._ranks[tid]] = os.waitstatus_to_exitcode(status)
            return
        is_new = tid not in self._processes
        if is_new:
            self._processes[tid] = int(_status(tid, "Tgid") or tid)
        stop, event = os.WSTOPSIG(status), status >> 16
        if event == _EVENT_SECCOMP:
            self._before(tid)
        elif stop == signal.SIGTRAP | 0x80:
            operation = self._under_way.pop(tid)
            self._standing = tid
            self._at_stop(self, self._processes[tid], "after", operation)
            self._go_on(_CONT, tid)
        elif event or (is_new and stop == signal.SIGSTOP):
            self._go_on(_CONT, tid)
        elif stop == signal.SIGSTOP:
            self.hold(self._processes[tid])
        else:
            self._go_on(_CONT, tid, stop)

    def _before(self, tid: int) -> None:
        operation = self._operation(tid)
        if operation is None:
            self._go_on(_CONT, tid)
            return
        self._under_way[tid] = operation
        self._standing = tid
        self._at_stop(self, self._processes[tid], "before", operation)
        self._go_on(_SYSCALL, tid)

    def _operation(self, tid: int) -> Operation | None:
        info = (ctypes.c_uint64 * 11)()
        self._ptrace(_GET_SYSCALL_INFO, tid, ctypes.sizeof(info), ctypes.addressof(info))
        call = self._numbers[info[3]]
        paths = paths_of(tid, call, tuple(info[4:10]))
        if not any(path == self._folder or path.startswith(f"{self._folder}/") for path in paths):
            return None
        inside = (path.removeprefix(self._folder).removeprefix("/") or ROOT for path in paths)
        shown = " ".join(without_pids(path) for path in inside)
        return Operation(self.name(self._processes[tid]), call, shown)

    def _go_on(self, request: int, tid: int, number: int = 0) -> None:
        if self._processes[tid] not in self._held:
            with suppress(ProcessLookupError):  # killed meanwhile
                self._ptrace(request, tid, 0, number)

    def _ptrace(self, request: int, tid: int, address: int, data: int) -> None:
        if _libc.ptrace(request, tid, address, data) < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def _end_all(self) -> None:
        for pid in self.everything():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while self._processes and time.monotonic() < deadline:
            self._handle(*os.waitpid(-1, _WALL))


def why_not_traceable() -> str:
    """What the kernel or its guardians refuse, or nothing."""
    try:
        tracer = Tracer(Path("/proc"), lambda *_: None)
        tracer.start(0, lambda: os._exit(0), set(numbers().values()))
        tracer.run(10)
    except OSError as error:
        return str(error)
    return "" if tracer.statuses == {0: 0} else f"a traced process ended with {tracer.statuses}"


def _become(function: Callable[[], object], calls: Collection[str]) -> NoReturn:
    try:
        _libc.ptrace(_TRACEME, 0, 0, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        install_filter(calls)
        function()
    finally:
        os._exit(1)


def _status(pid: int, key: str) -> str:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return "0"
    return next(line.split()[1] for line in lines if line.startswith(f"{key}:"))


class _TooLate(Exception):
    pass


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Leave the block after ``seconds``, without an error."""

    def stop(_number: int, _frame: object) -> None:
        raise _TooLate

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except _TooLate:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
