"""Which rank an attempt ended for, and why, from what its ranks left behind.

A rank that failed by itself comes before one that is silent, and that before one
that hung: whoever ends others (the launcher, a collective's timeout) leaves the
first kind of trace on the culprit only. Not covered: two faults in one step, of
which one is named; a rank that ends by itself without a word, which looks killed.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from trainer.diagnosis.stacks import Frame, waits_in
from trainer.echoes import is_echo


class Cause(StrEnum):
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"
    EXITED = "exited"
    VANISHED = "vanished"
    HUNG = "hung"
    OUT_OF_STEP = "out_of_step"
    UNKNOWN = "unknown"


class End(StrEnum):
    NONE = ""
    """No word of it."""

    FINISHED = "finished"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Trace:
    """What one rank left of the attempt."""

    rank: int
    node: str = ""
    last_step: int = 0
    """The last that it completed."""

    end: End = End.NONE
    reason: str = ""
    failed_at: float = 0.0
    told_to_stop: bool = False
    frames: tuple[Frame, ...] = ()
    is_behind: bool = False
    """It began fewer collectives than others, says the flight recorder."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    attempt: int
    cause: Cause
    line: str
    """For people: rank, node, what happened."""

    rank: int | None = None
    node: str = ""


_EXIT = re.compile(r"^SystemExit: ?(.*)$")


def diagnose(attempt: int, traces: Sequence[Trace]) -> Diagnosis:
    """Name the rank to blame, or say that none can be named."""
    if not traces:
        return Diagnosis(attempt, Cause.UNKNOWN, "no rank left anything of this attempt")
    failed = [t for t in traces if t.end is End.FAILED and not is_echo(t.reason)]
    if failed:
        return _failed(attempt, failed, num_ranks=len(traces))
    silent = [t for t in traces if t.end is End.NONE and not t.frames and not t.told_to_stop]
    if silent:
        return _vanished(attempt, silent, traces)
    # Who has finished or was stopped may have been slow before: stacks prove no hang there.
    stacked = [t for t in traces if t.frames and t.end is not End.FINISHED]
    return _hung(attempt, stacked) if stacked else _ended(attempt, traces)


def _ended(attempt: int, traces: Sequence[Trace]) -> Diagnosis:
    if all(trace.end is End.FINISHED for trace in traces):
        return Diagnosis(attempt, Cause.FINISHED, "every rank finished")
    if all(trace.told_to_stop or trace.end is End.FINISHED for trace in traces):
        return Diagnosis(attempt, Cause.STOPPED, f"stopped on request {_after(traces)}")
    line = f"ended {_after(traces)}; what the ranks left only tells of others' ends"
    return Diagnosis(attempt, Cause.UNKNOWN, line)


def _failed(attempt: int, failed: Sequence[Trace], *, num_ranks: int) -> Diagnosis:
    first = min(failed, key=lambda trace: trace.failed_at)
    alike = [t for t in failed if t.reason == first.reason and t is not first]
    left = _EXIT.match(first.reason)
    what = f"left with exit code {left[1] or 0}" if left else f"raised {first.reason}"
    line = f"{_who(first)} {what} in step {first.last_step + 1}"
    if len(alike) == num_ranks - 1 and alike:
        line += "; so did every other rank"
    elif alike:
        line += f"; so did {_ranks(alike)}"
    return Diagnosis(attempt, Cause.EXITED if left else Cause.FAILED, line, first.rank, first.node)


def _vanished(attempt: int, silent: Sequence[Trace], traces: Sequence[Trace]) -> Diagnosis:
    what = "killed, frozen or lost: no word, and no stacks,"
    if len(silent) == 1:
        culprit = silent[0]
        line = f"{_who(culprit)} was {what} after step {culprit.last_step}"
        return Diagnosis(attempt, Cause.VANISHED, line, culprit.rank, culprit.node)
    verb = "was" if len(silent) == len(traces) else "were"
    line = f"{_several(silent, traces)} {verb} {what} {_after(silent)}"
    return Diagnosis(attempt, Cause.VANISHED, line, None, _node_of(silent))


def _hung(attempt: int, stacked: Sequence[Trace]) -> Diagnosis:
    """Whoever waits in a collective waits for one that does not, or that is in another."""
    lagging = min(trace.last_step for trace in stacked)
    own = [t for t in stacked if not waits_in(t.frames)]
    suspects = [t for t in own if t.last_step == lagging] or own
    if len(suspects) > 1:
        suspects = [t for t in suspects if t.is_behind] or suspects
    others = Counter(waits for t in stacked if (waits := waits_in(t.frames)))
    if not suspects or (not others and len({_place(t) for t in suspects}) > 1):
        return _out_of_step(attempt, stacked)
    first, is_one = suspects[0], len(suspects) == 1
    ends = dict.fromkeys(str(t.frames[0]) for t in suspects)
    line = f"{_who(first) if is_one else _several(suspects, stacked)} hung in step "
    line += f"{first.last_step + 1}: {'its stack ends' if is_one else 'their stacks end'} in "
    line += ", ".join([*ends][:3]) + (", ..." if len(ends) > 3 else "")
    if others:
        line += f"; the others wait for {'it' if is_one else 'them'} in "
        line += others.most_common(1)[0][0]
    rank = first.rank if is_one else None
    return Diagnosis(attempt, Cause.HUNG, line, rank, _node_of(suspects))


def _out_of_step(attempt: int, stacked: Sequence[Trace]) -> Diagnosis:
    places = Counter(_place(trace) for trace in stacked)
    rarest = min(places.values())
    behind = [t for t in stacked if t.is_behind]
    odd = behind or [t for t in stacked if places[_place(t)] == rarest]
    where = ", ".join(
        f"{_ranks([t for t in stacked if _place(t) == place])} in {place}" for place in places
    )
    line = f"hung {_after(stacked)}, and each rank waits for the others: {where}"
    if len(odd) != 1:
        return Diagnosis(attempt, Cause.OUT_OF_STEP, line)
    culprit = odd[0]
    why = "began fewer collectives than the others" if culprit.is_behind else "is the odd one out"
    line += f"; {_who(culprit)} {why}"
    return Diagnosis(attempt, Cause.OUT_OF_STEP, line, culprit.rank, culprit.node)


def _place(trace: Trace) -> str:
    """The collective, and who called it from this project, or else the innermost call."""
    caller = next((f for f in trace.frames if "/torch/" not in f.file), trace.frames[0])
    waits = waits_in(trace.frames)
    return str(caller) if waits in ("", caller.function) else f"{waits} of {caller}"


def _who(trace: Trace) -> str:
    return f"rank {trace.rank} on node {trace.node}" if trace.node else f"rank {trace.rank}"


def _several(some: Sequence[Trace], traces: Sequence[Trace]) -> str:
    node = _node_of(some)
    who = "every rank" if len(some) == len(traces) else _ranks(some)
    return f"{who}, all on node {node}," if node else who


def _node_of(traces: Sequence[Trace]) -> str:
    """Theirs, if they share one."""
    nodes = {trace.node for trace in traces}
    return nodes.pop() if len(nodes) == 1 else ""


def _ranks(traces: Sequence[Trace]) -> str:
    numbers = [str(trace.rank) for trace in traces]
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    shown = ", ".join(numbers[:8]) + (", ..." if len(numbers) > 8 else "")
    return f"ranks {shown}"


def _after(traces: Sequence[Trace]) -> str:
    return f"after step {min(trace.last_step for trace in traces)}"
