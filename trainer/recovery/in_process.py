"""In-process restart: NVRx's Wrapper re-enters the training function in the same process.

All that this project knows of ``nvidia_resiliency_ext.inprocess`` is here and in
``agent_store``: upstream has deprecated it (0.6), and nothing else may come to depend on it.

The Wrapper's store is the launcher agent's, which is not in any rank, so that
rank 0 may die like any other. A world that would shrink is refused: the failure
then falls outward and Kubernetes replaces the pods.

If that agent's node is lost, so is the store; ``trainer.recovery.lifelines`` ends this process.
A rank that no attempt can help leaves at once: nobody has to come to NVRx's barriers for it.

Not covered: a hang inside one long C call; Python cannot raise there, so the process is killed
at the hard timeout.
"""

import datetime
import os
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from nvidia_resiliency_ext import inprocess
from nvidia_resiliency_ext.inprocess.attribution import Interruption, InterruptionRecord

from trainer import exit_codes
from trainer.errors import CannotTrain, ContextBroken, NodeUnhealthy
from trainer.recovery.agent_store import AgentStore, host_rank
from trainer.recovery.budget import UNLIMITED_RESTARTS
from trainer.recovery.layer import Attempt
from trainer.recovery.lifelines import watch_lifelines
from trainer.settings import RecoverySettings
from trainer.timeouts import Timeouts

_AT_ONCE = datetime.timedelta(0)
_POLL = datetime.timedelta(seconds=0.25)
_HARDWARE_CHECKS = ("ChainedGPUHealthCheck", "ChainedNVLHealthCheck", "ChainedNicHealthCheck")


class InProcessLayer:
    exits_when_hung = False

    def __init__(
        self,
        recovery: RecoverySettings,
        timeouts: Timeouts,
        *,
        before_abort: Callable[[], None] = lambda: None,
    ) -> None:
        """``before_abort`` is called in a thread, before collectives of this rank are aborted."""
        self._recovery = recovery
        self._timeouts = timeouts
        self._before_abort = before_abort

    def run(self, train: Callable[[Attempt], None]) -> None:
        # The Wrapper rewrites RANK and WORLD_SIZE, never these.
        agent: dict[str, Any] = {
            "host_name": os.environ["MASTER_ADDR"],
            "port": int(os.environ["MASTER_PORT"]),
            "timeout": datetime.timedelta(seconds=self._timeouts.barrier_seconds),
        }
        entries = _Entries(train, agent, self._recovery, self._timeouts)
        wrapper = self._wrapper(agent | {"host_rank": host_rank()}, entries.leaving)
        try:
            wrapper(entries.enter)()
        except BaseException:
            # Whatever came of leaving: another rank's failure, or a store that is gone.
            if entries.final is not None:
                raise entries.final from entries.final.__cause__
            raise

    def _wrapper(self, store_arguments: dict[str, Any], leaving: threading.Event) -> Any:
        world_size = int(os.environ["WORLD_SIZE"])
        limits = self._timeouts
        seconds = datetime.timedelta
        own_checks = (
            inprocess.health_check.CudaHealthCheck(),
            inprocess.health_check.FaultCounter(max_rank_faults=UNLIMITED_RESTARTS),
        )
        wrapper = inprocess.Wrapper(
            store_factory=AgentStore,
            store_kwargs=store_arguments,
            initialize=inprocess.initialize.RetryController(
                max_iterations=UNLIMITED_RESTARTS,
                min_world_size=world_size,
                min_active_world_size=world_size,
            ),
            # The last one is called first.
            abort=inprocess.Compose(
                inprocess.abort.AbortTorchDistributed(), _Before(self._before_abort)
            ),
            health_check=inprocess.Compose(*own_checks),
            completion=_Leave(leaving),
            terminate=_Leave(leaving),
            rank_assignment=inprocess.Compose(
                inprocess.rank_assignment.ActivateAllRanks(),
                inprocess.rank_assignment.ShiftRanks(),
            ),
            soft_timeout=seconds(seconds=limits.soft_seconds),
            hard_timeout=seconds(seconds=limits.hard_seconds),
            barrier_timeout=seconds(seconds=limits.barrier_seconds),
            completion_timeout=seconds(seconds=limits.barrier_seconds),
            heartbeat_timeout=seconds(seconds=limits.hard_seconds),
            monitor_thread_interval=_POLL,
            monitor_process_interval=_POLL,
            progress_watchdog_interval=_POLL,
            heartbeat_interval=2 * _POLL,
            last_call_wait=_POLL,
            termination_grace_time=seconds(seconds=1),
        )
        # After a failure; 0.6 and later would chain the hardware's everywhere, 0.4 has none.
        hardware = hardware_checks(limits.device, int(os.environ.get("LOCAL_RANK", "0")))
        wrapper.restart_health_check = inprocess.Compose(*hardware, *own_checks)
        return wrapper


