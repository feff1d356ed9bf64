"""The learning rate of a step: a linear warm-up, then a cosine down to a final share.

It is a function of the step and the settings, so a restored run needs no scheduler state,
and one whose settings were changed follows the new curve from its next step on.
"""

import math

from trainer.settings import OptimizerSettings, TrainerSettings


def learning_rate(settings: OptimizerSettings, *, step: int, max_steps: int) -> float:
    """The rate of ``step``, counted from 1; the peak is reached at ``warmup_steps``."""
    if not 1 <= step <= max_steps:
        raise ValueError(f"step {step} is not between 1 and max_steps {max_steps}")
    peak = settings.learning_rate
    if step <= settings.warmup_steps:
        return peak * step / settings.warmup_steps
    progress = (step - settings.warmup_steps) / (max_steps - settings.warmup_steps)
    final = peak * settings.final_learning_rate_fraction
    return final + (peak - final) * (1 + math.cos(math.pi * progress)) / 2


def what_changed(before: TrainerSettings, now: TrainerSettings) -> str:
    """Which settings of the optimizer and its schedule are others ``now``; empty if none is."""
    values = [("max_steps", before.max_steps, now.max_steps)] + [
        (f"optimizer.{key}", getattr(before.optimizer, key), getattr(now.optimizer, key))
        for key in OptimizerSettings.model_fields
    ]
    return ", ".join(f"{key} {old} is now {new}" for key, old, new in values if old != new)
