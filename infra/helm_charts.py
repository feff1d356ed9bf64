"""Which charts make GPUs and EFA devices schedulable, and the values they are installed with.

The platform stack installs them; without it, the same values are written for
``helm``. No chart may be waited for: its pods fit only nodes that may come days later.
Not covered: whether a chart accepts a value, which only the chart itself knows.
"""

from dataclasses import dataclass
from typing import Any

from infra.bootstrap import EFA_PRESENT_LABEL, GPU_TAINT, STORAGE_TAINT
from infra.settings import InfraSettings

NAMESPACE = "kube-system"
NVIDIA_VERSION = "0.20.0"
EFA_VERSION = "v0.5.30"

USUAL_REGISTRY = "602401143452"
REGISTRIES = {
    "af-south-1": "877085696533",
    "ap-east-1": "800184023465",
    "ap-east-2": "533267051163",
    "ap-south-2": "900889452093",
    "ap-southeast-3": "296578399912",
    "ap-southeast-4": "491585149902",
    "ap-southeast-5": "151610086707",
    "ap-southeast-6": "333609536671",
    "ap-southeast-7": "121268973566",
    "ca-west-1": "761377655185",
    "eu-central-2": "900612956339",
    "eu-south-1": "590381155156",
    "eu-south-2": "455263428931",
    "il-central-1": "066635153087",
    "me-central-1": "759879836304",
    "me-south-1": "558608220178",
    "mx-central-1": "730335286997",
    "us-gov-east-1": "151742754352",
    "us-gov-west-1": "013241004608",
}
"""Account of EKS's images, in the regions where it is not the usual one.

From docs.aws.amazon.com/eks/latest/userguide/add-ons-images.html. China is not covered, here as
for the images of a deployment: its registries have another domain.
"""

_TOLERATIONS = (
    {"key": GPU_TAINT["key"], "operator": "Exists", "effect": GPU_TAINT["effect"]},
    # Any effect: a plugin uses no storage, so it need not wait for the driver.
    {"key": STORAGE_TAINT["key"], "operator": "Exists"},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HelmChart:
    release: str
    chart: str
    repository: str
    version: str
    namespace: str
    values: dict[str, Any]


def device_plugins(settings: InfraSettings) -> tuple[HelmChart, ...]:
    """A plugin for each kind of device that some node group has."""
    hardware = [group.hardware for group in settings.node_groups.values()]
    charts = []
    if any(type_.num_gpus for type_ in hardware):
        charts.append(_nvidia())
    if with_efa := sorted({type_.name for type_ in hardware if type_.num_efa}):
        charts.append(_efa(settings.region, with_efa))
    return tuple(charts)


def _nvidia() -> HelmChart:
    """It runs on nodes with the label ``nvidia.com/gpu.present``, as the chart's affinity asks."""
    return HelmChart(
        release="nvidia-device-plugin",
        chart="nvidia-device-plugin",
        repository="https://nvidia.github.io/k8s-device-plugin",
        version=NVIDIA_VERSION,
        namespace=NAMESPACE,
        values={
            "tolerations": _tolerations(),
            # From 0.19 on it hands every RDMA device to every GPU pod unless told not to.
            "mofedEnabled": False,
        },
    )


def _efa(region: str, instance_types: list[str]) -> HelmChart:
    account = REGISTRIES.get(region, USUAL_REGISTRY)
    registry = f"{account}.dkr.ecr.{region}.amazonaws.com"
    return HelmChart(
        release="aws-efa-k8s-device-plugin",
        chart="aws-efa-k8s-device-plugin",
        repository="https://aws.github.io/eks-charts",
        version=EFA_VERSION,
        namespace=NAMESPACE,
        values={
            # The chart's own is us-west-2's, which endpoints inside another region do not reach.
            "image": {"repository": f"{registry}/eks/aws-efa-k8s-device-plugin"},
            "tolerations": _tolerations(),  # none by default: it would run on no GPU node
            "nodeSelector": {EFA_PRESENT_LABEL: "true"},
            # The chart's own list of types lags behind new ones.
            "supportedInstanceLabels": {"values": instance_types},
        },
    )


def _tolerations() -> list[dict[str, str]]:
    return [dict(toleration) for toleration in _TOLERATIONS]
