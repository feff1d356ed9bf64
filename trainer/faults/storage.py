"""Faults of what is saved: a disk that is full for one rank, and a checkpoint that is damaged.

The kernel itself refuses the writes of the save: its shard's name is a link to
``/dev/full``, which takes nothing from anyone. That needs no root, fills no disk, and
goes with the folder when the save is dropped.

Not covered: a save at a step that is not due (that of SIGTERM); a restart before the
save, which then comes through, in a folder of another attempt; a rank that has nothing
to write in it.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from trainer.checkpoint import layout
from trainer.checkpoint.layout import Checkpoint, FileRecord
from trainer.checkpoint.writer import METADATA
from trainer.faults.plan import Fault
from trainer.processes import below, parents
from trainer.settings import CheckpointMode, CheckpointSettings, TrainerSettings

FULL = Path("/dev/full")
FLIPPED_BYTES = 64


def fill_the_next_save(settings: TrainerSettings, *, rank: int, attempt: int, step: int) -> None:
    """From here on, whatever this rank writes of the next save that is due finds no space."""
    if settings.checkpoint.mode is CheckpointMode.NONE:
        return
    due = next_save(settings.checkpoint, step=step, max_steps=settings.max_steps)
    folder = settings.run_directory / "checkpoints" / layout.folder_name(due, attempt)
    folder.mkdir(exist_ok=True)
    workers = below(os.getpid(), parents())
    for name in shard_names(settings.checkpoint.mode, rank=rank, workers=workers):
        with suppress(FileExistsError):  # the second such fault before one save
            (folder / name).symlink_to(FULL)


def next_save(checkpoint: CheckpointSettings, *, step: int, max_steps: int) -> int:
    """The step after which a save is due next, in the midst of ``step``."""
    interval = checkpoint.interval_steps
    return min(-(-step // interval) * interval, max_steps)


def shard_names(mode: CheckpointMode, *, rank: int, workers: Iterable[int]) -> list[str]:
    """What the files that ``rank`` writes are called while they are written.

    ``workers`` are the processes of which one may be writing.
    """
    if mode is CheckpointMode.ASYNC_LOCAL_SHARDS:
        return [f".rank-{rank}.pt.{pid}" for pid in workers]
    return [f"__{rank}_0.distcp"]


def corrupt_the_newest(settings: TrainerSettings, fault: Fault) -> None:
    """Flip bytes of the newest checkpoint, unless it is the only one left to go on from.

    Without any, a run must refuse to go on, and that would be the end of every plan in
    which this fault comes early. Which one it was is kept in the fault's own file, so
    that a second such fault neither flips them back nor takes the last one that is whole.
    """
    fired = settings.run_directory / "faults"
    found = layout.committed(settings.run_directory / "checkpoints")
    chosen = checkpoint_to_corrupt(
        found,
        run=settings.run_directory.absolute().name,
        keep_latest=settings.checkpoint.keep_latest,
        corrupted=frozenset(path.read_text() for path in fired.iterdir()),
    )
    if chosen is None:
        return
    (fired / fault.name).write_text(chosen.path.name)
    flip(chosen.path / largest_shard(chosen.record.files).name)


def checkpoint_to_corrupt(
    found: Iterable[Checkpoint], *, run: str, keep_latest: int, corrupted: frozenset[str]
) -> Checkpoint | None:
    """The newest of ``found``, newest first, if there is another to go on from.

    Those beyond ``keep_latest`` are being deleted, and no other.
    """
    own = [checkpoint for checkpoint in found if checkpoint.record.run == run][:keep_latest]
    whole = [checkpoint for checkpoint in own if checkpoint.path.name not in corrupted]
    return whole[0] if len(whole) > 1 else None


def largest_shard(files: Iterable[FileRecord]) -> FileRecord:
    shards = [file for file in files if file.name != METADATA]
    return max(shards, key=lambda file: file.size_bytes)


def flip(path: Path) -> None:
    """Invert some bytes in the middle of a file, durably."""
    with path.open("r+b") as file:
        middle = max(0, path.stat().st_size // 2 - FLIPPED_BYTES)
        file.seek(middle)
        content = file.read(FLIPPED_BYTES)
        file.seek(middle)
        file.write(bytes(byte ^ 0xFF for byte in content))
        file.flush()
        os.fsync(file.fileno())
