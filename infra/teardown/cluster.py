"""What runs in the cluster and mounts the file system: looked at, deleted, waited for."""

from typing import Any

from infra.kubectl import Kubectl, KubectlError
from infra.lustre import FSX_DRIVER, volume_name
from infra.settings import InfraSettings
from infra.teardown.plan import Answer, Found, FoundPod, claim_name
from infra.teardown.waiting import Pace, StepFailed, wait_until_gone
from infra.wording import some_of

Object = dict[str, Any]


def look_inside(settings: InfraSettings, kubectl: Kubectl) -> Found:
    """Everything but the stacks; a cluster that cannot be asked is ``SILENT``."""
    try:
        jobs = kubectl.get("jobs.batch", namespace=settings.namespace)
        claims = kubectl.get("persistentvolumeclaims", namespace=settings.namespace)
        volumes = kubectl.get("persistentvolumes")
        pods = _pods(settings, volumes, kubectl.get("pods"))
    except KubectlError as error:
        return Found(cluster=Answer.SILENT, why_silent=str(error))
    return Found(
        cluster=Answer.ANSWERS,
        jobs=tuple(sorted(job["metadata"]["name"] for job in jobs)),
        pods=pods,
        claim=any(claim["metadata"]["name"] == settings.storage.claim for claim in claims),
        volume=any(volume["metadata"]["name"] == volume_name(settings) for volume in volumes),
    )


def delete_jobs(settings: InfraSettings, kubectl: Kubectl) -> None:
    """In the foreground, so that a Job is there as long as a pod of it is. Does not wait."""
    where = ["--all", "--namespace", settings.namespace]
    _run(kubectl, ["delete", "jobs.batch", *where, "--cascade=foreground", "--wait=false"])


def wait_for_pods(settings: InfraSettings, kubectl: Kubectl, pace: Pace) -> None:
    """Until no pod of a job is left.

    Raises:
        StepFailed: one stayed, as happens to a pod whose node is silent.
    """

    def left() -> list[Object]:
        pods = _get(kubectl, "pods", namespace=settings.namespace)
        return [pod for pod in pods if _owner(pod).startswith("Job/")]

    def look() -> str | None:
        pods = [f"{_name(pod)} on {pod['spec'].get('nodeName', 'no node')}" for pod in left()]
        if not pods:
            return None
        return f"{len(pods)} pods of namespace {settings.namespace}: {some_of(pods)}"

    grace = max((pod["spec"]["terminationGracePeriodSeconds"] for pod in left()), default=0)
    remedy = "if its node is dead, terminate the instance, then run again"
    wait_until_gone(pace, grace + pace.pods_seconds, look, remedy=remedy)


def refuse_if_mounted(settings: InfraSettings, kubectl: Kubectl) -> None:
    """Once more after the jobs: a pod may have come since the plan was made.

    Raises:
        StepFailed: a pod mounts the file system.
    """
    pods = _pods(settings, _get(kubectl, "persistentvolumes"), _get(kubectl, "pods"))
    for pod in pods:
        if pod.mounts:
            raise StepFailed(
                f"pod {pod} of {pod.owner} mounts the file system; it came meanwhile, so stop "
                "whoever submits and run again"
            )


def delete_claim(settings: InfraSettings, kubectl: Kubectl, pace: Pace) -> None:
    where = ["--namespace", settings.namespace, "--wait=false", "--ignore-not-found"]
    kind, name = "persistentvolumeclaims", settings.storage.claim
    _run(kubectl, ["delete", kind, name, *where])

    def look() -> str | None:
        left = _get(kubectl, kind, namespace=settings.namespace)
        there = any(claim["metadata"]["name"] == name for claim in left)
        return f"claim {claim_name(settings)} is held by its finalizers" if there else None

    remedy = f"'kubectl describe pvc {name} --namespace {settings.namespace}' says who uses it"
    wait_until_gone(pace, pace.objects_seconds, look, remedy=remedy)


def delete_volume(settings: InfraSettings, kubectl: Kubectl, pace: Pace) -> None:
    """The object in Kubernetes; the file system goes with the storage stack."""
    kind, name = "persistentvolumes", volume_name(settings)
    _run(kubectl, ["delete", kind, name, "--wait=false", "--ignore-not-found"])

    def look() -> str | None:
        there = any(volume["metadata"]["name"] == name for volume in _get(kubectl, kind))
        return f"volume {name} is held by its finalizers" if there else None

    wait_until_gone(pace, pace.objects_seconds, look, remedy=f"see 'kubectl describe pv {name}'")


def _pods(
    settings: InfraSettings, volumes: list[Object], pods: list[Object]
) -> tuple[FoundPod, ...]:
    """Of every namespace, for any may have a volume of its own of the same file system."""
    claims = {(settings.namespace, settings.storage.claim)}
    for volume in volumes:
        spec = volume["spec"]
        if spec.get("csi", {}).get("driver") == FSX_DRIVER and "claimRef" in spec:
            claims.add((spec["claimRef"]["namespace"], spec["claimRef"]["name"]))
    return tuple(
        FoundPod(
            namespace=pod["metadata"]["namespace"],
            name=_name(pod),
            owner=_owner(pod),
            of_a_job=_owner(pod).startswith("Job/"),
            mounts=any((pod["metadata"]["namespace"], name) in claims for name in _claims(pod)),
        )
        for pod in pods
    )


def _claims(pod: Object) -> list[str]:
    sources = (volume.get("persistentVolumeClaim") for volume in pod["spec"].get("volumes", []))
    return [source["claimName"] for source in sources if source]


def _name(pod: Object) -> str:
    return str(pod["metadata"]["name"])


def _owner(pod: Object) -> str:
    for owner in pod["metadata"].get("ownerReferences", []):
        if owner.get("controller"):
            return f"{owner['kind']}/{owner['name']}"
    return "nobody"


def _get(kubectl: Kubectl, kind: str, *, namespace: str | None = None) -> list[Object]:
    try:
        return kubectl.get(kind, namespace=namespace)
    except KubectlError as error:
        raise StepFailed(str(error)) from error


def _run(kubectl: Kubectl, arguments: list[str]) -> None:
    try:
        kubectl.run(arguments)
    except KubectlError as error:
        raise StepFailed(str(error)) from error
