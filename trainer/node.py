"""The node that this process runs on, by the name under which an operator finds it."""

import os
import socket


def node_name() -> str:
    """The node's name as the pod was told it, or else the host's."""
    return os.environ.get("STEADFAST_NODE") or socket.gethostname()
