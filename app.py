"""CDK entry: a deployment file in, stacks out.

`cdk synth -c deployment=deployments/g5.yaml`, or `python app.py` without the
command line of CDK, which reads CDK_CONTEXT_JSON='{"deployment": "deployments/g5.yaml"}'
and writes into a temporary folder unless CDK_OUTDIR names one.
"""

import json
import os
import sys
from pathlib import Path

import aws_cdk as cdk

from deployment import DeploymentError, load
from infra.guard.check import problems, read_templates
from infra.stacks import build_stacks

ROOT = Path(__file__).resolve().parent


def main() -> int:
    """Synthesize; what a user got wrong is one line for each problem, and exit status 2."""
    try:
        _synthesize()
    except DeploymentError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


def _synthesize() -> None:
    _make_output_folder()
    # The flags of cdk.json, so that both ways of calling this give the same templates.
    flags = json.loads((ROOT / "cdk.json").read_text())["context"]
    app = cdk.App(context=flags, analytics_reporting=False)
    path = app.node.try_get_context("deployment")
    # No default: a misspelt key would then deploy a cluster that nobody asked for.
    if not isinstance(path, str) or not path:
        raise DeploymentError(
            f"the context key 'deployment' must name a file, got {path!r}; "
            "add -c deployment=deployments/p5.yaml"
        )
    deployment = load(Path(path))
    build_stacks(app, deployment)
    folder = Path(app.synth().directory)
    if found := problems(deployment, read_templates(deployment, folder)):
        # Or `cdk deploy --app` on this folder would still find a whole assembly.
        (folder / "manifest.json").unlink()
        raise DeploymentError("\n".join(found))


def _make_output_folder() -> None:
    """As CDK would, which answers a path that cannot be one with a traceback."""
    if folder := os.environ.get("CDK_OUTDIR"):
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DeploymentError(
                f"CDK_OUTDIR {folder!r} cannot be a folder ({error.strerror}); choose another"
            ) from error


if __name__ == "__main__":
    sys.exit(main())
