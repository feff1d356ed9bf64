"""One pod of a rendered Job as a process of this computer: command, environment, files.

Pure. What the container would be told is kept; only the names of things that
exist in the cluster are replaced by where those things are here: mount paths
by folders, the pods' names in DNS by the loopback address, the Service's ports
by free ones.

Not covered: names that a shell in the container puts together at run time, and
output folders whose path a shell would have to quote.
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from workloads.rehearsal.job import INDEX_KEY, Claim, ConfigFiles, EmptyDir, FieldRef, Job, Mount

LOOPBACK = ipaddress.IPv4Address("127.0.0.1")
SHARED_MEMORY = "/dev/shm"
TEMPORARY = "/tmp"


@dataclass(frozen=True, slots=True)
class Places:
    """Where the things of the cluster are on this computer, for one rehearsal."""

    run_folder: Path
    scratch: Path
    """Short path for the empty folders of pods: a Unix socket's path may have 107 bytes."""

    ports: Mapping[int, int]
    python: str
    base_environment: Mapping[str, str]
    working_directory: Path
    """What the image has as its own: the folder with our packages."""

    @property
    def pods(self) -> Path:
        return self.run_folder / "pods"

    def volume(self, claim: str) -> Path:
        return self.run_folder / "volumes" / claim


@dataclass(frozen=True, slots=True)
class PodPlan:
    name: str
    index: int
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    working_directory: Path
    folders: tuple[Path, ...]
    """Folders that must exist before the pod starts."""

    files: tuple[tuple[Path, str], ...]
    log: Path
    scratch: Path
    """What Kubernetes deletes with the pod."""


def plan_pod(job: Job, places: Places, *, index: int, replacement: int) -> PodPlan:
    """The pod of completion ``index``; ``replacement`` counts the pods that it had before."""
    name = f"{job.name}-{index}-r{replacement}"
    scratch = places.scratch / f"{index}-r{replacement}"
    folders = {
        mount.path: _folder(mount, places, pod=places.pods / name, scratch=scratch)
        for mount in job.mounts
    }
    variables = _variables(job, pod_name=name, index=index)
    translate = Translation.of(job, places, folders)
    program, *rest = (expand(argument, variables) for argument in job.command)
    return PodPlan(
        name=name,
        index=index,
        arguments=(
            places.python if program in ("python", "python3") else translate.text(program),
            *map(translate.text, rest),
        ),
        environment={
            **places.base_environment,
            **({"TMPDIR": str(folders[TEMPORARY])} if TEMPORARY in folders else {}),
            **{name: translate.text(value) for name, value in variables.items()},
        },
        working_directory=_working_directory(job, places, translate),
        folders=tuple(folders.values()),
        files=tuple(
            (folders[mount.path] / path, translate.settings(content))
            for mount in job.mounts
            if isinstance(mount.source, ConfigFiles)
            for path, content in mount.source.files
        ),
        log=places.pods / f"{name}.log",
        scratch=scratch,
    )


