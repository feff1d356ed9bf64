"""In-process restart at its ends: who leaves waits for nobody, and what cannot succeed ends."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from nvidia_resiliency_ext import inprocess

from trainer import exit_codes
from trainer.errors import CannotTrain
from trainer.recovery import in_process
from trainer.recovery.in_process import hardware_checks
from trainer.settings import RecoverySettings, TimeoutSettings
from trainer.timeouts import derive_timeouts

ROOT = Path(__file__).parents[2]

Start = Callable[..., list[subprocess.Popen[str]]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Ranks of one case, of which the first hosts the store; killed after the test."""
    with ExitStack() as stack, socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        server.close()

        def ranks(case: str, num_ranks: int) -> list[subprocess.Popen[str]]:
            started = []
            for rank in range(num_ranks):
                log = stack.enter_context((tmp_path / f"log-{rank}").open("w"))
                process = subprocess.Popen(
                    [sys.executable, "-W", "ignore", "-m", "tests.trainer.recovery_rank", case],
                    cwd=ROOT,
                    env={
                        **os.environ,
                        **{"RANK": str(rank), "LOCAL_RANK": str(rank)},
                        **{"WORLD_SIZE": str(num_ranks), "MASTER_ADDR": "127.0.0.1"},
                        **{"MASTER_PORT": port, "TORCH_CPP_LOG_LEVEL": "error"},
                        "STEADFAST_EXIT_FILE": str(tmp_path / f"exit-{rank}"),
                    },
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
                stack.callback(process.wait)
                stack.callback(process.kill)
                started.append(process)
            return started

        yield ranks


@pytest.mark.distributed
@pytest.mark.parametrize("leaver", [0, 1])
def test_a_rank_that_cannot_train_leaves_before_one_that_cannot_be_reached(
    leaver: int, start: Start, tmp_path: Path
) -> None:
    ranks = start(f"rank {leaver} cannot train", 2)
    assert ranks[leaver].wait(timeout=30) == 78, (tmp_path / f"log-{leaver}").read_text()
    assert ranks[1 - leaver].poll() is None  # it is still in its call
    assert (tmp_path / f"exit-{leaver}").read_text() == "78 mend it"


@pytest.mark.distributed
def test_a_process_in_which_no_attempt_gets_anywhere_ends(start: Start, tmp_path: Path) -> None:
    (rank,) = start("always fails", 1)
    assert rank.wait(timeout=60) == 4
    log = (tmp_path / "log-0").read_text()
    assert log.count("trains\n") == 3  # as often as the budget of one restart allows, and once more
    assert "3 attempts in this process got nowhere" in log


@pytest.mark.distributed
def test_an_exit_that_is_no_error_of_ours_keeps_its_code(start: Start, tmp_path: Path) -> None:
    (rank,) = start("exits", 1)
    assert rank.wait(timeout=30) == 5, (tmp_path / "log-0").read_text()


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """NVRx's side of an entry, which keeps what it is told."""
    monkeypatch.setenv("STEADFAST_EXIT_FILE", str(tmp_path / "exit"))
    monkeypatch.setattr(in_process, "watch_lifelines", lambda *_, **__: None)
    monkeypatch.setattr(in_process, "AgentStore", lambda **_: torch.distributed.HashStore())
    left: list[str] = []
    return SimpleNamespace(
        iteration=0,
        ping=lambda: None,
        left=left,
        base_store=SimpleNamespace(leave_at_once=lambda: left.append("at once")),
        wrapper=SimpleNamespace(barrier_timeout=None),
        monitor_process=SimpleNamespace(process_monitor_proc=SimpleNamespace(pid=os.getpid())),
    )


def entries(train: Callable[[Any], None]) -> in_process._Entries:
    timeouts: Any = SimpleNamespace(hard_seconds=1.0)
    return in_process._Entries(train, {}, RecoverySettings(max_restarts=1), timeouts)


def test_what_no_attempt_can_help_is_not_tried_again_whatever_comes_between(call: Any) -> None:
    tried: list[Any] = []

    def train(attempt: Any) -> None:
        tried.append(attempt)
        raise CannotTrain("mend it")

    its = entries(train)
    for _ in range(2):  # the second as after another rank's failure
        with pytest.raises(SystemExit, match="mend it"):
            its.enter(call)
    assert len(tried) == 1
    assert exit_codes.read_final_word() == (78, "mend it")
    assert call.left == ["at once", "at once"]


def test_attempts_that_make_progress_are_never_too_many(call: Any) -> None:
    its = entries(lambda attempt: attempt.report_progress())
    for _ in range(10):
        its.enter(call)


def test_an_entry_computes_gradients_though_the_last_one_was_cut_short_where_none_are(
    call: Any,
) -> None:
    seen: list[bool] = []
    its = entries(lambda _: seen.append(torch.is_grad_enabled()))
    with torch.no_grad():  # raised in its own end, an exception leaves it on
        its.enter(call)
    assert seen == [True]


def test_a_watch_that_could_not_begin_begins_at_the_next_entry(
    call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[None] = []

    def fail_once(*_: Any, **__: Any) -> None:
        begun.append(None)
        if len(begun) == 1:
            raise torch.distributed.DistNetworkError("not now")

    monkeypatch.setattr(in_process, "watch_lifelines", fail_once)
    its = entries(lambda _: None)
    with pytest.raises(torch.distributed.DistNetworkError):
        its.enter(call)
    for _ in range(2):
        call.iteration += 1
        its.enter(call)
    assert len(begun) == 2


class Check(inprocess.health_check.HealthCheck):  # type: ignore[misc]
    def __init__(self, device_index: int) -> None:
        self.device_index = device_index

    def __call__(self, state: Any) -> Any:
        return state


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this NVRx had the checks of GPU and NIC, and this machine a GPU."""
    for name in in_process._HARDWARE_CHECKS:
        monkeypatch.delattr(inprocess.health_check, name, raising=False)
    for name in ("ChainedGPUHealthCheck", "ChainedNicHealthCheck"):
        monkeypatch.setattr(inprocess.health_check, name, type(name, (Check,), {}), raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


@pytest.mark.usefixtures("offered")
def test_a_rank_on_a_gpu_has_every_hardware_check_that_nvrx_offers_for_it() -> None:
    checks = [(type(check).__name__, check.device_index) for check in hardware_checks("cuda", 3)]
    assert checks == [("ChainedGPUHealthCheck", 3), ("ChainedNicHealthCheck", 3)]


@pytest.mark.usefixtures("offered")
def test_a_run_on_cpu_asks_no_gpu_for_its_health() -> None:
    assert hardware_checks("cpu", 0) == ()


@pytest.mark.usefixtures("offered")
@pytest.mark.parametrize(("device", "num_checks"), [("cpu", 2), ("cuda", 4)])
def test_the_wrapper_checks_the_hardware_after_a_failure(
    device: str, num_checks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    timeouts = derive_timeouts(TimeoutSettings(), device=device)
    layer = in_process.InProcessLayer(RecoverySettings(), timeouts)
    wrapper = layer._wrapper({}, threading.Event())
    names = [type(check).__name__ for check in wrapper.restart_health_check.instances]
    assert len(names) == num_checks
    assert names[-2:] == ["CudaHealthCheck", "FaultCounter"]
