"""The loss of this rank's node, as far as processes go: its launcher and all that it started.

Processes are found by descent from the launcher, so that of two nodes simulated on one
computer only one is lost; forked workers die with what stands for them under the launcher.
Not covered: processes that left the tree (a monitor that detached itself), which see their
worker gone and end; the pod's PID 1 and its standby process, to which this is a launcher that
was killed; the kernel and the network of the node.
"""

import os
import signal
from collections.abc import Mapping

from trainer.processes import below, kill, parents
from trainer.standby.client import LAUNCHER_PID, STAND_IN_PID, is_forked


def kill_this_node() -> None:
    """SIGKILL the launcher, all that descends from it, and this process last."""
    own = os.getpid()
    told = os.environ.get(LAUNCHER_PID)
    # The standby process is the parent of a fork, which its launcher is no ancestor of.
    launcher = int(told) if told and is_forked() else launcher_of(own, told, parents())
    doomed = frozenset({launcher})
    stopped: frozenset[int] = frozenset({own})
    # Stopped first, since nothing that is stopped starts another process, or in place of one
    # that died; and a parent's death would change the descent by which its children are told.
    while fresh := doomed - stopped:
        for pid in fresh:
            kill(pid, signal.SIGSTOP)
        stopped |= fresh
        # A launcher that has ended leaves PID 1 as the parent, below which is every node.
        doomed = (below(launcher, parents()) if launcher > 1 else frozenset()) | {launcher}
    for pid in in_turn(stopped, own, stand_in=int(os.environ.get(STAND_IN_PID, own))):
        kill(pid)


def in_turn(doomed: frozenset[int], own: int, *, stand_in: int) -> list[int]:
    """The order in which they are killed: what takes us along comes second to last, if doomed."""
    others = sorted(doomed - {own, stand_in})
    return [*others, *sorted(doomed & {stand_in} - {own}), own]


def launcher_of(own: int, told: str | None, parent_of: Mapping[int, int]) -> int:
    """The launcher's pid, as told if that is an ancestor of ours; else our parent.

    Our own pid where that is PID 1, which is not ours to kill.
    """
    above = _ancestors(own, parent_of)
    if told and told.isdecimal() and int(told) in above:
        return int(told)
    return above[0] if above else own


def _ancestors(pid: int, parent_of: Mapping[int, int]) -> list[int]:
    """From the parent on upwards, without PID 1."""
    found: list[int] = []
    while (pid := parent_of.get(pid, 0)) > 1 and pid not in found:
        found.append(pid)
    return found
