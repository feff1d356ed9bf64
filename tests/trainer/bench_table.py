"""What the records of ``bench_saves`` come to: a row for each contender, and their table."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Row:
    """A contender's result; medians over the saves after the first, and over all steps."""

    contender: str
    num_saves: int = 0
    first_stall_seconds: float | None = None
    stall_seconds: float | None = None
    idle_step_seconds: float | None = None
    writing_step_seconds: float | None = None
    slowdown_fraction: float | None = None
    first_durable_seconds: float | None = None
    durable_seconds: float | None = None
    num_bytes: int | None = None
    failure: str = ""


def summary(name: str, records: Iterable[dict[str, Any]], failure: str) -> Row:
    """What the saves of one contender come to; the first one pays for start-up and is apart."""
    saves, reasons = [], []
    for record in records:
        if "failure" in record:
            reasons.append(record["failure"])
        else:
            saves.append(record)
    failure = (reasons or [failure])[0]
    if not saves:
        return Row(name, failure=failure or "no save was measured")
    later = saves[1:]
    idle = statistics.median(s for save in saves for s in save["idle_step_seconds"])
    writing = _median(s for save in later for s in save["writing_step_seconds"])
    return Row(
        contender=name,
        num_saves=len(saves),
        first_stall_seconds=_stall(saves[0]),
        stall_seconds=_median(map(_stall, later)),
        idle_step_seconds=idle,
        writing_step_seconds=writing,
        slowdown_fraction=None if writing is None else writing / idle - 1,
        first_durable_seconds=saves[0]["durable_seconds"],
        durable_seconds=_median(save["durable_seconds"] for save in later),
        num_bytes=saves[-1]["num_bytes"],
        failure=failure,
    )


def as_text(rows: Sequence[Row]) -> str:
    """The table, then the reasons of those that failed."""
    table = Table(box=SIMPLE_HEAD)
    table.add_column("contender", no_wrap=True)
    for heading in (
        *("saves", "first\nstall, s", "stall,\ns", "step,\ns", "step while\nwriting, s"),
        *("slower\nby, %", "first\ndurable, s", "durable\nafter, s", "GB"),
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.contender + ("*" if row.failure else ""),
            str(row.num_saves),
            *(_number(n, 3) for n in (row.first_stall_seconds, row.stall_seconds)),
            *(_number(n, 4) for n in (row.idle_step_seconds, row.writing_step_seconds)),
            _number(row.slowdown_fraction, 1, factor=100),
            *(_number(n, 1) for n in (row.first_durable_seconds, row.durable_seconds)),
            _number(row.num_bytes, 2, factor=1e-9),
        )
    console = Console(width=118, markup=False, emoji=False, highlight=False)
    with console.capture() as capture:
        console.print(table)
        for row in rows:
            if row.failure:
                console.print(f"* {row.contender}: {row.failure}", soft_wrap=True)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def _stall(save: dict[str, Any]) -> float:
    waits = ("begin_seconds", "before_update_seconds", "asking_seconds")
    return sum(float(save[name]) for name in waits)


def _median(values: Iterable[float]) -> float | None:
    known = list(values)
    return statistics.median(known) if known else None


def _number(value: float | None, digits: int, *, factor: float = 1) -> str:
    return "-" if value is None else f"{value * factor:.{digits}f}"
