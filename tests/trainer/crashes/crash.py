"""One crash: a run is killed at a point, and what another attempt then makes of it."""

import shutil
from pathlib import Path

from tests.trainer.crashes.orders import Act, Outcome, Point
from tests.trainer.crashes.runs import (
    LAST_STEP,
    Prepared,
    Trainers,
    copy,
    events,
    last_digests,
    log,
    restored_steps,
)
from tests.trainer.crashes.syscalls import Operation
from trainer.checkpoint.layout import COMMIT_RECORD, folder_name


def watch(trainers: Trainers, prepared: Prepared, folder: Path) -> list[Operation]:
    """Every change that a run makes to which nothing happens."""
    copy(prepared.folder, folder)
    outcome = trainers.run(folder, *prepared.changes, watched=True)
    assert outcome.codes == {0: 0, 1: 0}, log(folder)
    assert last_digests(folder) == prepared.digests, "what was restored is not what was saved"
    return outcome.operations


def crash(
    trainers: Trainers,
    prepared: Prepared,
    folder: Path,
    point: Point,
    act: Act,
    *,
    spawns: bool = False,
) -> list[str]:
    """Carry ``act`` out at ``point``; what was wrong then or after the restart, in words."""
    copy(prepared.folder, folder)
    outcome = trainers.run(folder, *prepared.changes, acts=[(point, act)], spawns=spawns)
    problems = _after_the_act(outcome, act)
    checkpoints = folder / "run" / "checkpoints"
    # Of step 7 too: what retention deletes for step 6, it deletes beside the steps.
    saved = [
        s for s in (6, LAST_STEP) if (checkpoints / folder_name(s, 2) / COMMIT_RECORD).exists()
    ]
    newest = max(saved, default=4)
    if act is Act.KILL_WRITER:  # training went on
        newest = LAST_STEP
        if last_digests(folder) != prepared.digests:
            problems.append(f"the run ended with {last_digests(folder)}, not {prepared.digests}")
        failed = {(e["rank"], e["step"]) for e in events(folder, "checkpoint_failed")}
        if failed != {(0, 6), (1, 6)}:
            problems.append(f"failed saves by rank and step: {failed}")
    again = trainers.run(folder, *prepared.changes)
    if again.codes != {0: 0, 1: 0} or again.left:
        problems.append(f"restarted, the ranks ended with {again.codes}, {again.left}")
    if restored_steps(folder)[2:] != [newest]:
        problems.append(f"restored {restored_steps(folder)[2:]}, not {newest}")
    if last_digests(folder) != prepared.digests:
        problems.append(f"went on to {last_digests(folder)}, not {prepared.digests}")
    if problems:
        return [f"{act} {point}: {problem}" for problem in problems] + [log(folder)]
    shutil.rmtree(folder)
    return []


def _after_the_act(outcome: Outcome, act: Act) -> list[str]:
    codes = sorted(outcome.codes.values())
    problems = []
    if outcome.done != 1:
        problems.append("never came to the point")
    if outcome.left:
        problems.append(f"{outcome.left} did not end by themselves")
    match act:
        case Act.KILL_ALL:
            expected = codes == [-9, -9]
        case Act.KILL_RANK:
            expected = codes[:1] == [-9] and codes[1:] == [1]
        case _:
            expected = codes == [0, 0]
    if not expected:
        problems.append(f"the ranks ended with {outcome.codes}")
    return problems
