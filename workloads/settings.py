"""One run of a deployment file: how many nodes, and what it changes of the shared settings."""

from typing import Annotated, Any

from pydantic import Field

from infra.fields import GroupName, Settings

# The longest name of a pod, <run>-<id>-<hash>-<index>, must be a DNS label of 63 letters.
RunName = Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=36)]
RunId = Annotated[str, Field(pattern=r"^[a-z0-9]{1,12}$")]


class RunSettings(Settings):
    num_nodes: Annotated[int, Field(strict=True, ge=1, le=1000)]
    num_spare_nodes: Annotated[int, Field(strict=True, ge=0, le=1000)] = 0
    """Further nodes whose pods wait until one of the others is lost, and take its place."""

    node_group: GroupName | None = None
    """Which of ``node_groups``; needed where there are several."""

    id: RunId = "1"
    """Part of the run's folder. A new id starts from step 0 in a folder of its own."""

    change: dict[str, Any] = Field(default_factory=dict)
    """Dotted keys of ``trainer`` settings that this run changes, such as ``checkpoint.mode``."""

    backoff_limit_per_index: Annotated[int, Field(strict=True, ge=0, le=1000)] = 6
    """How often Kubernetes replaces the pod of one index before the Job fails."""
