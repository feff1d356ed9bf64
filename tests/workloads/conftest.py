"""Every run of every shipped deployment, rendered once for all tests."""

from pathlib import Path
from typing import Any

import pytest

from deployment import Deployment, load
from workloads.synth import render_run

DEPLOYMENTS = sorted((Path(__file__).parents[2] / "deployments").glob("*.yaml"))

Document = dict[str, Any]
Manifests = dict[str, dict[str, list[Document]]]


@pytest.fixture(scope="session")
def deployments() -> dict[str, Deployment]:
    """By the name of the file, without its ending."""
    return {path.stem: load(path) for path in DEPLOYMENTS}


@pytest.fixture(scope="session")
def manifests(deployments: dict[str, Deployment]) -> Manifests:
    """Documents by deployment and run. Shared: copy before changing one."""
    return {
        name: {run_name: render_run(deployment, run_name) for run_name in deployment.runs}
        for name, deployment in deployments.items()
    }
