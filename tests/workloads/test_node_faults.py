"""What real launchers make of a lost node, and of a rank that leaves with 0, under the real PID 1.

The workers are a few lines of Python without torch, which meet over a socket.
"""

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from trainer.settings import TrainerSettings
from trainer.timeouts import derive_timeouts
from workloads.launcher import RENDEZVOUS_PORT, container_command
from workloads.rehearsal.pod_process import kill_marked
from workloads.rehearsal.this_computer import free_ports

pytestmark = pytest.mark.distributed
ROOT = Path(__file__).resolve().parents[2]

# Ranks meet at a Unix socket: who ends is noticed by the others. In attempt 1 one of them fails.
WORKER = """
import os, pathlib, signal, socket, sys, time
from trainer import exit_codes
from trainer.attempts import claim_attempt
exit_codes.note_worker_started()
run, fault, victim = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
rank = int(os.environ['RANK'])
path = str(run / 'meet')
if rank == 0:
    pathlib.Path(path).unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    peer, _ = server.accept()
    attempt = claim_attempt(run)
    peer.send(bytes([attempt]))
else:
    peer = socket.socket(socket.AF_UNIX)
    for _ in range(500):
        try:
            peer.connect(path)
            break
        except OSError:
            time.sleep(0.02)
    attempt = peer.recv(1)[0]
if attempt > 1:
    exit_codes.note_run_finished()
    os._exit(0)
if rank == victim:
    if fault == 'exit':
        os._exit(0)
    os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
peer.recv(1)
os._exit(1)
"""


def settings_for(layer: str, run_directory: Path) -> TrainerSettings:
    return TrainerSettings.model_validate(
        {
            "run_directory": str(run_directory),
            "device": "cpu",
            "max_steps": 10,
            "model": {"preset": "tiny"},
            "data": {"sequence_length": 8, "global_batch_size": 8},
            "checkpoint": {"interval_steps": 5},
            "recovery": {"layer": layer},
            "timeouts": {"hang_seconds": 8, "startup_seconds": 60, "drain_seconds": 1},
        }
    )


@contextmanager
def pods(
    tmp_path: Path, layer: str, *, num_nodes: int, fault: str, victim: int
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The pods of a run with two ranks, one or both on a node; nothing of them is left."""
    settings = settings_for(layer, tmp_path / "run")
    (tmp_path / "run").mkdir()
    (tmp_path / "settings.json").write_text(json.dumps(settings.model_dump(mode="json")))
    (tmp_path / "worker.py").write_text(WORKER)
    command = container_command(
        settings,
        nvrx_version=importlib.metadata.version("nvidia-resiliency-ext"),
        num_nodes=num_nodes,
        workers_per_node=2 // num_nodes,
        rendezvous_host="127.0.0.1",
        rendezvous_id="demo",
        timeouts=derive_timeouts(settings.timeouts, device="cpu"),
    )
    command = (*command[: command.index("-m", 3)], str(tmp_path / "worker.py"))
    command += (str(tmp_path / "run"), fault, str(victim))
    port = free_ports([RENDEZVOUS_PORT])[RENDEZVOUS_PORT]
    mark = f"STEADFAST_TEST={tmp_path}"
    with ExitStack() as stack:
        stack.callback(kill_marked, mark)
        yield [
            stack.enter_context(_pod(tmp_path, command, index, port=port))
            for index in range(num_nodes)
        ]


def _pod(
    tmp_path: Path, command: tuple[str, ...], index: int, *, port: int
) -> subprocess.Popen[bytes]:
    arguments = [
        argument.replace("$(POD_IP)", f"127.0.0.{index + 1}")
        .replace(str(RENDEZVOUS_PORT), str(port))
        .replace("/etc/steadfast", str(tmp_path))
        for argument in command
    ]
    with (tmp_path / f"pod-{index}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, *arguments[1:]],
            cwd=ROOT,
            env={
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
                "JOB_COMPLETION_INDEX": str(index),
                "STEADFAST_EXIT_FILE": str(tmp_path / f"exit-{index}"),
                "STEADFAST_TEST": str(tmp_path),
                "TORCH_CPP_LOG_LEVEL": "error",
            },
            stdout=log,
            stderr=log,
        )


def log_of(tmp_path: Path, index: int) -> str:
    return (tmp_path / f"pod-{index}.log").read_text()


def test_the_loss_of_node_0_and_its_launcher_replaces_no_pod(tmp_path: Path) -> None:
    with pods(tmp_path, "layered", num_nodes=2, fault="node", victim=0) as both:
        assert [pod.wait(60) for pod in both] == [0, 0]
    assert "ended with -9 in mid-run" in log_of(tmp_path, 0)
    assert "in mid-run; it tries again" in log_of(tmp_path, 1)  # its store was gone


@pytest.mark.slow
def test_the_loss_of_another_node_and_its_launcher_replaces_no_pod(tmp_path: Path) -> None:
    with pods(tmp_path, "in_job", num_nodes=2, fault="node", victim=1) as both:
        assert [pod.wait(90) for pod in both] == [0, 0]
    assert "ended with -9 in mid-run" in log_of(tmp_path, 1)
    assert "tries again" not in log_of(tmp_path, 0)


def test_a_rank_that_leaves_with_0_in_mid_run_is_replaced_in_the_job(tmp_path: Path) -> None:
    with pods(tmp_path, "in_job", num_nodes=1, fault="exit", victim=1) as [pod]:
        assert pod.wait(60) == 0
    assert (tmp_path / "run" / "attempts" / "2").exists()


def test_a_rank_that_leaves_with_0_in_mid_run_fails_the_pod(tmp_path: Path) -> None:
    with pods(tmp_path, "pod", num_nodes=1, fault="exit", victim=0) as [pod]:
        assert pod.wait(60) == 1


def test_a_pod_whose_node_is_lost_is_replaced_without_a_launcher_that_restarts(
    tmp_path: Path,
) -> None:
    with pods(tmp_path, "pod", num_nodes=1, fault="node", victim=0) as [pod]:
        assert pod.wait(60) == 128 + signal.SIGKILL
