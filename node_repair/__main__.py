"""One pass over the nodes of the cluster: see, decide, do, say. A CronJob runs it each minute.

Exits with 0 if all that was due is done, 1 if a call failed, 2 if the settings are wrong.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from node_repair.aws import Fleet
from node_repair.cluster import Cluster
from node_repair.decide import decide
from node_repair.errors import CallError
from node_repair.model import Action, Kind, Plan, Seen
from node_repair.settings import RepairSettings, read

_EXAMPLES = """\
examples:
  python -m node_repair --settings /etc/node-repair/settings.json
  python -m node_repair --settings settings.json --json
"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m node_repair",
        description="Replace training nodes that are broken: one pass, then exit.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--settings", type=Path, required=True, help="JSON file of the chart")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    arguments = parser.parse_args(argv)
    try:
        settings = read(arguments.settings)
    except ValueError as error:
        print(f"node_repair: {error}", file=sys.stderr)
        return 2
    try:
        errors = make_pass(settings, as_json=arguments.json)
    except CallError as error:
        errors = [str(error)]
    for line in errors:
        print(f"node_repair: {line}", file=sys.stderr)
    return 1 if errors else 0


def make_pass(settings: RepairSettings, *, as_json: bool) -> list[str]:
    """Do what is due and print it; one line for each action that failed.

    Raises:
        CallError: a call failed before anything was decided.
    """
    now = datetime.now(UTC).replace(microsecond=0)
    cluster, fleet = Cluster(settings.region), Fleet(settings)
    plan = decide(see(cluster, fleet), settings, now)
    done, errors = plan.actions, list[str]()
    if settings.mode == "act":
        done, errors = act(plan, cluster, fleet, now)
    tell = _as_json(done, plan, errors, settings) if as_json else _as_text(done, plan, settings)
    print(tell)
    return errors


def see(cluster: Cluster, fleet: Fleet) -> Seen:
    """All that a decision needs. Nodes are read first: EC2's word on them is then the later one.

    Raises:
        CallError: a call failed, and nothing may be decided.
    """
    nodes, started = cluster.nodes(), cluster.started()
    instances = fleet.instances()
    marked = {node.instance_id for node in nodes if node.cordoned_by_us} | started.keys()
    return Seen(nodes, instances | fleet.known(marked - instances.keys()), started)


def act(
    plan: Plan, cluster: Cluster, fleet: Fleet, now: datetime
) -> tuple[tuple[Action, ...], list[str]]:
    """Do what is planned. What failed for one instance does not hold up the others."""
    done: list[Action] = []
    errors: dict[str, str] = {}
    for action in plan.actions:
        if action.instance_id in errors:
            continue
        try:
            _do(action, cluster, fleet, now)
        except CallError as error:
            errors[action.instance_id] = str(error)
        else:
            done.append(action)
    return tuple(done), list(errors.values())


def _do(action: Action, cluster: Cluster, fleet: Fleet, now: datetime) -> None:
    match action:
        case Action(kind=Kind.CORDON, node=str(node)):
            cluster.cordon(node, why=action.why, now=now)
        case Action(kind=Kind.UNCORDON, node=str(node)):
            cluster.uncordon(node)
        case Action(kind=Kind.TAINT, node=str(node)):
            cluster.taint(node)
        case Action(kind=Kind.RECORD):
            cluster.record(action.instance_id, now)
        case Action(kind=Kind.FORGET):
            cluster.record(action.instance_id, None)
        case Action(kind=Kind.TERMINATE):
            fleet.terminate(action.instance_id)


def _as_text(done: Sequence[Action], plan: Plan, settings: RepairSettings) -> str:
    prefix = "dry run: " if settings.mode == "dry-run" else ""
    lines = [
        f"{prefix}{action.kind} {action.node or 'no node'} {action.instance_id}: {action.why}"
        for action in done
    ]
    lines += [f"{prefix}skip {skip.node}: {skip.why}" for skip in plan.skipped]
    return "\n".join(lines) or f"{prefix}nothing to do"


def _as_json(
    done: Sequence[Action], plan: Plan, errors: Sequence[str], settings: RepairSettings
) -> str:
    return json.dumps(
        {
            "mode": settings.mode,
            "actions": [asdict(action) for action in done],
            "skipped": [asdict(skip) for skip in plan.skipped],
            "errors": list(errors),
        }
    )


if __name__ == "__main__":
    sys.exit(main())
