"""PID 1 of the training container: checks what must hold, runs the launcher, reports its end.

``python -m trainer.entry --settings FILE -- LAUNCHER ...``. It exits with the
code that a worker left behind, since launchers turn every failure into 1. In the
launcher's arguments ``{is_host}`` becomes 1 in the pod of completion index 0, which hosts
the rendezvous, and 0 in the others.

Not covered: a launcher that ignores SIGTERM; the kubelet kills it at the end of
the grace period.
"""

import argparse
import contextlib
import errno
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from trainer import exit_codes
from trainer.events import EventLog
from trainer.settings import SettingsError, TrainerSettings
from trainer.standby.pod import standing_by

REJOIN_PAUSE_SECONDS = 1.0
WRONG_COMMAND_LINE = 2  # argparse's, in every launcher

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_FINAL = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST, errno.ENOTDIR, errno.ENAMETOOLONG}
)
"""What another try meets again; storage that is gone or does not answer may come back."""


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parse(argv)
    try:
        settings = TrainerSettings.from_file(arguments.settings)
    except SettingsError as error:
        return _refuse(str(error), exit_codes.CONFIG)
    if problem := why_not_writable(settings.run_directory):
        return _refuse(*problem)

    index = int(os.environ.get("JOB_COMPLETION_INDEX", "0"))
    events = EventLog(settings.run_directory, pod=index)
    events.record("pod_started")
    launcher = Launcher(launcher_arguments(arguments.launcher, index))
    with standing_by(settings.recovery.layer, arguments.launcher):
        code = launcher.run(rejoin_seconds=settings.timeouts.startup_seconds)
    events.record("pod_stopped", exit_code=code)
    return code


def launcher_arguments(launcher: Sequence[str], index: int) -> list[str]:
    """The launcher's command line as the pod of completion ``index`` runs it."""
    is_host = "1" if index == 0 else "0"
    return [argument.replace("{is_host}", is_host) for argument in launcher]


class Launcher:
    """Runs the launcher as PID 1 must: forwards signals to it and reaps what it orphans."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._received: list[int] = []
        self._early: list[int] = []
        self._process: subprocess.Popen[bytes] | None = None
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            signal.signal(number, self._forward)

    def run(self, *, rejoin_seconds: float) -> int:
        """Run to the end and return what the pod exits with.

        A replaced pod can meet the rendezvous of those that are just failing, which is
        closed or about to vanish. So a launcher that fails before any worker has started
        is started again in place, for ``rejoin_seconds``, unless it got a signal; the pod's
        backoff would cost more.
        """
        deadline = time.monotonic() + rejoin_seconds
        while True:
            try:
                code = self._run_once()
            except OSError as error:
                return _refuse(
                    f"{self._command[0]}: cannot be started ({error.strerror}); "
                    "is it in the image's PATH?",
                    exit_codes.CONFIG,
                )
            if code and (final := exit_codes.read_final_word()):
                final_code, reason = final
                return _refuse(reason, final_code)  # again, below what the launcher printed
            if code == 0 or self._received or exit_codes.has_worker_started():
                return exit_code_for(code, was_stopped=signal.SIGTERM in self._received)
            if code == WRONG_COMMAND_LINE:
                return exit_codes.CONFIG
            if time.monotonic() > deadline:
                return exit_code_for(code, was_stopped=False)
            sys.stderr.write("steadfast: the launcher found no other pod; it tries again\n")
            time.sleep(REJOIN_PAUSE_SECONDS)

    def _run_once(self) -> int:
        if path := os.environ.get("STEADFAST_EXIT_FILE"):
            Path(path).unlink(missing_ok=True)
        self._process = None
        process = self._process = subprocess.Popen(self._command)
        # From here on the handler forwards by itself. What came before has its turn now, once:
        # a second SIGTERM would cut short the launcher's own clean end.
        while self._early:
            _send(process.pid, self._early.pop(0))
        return wait_as_pid_1(process.pid)

    def _forward(self, number: int, _frame: FrameType | None) -> None:
        self._received.append(number)
        if self._process is None:
            self._early.append(number)
        else:
            _send(self._process.pid, number)


def wait_as_pid_1(pid: int) -> int:
    """Wait for ``pid``, reaping every other child that ends meanwhile; its exit code."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            return os.waitstatus_to_exitcode(status)


def exit_code_for(launcher_code: int, *, was_stopped: bool) -> int:
    """What the pod exits with: success, stopped on request, or the launcher's own failure."""
    if launcher_code == 0:
        return 0
    if was_stopped:
        return exit_codes.STOPPED_BY_SIGTERM
    return 128 - launcher_code if launcher_code < 0 else launcher_code


def why_not_writable(directory: Path, *, make: bool = True) -> tuple[str, int] | None:
    """One line on why nothing can be written in ``directory``, and the exit code; or None.

    A full disk is no reason: it costs saves, not training, until there is room again.

    Args:
        make: Make it where it is not there. Not within a pod in which it was there before:
            it may be a mount point that lost its file system.
    """
    try:
        if make:
            directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory) as probe:
            probe.write(b"probe")
    except OSError as error:
        if error.errno in _FULL:
            return None
        return (
            f"run_directory {directory}: cannot be written ({error.strerror}); "
            "is the volume mounted, and does user "
            f"{os.getuid()} own the folder?"
        ), exit_codes.CANNOT_WRITE if error.errno in _FINAL else exit_codes.ORDINARY_FAILURE
    return None


def _send(pid: int, number: int) -> None:
    # Not Popen.send_signal: it may reap the launcher, and wait_as_pid_1 would find nothing.
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m trainer.entry", description=__doc__)
    parser.add_argument("--settings", type=Path, required=True, help="JSON settings of the trainer")
    parser.add_argument("launcher", nargs="+", help="the launcher's command line, after --")
    return parser.parse_args(argv)


def _refuse(message: str, code: int) -> int:
    sys.stderr.write(f"steadfast: {message}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
