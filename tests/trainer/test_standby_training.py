"""Real training in a pod with a standby process: forked ranks, and the same bits.

Not covered: GPUs, where the standby must not have touched CUDA; it looks for that itself.
"""

from pathlib import Path

import pytest

from tests.trainer.pods import run_pod
from trainer.events import Event

pytestmark = [pytest.mark.distributed, pytest.mark.slow]


def digests(events: list[Event]) -> dict[int, str]:
    return {e["rank"]: e["digest"] for e in events if e["name"] == "run_finished"}


def test_forked_ranks_are_respawned_and_end_with_the_bits_of_plain_ones(tmp_path: Path) -> None:
    often = {"interval_steps": 2}
    faults = {"count": 1, "kinds": ["sigkill"], "weights": [1], "after_step": 4}
    one, other = tmp_path / "forked", tmp_path / "plain"
    one.mkdir()
    other.mkdir()
    forked = run_pod(one, max_steps=12, standby=True, wait=True, checkpoint=often, faults=faults)
    plain = run_pod(other, max_steps=12, standby=False, checkpoint=often)

    starts = [(e["rank"], e["forked"]) for e in forked if e["name"] == "process_started"]
    assert sorted(starts) == [(0, True), (0, True), (1, True), (1, True)]
    assert [e["kind"] for e in forked if e["name"] == "fault_injected"] == ["sigkill"]
    assert [e["forked"] for e in plain if e["name"] == "process_started"] == [False, False]
    assert digests(forked) == digests(plain)
    assert len(digests(plain)) == 2


def standbys() -> set[Path]:
    return {path for path in Path("/tmp").glob("steadfast-*") if (path / "standby").exists()}


def test_nothing_of_a_pod_is_left(tmp_path: Path) -> None:
    of_others = standbys()
    run_pod(tmp_path, standby=True, wait=True, max_steps=2)
    marker = str(tmp_path).encode()
    left = [
        p.name for p in Path("/proc").iterdir() if p.name.isdigit() and marker in environment(p)
    ]
    assert left == []
    assert standbys() <= of_others


def environment(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""  # it ended meanwhile
