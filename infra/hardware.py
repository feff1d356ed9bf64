"""The instance types this project knows, and what each one has.

GPUs, vCPUs, network cards and EFA devices are those of EC2's DescribeInstanceTypes.
Allocatable memory is that of Karpenter's instance reference: 92.5 % of the memory,
less 100 MiB for eviction and 255 MiB + 11 MiB a pod for the kubelet. CPU and memory of
a training pod leave room for the daemon sets of the node.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceType:
    name: str
    num_gpus: int
    num_efa: int
    num_network_cards: int
    first_efa_card: int
    """The first network card that takes an EFA device; 1 where card 0 carries IP alone."""

    vcpus: int
    pod_cpus: int
    """Whole CPUs that one training pod asks for."""

    allocatable_mib: int
    """Memory that the kubelet gives to pods and, out of the same, sets aside as huge pages."""

    pod_memory_gib: int
    shared_memory_gib: int
    """Size of the pod's /dev/shm, counted in ``pod_memory_gib``."""

    hugepages_mib: int
    """2 MiB pages that the EFA driver sets aside on the node, as one pod asks for them."""

    local_nvme_gib: int

    @property
    def workers_per_node(self) -> int:
        """One process for each GPU; a node without GPUs runs one."""
        return max(self.num_gpus, 1)

    @property
    def device(self) -> str:
        return "cuda" if self.num_gpus else "cpu"


def _node(
    name: str,
    *,
    gpus: int,
    efa: int,
    cards: int,
    vcpus: int,
    allocatable_mib: int,
    pod_memory_gib: int,
    shared_memory_gib: int,
    nvme_gib: int,
    first_efa_card: int = 0,
) -> InstanceType:
    return InstanceType(
        name=name,
        num_gpus=gpus,
        num_efa=efa,
        num_network_cards=cards,
        first_efa_card=first_efa_card,
        vcpus=vcpus,
        pod_cpus=vcpus - _spare_cpus(vcpus),
        allocatable_mib=allocatable_mib,
        pod_memory_gib=pod_memory_gib,
        shared_memory_gib=shared_memory_gib,
        hugepages_mib=5120 if efa else 0,
        local_nvme_gib=nvme_gib,
    )


def _spare_cpus(vcpus: int) -> int:
    """CPUs left to the kubelet, the daemon sets and the processes that serve the file system."""
    if vcpus > 32:
        return 8
    return 4 if vcpus > 8 else 2


# fmt: off
_KNOWN = (
    _node(
        "p5.48xlarge", gpus=8, efa=32, cards=32, vcpus=192, allocatable_mib=1938410,
        pod_memory_gib=1840, shared_memory_gib=800, nvme_gib=28300,
    ),
    _node(
        "p5.4xlarge", gpus=1, efa=1, cards=1, vcpus=16, allocatable_mib=240830,
        pod_memory_gib=220, shared_memory_gib=80, nvme_gib=3500,
    ),
    _node(
        "p5e.48xlarge", gpus=8, efa=32, cards=32, vcpus=192, allocatable_mib=1938410,
        pod_memory_gib=1840, shared_memory_gib=800, nvme_gib=28300,
    ),
    _node(
        "p5en.48xlarge", gpus=8, efa=16, cards=16, vcpus=192, allocatable_mib=1937332,
        pod_memory_gib=1840, shared_memory_gib=800, nvme_gib=28300,
    ),
    _node(
        "p6-b200.48xlarge", gpus=8, efa=8, cards=8, vcpus=192, allocatable_mib=1937332,
        pod_memory_gib=1840, shared_memory_gib=800, nvme_gib=28300,
    ),
    _node(
        "p6-b300.48xlarge", gpus=8, efa=16, cards=17, first_efa_card=1, vcpus=192,
        allocatable_mib=3877198, pod_memory_gib=3700, shared_memory_gib=1600, nvme_gib=28300,
    ),
    _node(
        "p4de.24xlarge", gpus=8, efa=4, cards=4, vcpus=96, allocatable_mib=1082712,
        pod_memory_gib=1020, shared_memory_gib=400, nvme_gib=7400,
    ),
    _node(
        "g5.2xlarge", gpus=1, efa=0, cards=1, vcpus=8, allocatable_mib=29317,
        pod_memory_gib=24, shared_memory_gib=8, nvme_gib=410,
    ),
    _node(
        "g5.8xlarge", gpus=1, efa=1, cards=1, vcpus=32, allocatable_mib=118312,
        pod_memory_gib=104, shared_memory_gib=40, nvme_gib=830,
    ),
    _node(
        "g5.12xlarge", gpus=4, efa=1, cards=1, vcpus=48, allocatable_mib=173400,
        pod_memory_gib=156, shared_memory_gib=60, nvme_gib=3500,
    ),
    _node(
        "g5.48xlarge", gpus=8, efa=1, cards=1, vcpus=192, allocatable_mib=723299,
        pod_memory_gib=680, shared_memory_gib=200, nvme_gib=7000,
    ),
    _node(
        "g6e.8xlarge", gpus=1, efa=1, cards=1, vcpus=32, allocatable_mib=239554,
        pod_memory_gib=220, shared_memory_gib=80, nvme_gib=830,
    ),
    _node(
        "g6e.12xlarge", gpus=4, efa=1, cards=1, vcpus=48, allocatable_mib=360157,
        pod_memory_gib=336, shared_memory_gib=120, nvme_gib=3500,
    ),
    _node(
        "g6e.24xlarge", gpus=4, efa=2, cards=2, vcpus=96, allocatable_mib=721682,
        pod_memory_gib=680, shared_memory_gib=200, nvme_gib=3500,
    ),
    _node(
        "g6e.48xlarge", gpus=8, efa=4, cards=4, vcpus=192, allocatable_mib=1449132,
        pod_memory_gib=1360, shared_memory_gib=400, nvme_gib=7000,
    ),
    _node(
        "m7i.2xlarge", gpus=0, efa=0, cards=1, vcpus=8, allocatable_mib=29317,
        pod_memory_gib=24, shared_memory_gib=4, nvme_gib=0,
    ),
)
# fmt: on

CATALOG: dict[str, InstanceType] = {known.name: known for known in _KNOWN}
