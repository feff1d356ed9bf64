"""The catalog: what each type has, and that a training pod fits on a node of it."""

import pytest

from infra.hardware import CATALOG, InstanceType

DAEMON_SETS_MIB = 2048
"""More than the network, proxy, identity, monitoring, storage and device agents ask for."""

DAEMON_SETS_MILLICPU = 1000

EVERY_TYPE = pytest.mark.parametrize("hardware", CATALOG.values(), ids=list(CATALOG))


def kubelet_millicpu(vcpus: int) -> int:
    """What the image reserves: 6 % of the first core, 1 % of the next, 0.5 % of two, 0.25 %."""
    return 60 + 10 + 2 * 5 + (vcpus - 4) * 5 // 2


@pytest.mark.parametrize(
    ("name", "gpus", "efa", "vcpus"),
    [
        ("p5.48xlarge", 8, 32, 192),
        ("p5.4xlarge", 1, 1, 16),
        ("p5e.48xlarge", 8, 32, 192),
        ("p5en.48xlarge", 8, 16, 192),
        ("p6-b200.48xlarge", 8, 8, 192),
        ("p6-b300.48xlarge", 8, 16, 192),
        ("p4de.24xlarge", 8, 4, 96),
        ("g5.2xlarge", 1, 0, 8),
        ("g5.8xlarge", 1, 1, 32),
        ("g5.12xlarge", 4, 1, 48),
        ("g5.48xlarge", 8, 1, 192),
        ("g6e.8xlarge", 1, 1, 32),
        ("g6e.12xlarge", 4, 1, 48),
        ("g6e.24xlarge", 4, 2, 96),
        ("g6e.48xlarge", 8, 4, 192),
        ("m7i.2xlarge", 0, 0, 8),
    ],
)
def test_a_type_has_what_ec2_describes(name: str, gpus: int, efa: int, vcpus: int) -> None:
    hardware = CATALOG[name]
    assert (hardware.num_gpus, hardware.num_efa, hardware.vcpus) == (gpus, efa, vcpus)


def test_every_type_of_the_catalog_is_looked_at_above() -> None:
    assert len(CATALOG) == 16


@EVERY_TYPE
def test_a_pod_fits_into_the_memory_of_its_node(hardware: InstanceType) -> None:
    pod = hardware.pod_memory_gib * 1024 + hardware.hugepages_mib
    assert pod + DAEMON_SETS_MIB <= hardware.allocatable_mib
    # And leaves little of it: a node belongs to one training pod.
    assert pod >= 0.8 * hardware.allocatable_mib


@EVERY_TYPE
def test_a_pod_fits_into_the_cpus_of_its_node(hardware: InstanceType) -> None:
    allocatable = hardware.vcpus * 1000 - kubelet_millicpu(hardware.vcpus)
    assert hardware.pod_cpus * 1000 + DAEMON_SETS_MILLICPU <= allocatable


def test_a_p5_has_191450_millicpu_for_pods() -> None:
    assert 192_000 - kubelet_millicpu(192) == 191_450


@EVERY_TYPE
def test_shared_memory_leaves_a_pod_memory_of_its_own(hardware: InstanceType) -> None:
    assert 2 * hardware.shared_memory_gib <= hardware.pod_memory_gib


@EVERY_TYPE
def test_huge_pages_are_set_aside_where_there_is_efa(hardware: InstanceType) -> None:
    assert hardware.hugepages_mib == (5120 if hardware.num_efa else 0)


@EVERY_TYPE
def test_each_efa_device_has_a_card_of_its_own(hardware: InstanceType) -> None:
    assert hardware.first_efa_card + hardware.num_efa <= hardware.num_network_cards


@EVERY_TYPE
def test_a_type_is_known_by_its_own_name(hardware: InstanceType) -> None:
    assert CATALOG[hardware.name] is hardware
