"""A rendered training Job, read into what a rehearsal needs.

Whatever would change what happens, and cannot be imitated on one computer, is
refused by name. What only says where and with how much a pod runs (resources,
placement, security context) is left aside, and the rehearsal says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workloads.rehearsal.job_controller import ExitCodeRule, FailureAction, JobPolicy

Document = Mapping[str, Any]

INDEX_KEY = "batch.kubernetes.io/job-completion-index"
POD_FIELDS = (
    "status.podIP",
    "status.hostIP",
    "spec.nodeName",
    "metadata.name",
    "metadata.namespace",
    f"metadata.annotations['{INDEX_KEY}']",
    f"metadata.labels['{INDEX_KEY}']",
)

_REFUSED = {
    "Job": ("successPolicy", "activeDeadlineSeconds", "managedBy"),
    "pod": ("initContainers", "hostNetwork", "shareProcessNamespace"),
    "container": ("envFrom", "lifecycle", "livenessProbe", "startupProbe", "restartPolicyRules"),
}


class RehearsalError(ValueError):
    """A run that cannot be rehearsed; one line that says why."""


@dataclass(frozen=True, slots=True)
class FieldRef:
    """A value that each pod fills in itself, such as ``status.podIP``."""

    path: str


@dataclass(frozen=True, slots=True)
class Claim:
    name: str


@dataclass(frozen=True, slots=True)
class EmptyDir:
    in_memory: bool


@dataclass(frozen=True, slots=True)
class ConfigFiles:
    name: str
    files: tuple[tuple[str, str], ...]
    """Relative path and content."""


@dataclass(frozen=True, slots=True)
class Mount:
    path: str
    volume: str
    source: Claim | EmptyDir | ConfigFiles


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    namespace: str
    service: str | None
    """The headless Service that gives the pods their names in DNS."""

    ports: tuple[int, ...]
    policy: JobPolicy
    grace_seconds: float
    command: tuple[str, ...]
    working_directory: str | None
    environment: tuple[tuple[str, str | FieldRef], ...]
    missing_secrets: tuple[str, ...]
    """Variables left out because their optional secret is not on this computer."""

    mounts: tuple[Mount, ...]
    resources: Mapping[str, Any]


def read_job(documents: Sequence[Document]) -> Job:
    """The one Job among ``documents``, with the ConfigMaps and the Service that it names.

    Raises:
        RehearsalError: there is not exactly one Job, or it has a part that is not rehearsed.
    """
    jobs = [document for document in documents if document.get("kind") == "Job"]
    if len(jobs) != 1:
        raise RehearsalError(f"a run must render exactly one Job, got {len(jobs)}")
    job = jobs[0]
    name = job["metadata"]["name"]
    spec, pod, container = _parts(name, job)
    config_maps = _named(documents, "ConfigMap")
    services = _named(documents, "Service")
    service = pod.get("subdomain")
    if service is not None and service not in services:
        raise RehearsalError(f"Job {name!r}: subdomain {service!r} names no rendered Service")
    environment, missing_secrets = _environment(name, container, config_maps)
    return Job(
        name=name,
        namespace=job["metadata"].get("namespace", "default"),
        service=service,
        ports=tuple(p["port"] for p in services[service]["spec"]["ports"]) if service else (),
        policy=_policy(spec),
        grace_seconds=pod.get("terminationGracePeriodSeconds", 30),
        command=(*container["command"], *container.get("args", ())),
        working_directory=container.get("workingDir"),
        environment=environment,
        missing_secrets=missing_secrets,
        mounts=_mounts(name, pod, container, config_maps),
        resources=container.get("resources", {}).get("limits", {}),
    )


def _parts(name: str, job: Document) -> tuple[Document, Document, Document]:
    """The specs of the Job, its pod and its container, with nothing in them that is refused."""
    spec = job["spec"]
    pod = spec["template"]["spec"]
    containers = pod["containers"]
    if len(containers) != 1:
        raise RehearsalError(
            f"Job {name!r}: a pod must have one container, got "
            f"{', '.join(each['name'] for each in containers)}"
        )
    for kind, part in (("Job", spec), ("pod", pod), ("container", containers[0])):
        for key in _REFUSED[kind]:
            if part.get(key):
                raise RehearsalError(f"Job {name!r}: {key} of the {kind} is not rehearsed")
    if spec.get("completionMode") != "Indexed" or "backoffLimitPerIndex" not in spec:
        raise RehearsalError(
            f"Job {name!r}: only an Indexed Job with backoffLimitPerIndex is rehearsed"
        )
    if spec.get("parallelism", 1) != spec["completions"]:
        raise RehearsalError(
            f"Job {name!r}: parallelism {spec.get('parallelism', 1)} must equal completions "
            f"{spec['completions']}, since all pods of a training run work together"
        )
    if not containers[0].get("command"):
        raise RehearsalError(
            f"Job {name!r}: the container has no command, and its image's own is not known here"
        )
    return spec, pod, containers[0]


def _policy(spec: Document) -> JobPolicy:
    rules = spec.get("podFailurePolicy", {}).get("rules", ())
    return JobPolicy(
        completions=spec["completions"],
        backoff_limit_per_index=spec["backoffLimitPerIndex"],
        max_failed_indexes=spec.get("maxFailedIndexes"),
        rules=tuple(
            ExitCodeRule(
                action=FailureAction(rule["action"]),
                exit_codes=frozenset(rule["onExitCodes"]["values"]),
                is_negated=rule["onExitCodes"]["operator"] == "NotIn",
            )
            for rule in rules
            # The other kind of rule looks at a pod's conditions, and nothing here sets one.
            if "onExitCodes" in rule
        ),
    )


def _environment(
    job: str, container: Document, config_maps: Mapping[str, Document]
) -> tuple[tuple[tuple[str, str | FieldRef], ...], tuple[str, ...]]:
    """The variables in order, and the names of those whose optional secret is missing."""
    variables: list[tuple[str, str | FieldRef]] = []
    missing: list[str] = []
    for entry in container.get("env", ()):
        match entry.get("valueFrom"):
            case None:
                variables.append((entry["name"], entry.get("value", "")))
            case {"fieldRef": {"fieldPath": path}} if path in POD_FIELDS:
                variables.append((entry["name"], FieldRef(path)))
            case {"configMapKeyRef": {"name": name, "key": key}} if name in config_maps:
                variables.append((entry["name"], config_maps[name]["data"][key]))
            case {"secretKeyRef": {"optional": True}}:
                missing.append(entry["name"])
            case source:
                raise RehearsalError(
                    f"Job {job!r}: variable {entry['name']} comes from {source}, which this "
                    "computer cannot supply; make it optional or give a value"
                )
    return tuple(variables), tuple(missing)


def _mounts(
    job: str, pod: Document, container: Document, config_maps: Mapping[str, Document]
) -> tuple[Mount, ...]:
    volumes = {volume["name"]: volume for volume in pod.get("volumes", ())}
    mounts = []
    for mount in container.get("volumeMounts", ()):
        if "subPath" in mount or "subPathExpr" in mount:
            raise RehearsalError(f"Job {job!r}: subPath of {mount['mountPath']} is not rehearsed")
        volume = volumes[mount["name"]]
        mounts.append(
            Mount(
                path=mount["mountPath"].rstrip("/"),
                volume=volume["name"],
                source=_source(job, volume, config_maps),
            )
        )
    return tuple(mounts)


def _source(
    job: str, volume: Document, config_maps: Mapping[str, Document]
) -> Claim | EmptyDir | ConfigFiles:
    match volume:
        case {"persistentVolumeClaim": {"claimName": claim}}:
            return Claim(claim)
        case {"emptyDir": empty_dir}:
            return EmptyDir(in_memory=(empty_dir or {}).get("medium") == "Memory")
        case {"configMap": {"name": name} as reference} if name in config_maps:
            data = config_maps[name]["data"]
            paths = {item["key"]: item["path"] for item in reference.get("items", ())}
            chosen = paths or {key: key for key in data}
            return ConfigFiles(name, tuple((path, data[key]) for key, path in chosen.items()))
        case _:
            kind = next((key for key in volume if key != "name"), "nothing")
            raise RehearsalError(
                f"Job {job!r}: volume {volume['name']!r} is {kind} {volume.get(kind)}, which this "
                "computer cannot supply"
            )


def _named(documents: Sequence[Document], kind: str) -> dict[str, Document]:
    return {each["metadata"]["name"]: each for each in documents if each.get("kind") == kind}
