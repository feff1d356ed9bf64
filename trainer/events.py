"""Records of what happened, one JSON object a line, from which the report counts every second.

Each rank appends to ``events/rank-N.jsonl`` in the run's folder and each pod's
entry point to ``events/pod-N.jsonl``. A line is written with one ``write`` and
no buffer, so that a process killed right after has lost nothing; the kernel
holds it, and only the loss of the node can take it.

==================== ====== ================================================================
name                 by     fields beyond ``wall mono attempt step``
==================== ====== ================================================================
pod_started          pod    ``pod`` (index)
pod_stopped          pod    ``pod``, ``exit_code``
process_started      rank   ``node``, ``pid``, ``forked`` (from a standby process); ``wall`` and
                            ``mono`` are those of the process's own start
health_checked       rank   ``node``, ``findings`` (each ``check``, ``verdict``, ``reason``), by the
                            first rank of a node and those that leave it; ``attempt`` and
                            ``step`` are still those of the attempt before
attempt_started      rank
process_group_ready  rank
restored             rank   ``step`` restored (0: from the start), ``source`` (durable, none)
step_completed       rank   ``seconds`` (whole step), ``stall_seconds`` (in it, waiting for a
                            save), ``loss``, ``sample_ids``
checkpoint_begun     rank   ``stall_seconds``
checkpoint_committed rank   ``save_seconds`` (from begun to committed)
checkpoint_failed    rank   ``reason``
fault_injected       rank   ``kind``, ``fault`` (its name in the plan), ``at_step`` (in which)
attempt_failed       rank   ``reason``
diagnosed            rank   by rank 0, of the attempt before: ``of_attempt``, ``cause``,
                            ``culprit`` (a rank, or null), ``node``, ``line``
run_finished         rank   ``digest`` (of this rank's parameters and optimizer state)
==================== ====== ================================================================

``step`` counts completed optimizer steps: step 1 is the first. A disk that is full or
broken stops no training: lines wait in memory until it takes them again. Not covered:
the event of a line that a node's loss has torn, which the reader skips; lines that
still wait when their process ends; those that follow a run's folder being deleted.
"""

import json
import logging
import os
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

MOST_WAITING = 100_000
"""Lines, of some 300 bytes; of more, the oldest are given up."""

Event = dict[str, Any]


class EventLog:
    """Appends this writer's events; ``who`` is ``{"rank": 3}`` or ``{"pod": 0}``."""

    def __init__(self, run_directory: Path, **who: int) -> None:
        ((kind, number),) = who.items()
        self._fixed: Event = dict(who)
        self._path = run_directory / "events" / f"{kind}-{number}.jsonl"
        self._file: int | None = None
        self._unfinished = b""
        """What is left of a line of which the disk took a part."""

        self._waiting: deque[bytes] = deque(maxlen=MOST_WAITING)
        self._has_warned = False
        self.attempt = 0
        self.step = 0
        self._write_what_waits()

    def record(self, name: str, **fields: Any) -> None:
        """Append one event. Raises nothing for the disk: what it does not take waits."""
        event = {
            "name": name,
            "wall": time.time(),
            "mono": time.monotonic(),
            "attempt": self.attempt,
            "step": self.step,
            **self._fixed,
            **fields,
        }
        self._waiting.append(json.dumps(event).encode() + b"\n")
        self._write_what_waits()

    def close(self) -> None:
        """Write what waits, if the disk takes it now, and let go of the file."""
        self._write_what_waits()
        if lost := len(self._waiting) + bool(self._unfinished):
            logger.warning("%s: %d events are lost", self._path, lost)
        self._let_go()

    def _write_what_waits(self) -> None:
        try:
            if self._file is None:
                self._file = self._opened()
            while self._unfinished or self._waiting:
                line = self._unfinished or self._waiting.popleft()
                self._unfinished = line
                self._unfinished = line[os.write(self._file, line) :]
            self._has_warned = False
        except OSError as error:
            self._let_go()  # a file system that was mounted anew knows no old descriptors
            if not self._has_warned:
                reason = error.strerror
                logger.warning("%s: %s; events wait until it can be written", self._path, reason)
            self._has_warned = True

    def _opened(self) -> int:
        self._path.parent.mkdir(exist_ok=True)  # not its parents: they may be unmounted
        file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            if not self._unfinished:
                _end_a_torn_line(file)
        except OSError:
            os.close(file)
            raise
        return file

    def _let_go(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file = None


def _end_a_torn_line(file: int) -> None:
    """So that what a lost node left unfinished does not swallow the first new event."""
    size = os.fstat(file).st_size
    if size and os.pread(file, 1, size - 1) != b"\n":
        os.write(file, b"\n")


def read_events(run_directory: Path) -> list[Event]:
    """Every event of a run, in order of wall time; lines that do not parse are skipped."""
    return sorted(_lines(run_directory), key=lambda event: float(event["wall"]))


def parse_event(line: bytes) -> Event | None:
    """The event that a line holds; None if it is torn or no event."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "name" in event and "wall" in event else None


def _lines(run_directory: Path) -> Iterator[Event]:
    for path in sorted((run_directory / "events").glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            if event := parse_event(line):
                yield event
