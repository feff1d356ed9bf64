"""``python -m infra.doctor``: what is wrong with a deployment, before and after it is deployed.

A composition root: the one module of the package that reads a deployment file.
"""

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from deployment import DeploymentError, load

INTERRUPTED_EXIT_CODE = 130

_EXAMPLES = """\
examples:
  python -m infra.doctor --deployment deployments/p5.yaml
      can it be deployed? and, where its cluster exists, does all of it work?
  python -m infra.doctor --deployment deployments/p5.yaml --phase after --json
      only the cluster, nodes and file system that are there, as JSON

Reads only. Credentials, profile and endpoint come from the environment, as for the aws command;
the cluster is asked through kubectl, in the context that 'aws eks update-kubeconfig' makes.
Exit status: 0 no errors (warnings may be), 1 errors, 2 the request cannot be carried out,
130 interrupted.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Print the findings; what a user got wrong is one line on stderr and exit status 2."""
    arguments = _parser().parse_args(argv)
    try:
        deployment = load(arguments.deployment)
    except DeploymentError as problem:
        print(problem, file=sys.stderr)
        return 2
    # Late, so that --help and a wrong file need no boto3.
    from infra.aws import ERRORS, clients_of, one_line, open_session
    from infra.doctor.case import Case
    from infra.doctor.examine import Phase, examine
    from infra.doctor.findings import has_errors
    from infra.doctor.report import as_json, as_text, standard_output
    from infra.kubectl import kubectl_for

    try:
        case = Case(clients_of(open_session(deployment)), deployment, datetime.now(UTC))
        findings = examine(case, kubectl_for(deployment), Phase(arguments.phase), _progress)
    except ERRORS as problem:
        print(f"doctor: {one_line(problem)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED_EXIT_CODE
    if arguments.json:
        print(as_json(deployment.name, findings))
    else:
        print(as_text(deployment.name, findings, console=standard_output()))
    return 1 if has_errors(findings) else 0


def _progress(check: str) -> None:
    print(f"doctor: checking {check}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m infra.doctor",
        description="Say what is wrong with a deployment, and what to do about it.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--deployment", type=Path, required=True, metavar="FILE", help="a deployment file"
    )
    parser.add_argument(
        "--phase",
        choices=("all", "before", "after"),
        default="all",
        help="before: can it be deployed; after: does what is deployed work; "
        "all (default): both, the latter once there is a cluster",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


if __name__ == "__main__":
    sys.exit(main())
