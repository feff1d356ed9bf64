"""By what a state in memory is known as this run's, and as one of this shape.

Where a rank's shard lies in its buffer follows from all of it. What a run may change as it
goes on, its length say, is no part of it.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainer.snapshots.header import IDENTITY_BYTES


def identity_of(
    *,
    run: str,
    world_size: int,
    layout: Iterable[tuple[str, Sequence[int], str]],
    fingerprint: Mapping[str, Any],
) -> bytes:
    """16 bytes, the same on every rank.

    Args:
        layout: Name, whole shape and type of each tensor, in the order of the state.
        fingerprint: As in a checkpoint's record; values of JSON.
    """
    shapes = [(name, list(shape), dtype) for name, shape, dtype in layout]
    content = json.dumps([run, world_size, shapes, fingerprint], sort_keys=True)
    return hashlib.sha256(content.encode()).digest()[:IDENTITY_BYTES]
