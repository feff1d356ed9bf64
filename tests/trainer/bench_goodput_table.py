"""What a run of ``bench_goodput`` came to: goodput by the ledger, what each fault cost, a table.

``goodput`` is the ledger's: steps kept x the unfaulted step time / wall time, from the first
event of the run to its last. ``between`` leaves the first start and the end out of the wall
time, which weigh more in a run shorter than the plan's 2,000 steps. ``full_plan`` is
not measured but computed: the same start, end, pace, stalls and recoveries in 2,000 steps.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from tests.trainer.bench_goodput_plan import CONTENDERS, PLAN_FAULTS, ScaledPlan, scaled_plan
from trainer.events import Event
from trainer.goodput.attempts import attempts_of
from trainer.goodput.ledger import Account, Bin, account_for

AIM_FRACTION = 0.92


@dataclass(frozen=True, slots=True)
class FaultCost:
    kind: str
    step: int
    seconds: float | None
    """From the fault to the first step after it; None if the run never recovered."""

    source: str | None
    steps_lost: int | None
    seconds_by_bin: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    name: str
    preset: str
    num_ranks: int
    num_faults: int = 0
    seconds_a_fault: float = 0.0
    failure: str = ""
    finished: bool = False
    step_seconds: float = 0.0
    """Of the unfaulted run; seconds of all others are laid to it."""

    max_steps: int = 0
    save_every: int = 0
    steps_kept: int = 0
    steps_redone: int = 0
    wall_seconds: float = 0.0
    harness_seconds: float = 0.0
    """By this program's clock: from before the first process to after the last."""

    start_seconds: float = 0.0
    end_seconds: float = 0.0
    num_saves: int = 0
    stall_seconds_per_save: float | None = None
    save_seconds: float | None = None
    goodput: float = 0.0
    between: float | None = None
    full_plan: float | None = None
    faults: tuple[FaultCost, ...] = ()
    seconds_by_bin: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Result":
        known = {each.name for each in fields(cls)}
        values = {name: value for name, value in record.items() if name in known}
        faults = tuple(FaultCost(**fault) for fault in values.get("faults", ()))
        return cls(**values | {"faults": faults})


def measured(blank: Result, events: Sequence[Event], plan: ScaledPlan | None) -> Result:
    """``blank`` with what the events of its run say; ``plan`` None for the unfaulted run."""
    if not events:
        return blank
    step_seconds = plan.step_seconds if plan else None
    account = account_for(events, reference_step_seconds=step_seconds)
    start, end = _start_and_end(events)
    inner = account.wall_seconds - start - end
    values = asdict(blank) | {
        "finished": account.finished,
        "step_seconds": account.step_seconds or 0.0,
        "steps_kept": account.steps_kept,
        "steps_redone": account.steps_redone,
        "wall_seconds": account.wall_seconds,
        "start_seconds": start,
        "end_seconds": end,
        "num_saves": account.num_saves,
        "stall_seconds_per_save": account.stall_seconds_per_save,
        "save_seconds": account.save_seconds,
        "goodput": account.goodput_fraction,
        "between": account.goodput_fraction * account.wall_seconds / inner if inner > 0 else None,
        "faults": [asdict(cost) for cost in _costs(account)],
        "seconds_by_bin": {str(bin_): value for bin_, value in account.seconds_by_bin.items()},
    }
    if plan and account.finished:
        values["full_plan"] = full_plan_goodput(
            account, start, end, plan, num_saves=_saves_beside_steps(events, plan)
        )
    return Result.from_record(values)


def _start_and_end(events: Sequence[Event]) -> tuple[float, float]:
    """Seconds before the first step began, and after the last one was completed."""
    ordered = sorted(events, key=lambda event: float(event["wall"]))
    steps = [step for attempt in attempts_of(ordered) for step in attempt.executions]
    first, last = float(ordered[0]["wall"]), float(ordered[-1]["wall"])
    if not steps:
        return last - first, 0.0
    return steps[0].began - first, last - steps[-1].completed


def _saves_beside_steps(events: Sequence[Event], plan: ScaledPlan) -> int:
    """Those begun before the last step; that of the last belongs to the end."""
    begun = {
        (event["attempt"], event["step"])
        for event in events
        if event["name"] == "checkpoint_begun" and int(event["step"]) < plan.max_steps
    }
    return len(begun)


