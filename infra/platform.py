"""What lives inside the cluster before any job: device plugins, the claim, node repair.

A stack of its own so that it goes first when all is taken down. Jobs are not in
it: they change daily, and CloudFormation is a poor kubectl. Deleting it while a
pod still mounts the claim hangs, so delete the jobs before.
"""

from typing import Any

import cdk8s
from aws_cdk import Duration
from aws_cdk import aws_eks_v2 as eks
from constructs import Construct

from infra import names
from infra.base import DeploymentStack
from infra.cluster import ClusterStack
from infra.helm_charts import HelmChart, device_plugins
from infra.platform_chart import PlatformChart
from infra.repair_chart import RepairChart
from infra.settings import InfraSettings
from infra.storage import StorageStack

HELM_TIMEOUT = Duration.minutes(10)
"""Below the 15 minutes of the Lambda that runs helm, or a slow release stays locked for ever."""


class PlatformStack(DeploymentStack):
    """Applies the charts that ``workloads synth --outputs`` writes where nobody deploys this."""

    def __init__(
        self,
        scope: Construct,
        *,
        settings: InfraSettings,
        cluster: ClusterStack,
        storage: StorageStack,
    ) -> None:
        super().__init__(scope, names.PLATFORM, settings=settings)
        self._cluster = cluster.cluster
        for chart in device_plugins(settings):
            self._install(chart)
        platform = PlatformChart(
            cdk8s.App(),
            "platform",
            settings=settings,
            file_system_id=storage.file_system_id,
            dns_name=storage.dns_name,
            mount_name=storage.mount_name,
        )
        self._apply_one_by_one(platform)
        if settings.node_repair:
            # Its pods may lack their image for days; nothing here waits for a pod.
            repair = RepairChart(cdk8s.App(), "node-repair", settings=settings)
            self._apply("NodeRepair", repair.to_json())

    def _install(self, chart: HelmChart) -> None:
        """Does not wait: a plugin's pods fit only nodes that may come days later."""
        eks.HelmChart(
            self,
            chart.release,
            cluster=self._cluster,
            chart=chart.chart,
            release=chart.release,
            repository=chart.repository,
            version=chart.version,
            namespace=chart.namespace,
            create_namespace=False,
            values=chart.values,
            wait=False,
            timeout=HELM_TIMEOUT,
        )

    def _apply_one_by_one(self, chart: cdk8s.Chart) -> None:
        """In the order of the chart, so that they are deleted backwards.

        A claim in use then holds the deletion up, which would otherwise begin with the
        namespace and end every job in it.
        """
        previous: eks.KubernetesManifest | None = None
        for document in chart.to_json():
            manifest = self._apply(document["kind"], [document])
            if previous:
                manifest.node.add_dependency(previous)
            previous = manifest

    def _apply(self, construct_id: str, documents: list[dict[str, Any]]) -> eks.KubernetesManifest:
        return eks.KubernetesManifest(
            self,
            construct_id,
            cluster=self._cluster,
            manifest=documents,
            # The first time too with 'apply'. CDK's 'create' fails on what is there already: from
            # before the stack, or from its own first try, which it repeats after a timeout.
            overwrite=True,
            prune=False,
        )
