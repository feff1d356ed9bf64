"""What chaos has found so far: one line a plan in ``plans.jsonl``, read again when it goes on.

Only plans of the same code count: a change of the trainer or of the workloads
makes all that was proved before a claim again. The last line may be torn by a
kill; it is left out, and its plan is run again.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.chaos.cells import ALL_CELLS, Cell, expected, is_claimed, nearest_tier
from trainer.faults.settings import FaultKind
from trainer.settings import RecoveryLayer

REPOSITORY = Path(__file__).parents[2]

Record = dict[str, Any]
"""``name code plan outcome problems suffered seconds layer``."""


class Records:
    """The file of one driver; appended to by one process at a time."""

    def __init__(self, path: Path, code: str) -> None:
        self._path = path
        self._code = code
        path.parent.mkdir(parents=True, exist_ok=True)
        _end_last_line(path)

    def all(self) -> list[Record]:
        """Those of this code, the newest of each plan, in the order in which they were made."""
        found: dict[str, Record] = {}
        for line in self._path.read_text().splitlines() if self._path.exists() else ():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if record.get("code") == self._code:
                found[record["name"]] = record
        return list(found.values())

    def append(self, record: Record) -> None:
        """Durable on return: a plan that is counted was run."""
        line = json.dumps({"code": self._code, **record}) + "\n"
        with self._path.open("a") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())


def code_digest(repository: Path = REPOSITORY) -> str:
    """Of all that decides how a run goes."""
    digest = hashlib.sha256()
    for package in ("trainer", "workloads"):
        for path in sorted((repository / package).rglob("*.py")):
            digest.update(str(path.relative_to(repository)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def histogram(records: Iterable[Record]) -> Counter[Cell]:
    """How often each cell was really suffered and survived; refused plans cover nothing."""
    counts: Counter[Cell] = Counter()
    for record in records:
        if record["problems"] or record["outcome"] == "refused":
            continue
        layer = RecoveryLayer(record["layer"])
        counts.update(Cell(FaultKind(each["kind"]), layer) for each in record["suffered"])
    return counts


def refused(records: Iterable[Record]) -> Counter[Cell]:
    """How often each cell ended its run as documented."""
    return Counter(
        Cell(FaultKind(record["kinds"][0]), RecoveryLayer(record["layer"]))
        for record in records
        if record["outcome"] == "refused" and not record["problems"]
    )


def empty_cells(records: Sequence[Record]) -> list[Cell]:
    """Cells whose claim nothing has proved yet: survived, or refused where that is the claim."""
    survived, ended = histogram(records), refused(records)
    return [cell for cell in ALL_CELLS if not (survived if is_claimed(cell) else ended)[cell]]


def tiers(records: Iterable[Record]) -> Counter[tuple[Cell, str]]:
    """How often each cell's fault was recovered from with each tier."""
    counts: Counter[tuple[Cell, str]] = Counter()
    for record in records:
        if not record["problems"]:
            layer = RecoveryLayer(record["layer"])
            counts.update(
                (Cell(FaultKind(each["kind"]), layer), each["tier"])
                for each in record["suffered"]
                if each["tier"]
            )
    return counts


def empty_tiers(records: Sequence[Record]) -> list[str]:
    """Cells whose nearest tier nothing has proved yet; what peers have, a test of its own shows."""
    seen = tiers(records)
    needed = {
        cell: "durable" if (tier := nearest_tier(cell, memory=True)) == "peer" else tier
        for cell in ALL_CELLS
        if expected(cell).caught_by
    }
    return [f"{cell} from {tier}" for cell, tier in needed.items() if not seen[cell, tier]]


def failures(records: Iterable[Record]) -> list[Record]:
    return [record for record in records if record["problems"]]


def _end_last_line(path: Path) -> None:
    if path.exists() and (text := path.read_bytes()) and not text.endswith(b"\n"):
        with path.open("ab") as file:
            file.write(b"\n")
