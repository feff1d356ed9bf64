"""What a cluster needs before its first job, as files and commands for ``kubectl`` and ``helm``.

For deployments whose stacks install none of it (``kubectl_provider: false``); for
others the files are there to be read.
The documents and values are those of the platform stack, because the same charts
make them; only the ids of the file system come from what ``cdk deploy`` wrote.
Not covered: whether those ids are still true; a file system made anew has others.
"""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cdk8s

from deployment import Deployment, DeploymentError
from infra import names
from infra.helm_charts import HelmChart, device_plugins
from infra.kubectl import kubectl_for
from infra.platform_chart import PlatformChart
from infra.repair_chart import RepairChart
from workloads.synth import Document, manifest_text, refuse_problems

OUTPUTS = ("FileSystemId", "FileSystemDnsName", "FileSystemMountName")
"""Of the storage stack, in the order of ``FileSystem``."""

FOLDER = "platform"
"""Within the deployment's. A folder, because a run may have this name too: its file ends in
``.yaml``, and ``kubectl apply -f`` of the folder above does not look into this one."""


@dataclass(frozen=True, slots=True)
class FileSystem:
    id: str
    dns_name: str
    mount_name: str


@dataclass(frozen=True, slots=True)
class PlatformFiles:
    """What to write, and then to run: nothing if a stack does."""

    manifest: Path
    values: dict[str, Path]
    """By release of a chart."""

    texts: dict[Path, str]
    commands: tuple[str, ...]


def plan_platform(deployment: Deployment, file_system: FileSystem, out: Path) -> PlatformFiles:
    """``<out>/<deployment>/platform/``: a manifest, and values for each chart.

    Raises:
        DeploymentError: the API server would refuse the manifest.
    """
    folder = out / deployment.name / FOLDER
    manifest = folder / "manifest.yaml"
    charts = device_plugins(deployment)
    values = {chart.release: folder / f"{chart.release}.values.yaml" for chart in charts}
    texts = {values[chart.release]: manifest_text([chart.values]) for chart in charts}
    return PlatformFiles(
        manifest=manifest,
        values=values,
        texts={manifest: manifest_text(platform_documents(deployment, file_system)), **texts},
        # Never two writers: what a stack installs, nobody installs by hand.
        commands=() if deployment.kubectl_provider else _commands(deployment, manifest, values),
    )


def platform_documents(deployment: Deployment, file_system: FileSystem) -> list[Document]:
    """What the platform stack applies, in an order in which ``kubectl`` can.

    Raises:
        DeploymentError: the API server would refuse it.
    """
    documents: list[Document] = PlatformChart(
        cdk8s.App(),
        "platform",
        settings=deployment,
        file_system_id=file_system.id,
        dns_name=file_system.dns_name,
        mount_name=file_system.mount_name,
    ).to_json()
    if deployment.node_repair:
        documents += RepairChart(cdk8s.App(), "node-repair", settings=deployment).to_json()
    refuse_problems(documents, deployment, of="platform")
    return documents


def read_file_system(outputs: Path, *, deployment: Deployment, source: Path) -> FileSystem:
    """The file system of the storage stack, as ``make deploy`` wrote it into cdk-outputs.json.

    ``source`` is the deployment file, for the command that an error tells to run.

    Raises:
        DeploymentError: the file cannot be read, or does not hold this deployment's file system.
    """
    try:
        return _find(_read(outputs), names.stack_name(deployment, names.STORAGE))
    except ValueError as error:
        command = deploy_command(source)
        raise DeploymentError(f"{outputs}: {error}; write it with: {command}") from error


def deploy_command(source: Path) -> str:
    """What writes the outputs of the stacks of a deployment file, into cdk-outputs.json."""
    return shlex.join(["make", "deploy", f"DEPLOYMENT={source}"])


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise ValueError(f"cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error})") from error


def _find(outputs: Any, stack: str) -> FileSystem:
    of_stack = outputs.get(stack) if isinstance(outputs, Mapping) else None
    if not isinstance(of_stack, Mapping):
        raise ValueError(f"has no stack {stack!r}")
    found: list[str] = []
    for key in OUTPUTS:
        value = of_stack.get(key)
        if not isinstance(value, str) or not value:
            raise ValueError(f"stack {stack!r} has no output {key!r}")
        found.append(value)
    return FileSystem(*found)


def _commands(
    deployment: Deployment, manifest: Path, values: Mapping[str, Path]
) -> tuple[str, ...]:
    """They name the cluster's context, so that none reaches the cluster used last."""
    context = kubectl_for(deployment).context
    apply = ["kubectl", "--context", context, "apply", "-f", str(manifest)]
    charts = [
        _helm_command(chart, values[chart.release], context=context)
        for chart in device_plugins(deployment)
    ]
    return tuple(shlex.join(command) for command in (apply, *charts))


def _helm_command(chart: HelmChart, values: Path, *, context: str) -> list[str]:
    what = ["helm", "upgrade", "--install", chart.release, chart.chart]
    version = ["--repo", chart.repository, "--version", chart.version]
    where = ["--namespace", chart.namespace, "--kube-context", context]
    return [*what, *version, *where, "--values", str(values)]
