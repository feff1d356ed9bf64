"""One pod, as Kubernetes runs and stops it: what is saved on SIGTERM, what happens next time."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trainer.checkpoint.layout import committed
from trainer.events import Event, read_events

REPOSITORY = Path(__file__).parents[1]
LAST_STEP = 150

pytestmark = [pytest.mark.distributed, pytest.mark.timeout(120)]


class Pod:
    """The entry point with torchrun and one rank; its output goes to a file."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        folder.mkdir(exist_ok=True)
        self.run_directory = folder / "run"
        self._log = folder / "log"
        settings = folder / "settings.json"
        settings.write_text(json.dumps(self._settings() | changes))
        trainer = ["-m", "trainer.train", "--settings", str(settings)]
        torchrun = [str(Path(sys.executable).with_name("torchrun")), "--standalone"]
        entry = [sys.executable, "-m", "trainer.entry", "--settings", str(settings), "--"]
        environment = {
            **os.environ,
            "STEADFAST_EXIT_FILE": str(folder / "exit"),
            "OMP_NUM_THREADS": "1",
        }
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [*entry, *torchrun, "--nproc-per-node=1", *trainer],
                cwd=REPOSITORY,
                env=environment,
                stdout=log,
                stderr=log,
            )

    def _settings(self) -> dict[str, Any]:
        return {
            "run_directory": str(self.run_directory),
            "device": "cpu",
            "max_steps": LAST_STEP,
            "model": {"preset": "tiny"},
            "data": {"sequence_length": 32, "global_batch_size": 2},
            "checkpoint": {"mode": "sync", "interval_steps": 50},
            "recovery": {"layer": "pod"},
            "timeouts": {"hang_seconds": 30, "startup_seconds": 60, "drain_seconds": 20},
        }

    def end(self) -> int:
        return self.process.wait(timeout=90)

    def log(self) -> str:
        return self._log.read_text()

    def events(self, name: str) -> list[Event]:
        return [event for event in read_events(self.run_directory) if event["name"] == name]


@pytest.fixture
def pod() -> Iterator[Callable[..., Pod]]:
    pods: list[Pod] = []

    def start(folder: Path, **changes: Any) -> Pod:
        pods.append(Pod(folder, **changes))
        return pods[-1]

    yield start
    for started in pods:
        if started.process.poll() is None:
            started.process.terminate()
            started.end()


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_stopped_pod_has_saved_its_last_step_and_the_next_goes_on_exactly(
    mode: str, tmp_path: Path, pod: Callable[..., Pod]
) -> None:
    straight = pod(tmp_path / "straight")
    assert straight.end() == 0
    changes = {"checkpoint": {"mode": mode, "interval_steps": 50}}
    stopped = pod(tmp_path / "stopped", **changes)
    wait_for(lambda: len(stopped.events("step_completed")) >= 20, stopped)
    stopped.process.send_signal(signal.SIGTERM)
    assert stopped.end() == 143, stopped.log()

    last = stopped.events("step_completed")[-1]["step"]
    assert last < LAST_STEP
    assert committed(stopped.run_directory / "checkpoints")[0].record.step == last

    resumed = pod(tmp_path / "stopped", **changes)
    assert resumed.end() == 0, resumed.log()
    assert [event["step"] for event in resumed.events("restored")] == [0, last]
    assert digest(resumed) == digest(straight)


def test_a_damaged_checkpoint_is_passed_over_and_when_all_are_the_job_ends(
    tmp_path: Path, pod: Callable[..., Pod]
) -> None:
    assert pod(tmp_path).end() == 0
    newest, *_ = committed(tmp_path / "run" / "checkpoints")
    truncate(newest.path / "__0_0.distcp")
    again = pod(tmp_path)
    assert again.end() == 0, again.log()
    assert [event["step"] for event in again.events("restored")] == [0, 100]
    assert f"Passed over checkpoint {newest.path.name}: __0_0.distcp has" in again.log()

    for checkpoint in committed(tmp_path / "run" / "checkpoints"):
        truncate(checkpoint.path / "__0_0.distcp")
    before = contents(tmp_path / "run" / "checkpoints")
    refused = pod(tmp_path)
    assert refused.end() == 78
    last_line = refused.log().splitlines()[-1]
    assert last_line.startswith(f"steadfast: {tmp_path}/run/checkpoints: no checkpoint can be")
    assert last_line.endswith("or give the run a new id to start over")
    assert contents(tmp_path / "run" / "checkpoints") == before


def test_a_run_that_cannot_save_its_last_step_has_not_succeeded(
    tmp_path: Path, pod: Callable[..., Pod]
) -> None:
    checkpoints = tmp_path / "run" / "checkpoints"
    checkpoints.mkdir(parents=True)
    in_the_way = checkpoints / f"step-{LAST_STEP:08d}-attempt-0001"
    in_the_way.touch()
    failed = pod(tmp_path)
    assert failed.end() == 1
    assert f"step {LAST_STEP} is done but could not be saved, twice" in failed.log()
    assert failed.events("run_finished") == []

    again = pod(tmp_path)
    assert again.end() == 0, again.log()
    assert [event["step"] for event in again.events("restored")] == [0, 100]
    assert committed(checkpoints)[0].record.step == LAST_STEP


def test_fewer_steps_than_were_done_are_refused(tmp_path: Path, pod: Callable[..., Pod]) -> None:
    assert pod(tmp_path).end() == 0
    shorter = pod(tmp_path, max_steps=100)
    assert shorter.end() == 78
    last_line = shorter.log().splitlines()[-1]
    assert "the run was trained to step 150 and max_steps is 100" in last_line


def contents(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_size for path in folder.rglob("*")}


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def digest(run: Pod) -> str:
    (finished,) = run.events("run_finished")
    value: str = finished["digest"]
    return value


def wait_for(holds: Callable[[], bool], run: Pod) -> None:
    """Until ``holds``, looking again every few milliseconds; fails if the pod ends first."""
    while not holds():
        assert run.process.poll() is None, run.log()
        time.sleep(0.005)
