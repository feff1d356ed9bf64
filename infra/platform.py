"""What lives inside the cluster before any job: device plugins, namespace, volume and claim.

A stack of its own so that it goes first when all is taken down. Jobs are not in
it: they change daily, and CloudFormation is a poor kubectl. Deleting it while a
pod still mounts the claim hangs, so delete the jobs before.
"""

from typing import Any

from aws_cdk import Duration
from aws_cdk import aws_eks_v2 as eks
from constructs import Construct

from infra import names
from infra.base import DeploymentStack
from infra.bootstrap import EFA_PRESENT_LABEL, GPU_TAINT
from infra.cluster import ClusterStack
from infra.settings import InfraSettings
from infra.storage import StorageStack

NVIDIA_CHART_VERSION = "0.20.0"
EFA_CHART_VERSION = "v0.5.30"

HELM_TIMEOUT = Duration.minutes(10)
"""Below the 15 minutes of the Lambda that runs helm, or a slow release stays locked for ever."""

GPU_TOLERATION = {
    "key": GPU_TAINT["key"],
    "operator": "Exists",
    "effect": GPU_TAINT["effect"],
}


class PlatformStack(DeploymentStack):
    def __init__(
        self,
        scope: Construct,
        *,
        settings: InfraSettings,
        cluster: ClusterStack,
        storage: StorageStack,
    ) -> None:
        super().__init__(scope, names.PLATFORM, settings=settings)
        groups = settings.node_groups.values()
        self._cluster = cluster.cluster
        if any(group.hardware.num_gpus for group in groups):
            self._nvidia_plugin()
        if any(group.hardware.num_efa for group in groups):
            self._efa_plugin(settings)
        namespace = self._apply("Namespace", [namespace_manifest(settings)])
        volume = self._apply("Volume", volume_manifests(settings, storage))
        volume.node.add_dependency(namespace)

    def _nvidia_plugin(self) -> None:
        self._helm(
            "nvidia-device-plugin",
            repository="https://nvidia.github.io/k8s-device-plugin",
            version=NVIDIA_CHART_VERSION,
            values={
                "tolerations": [GPU_TOLERATION],
                # From 0.19 on it hands every RDMA device to every GPU pod unless told not to.
                "mofedEnabled": False,
            },
        )

    def _efa_plugin(self, settings: InfraSettings) -> None:
        types = {g.instance_type for g in settings.node_groups.values() if g.hardware.num_efa}
        self._helm(
            "aws-efa-k8s-device-plugin",
            repository="https://aws.github.io/eks-charts",
            version=EFA_CHART_VERSION,
            values={
                "tolerations": [GPU_TOLERATION],  # none by default: it would run on no GPU node
                "nodeSelector": {EFA_PRESENT_LABEL: "true"},
                # The chart's own list of types lags behind new ones.
                "supportedInstanceLabels": {"values": sorted(types)},
            },
        )

    def _helm(self, chart: str, *, repository: str, version: str, values: dict[str, Any]) -> None:
        """Does not wait: a plugin's pods fit only nodes that may come days later."""
        eks.HelmChart(
            self,
            chart,
            cluster=self._cluster,
            chart=chart,
            release=chart,
            repository=repository,
            version=version,
            namespace="kube-system",
            create_namespace=False,
            values=values,
            wait=False,
            timeout=HELM_TIMEOUT,
        )

    def _apply(self, construct_id: str, manifest: list[dict[str, Any]]) -> eks.KubernetesManifest:
        return eks.KubernetesManifest(
            self, construct_id, cluster=self._cluster, manifest=manifest, prune=False
        )


def namespace_manifest(settings: InfraSettings) -> dict[str, Any]:
    """Training pods need no privilege: their nodes lift the limit on locked memory for EFA."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": settings.namespace,
            "labels": {
                "pod-security.kubernetes.io/enforce": "baseline",
                "pod-security.kubernetes.io/warn": "restricted",
            },
        },
    }


def volume_manifests(settings: InfraSettings, storage: StorageStack) -> list[dict[str, Any]]:
    """The file system as a volume, and the claim that binds to that one and to no other."""
    claim = {"namespace": settings.namespace, "name": settings.storage.claim}
    volume_name = f"{settings.namespace}-{settings.storage.claim}"
    size = f"{settings.storage.size_gib}Gi"
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": volume_name},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "mountOptions": ["flock"],
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **claim},
            "csi": {
                "driver": "fsx.csi.aws.com",
                "volumeHandle": storage.file_system_id,
                "volumeAttributes": {
                    "dnsname": storage.dns_name,
                    "mountname": storage.mount_name,
                },
            },
        },
    }
    volume_claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": claim,
        "spec": {
            "accessModes": ["ReadWriteMany"],
            # Empty, not absent: absent means the default class, which would make a second volume.
            "storageClassName": "",
            "volumeName": volume_name,
            "resources": {"requests": {"storage": size}},
        },
    }
    return [volume, volume_claim]
