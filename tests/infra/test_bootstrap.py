"""User data of a node: what nodeadm and cloud-init read at its first boot."""

import email
import subprocess
from email.message import Message
from typing import Any

import pytest
import yaml

from infra.bootstrap import ClusterAddress, node_config, node_user_data
from infra.hardware import CATALOG
from tests.golden_files import assert_golden

CLUSTER = ClusterAddress(
    name="steadfast-test",
    endpoint="https://ABCD.gr7.us-east-1.eks.amazonaws.com",
    certificate_authority="Q0VSVA==",
    service_cidr="172.20.0.0/16",
)


def user_data_of(name: str) -> str:
    return node_user_data(CLUSTER, group="big", hardware=CATALOG[name])


def spec_of(name: str) -> dict[str, Any]:
    document = yaml.safe_load(node_config(CLUSTER, group="big", hardware=CATALOG[name]))
    assert (document["apiVersion"], document["kind"]) == ("node.eks.aws/v1alpha1", "NodeConfig")
    spec: dict[str, Any] = document["spec"]
    return spec


def parts_of(name: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    for part in email.message_from_string(user_data_of(name)).walk():
        if not part.is_multipart():
            parts[part.get_content_type()] = text_of(part)
    return parts


def text_of(part: Message) -> str:
    payload = part.get_payload()
    assert isinstance(payload, str)
    return payload


@pytest.mark.parametrize("name", ["p5.48xlarge", "m7i.2xlarge"])
def test_the_user_data_is_the_golden_one(name: str) -> None:
    assert_golden(f"infra/user-data/{name}.mime", user_data_of(name))


def test_a_node_is_told_all_four_facts_about_its_cluster() -> None:
    assert spec_of("p5.48xlarge")["cluster"] == {
        "name": "steadfast-test",
        "apiServerEndpoint": "https://ABCD.gr7.us-east-1.eks.amazonaws.com",
        "certificateAuthority": "Q0VSVA==",
        "cidr": "172.20.0.0/16",
    }


def test_a_gpu_node_with_efa_carries_both_labels() -> None:
    [flag] = spec_of("p5.48xlarge")["kubelet"]["flags"]
    labels = "nvidia.com/gpu.present=true,vpc.amazonaws.com/efa.present=true"
    assert flag == f"--node-labels=steadfast/node-group=big,{labels}"


def taints_of(name: str) -> list[dict[str, str]]:
    taints: list[dict[str, str]] = spec_of(name)["kubelet"]["config"]["registerWithTaints"]
    return taints


def test_a_gpu_node_keeps_other_pods_away() -> None:
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    assert taint in taints_of("g5.8xlarge")


@pytest.mark.parametrize("name", CATALOG)
def test_every_node_waits_for_its_storage_driver(name: str) -> None:
    # Exactly so: the driver removes a taint by this key, and NoExecute is what it recommends.
    assert {"key": "fsx.csi.aws.com/agent-not-ready", "effect": "NoExecute"} in taints_of(name)


def test_a_node_without_gpus_has_neither_their_taint_nor_raid_but_the_label_of_its_group() -> None:
    spec = spec_of("m7i.2xlarge")
    assert set(spec) == {"cluster", "kubelet"}
    assert spec["kubelet"]["flags"] == ["--node-labels=steadfast/node-group=big"]
    assert len(taints_of("m7i.2xlarge")) == 1


def test_a_gpu_node_without_efa_has_the_one_label_and_runs_no_script() -> None:
    [flag] = spec_of("g5.2xlarge")["kubelet"]["flags"]
    assert flag == "--node-labels=steadfast/node-group=big,nvidia.com/gpu.present=true"
    assert set(parts_of("g5.2xlarge")) == {"application/node.eks.aws"}


def test_local_disks_become_one_striped_volume() -> None:
    assert spec_of("p5.48xlarge")["instance"] == {"localStorage": {"strategy": "RAID0"}}


def test_a_token_is_not_folded_however_long_it_is() -> None:
    long = ClusterAddress(
        name="c",
        endpoint="https://e",
        certificate_authority="Q0 " * 900,
        service_cidr="10.0.0.0/16",
    )
    config = node_config(long, group="big", hardware=CATALOG["p5.48xlarge"])
    assert any(len(line) > 2500 for line in config.splitlines())


def test_an_efa_node_lifts_the_limit_on_locked_memory_and_reserves_a_pods_huge_pages() -> None:
    script = parts_of("p5.48xlarge")["text/x-shellscript"]
    assert script.startswith("#!/bin/bash\n")
    assert "/etc/systemd/system/containerd.service.d/memlock.conf" in script
    assert "[Service]\nLimitMEMLOCK=infinity\n" in script
    assert "vm.nr_hugepages = 2560" in script


def test_the_script_is_valid_shell() -> None:
    script = parts_of("p5.48xlarge")["text/x-shellscript"]
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0


def test_a_node_without_efa_runs_no_script() -> None:
    assert set(parts_of("m7i.2xlarge")) == {"application/node.eks.aws"}


def test_the_config_has_no_field_that_nodeadm_does_not_know() -> None:
    spec = spec_of("p5.48xlarge")
    assert set(spec) == {"cluster", "kubelet", "instance"}
    assert set(spec["kubelet"]) == {"flags", "config"}
    assert set(spec["kubelet"]["config"]) == {"registerWithTaints"}


@pytest.mark.parametrize("name", CATALOG)
def test_user_data_fits_the_16_kib_that_ec2_takes(name: str) -> None:
    longest = ClusterAddress(
        name="c" * 40,
        endpoint=f"https://{'A' * 32}.gr7.ap-northeast-1.eks.amazonaws.com",
        certificate_authority="Q" * 4000,
        service_cidr="172.20.0.0/16",
    )
    text = node_user_data(longest, group="g" * 20, hardware=CATALOG[name])
    assert len(text.encode()) < 16 * 1024
