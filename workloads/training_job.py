"""One run as Kubernetes objects: its settings, the name of its pods, and the Job.

The Job survives what happens to its nodes: an evicted pod is replaced and not
counted, a failed one is replaced with growing delays. A failure that no retry
mends (see ``trainer.exit_codes``) ends the Job at once and frees every GPU. Not
covered: a node that goes silent but is never deleted keeps its pod's place,
because Kubernetes waits for the old pod to be gone; node repair must remove it.
"""

import json

import cdk8s
from cdk8s_plus_35 import k8s
from constructs import Construct

from deployment import Deployment
from trainer import exit_codes
from trainer.settings import RecoveryLayer, TrainerSettings
from workloads.launcher import RENDEZVOUS_PORT, SETTINGS_PATH
from workloads.pod import CONTAINER_NAME, pod_template

FINAL_EXIT_CODES = (
    exit_codes.USAGE,
    exit_codes.REPEATED,
    exit_codes.CANNOT_WRITE,
    exit_codes.CONFIG,
)
"""Each try would meet the same. The API server takes them in ascending order only."""

KEEP_FINISHED_SECONDS = 7 * 24 * 3600
"""Kubernetes deletes the logs with the Job, so a finished one stays for a week."""


class TrainingJob(cdk8s.Chart):
    """ConfigMap, headless Service and Indexed Job of one run, all named ``id``."""

    def __init__(self, scope: Construct, id: str, *, deployment: Deployment, run_name: str) -> None:
        # Names are what pods find each other by, so nothing may be appended to them.
        super().__init__(
            scope, id, namespace=deployment.namespace, disable_resource_name_hashes=True
        )
        run = deployment.runs[run_name]
        settings = deployment.trainer_settings(run_name)
        selector = {"app.kubernetes.io/instance": id}
        labels = {
            "app.kubernetes.io/name": run_name,
            "app.kubernetes.io/component": CONTAINER_NAME,
            "app.kubernetes.io/part-of": "steadfast",
            **selector,
        }
        metadata = k8s.ObjectMeta(name=id, labels=labels)
        config = k8s.KubeConfigMap(
            self,
            "settings",
            metadata=metadata,
            immutable=True,
            data={SETTINGS_PATH.rpartition("/")[2]: settings_file(settings)},
        )
        service = k8s.KubeService(self, "service", metadata=metadata, spec=_service(selector))
        num_pods = run.num_nodes + run.num_spare_nodes
        replaced = settings.recovery.layer is not RecoveryLayer.NONE
        job = k8s.KubeJob(
            self,
            "job",
            metadata=metadata,
            spec=k8s.JobSpec(
                completion_mode="Indexed",
                completions=num_pods,
                parallelism=num_pods,
                backoff_limit_per_index=run.backoff_limit_per_index if replaced else 0,
                # Without it, pods whose peer is lost for good would keep their GPUs for ever.
                max_failed_indexes=0,
                pod_failure_policy=_failure_policy(),
                pod_replacement_policy="Failed",
                ttl_seconds_after_finished=KEEP_FINISHED_SECONDS,
                template=pod_template(
                    id,
                    deployment=deployment,
                    group=deployment.group_name(run_name),
                    num_nodes=run.num_nodes,
                    num_spare_nodes=run.num_spare_nodes,
                    settings=settings,
                    labels=labels,
                    selector=selector,
                ),
            ),
        )
        job.add_dependency(config, service)


def settings_file(settings: TrainerSettings) -> str:
    """The settings as the trainer reads them, in an order that does not change."""
    return json.dumps(settings.model_dump(mode="json"), indent=2, sort_keys=True) + "\n"


def _service(selector: dict[str, str]) -> k8s.ServiceSpec:
    return k8s.ServiceSpec(
        cluster_ip="None",
        # A pod must be found before it is ready: it gets ready by finding the others.
        publish_not_ready_addresses=True,
        selector=selector,
        ports=[k8s.ServicePort(name="rendezvous", port=RENDEZVOUS_PORT)],
    )


def _failure_policy() -> k8s.PodFailurePolicy:
    disrupted = k8s.PodFailurePolicyOnPodConditionsPattern(type="DisruptionTarget", status="True")
    final = k8s.PodFailurePolicyOnExitCodesRequirement(
        container_name=CONTAINER_NAME, operator="In", values=list(FINAL_EXIT_CODES)
    )
    return k8s.PodFailurePolicy(
        rules=[
            k8s.PodFailurePolicyRule(action="Ignore", on_pod_conditions=[disrupted]),
            k8s.PodFailurePolicyRule(action="FailJob", on_exit_codes=final),
        ]
    )
