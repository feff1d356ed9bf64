"""Which snapshot the ranks send to their peers together, and from when on it counts.

A generation is one snapshot, sent by every rank. It is complete when all have, and until the
next one is, it is kept: by the peers, and by each rank in its own buffer, or the loss of a node
would leave the others without the step that its ranks go on from. All ranks decide alike,
since they decide by what they agreed on; one is made anew for each attempt.

Not covered: a rank that never says how its send ended. The courier's own timeouts end it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from trainer.peers.peering import SendState
from trainer.snapshots.offers import Key


class Turn(StrEnum):
    """What every rank does now."""

    NOTHING = "nothing"
    BEGIN = "begin"
    """Hold the buffer of the newest snapshot that all have, and have it sent."""

    COMPLETE = "complete"
    """Let go of the buffer of the generation before; keep holding the one just sent."""

    GIVE_UP = "give up"
    """Let go of the buffer that was to be sent; keep holding that of the generation before."""


@dataclass(frozen=True, slots=True)
class PeerVotes:
    """What a rank says at the end of a step; agreed, the sums over all ranks."""

    due: float = 0.0
    """1 from rank 0 when it is time for the next generation."""

    sent: float = 0.0
    failed: float = 0.0
    """1 from a rank whose send of this generation has ended so."""


class Generations:
    def __init__(
        self,
        *,
        rank: int,
        world_size: int,
        interval_seconds: float,
        keep: Key | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``keep``: the newest state that peers and ranks hold from before this attempt."""
        self._rank = rank
        self._world_size = world_size
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._due_at = clock()
        self.keep = keep
        self.sending: Key | None = None

    def votes(self, state: SendState) -> PeerVotes:
        if self.sending is None:
            return PeerVotes(due=float(self._rank == 0 and self._clock() >= self._due_at))
        return PeerVotes(
            sent=float(state is SendState.SENT), failed=float(state is SendState.FAILED)
        )

    def agreed(self, votes: PeerVotes, newest: Key | None) -> Turn:
        """The step's agreement is there.

        Args:
            newest: The snapshot that was found to be whole on all ranks in this same agreement;
                None if there is none.
        """
        if self.sending is None:
            if not votes.due or newest is None:
                return Turn.NOTHING
            self.sending = newest
            self._due_at = self._clock() + self._interval_seconds
            return Turn.BEGIN
        if votes.sent + votes.failed < self._world_size:
            return Turn.NOTHING
        sent, self.sending = self.sending, None
        if votes.failed:
            return Turn.GIVE_UP
        self.keep = sent
        return Turn.COMPLETE
