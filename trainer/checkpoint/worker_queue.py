"""A queue to or from the checkpoint worker that leaves nothing behind, however either side ends.

Those of ``multiprocessing`` are guarded by semaphores with names in /dev/shm. A launcher's
SIGKILL to the process group ends the resource tracker too, which would unlink them, and an
exception or signal just after one is made keeps it from the tracker. This one is a pipe with
one writer and one reader, which needs no lock. It goes to the worker as that is spawned,
and from then on each side has the end that it uses, so that it hears of the other's end.

Not covered: two threads that put, or two that get.
"""

import queue
import threading
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any


class WorkerQueue:
    """What NVRx calls of a ``JoinableQueue``, for one process that puts and one that gets."""

    def __init__(self) -> None:
        reader, writer = get_context("spawn").Pipe(duplex=False)
        self.__setstate__((reader, writer))

    def __getstate__(self) -> tuple[Connection, Connection]:
        return self._reader, self._writer

    def __setstate__(self, ends: tuple[Connection, Connection]) -> None:
        self._reader, self._writer = ends
        self._outgoing: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._sender: threading.Thread | None = None

    def put(self, item: object) -> None:
        """Send ``item``; returns at once, also when the pipe is full.

        Raises:
            Exception: ``item`` cannot be pickled.
        """
        content = ForkingPickler.dumps(item)
        if self._sender is None:
            self._reader.close()
            self._sender = threading.Thread(target=self._send, name="worker-queue", daemon=True)
            self._sender.start()
        self._outgoing.put(content)

    def get(self) -> Any:
        """The next item, once there is one; ends this process if nobody can put one any more."""
        self._writer.close()
        try:
            return self._reader.recv()
        except EOFError:
            raise SystemExit(0) from None

    def get_nowait(self) -> Any:
        """The next item.

        Raises:
            queue.Empty: there is none yet, or never will be.
        """
        self._writer.close()
        try:
            if self._reader.poll():
                return self._reader.recv()
        except (EOFError, OSError):  # whoever put is gone
            pass
        except BaseException:  # a restart in the process, which may have cut an item in two
            self._reader.close()
            raise
        raise queue.Empty

    def close(self) -> None:
        """Put nothing more; what the other side can no longer read is dropped."""
        self._reader.close()
        if self._sender is None:
            self._writer.close()
        else:
            self._outgoing.put(None)

    def task_done(self) -> None:
        """NVRx counts, but none of our calls asks it to wait for the count."""

    def join(self) -> None:
        """NVRx then waits for the end of the process, which says more."""

    def _send(self) -> None:
        with self._writer, suppress(OSError):  # the other side is gone
            while (content := self._outgoing.get()) is not None:
                self._writer.send_bytes(content)
