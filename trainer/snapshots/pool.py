"""Which buffer takes the next snapshot, so that none is overwritten that somebody needs.

Pure. A buffer is free unless it

- is being filled,
- is whole on this rank and not agreed yet: other ranks may know already that it is whole
  everywhere, and have begun to fill what they had before;
- is the newest that was agreed to be whole on every rank, which a restore would take;
- is held by somebody who writes or sends from it. Holds are counted.

Not covered: buffers of other ranks. All ranks hold and fill alike because all of them
see the same agreements.
"""

from collections import Counter

LEAST_BUFFERS = 2
"""With one alone, the only snapshot would have to be overwritten by the next."""


class Pool:
    """The buffers of one rank, by their number from 0."""

    def __init__(self, num_buffers: int, agreed: int | None = None) -> None:
        """``agreed``: the one that this attempt was restored from or could be again."""
        if num_buffers < LEAST_BUFFERS:
            raise ValueError(f"a pool needs {LEAST_BUFFERS} buffers or more, not {num_buffers}")
        self._least_recent = list(range(num_buffers))
        self._holds: Counter[int] = Counter()
        self._filling: int | None = None
        self._waiting: list[int] = []
        self._agreed: int | None = None
        self.restart(agreed)

    @property
    def agreed(self) -> int | None:
        """The newest that is whole on every rank."""
        return self._agreed

    @property
    def filling(self) -> int | None:
        return self._filling

    @property
    def free(self) -> int | None:
        """Of those that nobody needs the one longest ago filled."""
        taken = {self._filling, *self._waiting, self._agreed, *self._holds}
        return next((each for each in self._least_recent if each not in taken), None)

    def restart(self, agreed: int | None) -> None:
        """A new attempt: what was under way is void, and all ranks chose ``agreed``, if any.

        Holds end too: whoever held one was of the attempt before.
        """
        self._holds.clear()
        self._filling = None
        self._waiting = []
        self._agreed = agreed
        if agreed is not None:
            self._is_most_recent(agreed)

    def begin(self) -> int | None:
        """The buffer to fill now, of those that are free the one longest ago filled; or None.

        None while one is being filled, too.
        """
        if self._filling is not None:
            return None
        self._filling = self.free
        return self._filling

    def finish(self) -> int:
        """The buffer that is being filled is whole on this rank; which one that is."""
        assert self._filling is not None, "nothing is being filled"
        finished, self._filling = self._filling, None
        self._waiting.append(finished)
        self._is_most_recent(finished)
        return finished

    def agree(self) -> None:
        """Every rank has said, after its last ``finish``, that it went so far."""
        if self._waiting:
            self._agreed = self._waiting[-1]
            self._waiting = []

    def hold(self, buffer: int) -> None:
        """Keep it as it is until ``release``; only for one that is not being filled."""
        assert buffer != self._filling, "it is being filled"
        self._holds[buffer] += 1

    def release(self, buffer: int) -> None:
        assert self._holds[buffer] > 0, "it is not held"
        self._holds[buffer] -= 1
        self._holds += Counter()  # drops those that nobody holds any more

    def _is_most_recent(self, buffer: int) -> None:
        self._least_recent.remove(buffer)
        self._least_recent.append(buffer)
