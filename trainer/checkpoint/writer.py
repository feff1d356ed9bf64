"""What puts one save's shards into a folder: the part that differs between the modes."""

from enum import StrEnum
from pathlib import Path
from typing import Protocol

from torch import Tensor

from trainer.checkpoint.layout import FileRecord, ShardFormat
from trainer.checkpoint.staging import HostShard

METADATA = ".metadata"


class Progress(StrEnum):
    """How far this rank's part of the save in flight has come."""

    WRITING = "writing"
    WRITTEN = "written"
    FAILED = "failed"


class HeldShard(Protocol):
    """A rank's shard in host memory that somebody keeps as it is until ``release``."""

    shard: HostShard

    def is_intact(self) -> bool:
        """Whether it was kept so far: what was read from it is of one step."""

    def release(self) -> None:
        """It is read no more."""


class ShardWriter(Protocol):
    """Writes the shards of all ranks.

    Every rank calls ``begin`` and ``finish``; ``progress`` is local and never waits.
    """

    format: ShardFormat
    """How the shards are read back: the commit record says it, whatever mode the run has then."""

    def prepare(self, tensors: dict[str, Tensor]) -> None:
        """Begin to get ready for saves of such ``tensors``; returns at once."""

    def begin(
        self, tensors: dict[str, Tensor], folder: Path, held: HostShard | None = None
    ) -> None:
        """Begin a save. On return the caller may change ``tensors``, whatever the mode.

        ``held`` is what to write instead of their values, where those of the step to save are
        in host memory; it must not change before the save is over.
        """

    def progress(self) -> Progress:
        """Whether this rank's files are durable yet."""

    def failure(self) -> str:
        """Why this rank's part failed, once ``progress`` says so."""

    def finish(self) -> list[FileRecord]:
        """After all ranks are WRITTEN: complete the folder; this rank's files in it."""

    def abandon(self) -> None:
        """Forget the save in flight; nothing of it will be committed."""

    def close(self) -> None:
        """The attempt ends: no thread of it is left in this process on return."""
