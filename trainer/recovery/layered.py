"""In-process restart inside ft_launcher: each catches what the one within cannot.

The Wrapper catches exceptions and hangs that Python can leave. A process that
dies, by itself or at the hard timeout, or whose GPU is broken, ends the group:
ft_launcher starts all workers anew, and nobody waits for the Wrapper's barriers.

Not covered: a launcher that dies; Kubernetes replaces its pod.
"""

from collections.abc import Callable
from dataclasses import replace

from nvidia_resiliency_ext import fault_tolerance
from nvidia_resiliency_ext.fault_tolerance.rank_monitor_client import RankMonitorClientError

from trainer.errors import CannotTrain, NodeUnhealthy
from trainer.recovery.in_job import ask_to_end
from trainer.recovery.in_process import InProcessLayer
from trainer.recovery.layer import Attempt
from trainer.settings import RecoverySettings
from trainer.timeouts import Timeouts


class LayeredLayer:
    exits_when_hung = True  # where the restart within the process does not come about

    def __init__(
        self,
        recovery: RecoverySettings,
        timeouts: Timeouts,
        *,
        before_abort: Callable[[], None] = lambda: None,
    ) -> None:
        self._within = InProcessLayer(recovery, timeouts, before_abort=before_abort)

    def run(self, train: Callable[[Attempt], None]) -> None:
        client = fault_tolerance.RankMonitorClient()

        def entered(attempt: Attempt) -> None:
            # Anew in every entry, and never before the Wrapper has forked its monitor: the fork
            # would hold the connection open after this process died. A new connection also gets
            # the initial timeout again, which the restore needs; and one that an asynchronous
            # exception cut short within a message is not used again.
            client.shutdown_workload_monitoring()
            try:
                client.init_workload_monitoring()
            except (OSError, RankMonitorClientError) as error:
                # No entry of this process would get further; a new one has a new monitor.
                raise SystemExit(f"ft_launcher's rank monitor is gone ({error})") from error

            def report_progress() -> None:
                attempt.report_progress()
                client.send_heartbeat()

            try:
                train(replace(attempt, report_progress=report_progress))
            except (CannotTrain, NodeUnhealthy) as error:
                # Before the other ranks hear of it: the launcher ends this one once they end.
                ask_to_end(client, error)
                raise

        self._within.run(entered)
        client.shutdown_workload_monitoring()
