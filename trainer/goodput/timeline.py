"""Lays a run's wall time out as a line of segments, each in exactly one bin.

One second of the run is one second here, however many ranks there are. The job
is as far as its slowest rank, so a phase ends when the last rank leaves it:

=========== =======================================================================
rendezvous  a pod's start to its workers' start (the launchers find each other), and
            the attempt's start until its process group is ready
startup     the workers' start to the attempt's start; what the attempt builds before
            its first step, where nothing is read back
restore     process group ready to restored, where a state is read back
productive  from one completed step to the next, if the step's result survives
lost        the same if it does not survive, and the step that a fault cut short
stall       the part of a step that waited for a save; after the last step, until the last save
detect      the fault (for one that was not injected: the last sign of progress) until a
            rank reports a failure or the launcher, the pod or a new attempt shows it
abort       from there until the workers are gone: the last report of a failure, the
            stop of the last pod that is to be replaced, or, if no process is
            replaced, the start of the next attempt
idle        a pod has stopped and its replacement has not started, with none of the old
            workers left; and the end of a run, after its last save
unaccounted between two steps, what no rank's own measure of the step covers
=========== =======================================================================

Where nobody could report a failure before the launcher replaced the workers, the
time in between cannot be divided and is all ``detect``. Moments are wall times: a
clock that differs between nodes moves a boundary by that much, never the sum.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from trainer.events import Event
from trainer.goodput.attempts import NO_SOURCE, Attempt, Execution, latest


class Bin(StrEnum):
    PRODUCTIVE = "productive"
    LOST = "lost"
    STALL = "stall"
    DETECT = "detect"
    ABORT = "abort"
    RENDEZVOUS = "rendezvous"
    RESTORE = "restore"
    STARTUP = "startup"
    IDLE = "idle"
    UNACCOUNTED = "unaccounted"


@dataclass(frozen=True, slots=True)
class Segment:
    began: float
    ended: float
    bin: Bin


Mark = tuple[float, Bin]
"""Until this moment, since the mark before, the job was in this bin."""

_SAVE_EVENTS = ("checkpoint_begun", "checkpoint_committed", "checkpoint_failed")


def lay_out(events: Sequence[Event], attempts: Sequence[Attempt]) -> tuple[Segment, ...]:
    """Segments without gap or overlap from the first event to the last."""
    cursor, end = float(events[0]["wall"]), float(events[-1]["wall"])
    segments: list[Segment] = []
    for until, bin_ in (*_marks(events, attempts), (end, Bin.IDLE)):
        # A mark that lies behind the line, for a late event of an old attempt, adds nothing.
        reached = min(until, end)
        if reached > cursor:
            segments.append(Segment(cursor, reached, bin_))
            cursor = reached
    return tuple(segments)


def _marks(events: Sequence[Event], attempts: Sequence[Attempt]) -> Iterator[Mark]:
    beginning, end = float(events[0]["wall"]), float(events[-1]["wall"])
    starts = [latest(attempt.first_started, attempt.started) for attempt in attempts]
    first, *others = [*starts, end]
    yield from _restart(events, since=beginning, until=first)
    for attempt, until in zip(attempts, others, strict=True):
        yield from _phases(attempt)
        if attempt.finished is None:
            yield from _failure(attempt, events, until)
            continue
        yield from _finish(attempt, attempt.finished, events)
        if attempt is not attempts[-1]:
            stops = _stops_of_old_pods(events, attempt.finished, until)
            yield max([attempt.finished, *stops]), Bin.IDLE
            yield from _restart(events, since=attempt.finished, until=until)


def _phases(attempt: Attempt) -> Iterator[Mark]:
    """From the attempt's start to the last step that it completed."""
    if attempt.group_ready is not None:
        yield attempt.group_ready, Bin.RENDEZVOUS
    if attempt.restored is not None:
        yield attempt.restored, Bin.STARTUP if attempt.source == NO_SOURCE else Bin.RESTORE
    between = Bin.STARTUP
    for execution in attempt.executions:
        yield from _step(execution, between, survives=execution.step <= attempt.kept_through)
        between = Bin.UNACCOUNTED


def _step(execution: Execution, between: Bin, *, survives: bool) -> Iterator[Mark]:
    yield execution.completed - busy_seconds(execution), between
    stall_began = execution.completed - min(execution.stall_seconds, busy_seconds(execution))
    yield stall_began, Bin.PRODUCTIVE if survives else Bin.LOST
    yield execution.completed, Bin.STALL


