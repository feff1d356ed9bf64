"""PID 1 of the training container: checks what must hold, runs the launcher, reports its end.

``python -m trainer.entry --settings FILE -- LAUNCHER ...``. It exits with the
code that a worker left behind, since launchers turn every failure into 1. In the
launcher's arguments ``{is_host}`` becomes 1 in the pod of completion index 0, which hosts
the rendezvous, and 0 in the others.

Not covered: a launcher that ignores SIGTERM; the kubelet kills it at the end of
the grace period.
"""

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from trainer import exit_codes
from trainer.attempts import newest_claim
from trainer.events import EventLog
from trainer.health import storage
from trainer.launch_rules import Rules
from trainer.launching import Launcher, say
from trainer.peers.pod import couriered
from trainer.settings import SettingsError, TrainerSettings
from trainer.snapshots.folder import owned_memory
from trainer.standby.pod import standing_by

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
    index = int(os.environ.get("JOB_COMPLETION_INDEX", "0"))
    command = launcher_arguments(arguments.launcher, index)
    launcher = Launcher(command, rules_for(settings))
    if problem := why_not_writable(settings.run_directory):
        return _refuse(*problem)

    events = EventLog(settings.run_directory, pod=index)
    events.record("pod_started")
    # Signals are caught by now, so that none ends this process and leaves the folder.
    with (
        standing_by(settings.recovery.layer, command) as standby,
        _memory_for(settings, index),
        couriered(settings, command) as courier,
    ):
        code = launcher.run(companions=(standby, courier))
    events.record("pod_stopped", exit_code=code)
    return code


def rules_for(settings: TrainerSettings) -> Rules:
    """When the launcher of such a run starts again, and when it must end."""

    def newest_attempt() -> int:
        try:
            return newest_claim(settings.run_directory)
        except OSError:
            return 0  # the storage does not answer: no progress is seen

    return Rules(
        in_place=settings.recovery.layer.uses_ft_launcher,
        rejoin_seconds=settings.timeouts.startup_seconds,
        # Its own watchdog is stopped as well, and those of its peers see no more than silence.
        stopped_seconds=settings.timeouts.shortest_hang_seconds,
        # Two looks may fall on the ranks of one start.
        most_starts=settings.recovery.max_restarts + 2,
        newest_attempt=newest_attempt,
    )


def launcher_arguments(launcher: Sequence[str], index: int) -> list[str]:
    """The launcher's command line as the pod of completion ``index`` runs it."""
    is_host = "1" if index == 0 else "0"
    return [argument.replace("{is_host}", is_host) for argument in launcher]


def why_not_writable(directory: Path, *, make: bool = True) -> tuple[str, int] | None:
    """One line on why nothing can be written in ``directory``, and the exit code; or None.

    A full disk is no reason: it costs saves, not training, until there is room again.

    Args:
        make: Make it where it is not there. Not within a pod in which it was there before:
            it may be a mount point that lost its file system.
    """
    try:
        storage.probe(directory, make=make)
    except OSError as error:
        if error.errno in storage.FULL:
            return None
        return (
            f"run_directory {directory}: cannot be written ({error.strerror}); "
            "is the volume mounted, and does user "
            f"{os.getuid()} own the folder?"
        ), exit_codes.CANNOT_WRITE if error.errno in _FINAL else exit_codes.ORDINARY_FAILURE
    return None


def _memory_for(settings: TrainerSettings, index: int) -> AbstractContextManager[None]:
    if not (settings.snapshots.enabled and settings.recovery.layer.outlives_ranks):
        return nullcontext()
    return owned_memory(settings.run_directory, index)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m trainer.entry", description=__doc__)
    parser.add_argument("--settings", type=Path, required=True, help="JSON settings of the trainer")
    parser.add_argument("launcher", nargs="+", help="the launcher's command line, after --")
    return parser.parse_args(argv)


def _refuse(message: str, code: int) -> int:
    say(message)
    return code


if __name__ == "__main__":
    sys.exit(main())
