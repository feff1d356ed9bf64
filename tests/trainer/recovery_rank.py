"""One rank under a layer that restarts in process: ``python -m tests.trainer.recovery_rank CASE``.

Where it meets the others is in its environment, as a launcher sets it. It ends with the exit
code of what the layer raised: 78 for CannotTrain, that of a SystemExit, 1 for all else.
"""

import os
import sys
import time
import traceback

from trainer.errors import CannotTrain
from trainer.recovery.in_process import InProcessLayer
from trainer.recovery.layer import Attempt
from trainer.settings import RecoverySettings, TimeoutSettings
from trainer.timeouts import derive_timeouts

TIMEOUTS = derive_timeouts(
    TimeoutSettings(hang_seconds=40, startup_seconds=90, drain_seconds=20), device="cpu"
)


def train(attempt: Attempt) -> None:
    """What the case wants of this rank."""
    print("trains", flush=True)
    case, rank = sys.argv[1], os.environ["RANK"]
    if case == f"rank {rank} cannot train":
        assert attempt.store is not None
        attempt.store.wait(["the other trains"])
        raise CannotTrain("mend it")
    if case.endswith("cannot train"):
        assert attempt.store is not None
        attempt.store.set("the other trains", "")
        time.sleep(80)  # one call in C, which no exception interrupts
    if case == "always fails":
        raise KeyError("a bug")
    if case == "exits":
        sys.exit(5)


def main() -> None:
    try:
        InProcessLayer(RecoverySettings(max_restarts=1), TIMEOUTS).run(train)
    except CannotTrain as error:
        print(error, flush=True)
        os._exit(78)
    except SystemExit as end:
        print(end, flush=True)
        os._exit(end.code if isinstance(end.code, int) else 4)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main()
