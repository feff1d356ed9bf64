"""PID 1 of the training container: checks what must hold, runs the launcher, reports its end.

``python -m trainer.entry --settings FILE -- LAUNCHER ...``. It forwards signals
to the launcher, reaps what is orphaned to it, and exits with the code that a
worker left behind, since launchers turn every failure into 1. In the launcher's
arguments ``{is_host}`` becomes 1 in the pod of completion index 0, which hosts
the rendezvous, and 0 in the others.

Not covered: a launcher that ignores SIGTERM; the kubelet kills it at the end of
the grace period.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from trainer import exit_codes
from trainer.events import EventLog
from trainer.settings import SettingsError, TrainerSettings


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parse(argv)
    try:
        settings = TrainerSettings.from_file(arguments.settings)
    except SettingsError as error:
        return _refuse(str(error), exit_codes.CONFIG)
    if problem := why_not_writable(settings.run_directory):
        return _refuse(problem, exit_codes.CANNOT_WRITE)

    index = int(os.environ.get("JOB_COMPLETION_INDEX", "0"))
    events = EventLog(settings.run_directory, pod=index)
    events.record("pod_started")
    code = run_launcher(launcher_arguments(arguments.launcher, index))
    events.record("pod_stopped", exit_code=code)
    return code


def launcher_arguments(launcher: Sequence[str], index: int) -> list[str]:
    """The launcher's command line as the pod of completion ``index`` runs it."""
    is_host = "1" if index == 0 else "0"
    return [argument.replace("{is_host}", is_host) for argument in launcher]


def run_launcher(command: Sequence[str]) -> int:
    """Run to the end, forwarding SIGTERM, SIGINT and SIGUSR1; return what to exit with."""
    if path := os.environ.get("STEADFAST_EXIT_FILE"):
        Path(path).unlink(missing_ok=True)
    received: list[int] = []
    launcher: subprocess.Popen[bytes] | None = None

    def forward(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        if launcher is not None:
            launcher.send_signal(number)

    for caught in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(caught, forward)
    try:
        launcher = subprocess.Popen(command)
    except OSError as error:
        return _refuse(
            f"{command[0]}: cannot be started ({error.strerror}); is it in the image's PATH?",
            exit_codes.CONFIG,
        )
    for number in received:  # arrived before there was anybody to forward them to
        launcher.send_signal(number)
    return exit_code_for(
        wait_as_pid_1(launcher.pid),
        final_code=exit_codes.read_final_code(),
        was_stopped=signal.SIGTERM in received,
    )


def wait_as_pid_1(pid: int) -> int:
    """Wait for ``pid``, reaping every other child that ends meanwhile; its exit code."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            return os.waitstatus_to_exitcode(status)


def exit_code_for(launcher_code: int, *, final_code: int | None, was_stopped: bool) -> int:
    """What the pod exits with: success, stopped on request, a final failure, or the launcher's."""
    if launcher_code == 0:
        return 0
    if was_stopped:
        return exit_codes.STOPPED_BY_SIGTERM
    if final_code is not None:
        return final_code
    return 128 - launcher_code if launcher_code < 0 else launcher_code


def why_not_writable(directory: Path) -> str | None:
    """One line on why nothing can be written in ``directory``, or None; creates it."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory) as probe:
            probe.write(b"probe")
    except OSError as error:
        return (
            f"run_directory {directory}: cannot be written ({error.strerror}); "
            "is the volume mounted, and does user "
            f"{os.getuid()} own the folder?"
        )
    return None


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
