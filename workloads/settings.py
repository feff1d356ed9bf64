"""One run of a deployment file: how many nodes, and what it changes of the shared settings."""

from typing import Annotated, Any

from pydantic import Field, PositiveInt

from infra.settings import DnsLabel, Settings

RunId = Annotated[str, Field(pattern=r"^[a-z0-9]{1,12}$")]


class RunSettings(Settings):
    num_nodes: PositiveInt
    id: RunId = "1"
    """Part of the run's folder. A new id starts from step 0 in a folder of its own."""

    change: dict[str, Any] = {}
    """Dotted keys of the ``trainer`` settings that this run changes, such as ``checkpoint.mode``."""

    backoff_limit_per_index: Annotated[int, Field(ge=0)] = 6
    """How often Kubernetes replaces the pod of one index before the Job fails."""
