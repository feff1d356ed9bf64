"""A real job of two ranks of which one hangs: noticed in seconds, named, and redone alike."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from trainer.events import Event, read_events

ROOT = Path(__file__).parents[2]
MAX_STEPS = 60


def train(folder: Path, **faults: Any) -> list[Event]:
    """The events of a whole run: the launcher starts again after a failure, as a new pod would."""
    settings = {
        "run_directory": str(folder / "run"),
        "device": "cpu",
        "max_steps": MAX_STEPS,
        "model": {"preset": "tiny"},
        "data": {"sequence_length": 8, "global_batch_size": 2},
        "checkpoint": {"interval_steps": 20, "mode": "sync"},
        "recovery": {"layer": "pod"},
        "faults": faults,
    }
    folder.mkdir()
    (folder / "settings.json").write_text(json.dumps(settings))
    codes = [launch(folder)]
    if faults:
        codes.append(launch(folder))
    assert codes == ([1, 0] if faults else [0]), (folder / "log").read_text()
    return read_events(folder / "run")


def launch(folder: Path) -> int:
    options = ["--standalone", "--nproc-per-node=2", "--monitor-interval=0.2"]
    trainer = ["-m", "trainer.train", "--settings", str(folder / "settings.json")]
    with (
        (folder / "log").open("a") as log,
        subprocess.Popen(
            ["torchrun", *options, *trainer],
            cwd=ROOT,
            stdout=log,
            stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        ) as launcher,
    ):
        try:
            return launcher.wait(timeout=60)
        finally:
            launcher.terminate()  # it ends its ranks, if any are left


def named(events: list[Event], name: str) -> list[Event]:
    return [event for event in events if event["name"] == name]


@pytest.mark.slow
@pytest.mark.distributed
def test_a_hang_is_noticed_in_seconds_and_its_rank_is_named(tmp_path: Path) -> None:
    events = train(tmp_path / "hangs", count=1, kinds=["hang"], weights=[1], after_step=30)
    (fault,) = named(events, "fault_injected")
    (diagnosed,) = named(events, "diagnosed")
    restarted = min(
        e["wall"] for e in named(events, "process_started") if e["wall"] > fault["wall"]
    )
    assert restarted - fault["wall"] < 15  # and not the two minutes of hang_seconds
    assert (diagnosed["cause"], diagnosed["culprit"]) == ("hung", fault["rank"])
    assert f"hung in step {fault['step'] + 1}: its stack ends in" in diagnosed["line"]
    assert "the others wait for it in" in diagnosed["line"]

    unfaulted = train(tmp_path / "unfaulted")
    digests = [
        {e["rank"]: e["digest"] for e in named(r, "run_finished")} for r in (events, unfaulted)
    ]
    assert digests[0] == digests[1]
    assert sorted(digests[0]) == [0, 1]
