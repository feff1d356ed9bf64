"""Runs the launcher as the pod's first process must, and starts it again where that helps.

Signals are passed on and orphans reaped. While the launcher runs, four things are looked at
once a second: workers that stay stopped, a final word that the launcher does not heed,
workers that start again and again without an attempt, and workers that left in mid-run for a
launcher that takes it for success; its companions, too, look after themselves then. When it
has ended, ``pod_exit_code`` says whether the pod ends too. Before another launcher starts,
nothing is left of the old one.

Not covered: a launcher that is alive and does nothing. Those of torch and NVRx end when
the store is gone, but a node that vanishes without closing its connections hides that.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Protocol

from trainer import exit_codes
from trainer.launch_rules import Ending, Rules, exit_code_for, pod_exit_code
from trainer.processes import (
    StoppedProcesses,
    adopt_orphans,
    descendants,
    kill,
    kill_descendants,
    reap,
)

REJOIN_PAUSE_SECONDS = 1.0
LOOK_SECONDS = 1.0
WORD_PATIENCE_SECONDS = 5.0
"""What a launcher gets to end by itself after a final word, and again after SIGTERM."""

ALONE_SECONDS = 5.0
"""What a launcher that starts no workers again gets to end once all of them have."""


class Companion(Protocol):
    """Processes of the pod that outlive launchers and serve their workers."""

    @property
    def pids(self) -> frozenset[int]:
        """Those that run now."""

    def look(self) -> None:
        """Called once a second while a launcher runs."""


class Launcher:
    """The launcher's command, run to the end of the pod.

    Make it early: the kernel drops a SIGTERM that PID 1 has no handler for, and the pod, which
    is told only once, would train on until it is killed.
    """

    def __init__(self, command: Sequence[str], rules: Rules) -> None:
        self._command = command
        self._rules = rules
        self._companions: Sequence[Companion] = ()
        self._received: list[int] = []
        self._early: list[int] = []
        self._process: subprocess.Popen[bytes] | None = None
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            signal.signal(number, self._forward)

    def run(self, *, companions: Sequence[Companion] = ()) -> int:
        """Run to the end and return what the pod exits with."""
        self._companions = companions
        adopt_orphans()
        known = self._rules.newest_attempt()
        deadline = time.monotonic() + self._rules.rejoin_seconds
        while True:
            try:
                code = self._run_once()
            except OSError as error:
                say(
                    f"{self._command[0]}: cannot be started ({error.strerror}); "
                    "is it in the image's PATH?"
                )
                return exit_codes.CONFIG
            if (newest := self._rules.newest_attempt()) > known:
                known, deadline = newest, time.monotonic() + self._rules.rejoin_seconds
            pod_code = self._after(code, is_late=time.monotonic() > deadline)
            if pod_code is not None:
                return pod_code
            time.sleep(REJOIN_PAUSE_SECONDS)
            if self._received:
                return exit_code_for(
                    code or exit_codes.ORDINARY_FAILURE,
                    was_stopped=signal.SIGTERM in self._received,
                )

    def _after(self, code: int, *, is_late: bool) -> int | None:
        """The pod's exit code now that a launcher has ended; None once another may start."""
        has_worked = exit_codes.has_worker_started()
        ending = Ending(
            code=code,
            has_worked=has_worked and not (code == 0 and not exit_codes.are_notes_kept()),
            final_word=exit_codes.read_final_word(),
            signals=tuple(self._received),
            is_late=is_late,
        )
        pod_code = pod_exit_code(ending, in_place=self._rules.in_place)
        if ending.final_word and pod_code:
            say(ending.final_word[1])  # again, below what the launcher printed
        elif pod_code and code == 0:
            say("the launcher ended with 0 before the run was done: a rank left in mid-run")
        if pod_code is not None:
            return pod_code
        if not kill_descendants(_pids_of(self._companions)):
            say("a process of the launcher that ended does not die, so the pod ends")
            return exit_codes.ORDINARY_FAILURE
        what = f"ended with {code} in mid-run" if has_worked else "found no other pod"
        say(f"the launcher {what}; it tries again")
        return None

    def _run_once(self) -> int:
        if path := os.environ.get("STEADFAST_EXIT_FILE"):
            Path(path).unlink(missing_ok=True)
        self._process = None
        process = self._process = subprocess.Popen(self._command)
        # From here on the handler forwards by itself. What came before has its turn now, once:
        # a second SIGTERM would cut short the launcher's own clean end.
        while self._early:
            kill(process.pid, self._early.pop(0))
        watch = _Watch(process.pid, self._rules, self._companions)
        end = os.pidfd_open(process.pid)
        try:
            while process.pid not in (ended := reap()):
                select.select([end], [], [], LOOK_SECONDS)
                watch.look(time.monotonic(), is_stopping=bool(self._received))
                for companion in self._companions:
                    companion.look()
        finally:
            os.close(end)
            self._process = None  # its number may become another's
        return ended[process.pid]

    def _forward(self, number: int, _frame: FrameType | None) -> None:
        self._received.append(number)
        if self._process is None:
            self._early.append(number)
        else:
            kill(self._process.pid, number)


