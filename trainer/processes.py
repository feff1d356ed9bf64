"""The processes that descend from this one: takes in orphans, finds, reaps and ends them all.

Launchers put their workers in sessions of their own, so no process group and no session
holds them; that they descend from the pod's first process does, once it adopts orphans.
Not covered: a process in uninterruptible sleep, which not even SIGKILL ends.
"""

import ctypes
import os
import signal
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

KILL_PATIENCE_SECONDS = 10.0
TRACKER_PATIENCE_SECONDS = 3.0
_POLL_SECONDS = 0.02
_PR_SET_CHILD_SUBREAPER = 36
_STOPPED = "T"  # by a signal; "t" is what a debugger holds
_ENDED = ("Z", "X")


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, as PID 1 is anyhow."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap() -> dict[int, int]:
    """Every child that has ended and its exit code, as far as nobody has waited for it."""
    ended: dict[int, int] = {}
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = os.waitstatus_to_exitcode(found[1])
    return ended


def descendants() -> dict[int, str]:
    """The state letter of each living process that descends from this one."""
    found = _processes()
    parent_of = {pid: parent for pid, (_, parent) in found.items()}
    states = {pid: found[pid][0] for pid in below(os.getpid(), parent_of)}
    return {pid: state for pid, state in states.items() if state not in _ENDED}


def parents() -> dict[int, int]:
    """Every process that there is here, and its parent."""
    return {pid: parent for pid, (_, parent) in _processes().items()}


def below(pid: int, parent_of: Mapping[int, int]) -> frozenset[int]:
    """All that descend from ``pid``."""
    children: dict[int, list[int]] = {}
    for child, parent in parent_of.items():
        children.setdefault(parent, []).append(child)
    found: set[int] = set()
    to_visit = [pid]
    while to_visit:
        fresh = [child for child in children.get(to_visit.pop(), ()) if child not in found]
        found.update(fresh)
        to_visit += fresh
    return frozenset(found)


def _processes() -> dict[int, tuple[str, int]]:
    """State letter and parent of every process that there is here."""
    found: dict[int, tuple[str, int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # The name in parentheses may hold anything, parentheses and blanks included.
            state, parent = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):
            continue  # it is gone
        found[int(entry.name)] = state.decode(), int(parent)
    return found


def kill_descendants(spared: frozenset[int] = frozenset()) -> bool:
    """SIGKILL all of them, until none but ``spared`` is left; False if one does not die.

    Python's resource trackers end by themselves once the processes they serve are dead, and
    first unlink what those left in /dev/shm, so they are given time.
    """
    began = time.monotonic()
    while left := descendants().keys() - spared:
        waited = time.monotonic() - began
        if waited > KILL_PATIENCE_SECONDS:
            return False
        for pid in left:
            if waited > TRACKER_PATIENCE_SECONDS or not _is_resource_tracker(pid):
                kill(pid)
        reap()
        time.sleep(_POLL_SECONDS)
    reap()
    return True


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    # Not Popen.send_signal: it may reap the process, and whoever waits would find nothing.
    with suppress(ProcessLookupError):
        os.kill(pid, number)


class StoppedProcesses:
    """Who has been stopped (SIGSTOP) since when; a launcher would wait for such a worker."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}

    def for_longer_than(
        self, seconds: float, states: Mapping[int, str], *, now: float
    ) -> Iterable[int]:
        """Those that were stopped at every look for longer than ``seconds``."""
        stopped = [pid for pid, state in states.items() if state == _STOPPED]
        self._since = {pid: self._since.get(pid, now) for pid in stopped}
        return [pid for pid, since in self._since.items() if now - since > seconds]


def _is_resource_tracker(pid: int) -> bool:
    try:
        return b"multiprocessing.resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False  # it is gone
