"""Copies the state into host memory while the next step runs, and fences the update after it.

Forward and backward only read the state, so it may be copied meanwhile. The next update
must wait for the copy: that is the fence. On a GPU the copy is cut into slices of equal
size, each issued when the forward pass reaches a layer: all at once, they would keep the
step's kernels waiting (measured: 25 to 35% of a step, against 0.7%).

Not covered: a source that anybody but the fenced update changes, and a target that is read
before its copy is done.
"""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from trainer.snapshots.slices import WIDEST_BYTES, Piece, slices_of

MOST_SLICES = 16
PIECE_BYTES = 16 << 20
"""Of a copy by a thread, which can be ended between two pieces: some 10 ms."""

CLOSE_SECONDS = 5.0
_POLL_SECONDS = 0.2
_FINE_POLL_SECONDS = 0.001


class Copy(Protocol):
    """One copy, begun by a ``Copier``; of use until that is closed."""

    def is_done(self) -> bool:
        """Whether the targets hold all values. Never waits; a copy that failed is never done."""

    def seconds(self) -> float | None:
        """What the copying took, without pauses between its parts; None until it is done."""


class Copier(Protocol):
    """Copies tensors of this rank, one copy after another. One thread calls it."""

    def start(self, sources: Sequence[Tensor], targets: Sequence[Tensor]) -> Copy:
        """Begin to copy each source into its target; returns at once.

        Sources are contiguous and none is a DTensor; a target is alike in shape and type,
        in host memory. A copy begun before has had its fence.
        """

    def fence(self) -> None:
        """After this, work of this thread and its stream may change the sources.

        Raises:
            Exception: what went wrong in the copy; the sources may be changed all the same.
        """

    def close(self) -> bool:
        """Begin nothing more, and end what is under way, within ``CLOSE_SECONDS``.

        False where something may still write into the targets: nobody may use them again.
        """


class ThreadCopier:
    """Copies on the CPU, in a thread; ``delay`` is called before each piece."""

    def __init__(self, delay: Callable[[], None] = lambda: None) -> None:
        self._delay = delay
        self._jobs: queue.SimpleQueue[_ThreadCopy | None] = queue.SimpleQueue()
        self._is_closed = threading.Event()
        self._last: _ThreadCopy | None = None
        self._thread = threading.Thread(target=self._work, name="snapshot copier", daemon=True)
        self._thread.start()

    def start(self, sources: Sequence[Tensor], targets: Sequence[Tensor]) -> Copy:
        assert self._last is None, "the copy before has had no fence"
        slices = slices_of(sources, targets, PIECE_BYTES)
        self._last = _ThreadCopy([piece for pieces in slices for piece in pieces])
        self._jobs.put(self._last)
        return self._last

    def fence(self) -> None:
        if self._last is None:
            return
        # A restart within the process raises here from outside, which no endless wait notices.
        while not self._last.ended.wait(_POLL_SECONDS):
            assert self._thread.is_alive(), "the copier's thread has died"
        copy, self._last = self._last, None
        if copy.error is not None:
            raise copy.error

    def close(self) -> bool:
        self._is_closed.set()
        self._jobs.put(None)
        self._thread.join(CLOSE_SECONDS)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (copy := self._jobs.get()) is not None:
            copy.make(self._delay, self._is_closed)


class CopyEnded(RuntimeError):
    """The copier was closed while it copied."""


class _ThreadCopy:
    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = pieces
        self._seconds = 0.0
        self.ended = threading.Event()
        self.error: BaseException | None = None

    def make(self, delay: Callable[[], None], is_closed: threading.Event) -> None:
        try:
            for piece in self._pieces:
                delay()
                if is_closed.is_set():
                    raise CopyEnded("a copy was under way when its copier was closed")
                began = time.monotonic()
                piece.copy()
                self._seconds += time.monotonic() - began
        except BaseException as error:
            self.error = error
        self.ended.set()

    def is_done(self) -> bool:
        return self.ended.is_set() and self.error is None

    def seconds(self) -> float | None:
        return self._seconds if self.is_done() else None


class StreamCopier:
    """Copies from the current GPU on a stream of its own; never waits for the GPU as a whole.

    A slice is issued each time the forward pass enters one of ``layers``, of at most 16 that
    lie evenly among them; what is left, when it reaches the fence. Targets are pinned.
    """

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        self._stream = torch.cuda.Stream()
        num = min(len(layers), MOST_SLICES)
        chosen = [layers[index * len(layers) // num] for index in range(num)]
        self._hooks = [layer.register_forward_pre_hook(self._issue) for layer in chosen]
        self.num_slices = max(num, 1)
        self._left: list[list[Piece]] = []
        self._last: _StreamCopy | None = None
        self._is_fenced = True

    def start(self, sources: Sequence[Tensor], targets: Sequence[Tensor]) -> Copy:
        assert self._is_fenced, "the copy before has had no fence"
        total_bytes = sum(source.nbytes for source in sources)
        # No value is cut, so each slice may lack some bytes; there must be no slice more for it.
        slice_bytes = total_bytes // self.num_slices + WIDEST_BYTES
        self._left = slices_of(sources, targets, slice_bytes)
        # The update that made these values may not have run yet.
        self._stream.wait_stream(torch.cuda.current_stream())
        self._last, self._is_fenced = _StreamCopy(), False
        return self._last

    def fence(self) -> None:
        if self._last is None or self._is_fenced:
            return
        while self._left:
            self._issue()
        self._last.end.record(self._stream)
        self._last.is_issued = True
        torch.cuda.current_stream().wait_event(self._last.end)
        self._is_fenced = True

    def close(self) -> bool:
        for hook in self._hooks:
            hook.remove()
        self._left = []
        # Its copies wait for no kernel of a step that hangs, only for the update before.
        deadline = time.monotonic() + CLOSE_SECONDS
        try:
            while not (is_idle := self._stream.query()) and time.monotonic() < deadline:
                time.sleep(_FINE_POLL_SECONDS)
        except RuntimeError:  # the context is broken: this process can use no GPU any more
            return False
        return is_idle

    def _issue(self, *_: Any) -> None:
        """The next slice; called again where a layer is computed anew in the backward pass."""
        if not self._left or self._last is None:
            return
        pieces = self._left.pop(0)
        began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with torch.cuda.stream(self._stream):
            began.record()
            # At once: one call of Python for each piece would keep the step's own kernels waiting.
            torch._foreach_copy_(
                [piece.target for piece in pieces],
                [piece.source for piece in pieces],
                non_blocking=True,
            )
            ended.record()
        self._last.slices.append(_Timed(began, ended))


class _Timed(NamedTuple):
    began: torch.cuda.Event
    ended: torch.cuda.Event


class _StreamCopy:
    def __init__(self) -> None:
        self.slices: list[_Timed] = []
        self.end = torch.cuda.Event()
        self.is_issued = False
        """An event that was never recorded counts as reached."""

    def is_done(self) -> bool:
        return self.is_issued and self.end.query()

    def seconds(self) -> float | None:
        if not self.is_done():
            return None
        milliseconds: float = sum(each.began.elapsed_time(each.ended) for each in self.slices)
        return milliseconds / 1000


def copier_for(device: torch.device, model: Any) -> Copier:
    """For tensors on ``device``; on a GPU beside the forward pass through ``model``'s layers."""
    return StreamCopier(model.model.layers) if device.type == "cuda" else ThreadCopier()
