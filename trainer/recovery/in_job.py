"""In-job restart: ft_launcher watches heartbeats and respawns the workers of all pods.

The rank monitor that ft_launcher starts for each worker kills one that has been
silent for the launcher's heartbeat timeout; the launcher then stops the others,
meets the other nodes again and starts new workers in the same pods.
"""

from collections.abc import Callable

from nvidia_resiliency_ext import fault_tolerance
from nvidia_resiliency_ext.fault_tolerance.data import WorkloadAction, WorkloadControlRequest

from trainer.errors import CannotTrain, NodeUnhealthy
from trainer.recovery.layer import Attempt


class InJobLayer:
    exits_when_hung = True  # the launcher's timeouts cannot follow the run's pace

    def run(self, train: Callable[[Attempt], None]) -> None:
        client = fault_tolerance.RankMonitorClient()
        client.init_workload_monitoring()
        try:
            train(Attempt(store=None, report_progress=client.send_heartbeat))
        except (CannotTrain, NodeUnhealthy) as error:
            ask_to_end(client, error)
            raise
        client.shutdown_workload_monitoring()


def ask_to_end(
    client: fault_tolerance.RankMonitorClient, error: CannotTrain | NodeUnhealthy
) -> None:
    """Keep ft_launcher from respawning workers that meet the same, to the last restart."""
    action = (
        WorkloadAction.ExcludeThisNode
        if isinstance(error, NodeUnhealthy)
        else WorkloadAction.ShutdownWorkload
    )
    client.send_workload_control_request(WorkloadControlRequest(action, str(error)))
