"""Where this computer has what a pod needs: its Python, a minimal environment, free ports."""

import importlib.metadata
import os
import random
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from infra.settings import InfraSettings
from workloads.rehearsal.job import Job, RehearsalError
from workloads.rehearsal.pod_plan import Places

REPOSITORY = Path(__file__).resolve().parents[2]

# Below what the kernel hands out by itself, so that no stranger takes a port in between.
PORTS = range(20_000, 32_000)
PORT_TRIES = 100


def check_this_computer(settings: InfraSettings) -> None:
    """Refuse what cannot run here as it would in the cluster.

    Raises:
        RehearsalError: the runs need GPUs, or another NVRx than the one installed.
    """
    for name, group in settings.node_groups.items():
        if group.hardware.num_gpus:
            raise RehearsalError(
                f"node_groups.{name}.instance_type {group.instance_type!r} trains on GPUs and a "
                "rehearsal on CPUs; take a deployment of CPU nodes, such as "
                "deployments/rehearsal.yaml"
            )
    wanted = settings.image.nvrx_version
    installed = importlib.metadata.version("nvidia-resiliency-ext")
    if installed != wanted:
        raise RehearsalError(
            f"image.nvrx_version is {wanted} and {installed} is installed here; rehearse with a "
            f"deployment that says {installed!r}, or install {wanted}"
        )


def places_for(job: Job, *, run_folder: Path, scratch: Path) -> Places:
    """Places for one rehearsal of ``job``, which has ports of its own."""
    return Places(
        run_folder=run_folder,
        scratch=scratch,
        ports=free_ports(job.ports),
        python=sys.executable,
        base_environment=base_environment(os.environ),
        working_directory=REPOSITORY,
    )


def base_environment(own: Mapping[str, str]) -> dict[str, str]:
    """What the image would set, made of as little of the caller's environment as possible."""
    # Not resolved: the interpreter of a virtual environment is a link to another folder.
    launchers = str(Path(sys.executable).parent)
    return {
        "PATH": os.pathsep.join([launchers, own.get("PATH", os.defpath)]),
        "HOME": own.get("HOME", "/"),
        "LANG": own.get("LANG", "C.UTF-8"),
        # The caller's too: that is how another release of NVRx is put before the installed one.
        "PYTHONPATH": os.pathsep.join(filter(None, [str(REPOSITORY), own.get("PYTHONPATH")])),
        # NVRx 0.4.1 depends on the package that torch warns about.
        "PYTHONWARNINGS": "ignore:The pynvml package is deprecated",
    }


def free_ports(wanted: Sequence[int]) -> dict[int, int]:
    """A free port for each one wanted, at the same distances: programs count up from the first.

    Raises:
        RehearsalError: none was found.
    """
    if not wanted:
        return {}
    first, span = min(wanted), max(wanted) - min(wanted)
    for _ in range(PORT_TRIES):
        start = random.choice(range(PORTS.start, PORTS.stop - span))
        ports = {port: start + port - first for port in wanted}
        if all(map(_is_free, ports.values())):
            return ports
    raise RehearsalError(
        f"no free port between {PORTS.start} and {PORTS.stop} for {first}; end what holds them"
    )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
