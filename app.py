"""CDK entry: a deployment file in, stacks out.

`cdk synth -c deployment=deployments/g5.yaml`, or `python app.py` without the
command line of CDK, which writes into a temporary folder unless CDK_OUTDIR names one.
"""

import json
import sys
from pathlib import Path

import aws_cdk as cdk

from deployment import DeploymentError, load
from infra.stacks import build_stacks

ROOT = Path(__file__).resolve().parent


def main() -> int:
    # The flags of cdk.json, so that both ways of calling this give the same templates.
    flags = json.loads((ROOT / "cdk.json").read_text())["context"]
    app = cdk.App(context=flags, analytics_reporting=False)
    path = Path(app.node.try_get_context("deployment") or ROOT / "deployments/p5.yaml")
    try:
        build_stacks(app, load(path))
    except DeploymentError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    app.synth()
    return 0


if __name__ == "__main__":
    sys.exit(main())
