"""Random faults under every recovery layer, and whether each run ends exactly: ``make chaos``.

``python -m tests.chaos [--seed N] [--plans N]`` runs plans 0 to N-1 of a seed
that this code has not run yet, and writes ``out/chaos/cells.md``, a row for each kind
and layer; ``--replay SEED:INDEX`` runs one plan again, whose folder is kept.
``--render`` writes the plans' Jobs and runs nothing: another computer, which has no Node
or another NVRx, runs them then. Exit code: 0 all exact and no cell empty; 1 otherwise;
2 wrong usage; 130 stopped, and the same command goes on from there.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.driver import Driver, Stopped
from tests.chaos.orders import Orders
from tests.chaos.plans import Plan, draw_plan
from tests.chaos.records import (
    Record,
    Records,
    code_digest,
    empty_cells,
    empty_tiers,
    failures,
    histogram,
)
from tests.chaos.runs import unfaulted_plans
from tests.chaos.tables import cells_markdown, histogram_text, line_for
from trainer import exit_codes
from workloads.rehearsal.interrupts import Interrupts

OUT = Path("out/chaos")


def main(argv: Sequence[str] | None = None, *, out: Path = OUT) -> int:
    arguments = _parse(argv)
    try:
        plans = _plans(arguments)
    except ValueError as error:
        print(f"tests.chaos: {error}", file=sys.stderr)
        return 2
    orders = Orders(out / "orders", arguments.nvrx)
    if arguments.render:
        for plan in [*unfaulted_plans(), *plans]:
            orders.of(plan)
        return 0
    name = "replays" if arguments.replay else "plans"
    records = Records(out / f"{name}.jsonl", code_digest())
    done = {} if arguments.replay else {record["name"]: record for record in records.all()}
    wanted = [plan for plan in plans if plan.name not in done]
    num_done = len(plans) - len(wanted)

    def tell(record: Record) -> None:
        nonlocal num_done
        num_done += 1
        done[record["name"]] = record
        print(line_for(record, done=num_done, of=len(plans)), file=sys.stderr, flush=True)
        if record["problems"]:
            print(f"    replay: {replay_command(record['name'])}", file=sys.stderr, flush=True)

    with Interrupts() as interrupts:
        driver = Driver(
            out, interrupts, orders, keep=bool(arguments.replay), at_once=arguments.at_once
        )
        try:
            driver.run(wanted, records, tell)
        except Stopped:
            print("Stopped; the same command goes on from here.", file=sys.stderr)
            return exit_codes.INTERRUPTED
    finished = list(done.values())
    if not arguments.replay:
        (out / "cells.md").write_text(cells_markdown(finished))
    print(_report(finished, arguments))
    is_empty = empty_cells(finished) or empty_tiers(finished)
    return 1 if failures(finished) or (is_empty and not arguments.replay) else 0


def replay_command(name: str) -> str:
    """What runs the plan of this name again."""
    return f"python -m tests.chaos --replay {name[1:].replace('-', ':')}"


def summary(records: Sequence[Record]) -> str:
    num_failed = len(failures(records))
    num_refused = sum(record["outcome"] == "refused" for record in records) - sum(
        record["outcome"] == "refused" for record in failures(records)
    )
    further = sum(each["further_out"] for record in records for each in record["suffered"])
    return (
        f"{len(records)} plans: {len(records) - num_failed - num_refused} exact, {num_refused} "
        f"refused as documented, {num_failed} wrong; {histogram(records).total()} faults survived, "
        f"{further} caught further out than claimed; "
        f"{len(empty_cells(records)) + len(empty_tiers(records))} cells empty"
    )


def _report(records: Sequence[Record], arguments: argparse.Namespace) -> str:
    empty = [*map(str, empty_cells(records)), *empty_tiers(records)]
    wrong = {record["name"]: replay_command(record["name"]) for record in failures(records)}
    if arguments.json:
        return json.dumps(
            {"summary": summary(records), "empty": empty, "wrong": wrong, "plans": records}
        )
    lines = [histogram_text(records), ""]
    if empty and not arguments.replay:
        lines.append("Empty: " + ", ".join(empty))
    lines += [f"Wrong: {name}; {command}" for name, command in wrong.items()]
    return "\n".join([*lines, summary(records)])


def _plans(arguments: argparse.Namespace) -> Sequence[Plan]:
    if arguments.replay:
        return [plan_called(arguments.replay)]
    return [draw_plan(arguments.seed, index) for index in range(arguments.plans)]


def plan_called(name: str) -> Plan:
    """The plan ``SEED:INDEX``.

    Raises:
        ValueError: that is no name of a plan.
    """
    seed, _, index = name.partition(":")
    if not (seed.isdecimal() and index.isdecimal()):
        raise ValueError(f"no plan {name!r}; give SEED:INDEX, such as 1:17")
    return draw_plan(int(seed), int(index))


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the plans (default 1)")
    parser.add_argument("--plans", type=int, default=100, help="how many in all (default 100)")
    parser.add_argument("--replay", metavar="SEED:INDEX", help="one plan; its folder is kept")
    parser.add_argument("--at-once", type=int, default=2, help="plans side by side (default 2)")
    parser.add_argument("--render", action="store_true", help="write the plans' Jobs, run nothing")
    parser.add_argument("--nvrx", metavar="VERSION", help="that Jobs are for (default: installed)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
