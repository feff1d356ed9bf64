"""The environment variables of a training container.

Fabric variables follow the guidance of AWS's NCCL plugin for libfabric 1.18 and
up, which is to leave them alone: FI_PROVIDER, FI_EFA_USE_DEVICE_RDMA, FI_EFA_FORK_SAFE
and NCCL_BUFFSIZE are the plugin's business, and RDMAV_FORK_SAFE breaks things.
"""

from pathlib import PurePosixPath

from infra.hardware import InstanceType
from trainer.settings import TrainerSettings
from trainer.timeouts import Timeouts
from workloads.launcher import launcher_environment

EXIT_CODE_PATH = "/tmp/steadfast-exit-code"
HUGGING_FACE_HOME = "/fsx/hf"


def container_environment(
    settings: TrainerSettings, *, hardware: InstanceType, timeouts: Timeouts
) -> dict[str, str]:
    """Every variable with a fixed value, in alphabetical order. What the pod fills in is not."""
    values = {
        # Everything but the volumes is read-only, the home of the image's user included.
        "HOME": "/tmp",
        "HF_HOME": HUGGING_FACE_HOME,
        "PYTHONUNBUFFERED": "1",
        "STEADFAST_EXIT_FILE": EXIT_CODE_PATH,
        # Ranks that wait for one another's store would flood the log. Read when torch is imported.
        "TORCH_CPP_LOG_LEVEL": "error",
        **launcher_environment(settings, timeouts),
        **_device_environment(settings, hardware),
        **_fabric_environment(settings, hardware),
    }
    if not _fetches_weights(settings):
        values["HF_HUB_OFFLINE"] = "1"
    return dict(sorted(values.items()))


def _device_environment(settings: TrainerSettings, hardware: InstanceType) -> dict[str, str]:
    if not hardware.num_gpus:
        # One thread a rank: the order of summation, and so every bit, stays the same.
        return {"OMP_NUM_THREADS": "1"}
    values = {"NCCL_DEBUG": "WARN"}
    if settings.recovery.layer.reenters:
        # Aborting communicators in a living process: NVLink SHARP does not survive it, and
        # the error of the aborted collective must not be raised again by the watchdog.
        values |= {"NCCL_NVLS_ENABLE": "0", "TORCH_NCCL_RETHROW_CUDA_ERRORS": "0"}
    return values


def _fabric_environment(settings: TrainerSettings, hardware: InstanceType) -> dict[str, str]:
    """Huge pages stay on where the pod asks for some and no rank forks.

    A fork with EFA's huge pages mapped fails for want of more of them, and in-process recovery
    forks its monitor from the rank.
    """
    if not hardware.num_efa:
        return {}
    keeps = hardware.hugepages_mib and not settings.recovery.layer.reenters
    return {} if keeps else {"FI_EFA_USE_HUGE_PAGE": "0"}


def _fetches_weights(settings: TrainerSettings) -> bool:
    """Whether the weights are named by a hub id; a folder in the pod is an absolute path."""
    weights = settings.model.weights
    return weights is not None and not PurePosixPath(weights).is_absolute()
