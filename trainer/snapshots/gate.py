"""The gate that every update passes, and that our abort hook closes before it aborts.

A collective that is aborted returns like one that is complete, with gradients reduced
by half. So the loop waits until the collectives of its step are complete on this rank,
then asks the gate, then updates. The hook closes the gate as its first action:

- it was open when asked: no abort had begun, so the wait ended since all was complete;
- it was closed: nobody can tell, and the step is given up.

A gate that closes after it was asked does no harm: that update has whole gradients.

Not covered: an abort that does not close the gate first, and gradients that are wrong
although their collectives succeeded.
"""

import threading


class GateClosed(RuntimeError):
    """This rank's collectives are being aborted: an echo of a failure, and no failure itself."""


class Gate:
    """One for each process; open at first. Any thread may call any method."""

    def __init__(self) -> None:
        self._is_closed = threading.Event()

    def close(self) -> None:
        """No update passes from here on. The first action of an abort, whoever aborts."""
        self._is_closed.set()

    def open(self) -> None:
        """The next attempt may update; only once nothing of the last one can still run."""
        self._is_closed.clear()

    @property
    def is_closed(self) -> bool:
        """What fails meanwhile fails because of the abort."""
        return self._is_closed.is_set()

    def refuse_if_closed(self) -> None:
        """Asked between the wait for the collectives of a step and its update.

        Raises:
            GateClosed: the gradients of this step may be reduced by half.
        """
        if self.is_closed:
            # Diagnosis and the count of repeats know an echo by the word NCCL or Gloo.
            raise GateClosed("update given up: NCCL and Gloo were aborted on this rank")