def _costs(account: Account) -> Iterable[FaultCost]:
    for each in account.recoveries:
        bins = each.seconds_by_bin or {}
        yield FaultCost(
            kind=each.kind,
            step=each.step + 1,  # the event counts those completed
            seconds=each.time_to_recover_seconds,
            source=each.source,
            steps_lost=each.steps_lost,
            seconds_by_bin={str(bin_): value for bin_, value in bins.items() if value},
        )


def full_plan_goodput(
    account: Account, start: float, end: float, plan: ScaledPlan, *, num_saves: int
) -> float | None:
    """Computed, not measured; None where a kind of the plan's faults was not suffered.

    ``num_saves``: those whose stalls lie between the steps. The steps done again are
    as many a fault as they were here.
    """
    down: dict[str, list[float]] = {}
    lost_seconds = account.seconds_by_bin[Bin.LOST]
    for each in account.recoveries:
        if each.time_to_recover_seconds is None or each.seconds_by_bin is None:
            return None
        down.setdefault(each.kind, []).append(each.time_to_recover_seconds)
        lost_seconds -= each.seconds_by_bin[Bin.LOST]
    if not {fault.kind.value for fault in PLAN_FAULTS} <= down.keys():
        return None
    num_faults, whole_faults = len(account.recoveries), len(PLAN_FAULTS)
    stalls = account.num_saves * (account.stall_seconds_per_save or 0.0)
    inner = account.wall_seconds - start - end - lost_seconds - stalls
    pace = (inner - sum(map(sum, down.values()))) / (account.steps_kept - num_faults)
    whole = scaled_plan(plan.step_seconds, whole_faults, plan.seconds_a_fault)
    redone = account.steps_redone / num_faults * whole_faults
    wall = start + end + (whole.max_steps - whole_faults + redone) * pace
    wall += sum(statistics.fmean(down[fault.kind.value]) for fault in PLAN_FAULTS)
    wall += (whole.max_steps - 1) // whole.save_every * (stalls / max(num_saves, 1))
    return whole.max_steps * plan.step_seconds / wall


def as_markdown(results: Sequence[Result]) -> str:
    heading = (
        *("contender", "layer", "saves", "faults, seconds down, from", "steps kept", "redone"),
        *("wall, s", "goodput", "without start and end", "full plan, computed", "aim 92%"),
    )
    rule = ["---"] * 4 + ["---:"] * (len(heading) - 4)
    lines = [_row(heading), _row(rule), *(_row(_columns(each)) for each in results)]
    for each in results:
        if each.failure or not each.finished:
            lines.append(f"\n{each.name}: not finished: {each.failure}")
        if each.harness_seconds and each.finished:
            by_clock = each.steps_kept * each.step_seconds / each.harness_seconds
            lines.append(
                f"\n{each.name}: start {each.start_seconds:.1f} s, end {each.end_seconds:.1f} s, "
                f"{each.num_saves} saves (stall {each.stall_seconds_per_save or 0:.2f} s); "
                f"goodput by this program's own clock {_percent(by_clock)}"
            )
    lines.append(
        "\ngoodput: the ledger's, steps kept x unfaulted step seconds / wall time from the first "
        "event to the last. The full plan's is computed from this run's parts, not measured."
    )
    return "\n".join(lines) + "\n"


def _columns(each: Result) -> list[str]:
    contender = CONTENDERS[each.name]
    saves = f"{contender.mode} / {each.save_every}" if each.num_faults else "none"
    faults = "; ".join(
        f"{cost.kind}@{cost.step} "
        f"{'never' if cost.seconds is None else format(cost.seconds, '.1f')} {cost.source}"
        for cost in each.faults
    )
    aim = "-"
    if contender.snapshots and each.finished:
        aim = "yes" if each.goodput >= AIM_FRACTION else "no"
    return [
        *(each.name, contender.layer, saves, faults or "-"),
        *(str(each.steps_kept), str(each.steps_redone), f"{each.wall_seconds:.1f}"),
        *(_percent(each.goodput), _percent(each.between), _percent(each.full_plan), aim),
    ]


def _percent(fraction: float | None) -> str:
    return "-" if fraction is None else f"{100 * fraction:.1f}%"


def _row(columns: Iterable[str]) -> str:
    return f"| {' | '.join(columns)} |"
