"""Counters of errors, and by how much each has grown since the last attempt of this rank.

The last reading lies beside the pod's exit file, so that it outlives the process, and
ends with the pod.

Not covered: growth before a pod's first attempt, and where no exit file is named.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

Counters = Mapping[str, int]
"""By name, such as ``efa0/1/rx_drops``. They only grow, until their device is reset."""


def growth(now: Counters, before: Counters) -> dict[str, int]:
    """What has grown, and by how much; what was not read before, or was reset, has not."""
    return {
        name: value - before[name]
        for name, value in now.items()
        if name in before and value > before[name]
    }


def in_words(grown: Counters) -> str:
    return ", ".join(f"{name} +{by}" for name, by in sorted(grown.items()))


def reading_path(local_rank: int) -> Path | None:
    exit_file = os.environ.get("STEADFAST_EXIT_FILE")
    return Path(exit_file).with_name(f"steadfast-counters-{local_rank}") if exit_file else None


def last_reading(path: Path | None) -> dict[str, int]:
    """Empty where there is none, or it cannot be read."""
    try:
        values = json.loads(path.read_text()) if path else {}
        return {str(name): int(value) for name, value in values.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def keep_reading(path: Path | None, counters: Counters) -> None:
    """For the next attempt. The pod's own disk may be full: then that one compares nothing."""
    if path is None:
        return
    temporary = path.with_suffix(f".{os.getpid()}")
    try:
        temporary.write_text(json.dumps(dict(counters)))
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
