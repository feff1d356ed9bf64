"""A program with a bug, under the real launchers: tried twice, then over, with the traceback."""

import importlib.metadata
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.trainer.ranks import trainer_settings
from trainer.events import Event, read_events
from trainer.timeouts import derive_timeouts
from workloads.launcher import RENDEZVOUS_PORT, SETTINGS_PATH, container_command

ROOT = Path(__file__).parents[2]
LAYERS = ("in_job", "in_process", "layered")

pytestmark = [pytest.mark.slow, pytest.mark.distributed, pytest.mark.timeout(240)]


@dataclass(frozen=True)
class Pod:
    """How a pod of two ranks ended."""

    exit_code: int
    log: str
    events: list[Event]


def run_pod(folder: Path, layer: str) -> Pod:
    settings = trainer_settings(
        folder / "run",
        recovery={"layer": layer},
        timeouts={"hang_seconds": 20, "startup_seconds": 60, "drain_seconds": 10},
    )
    file = folder / "settings.json"
    file.write_text(settings.model_dump_json())
    command = container_command(
        settings,
        nvrx_version=importlib.metadata.version("nvidia-resiliency-ext"),
        num_nodes=1,
        workers_per_node=2,
        rendezvous_host="127.0.0.1",
        rendezvous_id="pod",
        timeouts=derive_timeouts(settings.timeouts, device="cpu"),
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    here = {
        SETTINGS_PATH: str(file),
        "python": sys.executable,
        "trainer.train": "tests.trainer.recovery_bug",
    }
    words = [here.get(word, word.replace("$(POD_IP)", "127.0.0.1")) for word in command]
    words = [word.replace(f":{RENDEZVOUS_PORT}", f":{port}") for word in words]
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONWARNINGS": "ignore",
        "OMP_NUM_THREADS": "1",
        "TORCH_CPP_LOG_LEVEL": "error",
        "STEADFAST_EXIT_FILE": str(folder / "exit"),
        "STEADFAST_STANDBY": "",  # it forks the trainer, which has no bug
    }
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            words,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        ) as entry,
    ):
        try:
            code = entry.wait(timeout=200)
        finally:
            entry.terminate()  # it ends what it started, if anything is left
    return Pod(code, (folder / "log").read_text(), read_events(folder / "run"))


@pytest.mark.parametrize("layer", LAYERS)
def test_a_bug_is_tried_twice_and_then_ends_the_run_with_its_traceback(
    layer: str, tmp_path: Path
) -> None:
    pod = run_pod(tmp_path, layer)
    assert pod.exit_code == 70, pod.log[-3000:]
    begun = [(e["attempt"], e["rank"]) for e in pod.events if e["name"] == "attempt_started"]
    assert sorted(begun) == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert 'recovery_bug.py", line ' in pod.log
    assert "KeyError: 'a bug of the program'" in pod.log
    last = [line for line in pod.log.splitlines() if line.startswith("steadfast: ")][-1]
    assert last.startswith("steadfast: step 7 failed twice with KeyError: 'a bug of the program'; ")
