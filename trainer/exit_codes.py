"""Exit codes that tell Kubernetes whether another try can help.

The Job's pod failure policy fails at once on 64, 70, 73 and 78 (all but one are those of
BSD's sysexits): a retry would meet the same. Every other failure is retried. Launchers
turn any worker's code into 1, so workers leave a note for the entry point in
``$STEADFAST_EXIT_FILE``: it exists once a worker has started, is touched by each start, and
holds a code once one knows how the pod must end: no retry in it can help, or the run is done.
"""

import os
from pathlib import Path

USAGE = 64
NODE_UNHEALTHY = 69
"""Another node may do: the pod is replaced."""

REPEATED = 70
"""The program fails at the same place again, or more often than the run's budget allows."""

CANNOT_WRITE = 73
CONFIG = 78

ORDINARY_FAILURE = 1
"""Which is tried again."""

STOPPED_BY_SIGTERM = 143
INTERRUPTED = 130


def note_worker_started() -> None:
    """Tell the pod's entry point that the launcher got as far as starting workers."""
    path = os.environ.get("STEADFAST_EXIT_FILE")
    # One rank tells of each start, so that starts can be counted.
    if path and (os.environ.get("LOCAL_RANK", "0") == "0" or not Path(path).exists()):
        Path(path).touch()


def has_worker_started() -> bool:
    """Whether a worker of this pod has started; also true where nobody keeps the note."""
    path = os.environ.get("STEADFAST_EXIT_FILE")
    return Path(path).exists() if path else True


def are_notes_kept() -> bool:
    """Whether workers are asked for notes at all."""
    return bool(os.environ.get("STEADFAST_EXIT_FILE"))


def last_worker_start() -> int | None:
    """A number that changes when workers start again; None before the first start."""
    path = os.environ.get("STEADFAST_EXIT_FILE")
    try:
        return Path(path).stat().st_mtime_ns if path else None
    except OSError:
        return None


def note_run_finished() -> None:
    """Tell the pod's entry point that the run is done; without it, an end with 0 is none."""
    leave_final_word(0, "the run is done")


def is_end_in_mid_run(code: int) -> bool:
    """Whether a rank ended with 0 before any on its node told of the run's end: a failure."""
    return code == 0 and are_notes_kept() and read_final_word() is None


def leave_final_word(code: int, reason: str) -> None:
    """Tell the pod's entry point what this pod must exit with, and why in one line."""
    if path := os.environ.get("STEADFAST_EXIT_FILE"):
        Path(path).write_text(f"{code} {reason}")


def read_final_word() -> tuple[int, str] | None:
    """The code and the reason that a worker left, if any did."""
    path = os.environ.get("STEADFAST_EXIT_FILE")
    try:
        code, _, reason = Path(path).read_text().partition(" ") if path else ("", "", "")
        return int(code), reason.strip()
    except (OSError, ValueError):
        return None
