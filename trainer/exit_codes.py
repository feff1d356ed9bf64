"""Exit codes that tell Kubernetes whether another try can help.

The Job's pod failure policy fails at once on the three below (they are those of
BSD's sysexits): a retry would meet the same settings. Every other failure is
retried. Launchers turn any worker's code into 1, so workers leave a note for the
entry point in ``$STEADFAST_EXIT_FILE``: it exists once a worker has started, and
holds a code once one knows that no retry can help.
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
    if path := os.environ.get("STEADFAST_EXIT_FILE"):
        Path(path).touch()


def has_worker_started() -> bool:
    """Whether a worker of this pod has started; also true where nobody keeps the note."""
    path = os.environ.get("STEADFAST_EXIT_FILE")
    return Path(path).exists() if path else True


def leave_final_word(code: int, reason: str) -> None:
    """Tell the pod's entry point that this failure is final, and why in one line."""
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
