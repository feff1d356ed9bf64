"""The pod of a training Job: one a node, all of that node's GPUs, nothing it does not need.

It runs without root, without capabilities and with a read-only file system, so
it is admitted where Pod Security is ``restricted``. Requests equal limits: the
pod is of the guaranteed class and the last that a node short of memory kills.
"""

from collections.abc import Mapping

from cdk8s_plus_35 import k8s

from deployment import FSX_MOUNT, Deployment
from infra.bootstrap import GPU_TAINT, GROUP_LABEL
from infra.hardware import InstanceType
from trainer.settings import TrainerSettings
from trainer.timeouts import Timeouts, derive_timeouts
from workloads.environment import container_environment
from workloads.launcher import RENDEZVOUS_PORT, SETTINGS_PATH, container_command

CONTAINER_NAME = "trainer"
USER_ID = 10001
UNREACHABLE_SECONDS = 60

POD_VARIABLES = {"POD_IP": "status.podIP", "STEADFAST_NODE": "spec.nodeName"}
"""What each pod fills in itself. The node's name is for whoever reads why a rank failed."""

_quantity = k8s.Quantity.from_string


def pod_template(
    job_name: str,
    *,
    deployment: Deployment,
    group: str,
    num_nodes: int,
    num_spare_nodes: int,
    settings: TrainerSettings,
    labels: Mapping[str, str],
    selector: Mapping[str, str],
) -> k8s.PodTemplateSpec:
    """The template of ``job_name``, whose headless Service and ConfigMap have the same name."""
    hardware = deployment.node_groups[group].hardware
    timeouts = derive_timeouts(settings.timeouts, device=settings.device)
    command = container_command(
        settings,
        nvrx_version=deployment.image.nvrx_version,
        num_nodes=num_nodes,
        num_spare_nodes=num_spare_nodes,
        workers_per_node=hardware.workers_per_node,
        # The name of index 0, not an address: a pod that replaces it is found again.
        rendezvous_host=f"{job_name}-0.{job_name}",
        rendezvous_id=job_name,
        timeouts=timeouts,
    )
    container = k8s.Container(
        name=CONTAINER_NAME,
        image=deployment.image_uri,
        image_pull_policy="IfNotPresent",
        command=list(command),
        env=_environment(settings, hardware, timeouts),
        ports=[k8s.ContainerPort(name="rendezvous", container_port=RENDEZVOUS_PORT)],
        resources=_resources(hardware),
        security_context=k8s.SecurityContext(
            allow_privilege_escalation=False,
            read_only_root_filesystem=True,
            capabilities=k8s.Capabilities(drop=["ALL"]),
        ),
        volume_mounts=_mounts(),
        termination_message_policy="FallbackToLogsOnError",
    )
    spec = k8s.PodSpec(
        subdomain=job_name,
        restart_policy="Never",
        automount_service_account_token=False,
        enable_service_links=False,
        termination_grace_period_seconds=timeouts.grace_seconds,
        affinity=_affinity(deployment, group, selector),
        tolerations=_tolerations(hardware),
        security_context=_pod_security(),
        containers=[container],
        volumes=_volumes(job_name, claim=deployment.storage.claim, hardware=hardware),
    )
    return k8s.PodTemplateSpec(metadata=k8s.ObjectMeta(labels=dict(labels)), spec=spec)


def _environment(
    settings: TrainerSettings, hardware: InstanceType, timeouts: Timeouts
) -> list[k8s.EnvVar]:
    fixed = container_environment(settings, hardware=hardware, timeouts=timeouts)
    return [
        *(
            k8s.EnvVar(
                name=name,
                value_from=k8s.EnvVarSource(field_ref=k8s.ObjectFieldSelector(field_path=path)),
            )
            for name, path in POD_VARIABLES.items()
        ),
        *(k8s.EnvVar(name=name, value=value) for name, value in fixed.items()),
    ]


