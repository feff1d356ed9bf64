"""Folders of runs as the report reads them: events, settings; and what it then prints."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.histories import History, launch, three_faults
from trainer.settings import TrainerSettings


def three_runs(directory: Path) -> None:
    write_run(directory / "unfaulted-1", unfaulted(), layer="none", mode="none")
    write_run(directory / "volumes" / "runs" / "all-layers-1", three_faults(), layer="in_process")
    history = unfaulted(save_at={6, 12, 18})
    write_run(directory / "volumes" / "runs" / "sync-1", history, layer="pod", mode="sync")


def unfaulted(
    *,
    num_steps: int = 24,
    seconds: float = 1.0,
    save_at: frozenset[int] | set[int] = frozenset(),
    digest: str = "d",
) -> History:
    history = History(num_ranks=2)
    launch(history)
    history.restore(0)
    for step in range(1, num_steps + 1):
        history.step(seconds, stall_seconds=0.5 if step in save_at else 0.0)
    history.finish(digest)
    return history


def write_run(
    folder: Path,
    history: History,
    *,
    layer: str = "in_job",
    mode: str = "async",
    max_steps: int = 24,
) -> None:
    (folder / "events").mkdir(parents=True)
    for event in history.events:
        writer = f"rank-{event['rank']}" if "rank" in event else f"pod-{event['pod']}"
        with (folder / "events" / f"{writer}.jsonl").open("a") as file:
            file.write(json.dumps(event) + "\n")
    settings = TrainerSettings.model_validate(
        {
            "run_directory": "/fsx/runs/any",
            "device": "cpu",
            "max_steps": max_steps,
            "model": {"preset": "tiny"},
            "data": {"sequence_length": 8, "global_batch_size": 2},
            "checkpoint": {"mode": mode, "interval_steps": 5},
            "recovery": {"layer": layer},
        }
    )
    (folder / "settings.json").write_text(settings.model_dump_json())


def json_of(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    report: dict[str, Any] = json.loads(capsys.readouterr().out, parse_constant=refuse)
    return report


def row_of(text: str, name: str) -> str:
    """The first line of the run's row in the first table."""
    return next(line for line in text.splitlines() if line.startswith(name))
