"""A node that fails a check leaves, is named, and says so in its events."""

import json
import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.ranks import trainer_settings
from trainer.errors import NodeUnhealthy
from trainer.events import EventLog, read_events
from trainer.goodput.ledger import account_for
from trainer.health import __main__ as command
from trainer.health import node
from trainer.settings import TrainerSettings

ROOT = Path(__file__).parents[3]
IDLE = [
    {"name": "pod_started", "pod": 0, "wall": 1.0},
    {"name": "attempt_started", "rank": 0, "wall": 2.0, "attempt": 1},
    {"name": "process_group_ready", "rank": 0, "wall": 3.0, "attempt": 1},
    {"name": "attempt_failed", "rank": 0, "wall": 4.0, "attempt": 1, "reason": "a bug"},
    {"name": "pod_stopped", "pod": 0, "wall": 5.0, "exit_code": 1},
]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainerSettings:
    monkeypatch.setenv("STEADFAST_NODE", "node-7")
    monkeypatch.setenv("STEADFAST_EXIT_FILE", str(tmp_path / "exit"))
    (tmp_path / "run").mkdir()
    return trainer_settings(tmp_path / "run")


def checked_by(settings: TrainerSettings) -> list[int]:
    """The ranks that told what they found."""
    events = read_events(settings.run_directory)
    return [event["rank"] for event in events if event["name"] == "health_checked"]


@pytest.mark.parametrize(("local_rank", "tells"), [("0", [8]), ("1", [])])
def test_the_first_rank_of_a_healthy_node_tells_all_findings(
    local_rank: str,
    tells: list[int],
    settings: TrainerSettings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("LOCAL_RANK", local_rank)
    events = EventLog(settings.run_directory, rank=8)
    with caplog.at_level(logging.INFO):
        node.refuse_unhealthy_node(settings, events)
    events.close()
    assert checked_by(settings) == tells
    assert caplog.records == []
    for event in read_events(settings.run_directory):
        assert event["node"] == "node-7"
        verdicts = {each["check"]: each["verdict"] for each in event["findings"]}
        assert [*verdicts] == ["cuda", "nvml", "nvlink", "fabric", "storage"]
        assert (verdicts["cuda"], verdicts["storage"]) == ("skipped", "passed")


def test_any_rank_that_leaves_tells_why(
    settings: TrainerSettings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    events = EventLog(settings.run_directory, rank=9)
    gone = settings.model_copy(update={"run_directory": settings.run_directory / "gone"})
    with pytest.raises(NodeUnhealthy, match=r"node node-7: storage: .*gone: cannot be written"):
        node.refuse_unhealthy_node(gone, events)
    events.close()
    assert checked_by(settings) == [9]
    (record,) = caplog.records
    assert record.levelname == "ERROR"


def test_a_healthy_node_waits_for_its_checks_hardly_at_all(settings: TrainerSettings) -> None:
    def seconds() -> float:
        began = time.perf_counter()
        node.examine(settings.device, 0, settings.run_directory)
        return time.perf_counter() - began

    assert min(seconds() for _ in range(20)) < 0.05


def test_health_moves_no_second_of_the_account() -> None:
    plain: list[dict[str, Any]] = [{"mono": 0.0, "attempt": 0, "step": 0, **e} for e in IDLE]
    checked = {
        **plain[1],
        "name": "health_checked",
        "wall": 1.5,
        "attempt": 0,
        "node": "a",
        "findings": [],
    }
    again = {**checked, "wall": 4.5, "attempt": 1}
    assert account_for([*plain, checked, again]) == account_for(plain)


def test_the_command_prints_every_check_and_fails_with_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_num_gpus", lambda: 0)
    assert command.main(["--run-directory", str(tmp_path), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [each["check"] for each in content["findings"]] == [
        "cuda",
        "nvml",
        "nvlink",
        "fabric",
        "storage",
    ]
    assert command.main(["--run-directory", str(tmp_path / "gone")]) == 1
    assert "failed   storage" in capsys.readouterr().out


def test_the_command_gives_up_a_driver_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answer = threading.Event()
    monkeypatch.setattr(command, "_ask_driver", answer.wait)
    monkeypatch.setattr(command, "DRIVER_SECONDS", 0.05)
    monkeypatch.setattr(command, "Path", lambda _: tmp_path)  # no devices either
    try:
        assert command._num_gpus() == 0
    finally:
        answer.set()


def test_the_command_changes_no_reading_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STEADFAST_EXIT_FILE", str(tmp_path / "exit"))
    monkeypatch.setattr(command, "_num_gpus", lambda: 0)
    assert command.main([]) == 0
    assert "skipped  storage" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.distributed
@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a node without a GPU")
def test_both_ranks_of_a_node_without_its_gpus_leave_it_and_name_it(
    settings: TrainerSettings, tmp_path: Path
) -> None:
    file = tmp_path / "settings.json"
    values = settings.model_dump(mode="json") | {"device": "cuda", "recovery": {"layer": "none"}}
    file.write_text(json.dumps(values))
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "trainer.train", "--settings", str(file)],
            cwd=ROOT,
            env={**os.environ, **meeting, "RANK": rank, "LOCAL_RANK": rank},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in ("0", "1")
    ]
    words = [process.communicate(timeout=100)[1] for process in ranks]
    assert [process.returncode for process in ranks] == [69, 69]
    assert "steadfast: node node-7: cuda: GPU 1 does not compute" in words[1]
    assert (tmp_path / "exit").read_text().startswith("69 node node-7: cuda: ")
    assert sorted(checked_by(settings)) == [0, 1]
