"""Where checkpoints lie, and what makes one valid: a commit record, written last.

A checkpoint is a folder. It exists once ``COMMITTED.json`` is in it, which
arrives by one rename after every other file is durable. Until then it is debris
that nobody reads. The record lists every file with its size and CRC-32, and has
one itself, so that what was truncated or flipped later is found before it is used.

Not covered: a file system that acknowledges ``fsync`` and loses the data.
"""

import json
import os
import re
import shutil
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

COMMIT_RECORD = "COMMITTED.json"
_FOLDER = re.compile(r"step-(\d{8})-attempt-(\d{4})")


@dataclass(frozen=True, slots=True)
class FileRecord:
    name: str
    size_bytes: int
    crc32: int


@dataclass(frozen=True, slots=True)
class CommitRecord:
    step: int
    attempt: int
    world_size: int
    fingerprint: dict[str, Any]
    """Settings that must be the same for the run that restores it."""

    files: tuple[FileRecord, ...]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    path: Path
    record: CommitRecord


def folder_name(step: int, attempt: int) -> str:
    """The attempt is part of the name: what a late writer of a dead one adds, nobody reads."""
    return f"step-{step:08d}-attempt-{attempt:04d}"


def record_file(path: Path) -> FileRecord:
    """Size and CRC-32 of a file, as it is now."""
    checksum = size = 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 22):
            checksum = zlib.crc32(chunk, checksum)
            size += len(chunk)
    return FileRecord(name=path.name, size_bytes=size, crc32=checksum)


def commit(folder: Path, record: CommitRecord) -> None:
    """Make ``folder`` a checkpoint, in one step that happens or does not."""
    fields = asdict(record)
    content = json.dumps({"crc32": _checksum(fields), "record": fields}, indent=1)
    write_durably(folder / COMMIT_RECORD, content.encode())


def write_durably(path: Path, content: bytes) -> None:
    """Replace ``path`` by ``content``; a crash leaves the old file or the new one, whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def committed(root: Path) -> list[Checkpoint]:
    """The checkpoints under ``root`` whose record can be read, newest step first."""
    found = []
    for marker in root.glob(f"*/{COMMIT_RECORD}"):
        try:
            found.append(Checkpoint(marker.parent, _read_record(marker)))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue
    return sorted(found, key=lambda c: (c.record.step, c.record.attempt), reverse=True)


def what_is_damaged(checkpoint: Checkpoint, files: Iterable[FileRecord]) -> str | None:
    """The first of ``files`` that is not as the record says, in words; None if all are.

    Raises:
        OSError: the storage fails to answer, which says nothing about the checkpoint.
    """
    for expected in files:
        try:
            actual = record_file(checkpoint.path / expected.name)
        except FileNotFoundError:
            return f"{expected.name} is missing"
        if actual.size_bytes != expected.size_bytes:
            return f"{expected.name} has {actual.size_bytes} of {expected.size_bytes} bytes"
        if actual.crc32 != expected.crc32:
            return f"{expected.name} has a wrong checksum"
    return None


def clean_up(root: Path, *, keep_latest: int, attempt: int) -> None:
    """Delete all but the newest ``keep_latest`` checkpoints, and debris of older attempts.

    Called once ``attempt`` has committed. A later attempt is newer here, whatever the
    step: it began below another's steps only because those could not be restored, and
    must not lose its own to them. The record goes first, so that a folder half deleted
    is never taken for whole.
    """
    newest = sorted(committed(root), key=lambda c: (c.record.attempt, c.record.step), reverse=True)
    keep = {checkpoint.path for checkpoint in newest[:keep_latest]}
    for folder in root.iterdir():
        match = _FOLDER.fullmatch(folder.name)
        if not match or folder in keep or not folder.is_dir():
            continue
        if (folder / COMMIT_RECORD).exists() or int(match[2]) < attempt:
            (folder / COMMIT_RECORD).unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)


def _read_record(path: Path) -> CommitRecord:
    values = json.loads(path.read_bytes())
    fields = values["record"]
    if values["crc32"] != _checksum(fields):
        raise ValueError(f"{path} has a wrong checksum")
    files = tuple(FileRecord(**file) for file in fields.pop("files"))
    return CommitRecord(**fields, files=files)


def _checksum(fields: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(fields, sort_keys=True).encode())
