"""Over whole histories of a run: retention never costs the last checkpoint that is valid."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from trainer.checkpoint.retention import Save, superfluous

attempts = st.tuples(st.integers(1, 5), st.lists(st.booleans(), max_size=8))
"""How many checkpoints each commits, and which of all that is left are damaged after it."""


@given(history=st.lists(attempts, min_size=1, max_size=5), keep_latest=st.integers(1, 4))
def test_over_any_history_the_restored_and_the_own_are_kept_and_no_more_than_wished_for(
    history: list[tuple[int, list[bool]]], keep_latest: int
) -> None:
    held: dict[Save, bool] = {}  # and whether it is valid
    step = 0
    for attempt, (commits, damages) in enumerate(history, start=1):
        restored = max((s for s, is_valid in held.items() if is_valid), default=None, key=_order)
        step = restored.step if restored else step
        for _ in range(commits):
            step += 1
            held[Save(Path(f"{attempt}-{step}"), attempt, step, "a")] = True
            gone = superfluous(
                held,
                run="a",
                keep_latest=keep_latest,
                attempt=attempt,
                restored=restored.path if restored else None,
            )
            own = sorted(save.step for save in held if save.attempt == attempt)
            kept = {save for save in held if save.path not in gone}
            assert len(kept) == min(keep_latest, len(held))
            newest = own[-keep_latest:]
            assert {save.step for save in kept if save.attempt == attempt} == set(newest)
            if restored and len(own) < keep_latest:
                assert restored in kept
            valid_before = sum(held.values())
            held = {save: held[save] for save in kept}
            # What it keeps of doubtful ones, it does not keep in the place of valid ones.
            assert sum(held.values()) >= min(len(own) + bool(restored), keep_latest)
            assert sum(held.values()) <= valid_before
        for save, is_damaged in zip(sorted(held, key=_order), damages, strict=False):
            held[save] = held[save] and not is_damaged


def _order(save: Save) -> tuple[int, int]:
    return save.order
