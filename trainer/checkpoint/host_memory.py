"""Host memory that another process maps by name, made ready before it is needed.

The first touch of fresh pages, and copies from a GPU into memory that is not pinned, cost
a first save seconds. So a thread touches and pins the memory while training begins. That
changes no content: who does not wait for it is only slower.

Without a file of its own it has no name in any file system: it is gone when the last process
that maps it is, however those die, and with this object. In a file it outlives them all, until
whoever owns the folder removes it. A page that a full tmpfs cannot supply kills who touches it,
so all pages of a file are made, by a call that fails instead, before it ``is_reserved``.
"""

import ctypes
import logging
import mmap
import os
import threading
import weakref
from contextlib import suppress
from pathlib import Path

import torch

logger = logging.getLogger(__name__)

NAME = "steadfast-staging"
_PIECE_BYTES = 64 << 20
"""Touched at once, in some 40 ms; between two pieces the thread can be stopped."""

_MADV_POPULATE_WRITE = 23  # Linux 5.14 and later
_STOP_SECONDS = 5.0
"""For the piece in hand, or for pinning, which takes 1.7 s for 8 GiB."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class HostMemory:
    """``size_bytes``, of zeros unless a file held others, for copies from ``device``."""

    def __init__(self, size_bytes: int, device: torch.device, *, file: Path | None = None) -> None:
        """Make it, or map ``file`` as it is if that has this size; another is replaced.

        Raises:
            OSError: the file cannot be made or mapped.
        """
        self.size_bytes = size_bytes
        self.device = device
        self.failure = ""
        """Why a file could not be reserved: its file system is full, say."""

        self.is_reserved = file is None
        """Whether every page of the file is there; before, nobody may write into it."""

        self.is_ready = False
        """Whether all is done for it that can be; before, copies from a GPU are slow, and pinning
        slows whatever runs beside it."""

        descriptor = _anonymous(size_bytes) if file is None else _opened(file, size_bytes)
        self._descriptor = descriptor
        self.path = str(file) if file else f"/proc/{os.getpid()}/fd/{descriptor}"
        self.mapping = mmap.mmap(descriptor, size_bytes)
        self.values = torch.frombuffer(self.mapping, dtype=torch.uint8)
        self._pinned: list[int] = []
        # With the mapping, which must not go before what is pinned is let go of.
        weakref.finalize(self, _let_go, descriptor, self._pinned, self.mapping)
        self._touched_bytes = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def suits(self, size_bytes: int, device: torch.device) -> bool:
        """Whether so much can be copied into it from ``device``."""
        return size_bytes <= self.size_bytes and device == self.device

    def get_ready(self) -> None:
        """Begin to touch and pin it, or go on with that; returns at once."""
        self._stop.clear()
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._work, name="host memory", daemon=True)
            self._thread.start()

    def wait(self, seconds: float) -> None:
        """Return once it is as ready as it gets, or after so many seconds."""
        if self._thread is not None:
            self._thread.join(seconds)

    def stop(self) -> None:
        """Leave it as ready as it is; the thread has ended on return, if the kernel lets it."""
        self._stop.set()
        self.wait(_STOP_SECONDS)

    def _work(self) -> None:
        if not self.is_reserved:
            self._reserve()
        if not self.is_reserved:
            return
        start = self.values.data_ptr()
        while self._touched_bytes < self.size_bytes and not self._stop.is_set():
            piece = min(_PIECE_BYTES, self.size_bytes - self._touched_bytes)
            # An older kernel, or none to spare: then the first save touches it.
            _libc.madvise(start + self._touched_bytes, piece, _MADV_POPULATE_WRITE)
            self._touched_bytes += piece
        if self.device.type == "cuda" and not self._pinned and not self._stop.is_set():
            self._pin(start)
        self.is_ready = self.is_ready or not self._stop.is_set()

    def _reserve(self) -> None:
        offset = 0
        while offset < self.size_bytes and not self._stop.is_set():
            piece = min(_PIECE_BYTES, self.size_bytes - offset)
            try:
                os.posix_fallocate(self._descriptor, offset, piece)
            except OSError as error:
                self.failure = f"{self.path}: {error.strerror}"
                return
            offset += piece
        self.is_reserved = offset == self.size_bytes

    def _pin(self, start: int) -> None:
        torch.cuda.set_device(self.device)  # of this thread; another one's context costs memory
        if code := int(torch.cuda.cudart().cudaHostRegister(start, self.size_bytes, 0)):
            logger.warning("Memory for saves could not be pinned (CUDA error %d)", code)
        else:
            self._pinned.append(start)


def _anonymous(size_bytes: int) -> int:
    descriptor = os.memfd_create(NAME, os.MFD_CLOEXEC)
    os.ftruncate(descriptor, size_bytes)
    return descriptor


def _opened(file: Path, size_bytes: int) -> int:
    with suppress(FileNotFoundError):
        descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        if os.fstat(descriptor).st_size == size_bytes:
            return descriptor
        os.close(descriptor)
        # Not cut to size: whoever still maps it would be killed at its next touch.
        file.unlink()
    descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL, 0o600)
    os.ftruncate(descriptor, size_bytes)
    return descriptor


def _let_go(descriptor: int, pinned: list[int], _mapping: mmap.mmap) -> None:
    for start in pinned:
        torch.cuda.cudart().cudaHostUnregister(start)
    os.close(descriptor)
