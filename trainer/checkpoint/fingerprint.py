"""The settings that must not change between a save and the restore that goes on from it."""

import json
from typing import Any

from trainer.data_identity import data_identity
from trainer.settings import TrainerSettings


def fingerprint(settings: TrainerSettings) -> dict[str, Any]:
    """What decides which values a step has, by group of settings."""
    fixed: dict[str, Any] = json.loads(settings.model_dump_json(include={"model", "data"}))
    fixed["model"].pop("activation_checkpointing")  # costs time, changes no result
    fixed["model"].pop("weights")  # read at step 0 alone, after which the checkpoint has them
    fixed["data"].pop("micro_batch_size")  # changes rounding, as the number of ranks does
    fixed["data"]["dataset"] = data_identity(settings.data)  # what it is, not where it lies
    return fixed


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
