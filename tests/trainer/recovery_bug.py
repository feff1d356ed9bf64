"""The trainer with a bug: rank 1 raises at step 7, in every attempt.

``python -m tests.trainer.recovery_bug`` takes what ``trainer.train`` takes.
"""

import sys
from typing import Any

STEP, RANK = 7, 1


def has_bug() -> None:
    from trainer.data import Batches

    batch: Any = Batches.batch

    def with_bug(self: Batches, step: int, rank: int, world_size: int) -> Any:
        if (step, rank) == (STEP, RANK):
            raise KeyError("a bug of the program")
        return batch(self, step, rank, world_size)

    Batches.batch = with_bug  # type: ignore[method-assign]


if __name__ == "__main__":
    from trainer.train import main

    has_bug()
    sys.exit(main())
