"""A node is lost with its pod and its memory, and there is no checkpoint: peers have the state."""

import importlib.metadata
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from trainer.events import Event, read_events
from trainer.settings import TrainerSettings
from trainer.timeouts import derive_timeouts
from workloads.launcher import RENDEZVOUS_PORT, container_command
from workloads.rehearsal.pod_process import kill_marked
from workloads.rehearsal.this_computer import free_ports

pytestmark = [pytest.mark.distributed, pytest.mark.slow, pytest.mark.timeout(300)]
ROOT = Path(__file__).resolve().parents[2]
LAST_STEP = 400


class Run:
    """Two pods of one rank each, under ft_launcher and the real PID 1."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self.directory = folder / "run"
        settings = TrainerSettings.model_validate(
            {
                "run_directory": str(self.directory),
                "device": "cpu",
                "max_steps": LAST_STEP,
                "model": {"preset": "tiny"},
                "data": {"sequence_length": 8, "global_batch_size": 2},
                "checkpoint": {"mode": "none", "interval_steps": 1000},
                "snapshots": {"interval_steps": 1, "peer_interval_seconds": 0.2},
                "recovery": {"layer": "in_job"},
                "timeouts": {"hang_seconds": 20, "startup_seconds": 90, "drain_seconds": 1},
            }
        )
        (folder / "settings.json").write_text(json.dumps(settings.model_dump(mode="json")))
        self._command = container_command(
            settings,
            nvrx_version=importlib.metadata.version("nvidia-resiliency-ext"),
            num_nodes=2,
            workers_per_node=1,
            rendezvous_host="127.0.0.1",
            rendezvous_id="demo",
            timeouts=derive_timeouts(settings.timeouts, device="cpu"),
        )
        self._port = free_ports([RENDEZVOUS_PORT])[RENDEZVOUS_PORT]
        self._pods = {index: self._start(index) for index in range(2)}

    def _mark(self, index: int) -> str:
        return f"STEADFAST_TEST={self._folder}-{index}"

    def _start(self, index: int) -> subprocess.Popen[bytes]:
        address = f"127.0.0.{index + 1}"
        arguments = [
            argument.replace("$(POD_IP)", address)
            .replace(str(RENDEZVOUS_PORT), str(self._port))
            .replace("/etc/steadfast", str(self._folder))
            for argument in self._command
        ]
        name, _, mark = self._mark(index).partition("=")
        environment = {
            **os.environ,
            name: mark,
            "POD_IP": address,
            "JOB_COMPLETION_INDEX": str(index),
            "STEADFAST_NODE": f"node-{index}",
            "STEADFAST_EXIT_FILE": str(self._folder / f"exit-{index}"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
        }
        with (self._folder / f"pod-{index}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *arguments[1:]],
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def log(self) -> str:
        return "".join(path.read_text() for path in sorted(self._folder.glob("pod-*.log")))

    def events(self, name: str) -> list[Event]:
        return [event for event in read_events(self.directory) if event["name"] == name]

    def digests(self) -> list[str]:
        """By rank."""
        ends = sorted(self.events("run_finished"), key=lambda end: end["rank"])
        return [end["digest"] for end in ends]

    def lose(self, index: int) -> None:
        """The pod and all that it started; Kubernetes starts another."""
        kill_marked(self._mark(index))
        self._pods[index].wait(30)
        self._pods[index] = self._start(index)

    def ends(self) -> list[int]:
        return [pod.wait(120) for pod in self._pods.values()]

    def close(self) -> None:
        for index in self._pods:
            kill_marked(self._mark(index))
        for pod in self._pods.values():
            pod.wait(30)


@contextmanager
def running(folder: Path) -> Iterator[Run]:
    run = Run(folder)
    with ExitStack() as stack:
        stack.callback(run.close)
        yield run


def test_a_lost_pod_goes_on_from_what_its_peers_have(tmp_path: Path) -> None:
    with running(tmp_path / "straight") as run:
        assert run.ends() == [0, 0], run.log()
        straight = run.digests()
    with running(tmp_path / "lost") as run:
        wait_for(lambda: "is in the memory of two nodes for every rank" in run.log(), run)
        run.lose(1)
        assert run.ends() == [0, 0], run.log()
        restored = [(event["source"], event["step"]) for event in run.events("restored")][-2:]
        assert [source for source, _ in restored] == ["peer", "peer"], run.log()
        assert restored[0][1] > 0
        assert run.digests() == straight


def wait_for(condition: Callable[[], bool], run: Run) -> None:
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline, run.log()
        time.sleep(0.05)
