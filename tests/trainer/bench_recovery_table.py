"""What the faults of ``bench_recovery`` cost: a cell for each, and their table beside the aims."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from trainer.events import Event
from trainer.faults.settings import FaultKind
from trainer.goodput.ledger import Bin, account_for
from trainer.goodput.recoveries import Recovery

COLUMNS = (
    *("total", "detect", "abort", "all out", "rendezvous", "startup", "restore"),
    *("first step", "idle"),
)
"""Seconds of a cell, in the order of the table. ``all out`` is a part of ``abort``: from the
first rank that reported the failure to the last, which an abort has freed from its collective."""

_BINS = (Bin.DETECT, Bin.ABORT, Bin.RENDEZVOUS, Bin.STARTUP, Bin.RESTORE, Bin.IDLE)


@dataclass(frozen=True, slots=True)
class Aim:
    column: str
    below_seconds: float

    def __str__(self) -> str:
        return f"{self.column} < {self.below_seconds:g}"


_SOFT = Aim("total", 4.0)
_KILLED = Aim("total", 10.0)
_HUNG = Aim("detect", 10.0)
AIMS: Mapping[str, Aim] = {
    FaultKind.EXCEPTION: _SOFT,
    FaultKind.OOM: _SOFT,
    FaultKind.SIGKILL: _KILLED,
    FaultKind.EXIT: _KILLED,
    FaultKind.HANG: _HUNG,
    FaultKind.HANG_GIL: _HUNG,
    FaultKind.STOP: _HUNG,
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One fault under one layer, as measured; without seconds it says what failed."""

    layer: str
    kind: str
    num_nodes: int
    num_ranks: int
    preset: str
    seconds: Mapping[str, float | None] = field(default_factory=dict)
    """By the names in ``COLUMNS``; of ``all out``, None where fewer than two ranks reported."""

    restored_step: int | None = None
    steps_lost: int | None = None
    gpu_mib: tuple[int, ...] = ()
    """Memory in use on each GPU just after the recovery, of whichever process."""

    failure: str = ""

    @property
    def key(self) -> tuple[str, str, int, str]:
        return self.layer, self.kind, self.num_nodes, self.preset

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Cell":
        known = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in record.items() if name in known})


def recovered(events: Sequence[Event]) -> list[tuple[str, dict[str, float | None], Recovery]]:
    """Kind, seconds and recovery of each fault that is recovered from, in order of time."""
    found = []
    for recovery in account_for(events).recoveries if events else ():
        seconds = recovery.seconds_by_bin
        if seconds is not None:
            columns: dict[str, float | None] = {str(bin_): seconds[bin_] for bin_ in _BINS}
            columns["total"] = recovery.time_to_recover_seconds
            columns["first step"] = recovery.first_step_seconds
            columns["all out"] = _seconds_until_all_out(events, recovery.attempt)
            found.append((recovery.kind, columns, recovery))
    return found


def _seconds_until_all_out(events: Iterable[Event], attempt: int) -> float | None:
    reports = [
        float(event["wall"])
        for event in events
        if event["name"] == "attempt_failed" and event["attempt"] == attempt
    ]
    return max(reports) - min(reports) if len(reports) > 1 else None


def as_records(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """For machines: every cell, with its aim and whether it is met."""
    return [
        {**asdict(cell), "aim": str(AIMS.get(cell.kind, "")), "met": is_met(cell)} for cell in cells
    ]


def is_met(cell: Cell) -> bool | None:
    """None without an aim or without a measure."""
    aim = AIMS.get(cell.kind)
    seconds = cell.seconds.get(aim.column) if aim else None
    return None if aim is None or seconds is None else seconds < aim.below_seconds


def as_markdown(cells: Sequence[Cell]) -> str:
    """A row for each layer and kind, medians of what was measured; then what failed."""
    groups: dict[tuple[str, str, int, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.key, []).append(cell)
    heading = ("layer", "fault", "model", "nodes x ranks", "n", *COLUMNS, "aim", "met")
    rule = ["---"] * 3 + ["---:"] * (len(heading) - 3)
    lines = [_row(heading), _row(rule), *(_row(_columns(group)) for group in groups.values())]
    lines += [f"\n{cell.layer}, {cell.kind}: {cell.failure}" for cell in cells if cell.failure]
    return "\n".join(lines) + "\n"


def _columns(group: Sequence[Cell]) -> list[str]:
    first = group[0]
    measured = [cell for cell in group if not cell.failure]
    seconds = {name: _median(cell.seconds.get(name) for cell in measured) for name in COLUMNS}
    verdict = {True: "yes", False: "no", None: "-"}[
        is_met(Cell(*first.key[:2], first.num_nodes, first.num_ranks, first.preset, seconds))
    ]
    return [
        *(first.layer, first.kind, first.preset),
        f"{first.num_nodes} x {first.num_ranks // first.num_nodes}",
        str(len(measured)),
        *("-" if value is None else f"{value:.1f}" for value in seconds.values()),
        *(str(AIMS.get(first.kind, "-")), verdict),
    ]


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _row(columns: Iterable[str]) -> str:
    return f"| {' | '.join(columns)} |"
