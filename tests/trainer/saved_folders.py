"""Folders as saves leave them, without a process group: committed, or only begun."""

from pathlib import Path

from trainer.checkpoint import layout, retention
from trainer.checkpoint.deletions import delete
from trainer.checkpoint.layout import Checkpoint, CommitRecord, ShardFormat

RUN = "a-run"
SHARD = "__0_0.distcp"
VALUES = b"the values of one rank" * 10


def begin(root: Path, *, step: int, attempt: int = 1, folder: str = "") -> Path:
    """A save that is written but not committed."""
    path = root / (folder or layout.folder_name(step, attempt))
    path.mkdir(parents=True)
    (path / SHARD).write_bytes(VALUES)
    return path


def commit(root: Path, *, step: int, attempt: int = 1, folder: str = "", run: str = RUN) -> Path:
    path = begin(root, step=step, attempt=attempt, folder=folder)
    files = (layout.record_file(path / SHARD),)
    fingerprint = {"model": {"preset": "tiny"}}
    record = CommitRecord(step, attempt, 2, fingerprint, files, ShardFormat.DCP, run, 100)
    layout.commit(path, record)
    return path


def names(root: Path) -> list[str]:
    return [checkpoint.path.name for checkpoint in layout.committed(root)]


def damage_of(checkpoint: Checkpoint) -> str | None:
    return layout.what_is_damaged(checkpoint, checkpoint.record.files)


def flip_bit(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def clean_up(root: Path, *, keep_latest: int, attempt: int, restored: Path | None = None) -> None:
    """Delete what retention does not keep, as a run does beside its steps."""
    found = retention.find(root)
    last = max(save.order for save in found if save.run == RUN and save.attempt <= attempt)
    for folder in [
        *retention.superfluous(
            found, run=RUN, keep_latest=keep_latest, attempt=attempt, restored=restored
        ),
        *retention.debris(found, before=last),
    ]:
        delete(folder)
