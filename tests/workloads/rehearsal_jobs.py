"""Small Jobs written by hand, for the tests of the rehearsal; and which processes live."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workloads.rehearsal.pod_plan import Places

NAME = "demo"
NAMESPACE = "training"
PORT = 29500
SETTINGS_PATH = "/etc/steadfast/settings.json"


def documents(
    *command: str,
    completions: int = 1,
    backoff_limit: int = 6,
    max_failed_indexes: int | None = 0,
    rules: Sequence[Mapping[str, Any]] = (),
    grace_seconds: int = 30,
    env: Sequence[Mapping[str, Any]] = (),
    settings: str = "{}",
) -> list[dict[str, Any]]:
    """ConfigMap, Service and Indexed Job as the charts render them, with ``command`` in it."""
    metadata = {"name": NAME, "namespace": NAMESPACE}
    container = {
        "name": "trainer",
        "image": "example.com/trainer:1",
        "command": list(command),
        "env": list(env),
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
        "volumeMounts": [
            {"name": "shm", "mountPath": "/dev/shm"},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "fsx", "mountPath": "/fsx"},
            {"name": "settings", "mountPath": "/etc/steadfast", "readOnly": True},
        ],
    }
    pod = {
        "subdomain": NAME,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": grace_seconds,
        "containers": [container],
        "volumes": [
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
            {"name": "tmp", "emptyDir": {}},
            {"name": "fsx", "persistentVolumeClaim": {"claimName": "fsx"}},
            {"name": "settings", "configMap": {"name": NAME}},
        ],
    }
    job: dict[str, Any] = {
        "completionMode": "Indexed",
        "completions": completions,
        "parallelism": completions,
        "backoffLimitPerIndex": backoff_limit,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": list(rules)},
        "template": {"spec": pod},
    }
    if max_failed_indexes is not None:
        job["maxFailedIndexes"] = max_failed_indexes
    ports = [{"name": "rendezvous", "port": PORT}]
    return [
        {"kind": "ConfigMap", "metadata": metadata, "data": {"settings.json": settings}},
        {"kind": "Service", "metadata": metadata, "spec": {"clusterIP": "None", "ports": ports}},
        {"kind": "Job", "metadata": metadata, "spec": job},
    ]


def fail_job_on(*exit_codes: int) -> dict[str, Any]:
    return {
        "action": "FailJob",
        "onExitCodes": {"containerName": "trainer", "operator": "In", "values": list(exit_codes)},
    }


def places(
    folder: Path, *, port: int = 23456, base_environment: Mapping[str, str] | None = None
) -> Places:
    return Places(
        run_folder=folder / "out" / "run",
        scratch=folder / "scratch",
        ports={PORT: port},
        python="/venv/bin/python",
        base_environment=base_environment or {"PATH": "/venv/bin:/usr/bin:/bin"},
        working_directory=Path(__file__).parents[2],
    )


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that is dead and only waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def pids_with(variable: str) -> list[int]:
    """The processes started with ``NAME=value`` in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes()
        except OSError:
            continue
        if variable.encode() in environment.split(b"\0"):
            found.append(int(process.name))
    return found