def busy_seconds(execution: Execution) -> float:
    """The part of the job's step, its stall included, that the slowest rank's measure covers."""
    return min(execution.measured_seconds, execution.completed - execution.began)


def _failure(attempt: Attempt, events: Sequence[Event], until: float) -> Iterator[Mark]:
    """From the last progress of a broken attempt to ``until``, when the next one has started."""
    past = [event for event in events if event["wall"] < until]
    own = [event for event in past if is_of(event, attempt)]
    faults = _walls(own, "fault_injected", since=attempt.progress)
    reports = _walls(own, "attempt_failed")
    if not faults and not reports:  # told to stop, it saves before it leaves
        yield max(_walls(own, *_SAVE_EVENTS), default=attempt.progress), Bin.STALL
    broke = min(faults, default=attempt.progress)
    restarts = _walls(past, "pod_started", "pod_stopped", "process_started", since=broke)
    successors = [float(e["wall"]) for e in past if _is_start_after(e, attempt)]
    noticed = max(broke, min([*reports, *restarts, *successors], default=until))
    phase = _phase_in_progress(attempt)
    yield broke, phase
    # A rank that waits for others which never come is still in its phase: nothing broke here.
    yield noticed, Bin.DETECT if faults or phase is Bin.LOST else phase
    if restarts:
        yield max([*reports, *_stops_of_old_pods(events, broke, until), noticed]), Bin.ABORT
        yield from _restart(events, since=broke, until=until)
    else:
        yield until, Bin.ABORT


def _walls(events: Sequence[Event], *names: str, since: float = -math.inf) -> list[float]:
    return [float(e["wall"]) for e in events if e["name"] in names and e["wall"] >= since]


def is_of(event: Event, attempt: Attempt) -> bool:
    return "rank" in event and int(event["attempt"]) == attempt.number


def _is_start_after(event: Event, attempt: Attempt) -> bool:
    return event["name"] == "attempt_started" and int(event["attempt"]) > attempt.number


def _phase_in_progress(attempt: Attempt) -> Bin:
    if attempt.executions or attempt.restored is not None:
        return Bin.LOST
    return Bin.RENDEZVOUS if attempt.group_ready is None else Bin.RESTORE


def _finish(attempt: Attempt, finished: float, events: Sequence[Event]) -> Iterator[Mark]:
    """After the last step: the saves in flight, then what it takes to close."""
    own = [event for event in events if is_of(event, attempt) and event["wall"] < finished]
    yield max(_walls(own, *_SAVE_EVENTS), default=attempt.progress), Bin.STALL
    yield finished, Bin.IDLE


def _restart(events: Sequence[Event], *, since: float, until: float) -> Iterator[Mark]:
    """New pods or workers, until the next attempt has started.

    Marks before the moment at which the old workers were gone lie behind the line already.
    """
    window = [event for event in events if since <= event["wall"] < until]
    last_worker = max(_walls(window, "process_started"), default=since)
    down: set[int] = set()
    for event in window:
        if event["name"] in ("pod_started", "pod_stopped"):
            yield from _waiting(bool(down), last_worker, float(event["wall"]))
            (down.add if event["name"] == "pod_stopped" else down.discard)(int(event["pod"]))
    yield from _waiting(bool(down), last_worker, until)


def _waiting(for_pods: bool, last_worker: float, until: float) -> Iterator[Mark]:
    if for_pods:
        yield until, Bin.IDLE
    else:
        yield min(last_worker, until), Bin.RENDEZVOUS
        yield until, Bin.STARTUP


def _stops_of_old_pods(events: Sequence[Event], broke: float, until: float) -> list[float]:
    """When the pods that were up at ``broke`` stopped, of those that stopped before ``until``.

    Until then they may hold workers of the broken attempt, hung ones too.
    """
    old_pods: set[int] = set()
    stops: list[float] = []
    for event in events:
        if event["name"] == "pod_started":
            (old_pods.add if event["wall"] < broke else old_pods.discard)(int(event["pod"]))
        elif event["name"] == "pod_stopped" and event["pod"] in old_pods:
            old_pods.discard(int(event["pod"]))
            if broke <= event["wall"] < until:
                stops.append(float(event["wall"]))
    return stops
