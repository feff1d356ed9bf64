"""One rank of one contender of ``bench_saves``: trains, saves, and writes what each save cost.

Steps are timed from GPU idle to GPU idle. The stall of a save is all that the loop waited
because of it: in the call that begins it, before the optimizer, and in asking how far it is;
of all ranks the longest. What the contender calls finished is then fsynced, for some do not,
and only then durable.
"""

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.optim import AdamW

from tests.trainer.bench_contenders import Contender, TorchAsyncSave, TorchSave, our_mode
from tests.trainer.bench_nvrx import NvrxDcp, NvrxLocal
from trainer.data import Batches, BuiltInCorpus, inputs_and_labels
from trainer.distributed import Job, process_group
from trainer.model import build_model
from trainer.settings import TrainerSettings
from trainer.state import TrainState
from trainer.timeouts import derive_timeouts

BARE: dict[str, Callable[[Path, Job, TrainState], Contender]] = {
    "nvrx_torch_async": NvrxLocal,
    "nvrx_dcp_async": NvrxDcp,
    "torch_dcp_async": TorchAsyncSave,
    "torch_dcp_save": TorchSave,
}
WARM_UP_STEPS = 4
IDLE_STEPS = 8
FEWEST_SAVES = 2
MOST_SAVES = 4
ALREADY_DURABLE_SECONDS = 0.1
"""An fsync of files that were fsynced before takes less, and no step need run beside it."""


@dataclass(frozen=True, slots=True)
class Order:
    """What the parent asks of every rank."""

    contender: str
    settings: dict[str, Any]
    results: str
    """File that gets one JSON object a line."""

    no_save_after: float
    """Monotonic clock: a save that would probably end later is not begun, once two are done."""


@dataclass(slots=True)
class Save:
    """One save as measured; seconds but for the last two."""

    idle_step_seconds: list[float]
    writing_step_seconds: list[float]
    begin_seconds: float = 0.0
    before_update_seconds: float = 0.0
    asking_seconds: float = 0.0
    finished_seconds: float = 0.0
    durable_seconds: float = 0.0
    num_bytes: int = 0
    number: int = 0


class Bench:
    def __init__(self, order: Order, job: Job) -> None:
        settings = TrainerSettings.model_validate(order.settings)
        self._order, self._job = order, job
        self._corpus = BuiltInCorpus()
        self._batches = Batches(self._corpus, settings.data)
        self._model = build_model(
            settings.model,
            vocabulary_size=self._corpus.vocabulary_size,
            mesh=job.mesh,
            device=job.device,
        )
        self._optimizer = AdamW(self._model.parameters(), lr=1e-5, fused=True)
        state = TrainState(self._model, self._optimizer)
        self._contender = enter(order.contender, settings, job, state)
        self._step_number = self._saved_step = 0

    def run(self) -> None:
        for _ in range(WARM_UP_STEPS):
            self._step()
        number, last_seconds = 0, 0.0
        while number < FEWEST_SAVES or self._has_time_for(last_seconds, number):
            if number:
                self._contender.discard(self._saved_step)
            number += 1
            save = self._save()
            save.number = number
            last_seconds = save.durable_seconds
            if self._job.rank == 0:
                append(self._order.results, asdict(save))

    def _has_time_for(self, seconds: float, number: int) -> bool:
        has_time = time.monotonic() + seconds < self._order.no_save_after
        return number < MOST_SAVES and self._job.from_rank_zero(has_time)

    def _save(self) -> Save:
        save = Save([self._step()[0] for _ in range(IDLE_STEPS)], [])
        self._job.everyone(True)
        self._saved_step = self._step_number
        began = time.monotonic()
        self._contender.begin(self._saved_step)
        save.begin_seconds = time.monotonic() - began
        while not self._is_finished(save):
            self._write_on(save)
        save.finished_seconds = time.monotonic() - began
        syncing = threading.Thread(
            target=fsync_all, args=[self._contender.folder(self._saved_step)]
        )
        syncing.start()
        syncing.join(ALREADY_DURABLE_SECONDS)
        while not self._job.everyone(not syncing.is_alive()):
            self._write_on(save)
        save.durable_seconds = time.monotonic() - began
        folder = self._contender.folder(self._saved_step)
        save.num_bytes = sum(file.stat().st_size for file in folder.iterdir())
        return self._longest_waits(save)

    def _write_on(self, save: Save) -> None:
        seconds, waited = self._step(saving=True)
        save.writing_step_seconds.append(seconds)
        save.before_update_seconds += waited

    def _is_finished(self, save: Save) -> bool:
        self._job.everyone(True)  # another rank's lateness is no cost of asking
        began = time.monotonic()
        done = self._contender.is_done()
        save.asking_seconds += time.monotonic() - began
        return self._job.everyone(done)

    def _longest_waits(self, save: Save) -> Save:
        waits = torch.tensor(
            [save.begin_seconds, save.before_update_seconds, save.asking_seconds],
            dtype=torch.float64,
        )
        dist.all_reduce(waits, op=dist.ReduceOp.MAX)
        save.begin_seconds, save.before_update_seconds, save.asking_seconds = waits.tolist()
        return save

    def _step(self, *, saving: bool = False) -> tuple[float, float]:
        """One optimizer step; its seconds without the wait for a save, and that wait."""
        began, waited = time.monotonic(), 0.0
        self._step_number += 1
        job = self._job
        _, tokens = self._batches.batch(self._step_number, job.rank, job.world_size)
        inputs, labels = inputs_and_labels(
            tokens.to(job.device), end_of_text=self._corpus.end_of_text
        )
        logits = self._model(input_ids=inputs).logits
        torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten()).backward()
        self._wait_for_gpu()  # so that a wait hidden behind the backward pass counts nothing
        if saving:
            asked = time.monotonic()
            self._contender.before_update()
            waited = time.monotonic() - asked
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._wait_for_gpu()
        return time.monotonic() - began - waited, waited

    def _wait_for_gpu(self) -> None:
        if self._job.device.type == "cuda":
            torch.cuda.synchronize()


def enter(name: str, settings: TrainerSettings, job: Job, state: TrainState) -> Contender:
    """The contender of that name: a bare library, or else one of our modes."""
    if name in BARE:
        return BARE[name](settings.run_directory, job, state)
    return our_mode(name, settings, job, state)


def fsync_all(folder: Path) -> None:
    """Make every file of a save durable; costs next to nothing where the contender did."""
    for path in [*folder.iterdir(), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def append(results: str, record: dict[str, Any]) -> None:
    """One line in one write: whoever is killed next has lost nothing."""
    with Path(results).open("ab", buffering=0) as file:
        file.write(json.dumps(record).encode() + b"\n")


def main() -> None:
    order = Order(**json.loads(sys.argv[1]))
    settings = TrainerSettings.model_validate(order.settings)
    timeouts = derive_timeouts(settings.timeouts, device=settings.device)
    code = 0
    try:
        with process_group(settings.device, timeouts, None) as job:
            Bench(order, job).run()
            job.everyone(True)
            os._exit(0)  # as the trainer ends: the parent kills what the contender leaves behind
    except Exception as error:
        traceback.print_exc()
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        append(order.results, {"failure": f"rank {os.environ['RANK']}: {reason}"})
        code = 1
    os._exit(code)


if __name__ == "__main__":
    main()
