"""What a teardown says: before, when it asks, and after; as text and as JSON."""

from collections.abc import Sequence
from typing import Any

from infra.settings import InfraSettings
from infra.teardown.leftovers import Left
from infra.teardown.plan import Step
from infra.teardown.steps import Outcome


def plan_text(settings: InfraSettings, plan: Sequence[Step]) -> str:
    where = f"account {settings.account}, {settings.region}"
    if not plan:
        return f"Nothing of {settings.name} is left to take down in {where}.\n"
    lines = [f"To take down {settings.name} ({where}):"]
    lines += [f"{number:>3}. {step}" for number, step in enumerate(plan, start=1)]
    lines.append("Checkpoints on the file system and images in the registry go with it.")
    return "\n".join(lines) + "\n"


def outcome_text(
    settings: InfraSettings, outcome: Outcome, left: Sequence[Left], unknown: Sequence[str]
) -> str:
    if outcome.failed:
        return f"Done {len(outcome.done)} steps of {settings.name}; not all, see stderr.\n"
    lines = [f"{settings.name} is taken down ({len(outcome.done)} steps)."]
    lines.append("What stays:" if left else "Nothing that bears its name or tag stays.")
    lines += [f"  {item}" for item in left]
    lines += [f"  {line}" for line in unknown]
    return "\n".join(lines) + "\n"


def as_json(
    settings: InfraSettings,
    plan: Sequence[Step],
    outcome: Outcome | None = None,
    left: Sequence[Left] = (),
    unknown: Sequence[str] = (),
) -> dict[str, Any]:
    """Without an outcome, a plan alone: nothing was changed."""
    report: dict[str, Any] = {"deployment": settings.name, "plan": [_step(step) for step in plan]}
    if outcome is None:
        return report
    failed = outcome.failed and {**_step(outcome.failed), "reason": outcome.reason}
    stays = [{"what": item.what, "billed": item.billed, "remedy": item.remedy} for item in left]
    return report | {
        "done": [_step(step) for step in outcome.done],
        "failed": failed,
        "stays": stays,
        "unknown": list(unknown),
    }


def _step(step: Step) -> dict[str, Any]:
    return {"kind": step.kind.value, "targets": list(step.targets)}
