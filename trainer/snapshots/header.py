"""The first page of a snapshot's buffer: what the buffer holds, and whether it holds it whole.

The sequence number is odd from before the first byte of a filling until after its last, so a
process that dies in between leaves a buffer that nobody takes for a snapshot. Whoever reads
a buffer reads its header before and after: if both are equal, nobody wrote meanwhile.

Not covered: a payload that changes without its header. Checksums are made and verified
where a snapshot is written to storage.
"""

import math
import struct
import zlib
from dataclasses import dataclass

PAGE_BYTES = 4096
"""The payload begins behind so many bytes, at a page's start."""

IDENTITY_BYTES = 16

_MAGIC = b"sfsnap01"
_FIELDS = struct.Struct(f"<8sQIIQQ{IDENTITY_BYTES}sQd")
_SUM = struct.Struct("<I")
HEADER_BYTES = _FIELDS.size + _SUM.size


@dataclass(frozen=True, slots=True)
class SnapshotKey:
    """Which part of which state a snapshot is of."""

    coordinate: int
    """The part: a rank of the mesh that the state is sharded over."""

    attempt: int
    step: int
    world_size: int
    identity: bytes
    """16 bytes that differ where one run's state must not be taken for another's."""

    def __post_init__(self) -> None:
        if len(self.identity) != IDENTITY_BYTES:
            raise ValueError(
                f"identity must be {IDENTITY_BYTES} bytes long, not {len(self.identity)}"
            )


@dataclass(frozen=True, slots=True)
class Header:
    sequence: int
    """Odd while the buffer is being filled; grows by two with each filling."""

    key: SnapshotKey
    payload_bytes: int
    probe_loss: float | None
    """What whoever restores this snapshot must see as the loss of the step after it."""

    @property
    def is_whole(self) -> bool:
        return self.sequence % 2 == 0


def pack(header: Header) -> bytes:
    """``HEADER_BYTES`` that ``unpack`` gives back as they were, or not at all."""
    key = header.key
    content = _FIELDS.pack(
        _MAGIC,
        header.sequence,
        key.coordinate,
        key.world_size,
        key.attempt,
        key.step,
        key.identity,
        header.payload_bytes,
        math.nan if header.probe_loss is None else header.probe_loss,
    )
    return content + _SUM.pack(zlib.crc32(content))


def unpack(page: bytes) -> Header | None:
    """The header at the beginning of ``page``; None for anything that is not a whole header."""
    if len(page) < HEADER_BYTES:
        return None
    content = page[: _FIELDS.size]
    if _SUM.unpack_from(page, _FIELDS.size) != (zlib.crc32(content),):
        return None
    magic, sequence, coordinate, world_size, attempt, step, identity, payload, loss = (
        _FIELDS.unpack(content)
    )
    if magic != _MAGIC:
        return None
    return Header(
        sequence=sequence,
        key=SnapshotKey(coordinate, attempt, step, world_size, identity),
        payload_bytes=payload,
        probe_loss=None if math.isnan(loss) else loss,
    )
