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
process_started      rank   ``wall`` and ``mono`` are those of the process's own start
attempt_started      rank
process_group_ready  rank
restored             rank   ``step`` restored (0: from the start), ``source`` (durable, none)
step_completed       rank   ``seconds`` (whole step), ``stall_seconds`` (in it, waiting for a
                            save), ``loss``, ``sample_ids``
checkpoint_begun     rank   ``stall_seconds``
checkpoint_committed rank   ``save_seconds`` (from begun to committed)
checkpoint_failed    rank   ``reason``
fault_injected       rank   ``kind``, ``fault`` (its name in the plan)
attempt_failed       rank   ``reason``
run_finished         rank   ``digest`` (of this rank's parameters and optimizer state)
==================== ====== ================================================================

``step`` counts completed optimizer steps: step 1 is the first. Not covered: the
event of a line that a node's loss has torn; the reader skips it.
"""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Event = dict[str, Any]


class EventLog:
    """Appends this writer's events; ``who`` is ``{"rank": 3}`` or ``{"pod": 0}``."""

    def __init__(self, run_directory: Path, **who: int) -> None:
        folder = run_directory / "events"
        folder.mkdir(parents=True, exist_ok=True)
        ((kind, number),) = who.items()
        self._fixed: Event = dict(who)
        self._file = os.open(
            folder / f"{kind}-{number}.jsonl", os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644
        )
        self.attempt = 0
        self.step = 0
        self._end_a_torn_line()

    def record(self, name: str, **fields: Any) -> None:
        event = {
            "name": name,
            "wall": time.time(),
            "mono": time.monotonic(),
            "attempt": self.attempt,
            "step": self.step,
            **self._fixed,
            **fields,
        }
        os.write(self._file, json.dumps(event).encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)

    def _end_a_torn_line(self) -> None:
        """So that what a lost node left unfinished does not swallow the first new event."""
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")


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
