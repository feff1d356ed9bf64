"""In-process restart: NVRx's Wrapper re-enters the training function in the same process.

All that this project knows of ``nvidia_resiliency_ext.inprocess`` is here:
upstream has deprecated it (0.6), and nothing else may come to depend on it.

The Wrapper's store is the launcher agent's, which is not in any rank, so that
rank 0 may die like any other. A world that would shrink is refused: the failure
then falls outward and Kubernetes replaces the pods.

If that agent's node is lost, so is the store. NVRx would wait for it for ever,
so a thread asks it every second, and ends this process when it is gone.

Not covered: a store whose node vanished without closing its connections, and a
hang inside one long C call; Python cannot raise there, so the process is killed
at the hard timeout.
"""

import datetime
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from nvidia_resiliency_ext import inprocess
from nvidia_resiliency_ext.inprocess.attribution import Interruption, InterruptionRecord

from trainer.errors import CannotTrain, ContextBroken, NodeUnhealthy, first_line
from trainer.recovery.budget import UNLIMITED_RESTARTS
from trainer.recovery.layer import Attempt
from trainer.settings import RecoverySettings
from trainer.timeouts import Timeouts

logger = logging.getLogger(__name__)

NO_RANK = -1
STORE_CHECK_SECONDS = 1.0
_POLL = datetime.timedelta(seconds=0.25)


class AgentStore(inprocess.store.StoreMixin, dist.TCPStore):  # type: ignore[misc]
    """A client of the store that the launcher's agent on node 0 hosts.

    ft_launcher's agent hosts none. There ``host_rank`` does: whichever rank dies, all are started
    anew. Whoever comes second in its process finds the port taken, and is a client.
    """

    def __init__(
        self, host_name: str, port: int, timeout: datetime.timedelta, *, host_rank: int = NO_RANK
    ) -> None:
        self._host_rank = host_rank
        where: dict[str, Any] = {
            "host_name": host_name,
            "port": port,
            "wait_for_workers": False,
            "use_libuv": True,
            "timeout": timeout,
        }
        if host_rank == int(os.environ["RANK"]):
            try:
                super().__init__(is_master=True, **where)
                return
            except dist.DistError:
                logger.debug("Port %d has a store already", port)
        super().__init__(is_master=False, **where)

    @property
    def critical_ranks(self) -> tuple[int, ...]:
        """Read by NVRx: these leave last."""
        return (self._host_rank,)


def _end_with_the_store(agent: dict[str, Any]) -> None:
    """Watch the agent's store from a thread with a connection of its own."""
    store = AgentStore(**agent)

    def watch() -> None:
        while True:
            try:
                store.check(["steadfast/alive"])
            except dist.DistError as error:
                logger.error("The launcher's store is gone (%s); ending", first_line(error))
                os._exit(1)
            time.sleep(STORE_CHECK_SECONDS)

    threading.Thread(target=watch, name="store-watch", daemon=True).start()


def _host_rank() -> int:
    """Launchers tell in this variable whether their agent hosts a store; both know it."""
    by_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE", "False") == "True"
    return NO_RANK if by_agent else 0


class InProcessLayer:
    exits_when_hung = False

    def __init__(self, recovery: RecoverySettings, timeouts: Timeouts) -> None:
        self._recovery = recovery
        self._timeouts = timeouts

    def run(self, train: Callable[[Attempt], None]) -> None:
        # The Wrapper rewrites RANK and WORLD_SIZE, never these.
        agent: dict[str, Any] = {
            "host_name": os.environ["MASTER_ADDR"],
            "port": int(os.environ["MASTER_PORT"]),
            "timeout": datetime.timedelta(seconds=self._timeouts.barrier_seconds),
        }

        final: list[Exception] = []

        def entered(call_wrapper: inprocess.CallWrapper = None) -> None:
            if call_wrapper.iteration == 0:
                # Not earlier: NVRx forks its monitor process when the Wrapper is called, and a
                # monitor forked beside a thread that uses a store locks up (decision 0501).
                _end_with_the_store(agent)
            meeting = dist.PrefixStore(
                f"steadfast/entry-{call_wrapper.iteration}", AgentStore(**agent)
            )

            def report_hang() -> None:
                # As at the Wrapper's own soft timeout, which cannot follow the run's pace.
                record = InterruptionRecord(call_wrapper.state.rank, Interruption.SOFT_TIMEOUT)
                call_wrapper.monitor_process.record_interrupted(record)

            attempt = Attempt(
                store=meeting, report_progress=call_wrapper.ping, report_hang=report_hang
            )
            try:
                train(attempt)
            except (CannotTrain, NodeUnhealthy, ContextBroken) as error:
                final.append(error)
                raise SystemExit(str(error)) from None  # no Exception: the Wrapper ends

        try:
            self._wrapper(agent | {"host_rank": _host_rank()})(entered)()
        except SystemExit:
            raise final[0] from final[0].__cause__

    def _wrapper(self, store_arguments: dict[str, Any]) -> Any:
        world_size = int(os.environ["WORLD_SIZE"])
        limits = self._timeouts
        seconds = datetime.timedelta
        wrapper = inprocess.Wrapper(
            store_factory=AgentStore,
            store_kwargs=store_arguments,
            initialize=inprocess.initialize.RetryController(
                max_iterations=UNLIMITED_RESTARTS,
                min_world_size=world_size,
                min_active_world_size=world_size,
            ),
            abort=inprocess.abort.AbortTorchDistributed(),
            health_check=inprocess.Compose(
                inprocess.health_check.CudaHealthCheck(),
                inprocess.health_check.FaultCounter(max_rank_faults=UNLIMITED_RESTARTS),
            ),
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
        if hasattr(wrapper, "restart_health_check") and not torch.cuda.is_available():
            # 0.6 and later add a check that fails where there is no NVIDIA driver.
            wrapper.restart_health_check = wrapper.health_check
        return wrapper
