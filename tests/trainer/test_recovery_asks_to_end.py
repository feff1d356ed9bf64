"""ft_launcher is told when no restart helps, and a launcher that hears nothing hides no error."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from nvidia_resiliency_ext import fault_tolerance
from nvidia_resiliency_ext.fault_tolerance.data import WorkloadAction

from trainer.errors import CannotTrain, NodeUnhealthy
from trainer.recovery import in_job
from trainer.recovery.in_job import InJobLayer, ask_to_end
from trainer.recovery.layer import Attempt
from trainer.recovery.layered import LayeredLayer
from trainer.settings import RecoverySettings, TimeoutSettings
from trainer.timeouts import derive_timeouts


class Client:
    """ft_launcher's, as a worker has it."""

    def __init__(self) -> None:
        self.told: list[tuple[WorkloadAction, str]] = []
        self.send: Callable[[], Any] = lambda: None
        self.connect: Callable[[], Any] = lambda: None

    def init_workload_monitoring(self) -> None:
        self.connect()

    def shutdown_workload_monitoring(self) -> None: ...

    def send_heartbeat(self) -> None: ...

    def send_workload_control_request(self, request: Any) -> None:
        self.send()
        self.told.append((request.action, request.description))


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    client = Client()
    monkeypatch.setattr(fault_tolerance, "RankMonitorClient", lambda: client)
    return client


def fail(error: Exception) -> Callable[[], Any]:
    def function() -> Any:
        raise error

    return function


@pytest.mark.parametrize(
    ("error", "action"),
    [
        (CannotTrain("mend it"), WorkloadAction.ShutdownWorkload),
        (NodeUnhealthy("gpu 3"), WorkloadAction.ExcludeThisNode),
    ],
)
def test_the_launcher_is_told_what_the_error_asks_for(
    error: CannotTrain | NodeUnhealthy, action: WorkloadAction, client: Any
) -> None:
    ask_to_end(client, error)
    assert client.told == [(action, str(error))]


@pytest.mark.parametrize(
    "problem", [ConnectionRefusedError(), RuntimeError("not available"), EOFError()]
)
def test_a_launcher_that_cannot_be_told_does_not_replace_the_error(
    problem: Exception, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    client.send = fail(problem)
    with pytest.raises(CannotTrain, match="mend it"):
        InJobLayer().run(lambda _: fail(CannotTrain("mend it"))())
    assert "could not be told to end" in caplog.text


def test_a_launcher_that_does_not_answer_is_not_waited_for(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_job, "ASK_SECONDS", 0.1)
    answer = threading.Event()
    client.send = answer.wait
    with pytest.raises(CannotTrain, match="mend it"):
        InJobLayer().run(lambda _: fail(CannotTrain("mend it"))())
    assert client.told == []
    answer.set()


def layered(enter: Callable[[Callable[[Attempt], None]], None]) -> LayeredLayer:
    """Its inner layer is ``enter``."""
    layer = LayeredLayer(RecoverySettings(), derive_timeouts(TimeoutSettings(), device="cpu"))
    within: Any = SimpleNamespace(run=enter)
    layer._within = within
    return layer


def test_layered_tells_the_launcher_before_the_inner_layer_tells_the_other_ranks(
    client: Client,
) -> None:
    told_within = []

    def enter(entered: Callable[[Attempt], None]) -> None:
        try:
            entered(Attempt(store=None, report_progress=lambda: None))
        except CannotTrain:
            told_within.extend(client.told)

    layered(enter).run(lambda _: fail(CannotTrain("mend it"))())
    assert told_within == [(WorkloadAction.ShutdownWorkload, "mend it")]


def test_layered_ends_a_process_whose_rank_monitor_is_gone(client: Client) -> None:
    client.connect = fail(ConnectionRefusedError(111, "Connection refused"))

    def enter(entered: Callable[[Attempt], None]) -> None:
        entered(Attempt(store=None, report_progress=lambda: None))

    with pytest.raises(SystemExit, match="rank monitor is gone"):
        layered(enter).run(lambda _: None)
