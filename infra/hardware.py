"""The instance types this project knows, and what each one has.

Figures are those of EC2's DescribeInstanceTypes (GPUs, vCPUs, network cards)
and of Karpenter's instance reference (allocatable memory). CPU and memory that
a pod may ask for leave room for the kubelet and the daemon sets of the node.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
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


def _gpu_node(
    name: str,
    *,
    gpus: int,
    efa: int,
    cards: int,
    vcpus: int,
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
        pod_cpus=vcpus - 8 if vcpus > 32 else vcpus - 4,
        pod_memory_gib=pod_memory_gib,
        shared_memory_gib=shared_memory_gib,
        hugepages_mib=5120 if efa else 0,
        local_nvme_gib=nvme_gib,
    )


# fmt: off
_KNOWN = (
    _gpu_node(
        "p5.48xlarge", gpus=8, efa=32, cards=32, vcpus=192,
        pod_memory_gib=1840, shared_memory_gib=800, nvme_gib=28300,
    ),
    _gpu_node(
        "p5e.48xlarge", gpus=8, efa=32, cards=32, vcpus=192,
        pod_memory_gib=1840, shared_memory_gib=800, nvme_gib=28300,
    ),
    _gpu_node(
        "p5en.48xlarge", gpus=8, efa=16, cards=16, vcpus=192,
        pod_memory_gib=1840, shared_memory_gib=800, nvme_gib=28300,
    ),
    _gpu_node(
        "p6-b200.48xlarge", gpus=8, efa=8, cards=8, vcpus=192,
        pod_memory_gib=1840, shared_memory_gib=800, nvme_gib=28300,
    ),
    _gpu_node(
        "p6-b300.48xlarge", gpus=8, efa=16, cards=17, first_efa_card=1, vcpus=192,
        pod_memory_gib=3700, shared_memory_gib=1600, nvme_gib=28300,
    ),
    _gpu_node(
        "p4de.24xlarge", gpus=8, efa=4, cards=4, vcpus=96,
        pod_memory_gib=1020, shared_memory_gib=400, nvme_gib=7400,
    ),
    _gpu_node(
        "g5.8xlarge", gpus=1, efa=1, cards=1, vcpus=32,
        pod_memory_gib=104, shared_memory_gib=40, nvme_gib=830,
    ),
    _gpu_node(
        "g5.48xlarge", gpus=8, efa=1, cards=1, vcpus=192,
        pod_memory_gib=680, shared_memory_gib=200, nvme_gib=7000,
    ),
    InstanceType(
        name="m7i.2xlarge", num_gpus=0, num_efa=0,
        num_network_cards=1, first_efa_card=0, vcpus=8, pod_cpus=6, pod_memory_gib=24,
        shared_memory_gib=4, hugepages_mib=0, local_nvme_gib=0,
    ),
)
# fmt: on

CATALOG: dict[str, InstanceType] = {known.name: known for known in _KNOWN}
