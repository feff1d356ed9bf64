"""A node is lost with its launcher and all that it started; the other one lives on."""

import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.victims import injector_for, victim
from trainer.events import read_events
from trainer.faults.node import in_turn, launcher_of
from trainer.parent_death import die_with
from trainer.processes import below
from trainer.standby.client import LAUNCHER_PID, STAND_IN_PID

Tell = Callable[[Any], None]


def launch(tell: Tell, run_directory: Path, lost: bool, in_between: bool) -> None:
    """A node of two ranks, each with a process of its own; the second suffers, if ``lost``.

    With ``in_between`` ranks are not the launcher's own children, and told its pid; each dies
    with what stands for it under the launcher.
    """
    if in_between:
        os.environ[LAUNCHER_PID] = str(os.getpid())
    tell(os.getpid())
    for rank in (0, 1):
        if os.fork() == 0:
            stand_in = os.getpid()
            if in_between:
                os.environ[STAND_IN_PID] = str(stand_in)
                if os.fork():
                    tell(stand_in)
                    signal.pause()
                die_with(stand_in)
            _be_a_rank(tell, run_directory, rank, suffers=lost and rank == 1)
    signal.pause()


def _be_a_rank(tell: Tell, run_directory: Path, rank: int, *, suffers: bool) -> None:
    writer = os.fork()
    if writer == 0:
        signal.pause()
    tell(os.getpid())
    tell(writer)
    if suffers:
        while not (run_directory / "go").exists():
            time.sleep(0.005)
        injector_for(run_directory, ("node", 5, rank), rank=rank).fire_due(5)
    signal.pause()


class Node:
    """Its processes, told one by one, and whether each has ended."""

    def __init__(self, pids: list[int]) -> None:
        self._pidfds = {pid: os.pidfd_open(pid) for pid in pids}

    def num_left(self, seconds: float) -> int:
        """How many live after so long, or as soon as none does."""
        deadline = time.monotonic() + seconds
        left = list(self._pidfds.values())
        while left and (rest := deadline - time.monotonic()) > 0:
            ended = select.select(left, [], [], rest)[0]
            left = [pidfd for pidfd in left if pidfd not in ended]
        return len(left)

    def kill(self) -> None:
        for pidfd in self._pidfds.values():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            os.close(pidfd)


@pytest.fixture
def nodes() -> Iterator[list[Node]]:
    nodes: list[Node] = []
    yield nodes
    for node in nodes:
        node.kill()


@pytest.mark.distributed
@pytest.mark.parametrize("in_between", [False, True], ids=["parent", "told"])
def test_a_node_is_lost_whole_and_the_other_one_lives_on(
    *, in_between: bool, tmp_path: Path, nodes: list[Node]
) -> None:
    with (
        victim(launch, tmp_path, True, in_between) as lost,
        victim(launch, tmp_path, False, in_between) as other,
    ):
        # Launcher, ranks, a writer of each; and what starts a rank in the launcher's stead.
        num_processes = 7 if in_between else 5
        for launcher in (lost, other):
            nodes.append(Node([launcher.word() for _ in range(num_processes)]))
        (tmp_path / "go").touch()
        assert nodes[0].num_left(10) == 0
        assert nodes[1].num_left(0.2) == num_processes
        assert lost.exit_code() == -signal.SIGKILL
    assert [(event["kind"], event["rank"]) for event in read_events(tmp_path)] == [("node", 1)]


# A pod: PID 1 (entry), its launcher 7, ranks 20 and 21, the writer 30 of rank 20; a shell, 9.
POD = {1: 0, 7: 1, 9: 1, 20: 7, 21: 7, 30: 20}


@pytest.mark.parametrize(
    ("own", "told", "expected"),
    [
        pytest.param(20, None, 7, id="the parent, where nothing is told"),
        pytest.param(30, "7", 7, id="whom we are told, if we descend from it"),
        pytest.param(20, "9", 7, id="not a process of somebody else, told by mistake"),
        pytest.param(20, "1", 7, id="never PID 1"),
        pytest.param(20, "launcher", 7, id="nor what is no number"),
        pytest.param(7, None, 7, id="nobody but ourselves, where PID 1 is the parent"),
    ],
)
def test_the_launcher_is_an_ancestor_of_ours(own: int, told: str | None, expected: int) -> None:
    assert launcher_of(own, told, POD) == expected


def test_all_that_descends_from_a_launcher_is_below_it() -> None:
    assert below(7, POD) == {20, 21, 30}
    assert below(30, POD) == frozenset()


def test_what_takes_us_along_when_it_dies_is_killed_after_all_others() -> None:
    assert in_turn(frozenset({7, 20, 21, 30}), 30, stand_in=20) == [7, 21, 20, 30]
    assert in_turn(frozenset({7, 20, 21}), 20, stand_in=20) == [7, 21, 20]
    assert in_turn(frozenset({7, 20}), 20, stand_in=99) == [7, 20]  # of another node, by mistake
