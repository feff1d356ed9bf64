"""Faults of file system, groups and what is put into the cluster, each planted and refused."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from infra.guard.view import text_of
from tests.infra.conftest import Synthesize
from tests.infra.guard.planted import Plant, plant_in

MANIFEST = "Custom::AWSCDK-EKS-KubernetesResource"
CHART = "Custom::AWSCDK-EKS-HelmChart"


def lustre_rule_gone(kind: str, port: int) -> Callable[[Plant], None]:
    def plant(templates: Plant) -> None:
        kind_of_rule = f"AWS::EC2::SecurityGroup{kind}"
        assert templates.delete("network", kind_of_rule, lambda p: p.get("FromPort") == port)

    return plant


def lustre_rules_come_late(kind: str) -> Callable[[Plant], None]:
    """The same rules, made by the stack of the file system: FSx would look before they are."""

    def plant(templates: Plant) -> None:
        kind_of_rule = f"AWS::EC2::SecurityGroup{kind}"
        network = templates.stacks["network"]
        late = {
            key: network["Resources"].pop(key)
            for key, rule in list(network["Resources"].items())
            if rule["Type"] == kind_of_rule and rule["Properties"].get("FromPort") in (988, 1018)
        }
        assert len(late) >= 2
        for key, rule in late.items():
            for end, value in rule["Properties"].items():
                if end.endswith("GroupId"):
                    name = f"{key}-{end}"
                    network["Outputs"][name] = {"Value": value, "Export": {"Name": name}}
                    rule["Properties"][end] = {"Fn::ImportValue": name}
        templates.stacks["storage"]["Resources"] |= late

    return plant


def old_lustre(templates: Plant) -> None:
    [file_system] = templates.resources("storage", "AWS::FSx::FileSystem")
    file_system["FileSystemTypeVersion"] = "2.12"


def default_lustre(templates: Plant) -> None:
    [file_system] = templates.resources("storage", "AWS::FSx::FileSystem")
    del file_system["FileSystemTypeVersion"]


def deleted_on_replacement(templates: Plant) -> None:
    for resource in templates.stacks["storage"]["Resources"].values():
        resource["UpdateReplacePolicy"] = "Delete"


def inline_rule(direction: str, peer: str) -> Callable[[Plant], None]:
    def plant(templates: Plant) -> None:
        group = templates.resources("network", "AWS::EC2::SecurityGroup")[0]
        group[f"SecurityGroup{direction}"] = [{"IpProtocol": "-1", peer: "sg-1"}]

    return plant


def in_manifest(kind: str, change: Callable[[dict[str, Any]], Any]) -> Callable[[Plant], None]:
    """Change one applied document."""

    def plant(templates: Plant) -> None:
        changed = 0
        for applied in templates.resources("platform", MANIFEST):
            documents = json.loads(text_of(applied["Manifest"]))
            for document in documents:
                if document["kind"] == kind:
                    change(document)
                    changed += 1
            applied["Manifest"] = json.dumps(documents)
        assert changed

    return plant


def without(key: str) -> Callable[[dict[str, Any]], Any]:
    return lambda document: document["spec"].pop(key)


def source(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda document: document["spec"]["csi"].update(changes)


def becomes(kind: str) -> Callable[[dict[str, Any]], Any]:
    return lambda document: document.update(kind=kind)


def in_chart(name: str, **changes: Any) -> Callable[[Plant], None]:
    """Change the values of one Helm chart."""

    def plant(templates: Plant) -> None:
        [chart] = [c for c in templates.resources("platform", CHART) if c["Chart"] == name]
        chart["Values"] = json.dumps({**json.loads(chart["Values"]), **changes})

    return plant


def chart_waits(templates: Plant) -> None:
    for chart in templates.resources("platform", CHART):
        chart["Wait"] = True


EFA, NVIDIA = "aws-efa-k8s-device-plugin", "nvidia-device-plugin"
VOLUME, CLAIM = "PersistentVolume", "PersistentVolumeClaim"


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (old_lustre, "storage: FileSystem: Lustre 2.12 cannot be mounted"),
        (default_lustre, "storage: FileSystem: Lustre 2.10 cannot be mounted"),
        (lustre_rule_gone("Ingress", 988), "lacks an Ingress rule for its own ports 988"),
        (lustre_rule_gone("Egress", 1018), "lacks an Egress rule for the nodes' ports 988"),
        (lustre_rules_come_late("Ingress"), "lacks an Ingress rule for its own ports 988"),
        (lustre_rules_come_late("Egress"), "lacks an Egress rule for its own ports 988"),
        (deleted_on_replacement, "would delete every checkpoint"),
        (inline_rule("Ingress", "SourceSecurityGroupId"), "names another group inline"),
        (inline_rule("Egress", "DestinationSecurityGroupId"), "names another group inline"),
        (in_manifest(VOLUME, without("persistentVolumeReclaimPolicy")), "set Retain"),
        (in_manifest(VOLUME, without("mountOptions")), "is mounted without flock"),
        (in_manifest(VOLUME, source(driver="efs.csi.aws.com")), "is of driver 'efs.csi.aws.com'"),
        (in_manifest(VOLUME, source(fsType="")), "needs an fsType"),
        (in_manifest(VOLUME, without("accessModes")), "and ReadWriteOnce beside"),
        (in_manifest(VOLUME, without("claimRef")), "any claim could take it"),
        (in_manifest(CLAIM, without("storageClassName")), "makes a second volume"),
        *(
            (
                in_manifest(CLAIM, becomes(kind)),
                f"{kind}: runs pods, and CloudFormation cannot wait",
            )
            for kind in ("Job", "CronJob", "Pod", "Deployment", "StatefulSet")
        ),
        (in_chart(EFA, tolerations=[]), "does not tolerate nvidia.com/gpu"),
        (in_chart(EFA, nodeSelector={}), "is not bound to nodes with vpc.amazonaws.com/efa"),
        (in_chart(NVIDIA, mofedEnabled=True), "would hand every RDMA device to every GPU pod"),
        (chart_waits, "the deploy would hang"),
    ],
)
def test_a_fault_is_refused_by_name(
    synthesized: Synthesize, plant: Callable[[Plant], None], said: str
) -> None:
    templates = plant_in(synthesized("p5"))
    plant(templates)
    verdict = templates.verdict()
    assert any(said in problem for problem in verdict), verdict