class _Watch:
    """What is looked at once a second while one launcher runs."""

    def __init__(self, pid: int, rules: Rules, companions: Sequence[Companion]) -> None:
        self._pid = pid
        self._rules = rules
        self._companions = companions
        self._stopped = StoppedProcesses()
        self._ends_at: float | None = None
        self._is_told = False
        self._alone_since: float | None = None
        self._last_start: float | None = None
        self._num_starts = 0
        self._newest_attempt = rules.newest_attempt()

    def look(self, now: float, *, is_stopping: bool) -> None:
        limit = self._rules.stopped_seconds
        states = descendants()
        for pid in self._stopped.for_longer_than(limit, states, now=now):
            say(f"process {pid} has been stopped for {limit:g} s; it is killed")
            kill(pid)
        word = exit_codes.read_final_word()
        if word and word[0]:
            self._end(now)  # or it would start the workers again
        elif self._starts_without_end():
            exit_codes.leave_final_word(
                exit_codes.ORDINARY_FAILURE,
                f"workers started {self._num_starts} times and made no attempt; the pod ends",
            )
        elif not is_stopping and self._is_left_alone(states, now):
            exit_codes.leave_final_word(
                exit_codes.ORDINARY_FAILURE,
                "the workers left before the run was done, and the launcher stayed; the pod ends",
            )

    def _is_left_alone(self, states: Mapping[int, str], now: float) -> bool:
        """Workers that end with 0 have succeeded for torchrun: it waits minutes for other nodes'.

        One that starts them again may be without any for as long, until all nodes have met.
        """
        has_worked = exit_codes.are_notes_kept() and exit_codes.has_worker_started()
        not_workers = _pids_of(self._companions) | {self._pid}
        if self._rules.in_place or not has_worked or states.keys() - not_workers:
            self._alone_since = None
            return False
        if self._alone_since is None:
            self._alone_since = now
        return now - self._alone_since > ALONE_SECONDS

    def _starts_without_end(self) -> bool:
        start = exit_codes.last_worker_start()
        if start is None or start == self._last_start:
            return False
        self._last_start = start
        newest = self._rules.newest_attempt()
        self._num_starts = 1 if newest > self._newest_attempt else self._num_starts + 1
        self._newest_attempt = newest
        return self._num_starts > self._rules.most_starts

    def _end(self, now: float) -> None:
        """First let it end by itself, then tell it to, then leave nothing of it."""
        if self._ends_at is None:
            self._ends_at = now + WORD_PATIENCE_SECONDS
        elif now > self._ends_at and not self._is_told:
            self._is_told, self._ends_at = True, now + WORD_PATIENCE_SECONDS
            kill(self._pid, signal.SIGTERM)
        elif now > self._ends_at:
            for pid in descendants():
                kill(pid)


def _pids_of(companions: Iterable[Companion]) -> frozenset[int]:
    return frozenset[int]().union(*(companion.pids for companion in companions))


def say(message: str) -> None:
    sys.stderr.write(f"steadfast: {message}\n")
