"""PyTorch's flight recorder: which collectives each rank had begun, saved beside its stacks.

PyTorch keeps the last collectives of a process in memory. Its own dump comes at
the collective's timeout, long after a rank was ended, so the watchdog asks for
it. Not covered: a rank whose interpreter is stuck; gloo before PyTorch 2.13.
"""

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

NUM_ENTRIES = 500  # some 200 KiB, which every rank writes at once
_SIZE = "TORCH_FR_BUFFER_SIZE"  # the name since torch 2.9; with the older one it warns
_DUMPS = ("_dump_fr_trace_json", "_dump_nccl_trace_json")  # the second until 2.9


def switch_on() -> None:
    """Before the process group is made; what an operator has set stays."""
    os.environ.setdefault(_SIZE, str(NUM_ENTRIES))


def recorder_file(folder: Path, rank: int) -> Path:
    return folder / f"collectives-{rank}.json"


def save_collectives(folder: Path, rank: int) -> None:
    """Write what the recorder holds, if there is one. Never fails."""
    from torch._C import _distributed_c10d as c10d

    dump = next((getattr(c10d, name) for name in _DUMPS if hasattr(c10d, name)), None)
    if dump is None:
        return
    try:
        # Of the collectives that are over, too: they tell how far a rank came.
        recorder_file(folder, rank).write_bytes(_as_bytes(dump(True, False)))
    except (OSError, RuntimeError, TypeError) as error:
        logger.warning("The flight recorder could not be saved (%s)", error)


def _as_bytes(dumped: str | bytes) -> bytes:
    return dumped.encode() if isinstance(dumped, str) else dumped


def last_collectives(content: bytes) -> dict[str, int]:
    """Per process group, the number of the last collective that a rank began; {} if torn.

    Of the groups that bore one name, as those of the attempts in one process do, only the newest.
    """
    try:
        entries = json.loads(content)["entries"]
        return _last_of_each(entries)
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}


def _last_of_each(entries: list[dict[str, Any]]) -> dict[str, int]:
    last: dict[str, tuple[int, int]] = {}
    for entry in entries:
        number = int(entry.get("pg_id", 0))  # it counts the groups that the process has made
        name = str(entry.get("process_group", number))
        last[name] = max(last.get(name, (0, 0)), (number, int(entry["collective_seq_id"])))
    # With its number: a rank that began nothing in the newest must not be judged by an older.
    return {f"{name} ({number})": count for name, (number, count) in last.items()}


def furthest_behind(last_by_rank: Mapping[int, Mapping[str, int]]) -> frozenset[int]:
    """The ranks that began fewer collectives of a group than others; none where all agree."""
    behind: set[int] = set()
    for group in {name for last in last_by_rank.values() for name in last}:
        counts = {rank: last[group] for rank, last in last_by_rank.items() if group in last}
        fewest = min(counts.values())
        if fewest < max(counts.values()):
            behind |= {rank for rank, count in counts.items() if count == fewest}
    return frozenset(behind)
