"""From a deployment to the manifests of its runs, one file each.

A manifest that the API server would refuse is never written. Nothing here talks
to a cluster.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cdk8s
import yaml

from deployment import Deployment, DeploymentError
from workloads.training_job import TrainingJob
from workloads.validate import problems

Document = dict[str, Any]

HASH_LENGTH = 6
_HEADER = "# Rendered from a deployment file: change that one and render again.\n"


def render_run(deployment: Deployment, run_name: str) -> list[Document]:
    """The manifest of one run, exactly the documents that are written.

    A Job cannot be changed once it is applied, so its name ends in a hash of everything in
    the manifest: another manifest is another Job, on the same run folder.

    Raises:
        DeploymentError: there is no such run, or the API server would refuse its manifest.
    """
    if run_name not in deployment.runs:
        raise DeploymentError(
            f"deployment {deployment.name!r} has no run {run_name!r}; "
            f"it has: {', '.join(deployment.runs)}"
        )
    nameless = f"{run_name}-{deployment.runs[run_name].id}"
    draft = _documents(nameless, deployment, run_name)
    name = f"{nameless}-{_fingerprint(draft)}"
    documents = _documents(name, deployment, run_name)
    refuse_problems(documents, deployment, of=f"run {run_name!r}")
    return documents


def refuse_problems(documents: Sequence[Document], deployment: Deployment, *, of: str) -> None:
    """Let only what can be applied pass.

    Raises:
        DeploymentError: the API server would refuse the manifest; a line for each reason.
    """
    found = problems(
        documents,
        kubernetes_version=deployment.kubernetes_version,
        claims=frozenset({deployment.storage.claim}),
    )
    if found:
        raise DeploymentError("\n".join(f"{of}: {problem}" for problem in found))


def write_manifests(deployment: Deployment, out: Path) -> list[Path]:
    """Write ``<out>/<deployment>/<run>.yaml`` for every run, and return the paths.

    All runs are rendered before the first file is written.

    Raises:
        DeploymentError: a run cannot be rendered, or ``out`` cannot be written.
    """
    folder = out / deployment.name
    texts = {
        folder / f"{name}.yaml": manifest_text(render_run(deployment, name))
        for name in deployment.runs
    }
    write_files(texts)
    return list(texts)


def write_files(texts: Mapping[Path, str]) -> None:
    """Write each text to its path, and make the folders that this needs.

    Raises:
        DeploymentError: a path cannot be written.
    """
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    except OSError as error:
        raise DeploymentError(
            f"{error.filename}: cannot be written ({error.strerror}); choose another --out"
        ) from error


def manifest_text(documents: Sequence[Document]) -> str:
    """The documents as ``kubectl apply -f`` takes them."""
    return _HEADER + yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=100)


def _documents(name: str, deployment: Deployment, run_name: str) -> list[Document]:
    chart = TrainingJob(cdk8s.App(), name, deployment=deployment, run_name=run_name)
    documents: list[Document] = chart.to_json()
    return documents


def _fingerprint(documents: Sequence[Document]) -> str:
    text = json.dumps(documents, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_LENGTH]


class _Dumper(yaml.SafeDumper):
    """Text of several lines as a block, so that the settings can be read in the manifest."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
