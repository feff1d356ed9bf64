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
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

COMMIT_RECORD = "COMMITTED.json"
VERSION = 1
"""Of the commit record; a trainer reads its own alone, and deletes no other."""

_FOLDER = re.compile(r"step-(\d{8,})-attempt-(\d{4,})")


class ShardFormat(StrEnum):
    """How the shards of a checkpoint are read."""

    DCP = "dcp"
    """PyTorch's distributed checkpoint: any number of ranks can read it."""

    LOCAL_SHARDS = "local_shards"
    """Each rank's own shards in a file of its own: only as many ranks can read it."""


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
    format: ShardFormat
    run: str
    """Name of the run's folder: what was copied from another run is told apart by it."""

    max_steps: int
    """Of the run when it was made: the learning rate of a step depends on it."""

    resume_step: int | None = None
    """``checkpoint.resume_step`` when it was made: if set, the run had already gone back."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    path: Path
    record: CommitRecord


@dataclass(frozen=True, slots=True)
class Unusable:
    """A folder with a commit record from which a run cannot go on."""

    name: str
    reason: str
    may_heal: bool = False
    """The storage did not say what is in it, and may do so another time."""

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


class OtherVersion(Exception):
    """A whole commit record, written by another version of this trainer."""


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


def refuse_missing(folder: Path, files: Iterable[FileRecord]) -> None:
    """Of files just written: whether they are all there, which costs no reading.

    Raises:
        OSError: one is not there, or not whole.
    """
    for file in files:
        size = (folder / file.name).stat().st_size
        if size != file.size_bytes:
            raise OSError(f"{folder / file.name} has {size} of {file.size_bytes} bytes")


def commit(folder: Path, record: CommitRecord) -> None:
    """Make ``folder`` a checkpoint, in one step that happens or does not."""
    # A record would be worth nothing in a folder, or beside files, without a durable name.
    sync_folder(folder.parent)
    sync_folder(folder)
    fields = {"version": VERSION, **asdict(record)}
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


def free_bytes(folder: Path) -> int:
    """What may still be written there by whoever is not root."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def committed(root: Path) -> list[Checkpoint]:
    """The checkpoints under ``root`` whose record can be read, in the order of ``examine``."""
    return examine(root)[0]


def examine(root: Path) -> tuple[list[Checkpoint], list[Unusable]]:
    """The checkpoints under ``root``, newest first, and those whose record cannot be read.

    A later attempt is newer, whatever the steps: its checkpoints go on from what it
    restored, and it began below another's steps only because it was told to, or had to.

    Raises:
        OSError: the storage fails to answer, which says nothing about the checkpoints.
    """
    found, unusable = [], []
    for marker in sorted(root.glob(f"*/{COMMIT_RECORD}")):
        try:
            found.append(Checkpoint(marker.parent, _read_record(marker)))
        except FileNotFoundError:
            continue  # retention was faster
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            unusable.append(Unusable(marker.parent.name, f"{COMMIT_RECORD} is damaged"))
        except OtherVersion as error:
            unusable.append(Unusable(marker.parent.name, str(error)))
        except OSError as error:
            probe(root)
            unusable.append(Unusable(marker.parent.name, f"cannot be read: {error}", may_heal=True))
    found.sort(key=lambda c: (c.record.attempt, c.record.step), reverse=True)
    return found, unusable


def probe(root: Path) -> None:
    """Ask the storage something, to tell a file that cannot be read from storage that is gone.

    Raises:
        OSError: it does not answer.
    """
    os.statvfs(root)
    next(root.iterdir(), None)


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


def newest_attempt(root: Path) -> int:
    """The highest attempt that any folder under ``root`` is named after; 0 without any."""
    return max((attempt for attempt, _ in saves(root).values()), default=0)


def saves(root: Path) -> dict[Path, tuple[int, int]]:
    """The folders of saves under ``root``, committed or not; of which attempt and step."""
    if not root.is_dir():
        return {}
    named = ((path, _FOLDER.fullmatch(path.name)) for path in root.iterdir())
    return {
        path: (int(match[2]), int(match[1])) for path, match in named if match and path.is_dir()
    }


def _read_record(path: Path) -> CommitRecord:
    """Raises ``OtherVersion``, or what a malformed document leads to, which means: damaged."""
    values = json.loads(path.read_bytes())
    fields = values["record"]
    if values["crc32"] != _checksum(fields):
        raise ValueError(f"{path} has a wrong checksum")
    if (version := fields.pop("version")) != VERSION:
        raise OtherVersion(
            f"{COMMIT_RECORD} is of version {version} and this trainer reads {VERSION}; "
            "go on with the image that wrote it"
        )
    files = tuple(FileRecord(**file) for file in fields.pop("files"))
    shard_format = ShardFormat(fields.pop("format"))
    record = CommitRecord(**fields, files=files, format=shard_format)
    numbers = (record.step, record.attempt, record.world_size, record.max_steps)
    is_sound = all(type(number) is int for number in numbers) and all(
        Path(file.name).name == file.name for file in files
    )
    if not is_sound or not isinstance(record.fingerprint, dict):
        raise ValueError(f"{path} is no record of a checkpoint")
    return record


def _checksum(fields: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(fields, sort_keys=True).encode())
