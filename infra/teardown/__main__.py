"""``python -m infra.teardown``: take a whole deployment down, in an order in which nothing hangs.

Like app.py it reads the deployment file; the rest of the package takes settings.
"""

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from botocore.exceptions import BotoCoreError

from deployment import DeploymentError, load
from infra.aws import Clients, clients_of, one_line, open_session
from infra.kubectl import kubectl_for
from infra.settings import InfraSettings
from infra.teardown.leftovers import Left, find_leftovers
from infra.teardown.plan import Step, plan_teardown
from infra.teardown.report import as_json, outcome_text, plan_text
from infra.teardown.steps import Refused, Teardown
from infra.teardown.waiting import Pace

INTERRUPTED_EXIT_CODE = 130

logger = logging.getLogger(__name__)

_EXAMPLES = """\
examples:
  python -m infra.teardown --deployment deployments/p5.yaml --dry-run
      print what would be deleted, in order, and change nothing
  python -m infra.teardown --deployment deployments/p5.yaml
      show it, ask for the deployment's name, and do it
  python -m infra.teardown --deployment deployments/p5.yaml --yes --json
      in a script: without asking, with the result as JSON

Order: jobs, their pods, claim, volume, then the stacks platform, nodes, cluster,
storage, registry, network. It can be run again after a failure or Ctrl-C, and
goes on where it stopped.

Exit status: 0 all is gone, 1 a step failed, 2 refused, 130 interrupted.
"""


def main(argv: Sequence[str] | None = None, *, pace: Pace | None = None) -> int:
    """Take one deployment down; what stands in the way is one line on stderr."""
    arguments = _parser().parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("infra").setLevel(logging.INFO)
    try:
        return _tear_down(arguments, pace or Pace())
    except DeploymentError as error:  # a line for each error, which begins with the file
        sys.stderr.write(f"{error}\n")
        return 2
    except Refused as error:
        return _complain(str(error), 2)
    except BotoCoreError as error:  # making a session or a client, such as of a missing profile
        return _complain(one_line(error), 2)
    except KeyboardInterrupt:
        # What CloudFormation has begun, it ends by itself.
        return _complain("interrupted; run it again to go on", INTERRUPTED_EXIT_CODE)
    except BrokenPipeError:
        # The reader left. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _tear_down(arguments: argparse.Namespace, pace: Pace) -> int:
    settings: InfraSettings = load(arguments.deployment)
    clients = clients_of(open_session(settings))
    teardown = Teardown(settings, clients, kubectl_for(settings), pace)
    found = teardown.look()
    plan = plan_teardown(settings, found)
    if arguments.dry_run:
        _print(as_json(settings, plan) if arguments.json else plan_text(settings, plan))
        return 0
    if plan and not arguments.yes:
        _confirm(settings, plan)
    outcome = teardown.carry_out(plan, found)
    if outcome.failed:
        _complain(f"{outcome.failed}: {outcome.reason}", 1)
    left, unknown = ([], []) if outcome.failed else _leftovers(clients, settings)
    if arguments.json:
        _print(as_json(settings, plan, outcome, left, unknown))
    else:
        _print(outcome_text(settings, outcome, left, unknown))
    return 1 if outcome.failed else 0


def _leftovers(clients: Clients, settings: InfraSettings) -> tuple[list[Left], list[str]]:
    logger.info("Looking for what stays, and goes on costing")
    return find_leftovers(clients, settings)


def _confirm(settings: InfraSettings, plan: Sequence[Step]) -> None:
    """Ask on the terminal; what is shown goes to stderr, since stdout may be read by a machine.

    Raises:
        Refused: nobody is there to ask, or the answer is another.
    """
    if not sys.stdin.isatty():
        raise Refused("nobody to ask, stdin is no terminal; add --yes to delete without asking")
    sys.stderr.write(plan_text(settings, plan))
    sys.stderr.write(f"Type {settings.name} to delete all of it: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip() != settings.name:
        raise Refused(f"that is not {settings.name}; nothing was deleted")


def _complain(line: str, code: int) -> int:
    sys.stderr.write(f"infra.teardown: {line}\n")
    return code


def _print(report: str | dict[str, object]) -> None:
    sys.stdout.write(report if isinstance(report, str) else json.dumps(report, indent=2) + "\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m infra.teardown",
        description="Take a deployment down: jobs, claim and volume, then every stack.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--deployment", type=Path, required=True, help="deployment file")
    parser.add_argument("--dry-run", action="store_true", help="print the plan, change nothing")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--json", action="store_true", help="print plan and result as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
