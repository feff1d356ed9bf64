"""The findings as a table for people and as JSON for machines."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from rich.box import Box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from infra.doctor.findings import Finding, Level, has_errors

WIDTH = 120
"""Columns of a report that goes to no terminal."""

_COLORS = {Level.OK: "green", Level.WARNING: "yellow", Level.ERROR: "bold red"}
_UNDER_THE_HEAD = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)


def as_json(deployment: str, findings: Sequence[Finding]) -> str:
    return json.dumps(
        {
            "deployment": deployment,
            "findings": [asdict(finding) for finding in findings],
            "ok": not has_errors(findings),
        },
        indent=2,
    )


def as_text(deployment: str, findings: Sequence[Finding], *, console: Console) -> str:
    """The table as ``console`` would show it, remedies below what they are for."""
    table = Table(box=_UNDER_THE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("level")
    table.add_column("check", no_wrap=True)
    table.add_column("found", overflow="fold")
    for finding in findings:
        color = _COLORS[finding.level]
        found = Text(f"{finding.what}: {finding.value}" if finding.value else finding.what)
        if finding.remedy:
            found.append(f"\n-> {finding.remedy}", style="bold")
        table.add_row(Text(finding.level, style=color), finding.check, found)
    counts = Counter(finding.level for finding in findings)
    with console.capture() as capture:
        console.print(table)
        console.print(
            f"\n{deployment}: {_count(counts[Level.ERROR], 'error')}, "
            f"{_count(counts[Level.WARNING], 'warning')}, {counts[Level.OK]} ok"
        )
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def standard_output() -> Console:
    """Where the report is printed: in color on a terminal, plain and wide anywhere else."""
    console = Console(markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    return console


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
