"""The settings that must not change between a save and the restore that goes on from it."""

import json
from typing import Any

from trainer.data_identity import data_identity
from trainer.schedule import learning_rate
from trainer.settings import TrainerSettings


def fingerprint(settings: TrainerSettings) -> dict[str, Any]:
    """What decides which values a step has, by group of settings."""
    fixed: dict[str, Any] = json.loads(
        settings.model_dump_json(include={"model", "data", "optimizer"})
    )
    fixed["model"].pop("activation_checkpointing")  # costs time, changes no result
    fixed["data"].pop("micro_batch_size")  # changes rounding, as the number of ranks does
    fixed["data"]["dataset"] = data_identity(settings.data)  # what it is, not where it lies
    return fixed


def schedule_change(settings: TrainerSettings, *, step: int, max_steps: int) -> str:
    """What going on after ``step`` changes, if the last step was to be ``max_steps``; or nothing.

    A run may be made longer or shorter, but its learning rates do not stay the same.
    """
    now = settings.max_steps
    if now == max_steps or not step < now or step > max_steps:
        return ""
    before = learning_rate(settings.optimizer, step=step, max_steps=max_steps)
    after = learning_rate(settings.optimizer, step=step + 1, max_steps=now)
    return (
        f"max_steps was {max_steps} and is {now}, to which the cosine schedule falls: the "
        f"learning rate goes from {before:.4g} in step {step} to {after:.4g} in step {step + 1}"
    )


def difference(saved: dict[str, Any], wanted: dict[str, Any]) -> str:
    """What of ``saved`` is otherwise in ``wanted``, in words; empty if nothing is."""
    return ", ".join(
        f"{group}.{key} {_entry(saved, group, key)!r} is now {_entry(wanted, group, key)!r}"
        for group in sorted(saved.keys() | wanted.keys())
        for key in sorted(_keys(saved, group) | _keys(wanted, group))
        if _entry(saved, group, key) != _entry(wanted, group, key)
    )


def _keys(settings: dict[str, Any], group: str) -> set[str]:
    values = settings.get(group)
    return set(values) if isinstance(values, dict) else set()


def _entry(settings: dict[str, Any], group: str, key: str) -> Any:
    values = settings.get(group)
    return values.get(key) if isinstance(values, dict) else None
