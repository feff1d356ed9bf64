"""What rehearsals came to: a table for people, records for machines.

Pure: it returns text and values, and the caller writes them.
"""

import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from workloads.rehearsal.run_job import JobResult

WIDTH = 100


@dataclass(frozen=True, slots=True)
class RunResult:
    run: str
    result: JobResult
    num_restarts: int
    logs: Path
    events: Path

    @property
    def is_complete(self) -> bool:
        return self.result.outcome == "complete"


def as_records(results: Sequence[RunResult]) -> list[dict[str, Any]]:
    """One object a run, of plain JSON values."""
    records = []
    for each in results:
        values = asdict(each.result)
        if each.result.failed_pod is not None:
            values["failed_pod"]["log"] = str(each.result.failed_pod.log)
        records.append(
            {
                "run": each.run,
                **values,
                "num_restarts": each.num_restarts,
                "logs": str(each.logs),
                "events": str(each.events),
            }
        )
    return records


def as_text(results: Sequence[RunResult]) -> str:
    """A table, then where everything is, then what went wrong."""
    table = Table(box=None, pad_edge=False)
    for heading in ("run", "outcome"):
        table.add_column(heading)
    for heading in ("seconds", "pods started", "restarts"):
        table.add_column(heading, justify="right")
    for each in results:
        table.add_row(
            each.run,
            each.result.outcome,
            f"{each.result.seconds:.1f}",
            str(each.result.num_pods),
            str(each.num_restarts),
        )
    stream = io.StringIO()
    Console(file=stream, width=WIDTH).print(table)
    lines = []
    for each in results:
        lines += ["", f"{each.run}: logs in {each.logs}", f"  events in {each.events}"]
        lines += [] if each.is_complete else why_not_complete(each)
    return stream.getvalue() + "\n".join(lines) + "\n"


def why_not_complete(run: RunResult) -> list[str]:
    """The cause in one line, and the end of the failing pod's log."""
    pod = run.result.failed_pod
    if pod is None:
        return [f"  {run.result.outcome}: {run.result.reason}"]
    return [
        f"  failed ({run.result.reason}): index {pod.index} exited with code {pod.exit_code}; "
        f"the last lines of {pod.log}:",
        *(f"    {line}" for line in pod.last_lines),
    ]
