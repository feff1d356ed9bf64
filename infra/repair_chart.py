"""Node repair as Kubernetes objects: a command that looks at all nodes once a minute and exits.

A CronJob that forbids overlap is never two controllers at once, and needs no
leader election and no memory between passes but one ConfigMap. It may
list and patch nodes, read and patch that ConfigMap, and nothing else.
"""

import cdk8s
from cdk8s_plus_35 import k8s
from constructs import Construct

from infra.bootstrap import BOOT_SECONDS, SYSTEM_LABELS
from infra.settings import InfraSettings, NodeRepair
from node_repair.settings import NAMESPACE, RECORD, SERVICE_ACCOUNT, RepairSettings

NAME = "node-repair"
LABELS = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/part-of": "steadfast"}
PASS_SECONDS = 120
"""A pass makes a few short calls; a hung one must not block the next for long."""

USER_ID = 10001

_SETTINGS_FOLDER = "/etc/node-repair"
_SETTINGS_FILE = "settings.json"
_RBAC = "rbac.authorization.k8s.io"

_quantity = k8s.Quantity.from_string


class RepairChart(cdk8s.Chart):
    """All objects of the controller, its namespace included. ``settings`` must have it on."""

    def __init__(self, scope: Construct, id: str, *, settings: InfraSettings) -> None:
        # The pod identity association names the service account, so nothing may be appended.
        super().__init__(scope, id, labels=LABELS, disable_resource_name_hashes=True)
        assert settings.node_repair is not None
        k8s.KubeNamespace(
            self,
            "namespace",
            metadata=k8s.ObjectMeta(
                name=NAMESPACE, labels={"pod-security.kubernetes.io/enforce": "restricted"}
            ),
        )
        k8s.KubeServiceAccount(
            self,
            "account",
            metadata=_inside(SERVICE_ACCOUNT),
            automount_service_account_token=False,  # its one pod asks for it
        )
        self._grant_nodes()
        self._grant_record()
        config = k8s.KubeConfigMap(
            self,
            "settings",
            metadata=_inside(NAME),
            data={_SETTINGS_FILE: repair_settings(settings, settings.node_repair).to_json()},
        )
        # Its data is the controller's. Without a data field here, applying it again leaves that.
        record = k8s.KubeConfigMap(self, "record", metadata=_inside(RECORD))
        image = settings.uri_of(settings.node_repair.image)
        job = k8s.KubeCronJob(self, "job", metadata=_inside(NAME), spec=_schedule(image))
        job.add_dependency(config, record)

    def _grant_nodes(self) -> None:
        """Kubernetes has no narrower right for a cordon or a taint than to patch the node."""
        rule = k8s.PolicyRule(api_groups=[""], resources=["nodes"], verbs=["list", "patch"])
        outside = k8s.ObjectMeta(name=NAME)
        k8s.KubeClusterRole(self, "node-rights", metadata=outside, rules=[rule])
        k8s.KubeClusterRoleBinding(
            self,
            "node-binding",
            metadata=outside,
            role_ref=k8s.RoleRef(api_group=_RBAC, kind="ClusterRole", name=NAME),
            subjects=[_account()],
        )

    def _grant_record(self) -> None:
        rule = k8s.PolicyRule(
            api_groups=[""],
            resources=["configmaps"],
            resource_names=[RECORD],
            verbs=["get", "patch"],
        )
        k8s.KubeRole(self, "record-rights", metadata=_inside(NAME), rules=[rule])
        k8s.KubeRoleBinding(
            self,
            "record-binding",
            metadata=_inside(NAME),
            role_ref=k8s.RoleRef(api_group=_RBAC, kind="Role", name=NAME),
            subjects=[_account()],
        )


def repair_settings(settings: InfraSettings, repair: NodeRepair) -> RepairSettings:
    """What the controller is told of the deployment."""
    return RepairSettings(
        cluster=settings.name,
        region=settings.region,
        auto_scaling_groups=tuple(
            settings.auto_scaling_group_name(group) for group in settings.node_groups
        ),
        mode=repair.mode,
        accelerator_seconds=repair.accelerator_seconds,
        not_ready_seconds=repair.not_ready_seconds,
        boot_seconds=BOOT_SECONDS,
        max_at_once=repair.max_at_once,
        max_per_hour=repair.max_per_hour,
    )


def _inside(name: str) -> k8s.ObjectMeta:
    return k8s.ObjectMeta(name=name, namespace=NAMESPACE)


def _account() -> k8s.Subject:
    return k8s.Subject(kind="ServiceAccount", name=SERVICE_ACCOUNT, namespace=NAMESPACE)


def _schedule(image: str) -> k8s.CronJobSpec:
    pod = k8s.PodTemplateSpec(metadata=k8s.ObjectMeta(labels=LABELS), spec=_pod(image))
    job = k8s.JobSpec(
        active_deadline_seconds=PASS_SECONDS,
        backoff_limit=0,  # the next pass is a minute away
        template=pod,
    )
    return k8s.CronJobSpec(
        schedule="* * * * *",
        concurrency_policy="Forbid",
        # Passes missed while the control plane was away are not made up for.
        starting_deadline_seconds=60,
        successful_jobs_history_limit=1,
        failed_jobs_history_limit=3,
        job_template=k8s.JobTemplateSpec(spec=job),
    )


def _pod(image: str) -> k8s.PodSpec:
    container = k8s.Container(
        name=NAME,
        image=image,
        image_pull_policy="IfNotPresent",
        command=["python", "-m", "node_repair"],
        args=["--settings", f"{_SETTINGS_FOLDER}/{_SETTINGS_FILE}"],
        resources=k8s.ResourceRequirements(
            requests={"cpu": _quantity("50m"), "memory": _quantity("128Mi")},
            limits={"cpu": _quantity("1"), "memory": _quantity("256Mi")},
        ),
        security_context=k8s.SecurityContext(
            allow_privilege_escalation=False,
            read_only_root_filesystem=True,
            capabilities=k8s.Capabilities(drop=["ALL"]),
        ),
        volume_mounts=[
            k8s.VolumeMount(name="settings", mount_path=_SETTINGS_FOLDER, read_only=True)
        ],
        termination_message_policy="FallbackToLogsOnError",
    )
    return k8s.PodSpec(
        service_account_name=SERVICE_ACCOUNT,
        automount_service_account_token=True,
        enable_service_links=False,
        restart_policy="Never",
        node_selector=SYSTEM_LABELS,
        security_context=k8s.PodSecurityContext(
            run_as_non_root=True,
            run_as_user=USER_ID,
            run_as_group=USER_ID,
            seccomp_profile=k8s.SeccompProfile(type="RuntimeDefault"),
        ),
        containers=[container],
        volumes=[k8s.Volume(name="settings", config_map=k8s.ConfigMapVolumeSource(name=NAME))],
    )
