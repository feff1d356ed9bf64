"""What a process of a rank keeps from one attempt to the next."""

from dataclasses import dataclass

from trainer.checkpoint.background import BackgroundWorker
from trainer.events import EventLog
from trainer.settings import TrainerSettings
from trainer.snapshots.snapshots import Snapshots
from trainer.stopping import StopSignal
from trainer.timeouts import Timeouts
from trainer.watchdog import Watchdog


@dataclass(frozen=True, slots=True)
class Process:
    """What outlives an attempt within this process."""

    settings: TrainerSettings
    timeouts: Timeouts
    events: EventLog
    worker: BackgroundWorker
    watchdog: Watchdog
    snapshots: Snapshots
    stop: StopSignal
