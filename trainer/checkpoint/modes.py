"""Which ``ShardWriter`` each mode of saving has."""

from trainer.checkpoint.background import BackgroundWorker
from trainer.checkpoint.sync_writer import SyncWriter
from trainer.checkpoint.writer import ShardWriter
from trainer.distributed import Job
from trainer.settings import CheckpointMode, TrainerSettings


def writer_for(settings: TrainerSettings, job: Job, worker: BackgroundWorker) -> ShardWriter:
    """The writer of one attempt. A mode that never saves gets the one that costs nothing."""
    # Imported late: whoever saves in one mode never pays for another.
    match settings.checkpoint.mode:
        case CheckpointMode.NONE | CheckpointMode.SYNC:
            return SyncWriter()
        case CheckpointMode.ASYNC:
            from trainer.checkpoint.async_writer import AsyncWriter

            return AsyncWriter(worker, rank=job.rank, world_size=job.world_size)
        case CheckpointMode.ASYNC_LOCAL_SHARDS:
            from trainer.checkpoint.local_writer import LocalWriter

            return LocalWriter(worker, rank=job.rank)