def local_path(job: Job, places: Places, path: PurePosixPath) -> Path:
    """Where a ``path`` on a claim is on this computer."""
    claims = {
        mount.path: places.volume(mount.source.name)
        for mount in job.mounts
        if isinstance(mount.source, Claim)
    }
    return Path(Translation.of(job, places, claims).text(str(path)))


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Kubernetes' ``$(NAME)``. ``$$`` is one ``$``, and a name that is not set is left alone."""

    def replacement(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return variables.get(match["name"], match[0])

    return re.sub(r"\$\$|\$\((?P<name>[^)]*)\)", replacement, text)


def pod_address(index: int) -> str:
    """An address of this computer's own for each pod: launchers tell nodes apart by theirs."""
    return str(LOOPBACK + index)


def _variables(job: Job, *, pod_name: str, index: int) -> dict[str, str]:
    fields = {
        "status.podIP": pod_address(index),
        "status.hostIP": pod_address(index),
        # One computer is every node; the pod's name tells them apart.
        "spec.nodeName": pod_name,
        "metadata.name": pod_name,
        "metadata.namespace": job.namespace,
        f"metadata.annotations['{INDEX_KEY}']": str(index),
        f"metadata.labels['{INDEX_KEY}']": str(index),
    }
    variables: dict[str, str] = {}
    for name, value in job.environment:
        # A variable sees those before it only.
        variables[name] = (
            fields[value.path] if isinstance(value, FieldRef) else expand(value, variables)
        )
    # The controller appends it, so that the command can use it and other variables cannot.
    variables["JOB_COMPLETION_INDEX"] = str(index)
    return variables


def _folder(mount: Mount, places: Places, *, pod: Path, scratch: Path) -> Path:
    match mount.source:
        case Claim(name):
            return places.volume(name)
        case EmptyDir(in_memory=True) if mount.path == SHARED_MEMORY:
            return Path(SHARED_MEMORY)
        case EmptyDir():
            return scratch / mount.volume
        case ConfigFiles():
            return pod / mount.volume


def _working_directory(job: Job, places: Places, translate: "Translation") -> Path:
    """The container's own if it is on a volume; any other is a folder of the image."""
    if job.working_directory is None:
        return places.working_directory
    local = translate.text(job.working_directory)
    return places.working_directory if local == job.working_directory else Path(local)


@dataclass(frozen=True, slots=True)
class Translation:
    """Replaces the cluster's names in a text. Each kind in one pass, so nothing is done twice."""

    folders: Mapping[str, Path]
    mount_path: re.Pattern[str]
    pod_host: re.Pattern[str]
    ports: Mapping[int, int]

    @classmethod
    def of(cls, job: Job, places: Places, folders: Mapping[str, Path]) -> "Translation":
        longest_first = sorted(folders, key=len, reverse=True)
        paths = "|".join(map(re.escape, longest_first)) or r"(?!)"
        service = re.escape(job.service or "")
        namespace = re.escape(job.namespace)
        return cls(
            folders=folders,
            # Not in the middle of a longer path or name, nor behind a variable of a shell.
            mount_path=re.compile(rf"(?<![\w./}})-])(?:{paths})(?![\w.-])"),
            pod_host=re.compile(
                rf"(?<![\w.-]){re.escape(job.name)}-(?P<index>\d+)\.{service}"
                rf"(?:\.{namespace}(?:\.svc(?:\.cluster\.local)?)?)?(?![\w-]|\.\w)"
                if service
                else r"(?!)"
            ),
            ports=places.ports,
        )

    def text(self, text: str) -> str:
        """An argument or the value of a variable."""
        return self._ports(self._names(text), before=r"(?<![\w./-])")

    def settings(self, text: str) -> str:
        """The content of a file, where a bare number is a setting and only ``:PORT`` a port."""
        return self._ports(self._names(text), before=r"(?<=:)")

    def _names(self, text: str) -> str:
        text = self.pod_host.sub(lambda match: pod_address(int(match["index"])), text)
        return self.mount_path.sub(lambda match: str(self.folders[match[0]]), text)

    def _ports(self, text: str, *, before: str) -> str:
        for port, free in self.ports.items():
            text = re.sub(rf"{before}{port}(?![\w./-])", str(free), text)
        return text


def describe(job: Job, places: Places, *, backoff_factor: float) -> list[str]:
    """What differs from the cluster, one sentence each; the same for runs that differ alike."""
    sentences = [_describe_mount(mount) for mount in job.mounts]
    if job.service:
        ports = ", ".join(map(str, job.ports))
        sentences.append(
            f"The pods' names in DNS are {LOOPBACK} and up; port {ports} is a free one."
        )
    sentences += [
        f"{name} is left out: its optional secret is not on this computer."
        for name in job.missing_secrets
    ]
    limits = ", ".join(f"{name} {amount}" for name, amount in job.resources.items()) or "none"
    return [
        *sentences,
        f"python is {places.python}; its folder comes first in PATH.",
        f"Limits ({limits}), placement and security context are not applied.",
        f"The backoff before a pod is replaced, 10 to 360 s, is multiplied by {backoff_factor:g}.",
    ]


def _describe_mount(mount: Mount) -> str:
    match mount.source:
        case Claim(name):
            return f"{mount.path} (claim {name}) is volumes/{name} of the run's folder."
        case EmptyDir(in_memory=True) if mount.path == SHARED_MEMORY:
            return f"{mount.path} is this computer's own."
        case EmptyDir():
            return f"{mount.path} (empty) is a temporary folder of each pod, deleted with it."
        case ConfigFiles():
            return f"{mount.path} (config map) is pods/<pod>/{mount.volume} of the run's folder."
