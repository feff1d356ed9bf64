"""A courier's death costs the copy that was under way; PID 1 starts it anew, and leaves none."""

import os
import select
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.trainer.peers.pods import (
    SECONDS,
    Pod,
    announcement,
    answer,
    courier,
    ended,
    header,
    send,
    snapshot,
    stranger,
)
from tests.trainer.ranks import trainer_settings
from trainer.peers import wire
from trainer.peers.notes import Address
from trainer.peers.peering import Peers, SendState
from trainer.peers.pod import MOST_STARTS, num_nodes

ROOT = Path(__file__).parents[3]
Pods = tuple[Pod, Pod]


def test_a_receiver_that_is_killed_in_the_middle_leaves_what_nobody_offers(two_pods: Pods) -> None:
    sender, receiver = two_pods
    assert send(sender, receiver, header(0, 7, size=100))[0] is SendState.SENT
    with stranger(receiver) as peer:
        wire.send(peer, announcement(receiver, header(0, 8, size=10), keep=[1, 7]), within=5)
        assert "ready" in answer(peer)
        peer.sendall(b"half")
        receiver.kill_courier()
    assert (receiver.folder / "peer-0-1").exists()
    assert receiver.found() == {"peer-0-0": (1, 7)}


def test_a_courier_that_died_is_started_again_at_its_old_address(two_pods: Pods) -> None:
    sender, receiver = two_pods
    before = receiver.address, receiver.keeper.pids
    receiver.kill_courier()
    receiver.keeper.look()
    assert receiver.address == before[0]
    assert receiver.keeper.pids != before[1]
    assert send(sender, receiver, header(0, 7, size=100))[0] is SendState.SENT


def test_a_courier_that_dies_again_and_again_is_done_without(
    two_pods: Pods, capfd: pytest.CaptureFixture[str]
) -> None:
    sender, receiver = two_pods
    with closing(Peers(sender.folder, receiver.address)) as peers:
        for _ in range(MOST_STARTS):
            receiver.kill_courier()
            receiver.keeper.look()
        assert receiver.keeper.pids == frozenset()
        with pytest.raises(FileNotFoundError):
            Address.read(receiver.folder)
        sent = header(0, 7, size=100)
        peers.begin(snapshot(sender.folder, sent), sent, keep=None)
        assert ended(peers) is SendState.FAILED
        assert "Connection refused" in peers.failure
    assert capfd.readouterr().err.endswith("no more copies to and from other nodes\n")


def test_a_rank_whose_courier_died_is_told_and_may_send_again(two_pods: Pods) -> None:
    sender, receiver = two_pods
    sent = header(0, 7, size=100)
    file = snapshot(sender.folder, sent)
    with closing(Peers(sender.folder, receiver.address)) as peers:
        peers.begin(file, sent, keep=None)
        assert ended(peers) is SendState.SENT
        sender.kill_courier()
        peers.begin(file, sent, keep=None)
        assert ended(peers) is SendState.FAILED
        assert "this pod's courier" in peers.failure
        sender.keeper.look()
        peers.begin(file, sent, keep=None)
        assert ended(peers) is SendState.SENT


def test_a_send_that_its_rank_gave_up_never_becomes_a_snapshot(tmp_path: Path) -> None:
    folders = tmp_path / "a", tmp_path / "b"
    for folder in folders:
        folder.mkdir()
    with courier(folders[0], bytes_per_second=1 << 20) as sender, courier(folders[1]) as receiver:
        receiver.await_shards([0])
        sent = header(0, 7, size=32 << 20)
        file = snapshot(sender.folder, sent)
        peers = Peers(sender.folder, receiver.address)
        peers.begin(file, sent, keep=None)
        peers.close()
        # Refused while the other still arrives; done once that was given up.
        with closing(Peers(receiver.folder, receiver.address)) as others:
            small = header(0, 8, size=100)
            name = snapshot(receiver.folder, small)
            others.begin(name, small, keep=None)
            while ended(others) is not SendState.SENT:
                assert "arriving already" in others.failure
                others.begin(name, small, keep=None)
        (receiver.folder / name).unlink()
        assert list(receiver.found().values()) == [(1, 8)]


OWNER = """
import sys
from pathlib import Path
from trainer.peers.pod import CourierKeeper
keeper = CourierKeeper(bytes_per_second=0)
keeper.open(Path(sys.argv[1]), run="run", host="127.0.0.1")
print(*keeper.pids, flush=True)
input()
"""


def test_a_courier_dies_with_the_pods_first_process(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        end = os.pidfd_open(int(process.stdout.readline()))
        process.kill()
    assert select.select([end], [], [], SECONDS)[0]
    os.close(end)


SAY = 'ls -A "$STEADFAST_MEMORY"; echo "$STEADFAST_MEMORY"; : '


@pytest.mark.parametrize(
    ("nodes", "snapshots", "expected"),
    [
        ("2", {}, ["courier", "courier.json"]),
        ("1", {}, []),
        ("2", {"peer_interval_seconds": None}, []),
    ],
)
def test_a_pod_of_several_nodes_has_a_courier_as_long_as_it_runs(
    nodes: str, snapshots: dict[str, object], expected: list[str], tmp_path: Path
) -> None:
    settings = trainer_settings(
        tmp_path / "run", recovery={"layer": "in_process"}, snapshots=snapshots
    )
    (tmp_path / "settings.json").write_text(settings.model_dump_json())
    command = ["-m", "trainer.entry", "--settings", str(tmp_path / "settings.json"), "--"]
    done = subprocess.run(
        [sys.executable, *command, "sh", "-c", SAY, f"--nnodes={nodes}"],
        cwd=ROOT,
        env={**os.environ, "POD_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=True,
    )
    *names, folder = done.stdout.split()
    assert (names, done.stderr) == (expected, "")
    assert not Path(folder).exists()


@pytest.mark.parametrize(
    ("word", "number"), [("--nnodes=2:3", 2), ("--nnodes=1:2", 1), ("--nnodes=4", 4), ("x", 1)]
)
def test_the_launcher_says_how_many_nodes_train(word: str, number: int) -> None:
    assert num_nodes(["ft_launcher", word]) == number
