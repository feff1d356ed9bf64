"""In-job restart: ft_launcher watches heartbeats and respawns the workers of all pods.

The rank monitor that ft_launcher starts for each worker kills one that has been
silent for the launcher's heartbeat timeout; the launcher then stops the others,
meets the other nodes again and starts new workers in the same pods.
"""

import logging
from collections.abc import Callable

from nvidia_resiliency_ext import fault_tolerance
from nvidia_resiliency_ext.fault_tolerance.data import WorkloadAction, WorkloadControlRequest

from trainer.bounded import bounded
from trainer.errors import CannotTrain, NodeUnhealthy, first_line
from trainer.recovery.layer import Attempt

logger = logging.getLogger(__name__)

ASK_SECONDS = 5.0


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
    """Keep ft_launcher from respawning workers that meet the same, to the last restart.

    A launcher that is gone, or does not answer in time, is not told; nothing is raised.
    """
    action = (
        WorkloadAction.ExcludeThisNode
        if isinstance(error, NodeUnhealthy)
        else WorkloadAction.ShutdownWorkload
    )
    request = WorkloadControlRequest(action, str(error))
    try:
        bounded(lambda: client.send_workload_control_request(request), seconds=ASK_SECONDS)
    except Exception as problem:
        # Whatever it is, the error that ends this rank says more; PID 1 heeds its final word.
        logger.warning("ft_launcher could not be told to end (%s)", first_line(problem))
