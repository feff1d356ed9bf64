"""Collects what the ranks of an attempt left in the run's folder: events, stacks, collectives.

Only the tail of each file is read, so that it costs a run of any length the same.
Not covered: a rank that left neither a stack file nor an event of the attempt.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from trainer.diagnosis.blame import Diagnosis, End, Trace, diagnose
from trainer.diagnosis.flight_recorder import furthest_behind, last_collectives, recorder_file
from trainer.diagnosis.stack_file import attempt_folder
from trainer.diagnosis.stacks import read_stacks
from trainer.events import Event, parse_event

TAIL_BYTES = 64 * 1024
MOST_RECORDER_BYTES = 16 * 1024 * 1024


class NoAttempts(Exception):
    """The folder holds no attempt to speak of; the message says what was looked for."""


def diagnose_attempt(run_directory: Path, attempt: int) -> Diagnosis:
    """What the attempt ended for.

    Raises:
        OSError: the storage fails to answer.
    """
    return diagnose(attempt, _traces(run_directory, attempt))


def newest_attempt(run_directory: Path) -> int:
    """The last attempt that left anything.

    Raises:
        NoAttempts: there is none.
        OSError: the storage fails to answer.
    """
    numbers = _numbers((run_directory / "stacks").glob("attempt-*"))
    if not numbers:
        raise NoAttempts(
            f"{run_directory}: no attempt has left anything under stacks/; is this a run's folder?"
        )
    return max(numbers)


def _traces(run_directory: Path, attempt: int) -> list[Trace]:
    folder = attempt_folder(run_directory, attempt)
    ranks = _numbers(folder.glob("rank-*.txt"))
    traces = [_trace(run_directory, folder, attempt, rank) for rank in ranks]
    behind = _behind(folder, ranks)
    return [replace(trace, is_behind=trace.rank in behind) for trace in traces]


def _trace(run_directory: Path, folder: Path, attempt: int, rank: int) -> Trace:
    stack_file = folder / f"rank-{rank}.txt"
    left = read_stacks(_head(stack_file) + "\n" + _tail(stack_file))
    trace = Trace(rank, node=left.node, told_to_stop=left.told_to_stop, frames=left.frames)
    for event in _events(run_directory, attempt, rank):
        trace = _after_event(trace, event)
    return trace


def _after_event(trace: Trace, event: Event) -> Trace:
    match event["name"]:
        case "attempt_failed" if trace.end is End.FAILED:
            return trace  # of the next entry of the process, which came to no number of its own
        case "attempt_failed":
            reason = str(event.get("reason", "unknown"))
            return replace(trace, end=End.FAILED, reason=reason, failed_at=float(event["wall"]))
        case "run_finished":
            return replace(trace, end=End.FINISHED)
        case "restored" | "step_completed":
            return replace(trace, last_step=int(event.get("step", 0)))
    return trace


def _events(run_directory: Path, attempt: int, rank: int) -> list[Event]:
    path = run_directory / "events" / f"rank-{rank}.jsonl"
    if not path.is_file():
        return []
    events = (parse_event(line.encode()) for line in _tail(path).splitlines())
    return [event for event in events if event and event.get("attempt") == attempt]


def _behind(folder: Path, ranks: list[int]) -> frozenset[int]:
    files = {rank: recorder_file(folder, rank) for rank in ranks}
    return furthest_behind(
        {
            rank: last_collectives(path.read_bytes())
            for rank, path in files.items()
            if path.is_file() and path.stat().st_size <= MOST_RECORDER_BYTES
        }
    )


def _head(path: Path) -> str:
    with path.open("rb") as file:
        return file.readline(TAIL_BYTES).decode(errors="replace").rstrip("\n")


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(size - TAIL_BYTES, 0))
        return file.read(TAIL_BYTES).decode(errors="replace")


def _numbers(paths: Iterable[Path]) -> list[int]:
    found = (re.fullmatch(r"(?:attempt|rank)-(\d+)", path.stem) for path in paths)
    return sorted(int(match[1]) for match in found if match)
