"""The command of a training container: entry point, launcher, trainer.

Two things in it are filled in later: ``$(POD_IP)`` by Kubernetes, ``{is_host}``
by ``trainer.entry``, which knows whether this pod is index 0 and so hosts the
rendezvous. Which options ft_launcher has depends on the release of NVRx, so what
a release does not know is left out. Not covered: whether a spare node is any good
before it is needed.
"""

import math
from types import MappingProxyType

from trainer.recovery.budget import UNLIMITED_RESTARTS
from trainer.settings import RecoveryLayer, TrainerSettings
from trainer.timeouts import Timeouts

RENDEZVOUS_PORT = 29500
SETTINGS_PATH = "/etc/steadfast/settings.json"

JOIN_SECONDS = 1800
"""Pods that are left wait this long for a lost one, so it must exceed the making of a new node."""

STORE_SECONDS = 600
"""How long a pod tries to reach index 0, whose image may still be on its way, before it fails."""

STOP_SECONDS = 1
"""What a worker gets to end by itself before ft_launcher kills it to restart the group.

A rank that waits in a collective for a dead one never uses it, so this is pure delay.
"""

MONITOR_SECONDS = 0.2
"""How often ft_launcher looks whether a worker has died; a glance at each process."""

GPU_MEMORY_SECONDS = 0.25
"""How often ft_launcher looks whether the GPUs of killed workers are free; it waits in between."""

_SINCE_0_4 = frozenset(
    {
        "max-restarts",
        "monitor-interval",
        "term-timeout",
        "workers-stop-timeout",
        "ft-rank-heartbeat-timeout",
        "ft-initial-rank-heartbeat-timeout",
    }
)
_SINCE_0_6 = _SINCE_0_4 | {
    "ft-enable-nic-healthcheck",
    "ft-gpu-memory-poll-interval",
    "ft-numa-bind-strict",
}

FT_LAUNCHER_OPTIONS = MappingProxyType(
    {
        # 0.6 still parses the restart policy, but it does nothing there and is deprecated.
        "0.4.1": _SINCE_0_4 | {"ft-restart-policy"},
        "0.6.0": _SINCE_0_6,
        "0.7.0": _SINCE_0_6,
    }
)
"""Of the options below, those that ft_launcher of each NVRx release understands."""

# From 0.6 on, ft_launcher waits for the store by itself, and for two minutes unless told.
_WAITS_FOR_STORE = frozenset({"0.6.0", "0.7.0"})

# Before, a node beyond the least took part at once: the world grew and shrank.
_KEEPS_SPARES = frozenset({"0.6.0", "0.7.0"})


def container_command(
    settings: TrainerSettings,
    *,
    nvrx_version: str,
    num_nodes: int,
    num_spare_nodes: int = 0,
    workers_per_node: int,
    rendezvous_host: str,
    rendezvous_id: str,
    timeouts: Timeouts,
) -> tuple[str, ...]:
    """What every pod of a run executes, the same in each."""
    in_place = settings.recovery.layer.uses_ft_launcher
    waits_for_store = in_place and nvrx_version in _WAITS_FOR_STORE
    group = {
        "nnodes": _nodes(num_nodes, num_spare_nodes),
        "nproc-per-node": str(workers_per_node),
        "rdzv-backend": "c10d",
        "rdzv-endpoint": f"{rendezvous_host}:{RENDEZVOUS_PORT}",
        "rdzv-id": rendezvous_id,
        "rdzv-conf": _rendezvous_settings(waits_for_store=waits_for_store),
        "local-addr": "$(POD_IP)",
    }
    if in_place:
        known = FT_LAUNCHER_OPTIONS[nvrx_version]
        wanted = _ft_launcher_options(settings, timeouts)
        own = {name: value for name, value in wanted.items() if name in known}
        launcher = ("ft_launcher", *_options(group), *_options(own))
    else:
        launcher = ("torchrun", *_options(group), "--max-restarts=0")
    trainer = ("-m", "trainer.train", "--settings", SETTINGS_PATH)
    entry = ("python", "-m", "trainer.entry", "--settings", SETTINGS_PATH, "--")
    return (*entry, *launcher, *trainer)


def why_no_spares(layer: RecoveryLayer, nvrx_version: str) -> str:
    """Why a run of this layer can hold no node in reserve, and what to do; or nothing."""
    if not layer.uses_ft_launcher:
        return f"recovery.layer {layer.value} replaces pods; take in_job or layered"
    if nvrx_version not in _KEEPS_SPARES:
        return (
            f"image.nvrx_version {nvrx_version} would let them train at once; "
            f"take {' or '.join(sorted(_KEEPS_SPARES))}"
        )
    return ""


def launcher_environment(settings: TrainerSettings, timeouts: Timeouts) -> dict[str, str]:
    """What torchrun takes from its environment, from torch 2.12 on; older ones ignore it."""
    if settings.recovery.layer.uses_ft_launcher:
        return {}
    # Without it torchrun kills the ranks 30 s after SIGTERM, however long the pod may drain.
    return {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(math.ceil(timeouts.terminate_seconds))}


def _nodes(least: int, spare: int) -> str:
    return f"{least}:{least + spare}" if spare else str(least)


def _rendezvous_settings(*, waits_for_store: bool) -> str:
    values = {"join_timeout": str(JOIN_SECONDS), "read_timeout": str(STORE_SECONDS)}
    if waits_for_store:
        values["store_connect_wait_seconds"] = str(STORE_SECONDS)
    # Said outright, or each agent guesses from its host name whether it is the host.
    values["is_host"] = "{is_host}"
    return ",".join(f"{name}={value}" for name, value in values.items())


def _ft_launcher_options(settings: TrainerSettings, timeouts: Timeouts) -> dict[str, str]:
    """Everything we would tell ft_launcher, whatever its release."""
    options = {
        "max-restarts": str(UNLIMITED_RESTARTS),
        "monitor-interval": f"{MONITOR_SECONDS:g}",
        "term-timeout": f"{timeouts.terminate_seconds:g}",
        "workers-stop-timeout": f"{STOP_SECONDS:g}",
        "ft-rank-heartbeat-timeout": f"{timeouts.heartbeat_seconds:g}",
        "ft-initial-rank-heartbeat-timeout": f"{timeouts.initial_heartbeat_seconds:g}",
        "ft-gpu-memory-poll-interval": f"{GPU_MEMORY_SECONDS:g}",
        "ft-restart-policy": "any-failed",
    }
    if settings.device == "cpu":
        # Both look for hardware that a CPU node lacks and fail the node for it.
        options |= {"ft-enable-nic-healthcheck": "false", "ft-numa-bind-strict": "false"}
    return options


def _options(values: dict[str, str]) -> tuple[str, ...]:
    return tuple(f"--{name}={value}" for name, value in values.items())