def _resources(hardware: InstanceType) -> k8s.ResourceRequirements:
    amounts = {
        "cpu": _quantity(str(hardware.pod_cpus)),
        "memory": _quantity(f"{hardware.pod_memory_gib}Gi"),
    }
    if hardware.num_gpus:
        amounts["nvidia.com/gpu"] = _quantity(str(hardware.num_gpus))
    if hardware.num_efa:
        amounts["vpc.amazonaws.com/efa"] = _quantity(str(hardware.num_efa))
    if hardware.hugepages_mib:
        amounts["hugepages-2Mi"] = _quantity(f"{hardware.hugepages_mib}Mi")
    return k8s.ResourceRequirements(requests=amounts, limits=amounts)


def _mounts() -> list[k8s.VolumeMount]:
    settings_folder = SETTINGS_PATH.rpartition("/")[0]
    return [
        k8s.VolumeMount(name="shm", mount_path="/dev/shm"),
        k8s.VolumeMount(name="tmp", mount_path="/tmp"),
        k8s.VolumeMount(name="fsx", mount_path=str(FSX_MOUNT)),
        k8s.VolumeMount(name="settings", mount_path=settings_folder, read_only=True),
    ]


def _volumes(job_name: str, *, claim: str, hardware: InstanceType) -> list[k8s.Volume]:
    # Memory-backed, and counted against the container's own memory limit.
    shared_memory = k8s.EmptyDirVolumeSource(
        medium="Memory", size_limit=_quantity(f"{hardware.shared_memory_gib}Gi")
    )
    claimed = k8s.PersistentVolumeClaimVolumeSource(claim_name=claim)
    return [
        k8s.Volume(name="shm", empty_dir=shared_memory),
        k8s.Volume(name="tmp", empty_dir=k8s.EmptyDirVolumeSource()),
        k8s.Volume(name="fsx", persistent_volume_claim=claimed),
        k8s.Volume(name="settings", config_map=k8s.ConfigMapVolumeSource(name=job_name)),
    ]


def _affinity(deployment: Deployment, group: str, selector: Mapping[str, str]) -> k8s.Affinity:
    required = {
        GROUP_LABEL: group,
        "node.kubernetes.io/instance-type": deployment.node_groups[group].instance_type,
        "topology.kubernetes.io/zone": deployment.training_zone,
    }
    term = k8s.NodeSelectorTerm(
        match_expressions=[
            k8s.NodeSelectorRequirement(key=key, operator="In", values=[value])
            for key, value in required.items()
        ]
    )
    one_pod_a_node = k8s.PodAffinityTerm(
        topology_key="kubernetes.io/hostname",
        label_selector=k8s.LabelSelector(match_labels=dict(selector)),
    )
    return k8s.Affinity(
        node_affinity=k8s.NodeAffinity(
            required_during_scheduling_ignored_during_execution=k8s.NodeSelector(
                node_selector_terms=[term]
            )
        ),
        pod_anti_affinity=k8s.PodAntiAffinity(
            required_during_scheduling_ignored_during_execution=[one_pod_a_node]
        ),
    )


def _tolerations(hardware: InstanceType) -> list[k8s.Toleration]:
    # Kubernetes tolerates a silent node for 300 s by default; all other nodes wait meanwhile.
    lost_node = [
        k8s.Toleration(
            key=f"node.kubernetes.io/{condition}",
            operator="Exists",
            effect="NoExecute",
            toleration_seconds=UNREACHABLE_SECONDS,
        )
        for condition in ("not-ready", "unreachable")
    ]
    if not hardware.num_gpus:
        return lost_node
    gpus = k8s.Toleration(key=GPU_TAINT["key"], operator="Exists", effect=GPU_TAINT["effect"])
    return [gpus, *lost_node]


def _pod_security() -> k8s.PodSecurityContext:
    return k8s.PodSecurityContext(
        run_as_non_root=True,
        run_as_user=USER_ID,
        run_as_group=USER_ID,
        # Makes the root of a fresh file system ours. OnRootMismatch, or the kubelet walks the
        # whole of it each time a pod starts.
        fs_group=USER_ID,
        fs_group_change_policy="OnRootMismatch",
        seccomp_profile=k8s.SeccompProfile(type="RuntimeDefault"),
    )
