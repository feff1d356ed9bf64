"""Keeps a standby process beside the launcher, for layers that start workers again in the pod.

It imports in the background, and the first workers wait for it. Without it, or should
it die, everything works as it would have, only slower.
"""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainer.settings import RecoveryLayer
from trainer.standby import wire

_LONGEST_ADDRESS = 107


@dataclass(frozen=True, slots=True)
class StandbyProcess:
    """A companion of the launcher."""

    pids: frozenset[int] = frozenset()
    """None where there is no such process."""

    def look(self) -> None:
        """Nothing: without it workers start plainly."""


@contextlib.contextmanager
def standing_by(layer: RecoveryLayer, launcher: Sequence[str]) -> Iterator[StandbyProcess]:
    """While the block runs, workers find a standby process, if ``layer`` can make use of one.

    A container in whose environment STEADFAST_STANDBY is set already, to nothing, does without.
    """
    if not layer.uses_ft_launcher or wire.ADDRESS in os.environ:
        yield StandbyProcess()
        return
    standby = StandbyProcess()
    with contextlib.ExitStack() as stack:
        try:
            address, pid = stack.enter_context(_process(launcher))
            os.environ[wire.ADDRESS], standby = address, StandbyProcess(frozenset({pid}))
        except OSError as error:
            sys.stderr.write(f"steadfast: no standby process ({error})\n")
        yield standby


@contextlib.contextmanager
def _process(launcher: Sequence[str]) -> Iterator[tuple[str, int]]:
    # Of mode 0700: whoever reaches the socket can run code as this user.
    with tempfile.TemporaryDirectory(prefix="steadfast-", ignore_cleanup_errors=True) as folder:
        address = f"{folder}/standby"
        if len(os.fsencode(address)) > _LONGEST_ADDRESS:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), address)
        # Launchers pass -u to workers too. A session of its own: Ctrl-C is not for it.
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "trainer.standby", address, str(os.getpid())],
            env=environment_of_workers(os.environ, launcher),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        # PID 1 waits for whatever ends, so the pid may have become another process's.
        end = os.pidfd_open(process.pid)
        try:
            yield address, process.pid
        finally:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(end, signal.SIGKILL)
            os.close(end)
            process.wait()


def environment_of_workers(own: Mapping[str, str], launcher: Sequence[str]) -> dict[str, str]:
    """``own``, with what launchers add to it that libraries read when they are imported."""
    alone = any(word in ("--nproc-per-node=1", "--nproc_per_node=1") for word in launcher)
    return dict(own) if alone else {"OMP_NUM_THREADS": "1", **own}
