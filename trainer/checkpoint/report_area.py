"""Where the checkpoint worker leaves its answer: a little memory that both processes map.

Not covered: a report larger than the area, which holds some 500 bytes for each tensor.
"""

import mmap
import os
import pickle
import struct
import weakref
from typing import Any

from trainer.checkpoint.host_memory import NAME
from trainer.checkpoint.staging import attach

_LENGTH = struct.Struct("<Q")


class ReportArea:
    """For one report at a time, on up to ``num_tensors`` tensors; gone with this object."""

    def __init__(self, num_tensors: int) -> None:
        descriptor = os.memfd_create(f"{NAME}-report", os.MFD_CLOEXEC)
        weakref.finalize(self, os.close, descriptor)
        os.ftruncate(descriptor, (1 << 20) + 512 * num_tensors)
        self._mapping = mmap.mmap(descriptor, 0)
        self.path = f"/proc/{os.getpid()}/fd/{descriptor}"

    def clear(self) -> None:
        """Forget the last report."""
        self._mapping[: _LENGTH.size] = bytes(_LENGTH.size)

    def read(self) -> Any:
        """What was reported, or None if nothing was."""
        (length,) = _LENGTH.unpack(self._mapping[: _LENGTH.size])
        if not length:
            return None
        # Written by our own child into memory that only the two of us map.
        return pickle.loads(self._mapping[_LENGTH.size : _LENGTH.size + length])


def write_report(path: str, report: Any) -> None:
    """Leave ``report`` in the area of that path.

    Raises:
        OSError: the trainer is gone, and the area with it.
    """
    write_to(attach(path), report)


def write_to(mapping: mmap.mmap, report: Any) -> None:
    """The length is written last, so that the report is whole or absent."""
    content = pickle.dumps(report)
    mapping[_LENGTH.size : _LENGTH.size + len(content)] = content
    mapping[: _LENGTH.size] = _LENGTH.pack(len(content))
