"""Keeps a courier beside the launcher, where a run has more nodes than one.

PID 1 makes the sockets and the token, so that a courier that died is started anew under the
same address; after a few deaths the pod goes on without. Its failure costs copies, never
training. Nothing here is left behind: the sockets end with PID 1, and the rest lies in the
pod's memory folder.
"""

import contextlib
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from trainer.launching import say
from trainer.peers.notes import Address, orders_path
from trainer.settings import TrainerSettings
from trainer.snapshots.folder import VARIABLE

MOST_STARTS = 4
_BACKLOG = 64


class CourierKeeper:
    """A companion of the launcher, without a courier until ``open``. One thread calls it."""

    def __init__(self, *, bytes_per_second: int) -> None:
        self._rate = bytes_per_second
        self._num_starts = 0
        self._folder = Path()
        self._sockets: tuple[socket.socket, ...] = ()
        self._process: subprocess.Popen[bytes] | None = None
        self._end = -1
        """Of the process: its number may become another's, since PID 1 reaps whatever ends."""

    def open(self, folder: Path, *, run: str, host: str) -> None:
        """Start a courier that other pods reach at ``host``, and this pod's ranks in ``folder``.

        Raises:
            OSError: there cannot be one.
        """
        self._folder = folder
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        pods = socket.create_server((host, 0), family=family, backlog=_BACKLOG)
        ranks = socket.socket(socket.AF_UNIX)
        self._sockets = pods, ranks
        with orders_path(folder) as path:
            ranks.bind(path)
        ranks.listen(_BACKLOG)
        Address(host, pods.getsockname()[1], secrets.token_hex(16), run).write(folder)
        self._start()

    @property
    def pids(self) -> frozenset[int]:
        """Its process, if there is one: no worker, and not to be killed with them."""
        return frozenset({self._process.pid} if self._process else ())

    def look(self) -> None:
        """Start it anew if it has died. Called once a second."""
        if self._process is None or not select.select([self._end], [], [], 0)[0]:
            return
        self._forget()
        if self._num_starts == MOST_STARTS:
            self._give_up(f"the courier died {MOST_STARTS} times")
            return
        say("the courier died; it is started again")
        try:
            self._start()
        except OSError as error:
            self._give_up(f"the courier cannot be started ({error})")

    def close(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._end, signal.SIGKILL)
            self._forget()
        self._close_sockets()

    def _start(self) -> None:
        inherited = [each.fileno() for each in self._sockets]
        numbers = os.getpid(), *inherited, self._rate
        # A session of its own: Ctrl-C is not for it.
        process = subprocess.Popen(
            [sys.executable, "-m", "trainer.peers", str(self._folder), *map(str, numbers)],
            stdin=subprocess.DEVNULL,
            pass_fds=inherited,
            start_new_session=True,
        )
        self._num_starts += 1
        self._end = os.pidfd_open(process.pid)
        self._process = process

    def _forget(self) -> None:
        assert self._process is not None
        self._process.wait()
        self._process = None
        os.close(self._end)

    def _give_up(self, why: str) -> None:
        say(f"{why}; no more copies to and from other nodes")
        self._close_sockets()
        Address.remove(self._folder)

    def _close_sockets(self) -> None:
        for each in self._sockets:
            each.close()


@contextlib.contextmanager
def couriered(settings: TrainerSettings, launcher: Sequence[str]) -> Iterator[CourierKeeper]:
    """While the block runs, ranks find a courier in the pod's memory folder.

    If there is such a folder, the settings want copies, and the launcher has other nodes.
    """
    keeper = CourierKeeper(bytes_per_second=settings.snapshots.peer_bytes_per_second)
    folder = os.environ.get(VARIABLE)
    wanted = settings.snapshots.peer_interval_seconds is not None and num_nodes(launcher) > 1
    with contextlib.closing(keeper):
        if folder and wanted:
            try:
                run = settings.run_directory.absolute().name
                keeper.open(Path(folder), run=run, host=own_host())
            except OSError as error:
                say(f"no copies of snapshots on other nodes ({error})")
        yield keeper


def num_nodes(launcher: Sequence[str]) -> int:
    """How many nodes train, of a launcher's command line; 1 where it does not say."""
    for word in launcher:
        name, _, value = word.partition("=")
        least = value.partition(":")[0]  # what is beyond stands by
        if name == "--nnodes" and least.isdecimal():
            return int(least)
    return 1


def own_host() -> str:
    """The address at which other pods reach this one.

    Raises:
        OSError: it has none.
    """
    return os.environ.get("POD_IP") or socket.gethostbyname(socket.gethostname())