def hardware_checks(device: str, local_rank: int) -> tuple[Any, ...]:
    """The checks of a rank's GPU, NVLinks and NIC that the installed NVRx has; none without a GPU.

    They fail where there is no NVIDIA driver.
    """
    if device != "cuda" or not torch.cuda.is_available():
        return ()
    kinds = (getattr(inprocess.health_check, name, None) for name in _HARDWARE_CHECKS)
    return tuple(kind(device_index=local_rank) for kind in kinds if kind is not None)


class _Entries:
    """What the entries of the training function into one process share."""

    def __init__(
        self,
        train: Callable[[Attempt], None],
        agent: dict[str, Any],
        recovery: RecoverySettings,
        timeouts: Timeouts,
    ) -> None:
        self.final: Exception | None = None
        """Why no further entry helps."""

        self.leaving = threading.Event()
        self._train = train
        self._agent = agent
        self._timeouts = timeouts
        self._is_watched = False
        # The run's budget ends those that fail after they were claimed, and speaks first.
        self._most_barren = recovery.max_restarts + 2
        self._num_barren = 0

    def enter(self, call_wrapper: inprocess.CallWrapper = None) -> None:
        """Train once. Raises SystemExit where the Wrapper must not enter again."""
        self._refuse_in_vain(call_wrapper)
        if not self._is_watched:
            # Not earlier: NVRx forks its monitor process when the Wrapper is called, and a
            # monitor forked beside a thread that uses a store locks up (decision 0501).
            watch_lifelines(
                AgentStore(**self._agent),
                call_wrapper.monitor_process.process_monitor_proc.pid,
                silence_seconds=self._timeouts.hard_seconds,
                leaving=self.leaving,
            )
            self._is_watched = True
        meeting = AgentStore(**self._agent)

        def report_progress() -> None:
            self._num_barren = 0
            call_wrapper.ping()

        def report_hang() -> None:
            # As at the Wrapper's own soft timeout, which cannot follow the run's pace.
            record = InterruptionRecord(call_wrapper.state.rank, Interruption.SOFT_TIMEOUT)
            call_wrapper.monitor_process.record_interrupted(record)

        attempt = Attempt(
            store=dist.PrefixStore(f"steadfast/entry-{call_wrapper.iteration}", meeting),
            report_progress=report_progress,
            report_hang=report_hang,
        )
        # The failure may have been raised inside no_grad, as the Wrapper raises it: at any line.
        torch.set_grad_enabled(True)
        try:
            self._train(attempt)
        except (CannotTrain, NodeUnhealthy, ContextBroken) as error:
            self.final = error
            self._leave(call_wrapper)
            if not isinstance(error, ContextBroken):
                # Now: once another rank ends, the launcher may end this one at any time.
                exit_codes.leave_final_word(error.exit_code, str(error))
            raise SystemExit(str(error)) from None  # no Exception: the Wrapper ends

    def _refuse_in_vain(self, call_wrapper: Any) -> None:
        if self.final is not None:
            # Another rank's failure came between the error and the Wrapper, which went on.
            self._leave(call_wrapper)
            raise SystemExit(str(self.final))
        self._num_barren += 1
        if self._num_barren > self._most_barren:
            self._leave(call_wrapper)
            raise SystemExit(f"{self._most_barren} attempts in this process got nowhere; it ends")

    def _leave(self, call_wrapper: Any) -> None:
        """The Wrapper tells the other ranks, but waits for them at none of its barriers."""
        call_wrapper.wrapper.barrier_timeout = _AT_ONCE
        call_wrapper.base_store.leave_at_once()
        self.leaving.set()


class _Before(inprocess.abort.Abort):  # type: ignore[misc]
    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def __call__(self, state: inprocess.FrozenState) -> inprocess.FrozenState:
        self._act()
        return state


class _Leave(inprocess.completion.Completion, inprocess.terminate.Terminate):  # type: ignore[misc]
    """Called by NVRx when this rank is about to leave, for better or worse."""

    def __init__(self, leaving: threading.Event) -> None:
        self._leaving = leaving

    def __call__(self, state: inprocess.FrozenState) -> inprocess.FrozenState:
        self._leaving.set()
        return state
