"""The store in which NVRx's Wrapper keeps its books: the launcher agent's, where there is one.

Not covered: a store whose node vanished without closing its connections; calls to it do not
return (see ``trainer.recovery.lifelines``).
"""

import datetime
import logging
import os
from typing import Any

import torch.distributed as dist
from nvidia_resiliency_ext import inprocess

from trainer.errors import first_line

logger = logging.getLogger(__name__)

NO_RANK = -1
_AT_ONCE = datetime.timedelta(0)


class AgentStore(inprocess.store.StoreMixin, dist.TCPStore):  # type: ignore[misc]
    """A client of the store that the launcher's agent on node 0 hosts.

    ft_launcher's agent hosts none. There ``host_rank`` does: whichever rank dies, all are started
    anew. Whoever comes second in its process finds the port taken, and is a client.
    """

    def __init__(
        self, host_name: str, port: int, timeout: datetime.timedelta, *, host_rank: int = NO_RANK
    ) -> None:
        self._host_rank = host_rank
        self._patience = timeout
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

    def termination_barrier(self, **arguments: Any) -> None:
        """The last thing that NVRx asks for; it would have the store's host wait for ever."""
        arguments["timeout"] = min(arguments["timeout"], self._patience)
        try:
            super().termination_barrier(**arguments)
        except (inprocess.store.BarrierTimeout, dist.DistError) as error:
            logger.warning("Leaves without the other ranks (%s)", first_line(error))

    def leave_at_once(self) -> None:
        """From here on this rank waits for no other at the end."""
        self._patience = _AT_ONCE


def host_rank() -> int:
    """Launchers tell in this variable whether their agent hosts a store; both know it."""
    by_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE", "False") == "True"
    return NO_RANK if by_agent else 0
