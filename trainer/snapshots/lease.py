"""A snapshot that is kept as it is while somebody writes it to storage or sends it.

Not covered: who reads on after ``release``, or after the attempt; the next attempt fills any
buffer but the one it may go back to.
"""

from collections.abc import Iterable

from trainer.checkpoint.staging import HostShard
from trainer.snapshots.buffer import SnapshotBuffer
from trainer.snapshots.pool import Pool


class Lease:
    """This rank's part of a snapshot that is whole on every rank, until ``release``."""

    def __init__(
        self, buffer: SnapshotBuffer, names: Iterable[str], *, pool: Pool, index: int
    ) -> None:
        """``names`` are those of the buffer's tensors, ``index`` its own in ``pool``."""
        self.shard = HostShard(str(buffer.path), dict(zip(names, buffer.slots, strict=True)))
        self._buffer = buffer
        self.header = buffer.header()
        """As it was then."""

        self._pool, self._index = pool, index
        pool.hold(index)

    def is_intact(self) -> bool:
        """Whether nobody filled it meanwhile, so that what was read so far is of one step."""
        return self._buffer.header() == self.header

    def release(self) -> None:
        """The buffer may be filled; once."""
        self._pool.release(self._index)
