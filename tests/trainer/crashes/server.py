"""``python -m tests.trainer.crashes.server``: runs the trainer again and again, from warm forks.

Imports everything once; each order (a line of JSON on stdin, an outcome on stdout)
forks fresh ranks that call ``trainer.train.main``, and traces them. So a case costs a
second instead of ten. Its only thread forks, or the children could hang.
"""

import ctypes
import errno
import gc
import importlib
import json
import multiprocessing.context
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from tests.trainer.crashes.orders import DELAY_SECONDS, Act, Order, Outcome, Point
from tests.trainer.crashes.syscalls import Operation, numbers
from tests.trainer.crashes.tracer import Tracer, When, why_not_traceable
from trainer.data import BuiltInCorpus
from trainer.model import build_model
from trainer.optimization import adamw, clip_gradients
from trainer.settings import ModelPreset, ModelSettings, OptimizerSettings

WORLD_SIZE = 2
FILLER = "filler"
AWAY = "moved-away"

_PRELOADED = (
    "nvidia_resiliency_ext.checkpointing.async_ckpt.core",
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "transformers.models.llama.modeling_llama",
    "trainer.checkpoint.async_writer",
    "trainer.loop",
    "trainer.train",
)
_MS_RDONLY, _MS_REMOUNT, _MS_BIND = 1, 32, 4096


def main() -> None:
    for module in _PRELOADED:
        importlib.import_module(module)
    _update_a_model()
    gc.collect()
    gc.freeze()  # or each rank's collection would copy the pages of all that was imported
    assert len(os.listdir("/proc/self/task")) == 1, "a thread would not survive the fork"  # noqa: PTH208
    print(why_not_traceable() or "ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(asdict(_carry_out(_order(json.loads(line))))), flush=True)


def _update_a_model() -> None:
    """So that all forks have what torch imports and registers when a shard is first computed with.

    In a group of one that sends nothing and has no thread. The ranks' mesh must be another: to
    an equal one they would take the results kept here, with the place of this process in them.
    """
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    model = build_model(
        ModelSettings(preset=ModelPreset.TINY),
        vocabulary_size=BuiltInCorpus.vocabulary_size,
        mesh=init_device_mesh("cpu", (1,)),
        device=torch.device("cpu"),
    )
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    clip_gradients(model, max_norm=1.0)
    adamw(model, OptimizerSettings()).step()
    dist.destroy_process_group()


def _order(values: dict[str, Any]) -> Order:
    acts = tuple((_point(**point), Act(act)) for point, act in values.pop("acts"))
    return Order(**values, acts=acts)


def _point(operation: dict[str, str], nth: int, when: When) -> Point:
    return Point(Operation(**operation), nth, when)


def _carry_out(order: Order) -> Outcome:
    watch = _Watch(order)
    tracer = Tracer(Path(order.folder), watch.at_stop)
    all_calls = set(numbers().values())
    calls = all_calls if order.watched else {point.operation.call for point, _ in order.acts}
    for rank in range(WORLD_SIZE):
        tracer.start(rank, _trainer(order, rank), calls)
    left = tracer.run(order.seconds)
    seconds = time.monotonic() - watch.last_act
    return Outcome(tracer.statuses, watch.operations, watch.done, seconds, left)


class _Watch:
    """Counts the operations, and acts at the points of the order."""

    def __init__(self, order: Order) -> None:
        self._acts = dict(order.acts)
        self._folder = Path(order.folder)
        self._counts: Counter[Operation] = Counter()
        self.operations: list[Operation] = []
        self.done = 0
        self.last_act = time.monotonic()

    def at_stop(self, tracer: Tracer, pid: int, when: When, operation: Operation) -> None:
        nth = self._counts[operation]
        if when == "before":
            self.operations.append(operation)
        else:
            self._counts[operation] += 1
        act = self._acts.get(Point(operation, nth, when))
        if act is not None:
            self.done += 1
            _perform(act, tracer, pid, self._folder)
            self.last_act = time.monotonic()


def _perform(act: Act, tracer: Tracer, pid: int, folder: Path) -> None:
    match act:
        case Act.KILL_ALL:
            # The one that stands at the point last: it cannot move meanwhile.
            for other in [*(tracer.everything() - {pid}), pid]:
                _send(other, signal.SIGKILL)
        case Act.KILL_RANK:
            rank = tracer.rank_of(pid)
            if pid != rank:
                tracer.hold(pid)  # it moves no further, and dies with the rank
            _send(rank, signal.SIGKILL)
        case Act.TERMINATE:
            _send(tracer.rank_of(pid), signal.SIGTERM)
        case Act.DELAY:
            time.sleep(DELAY_SECONDS)
        case Act.EIO:
            tracer.fail(errno.EIO)
        case Act.KILL_WRITER:
            _send(pid, signal.SIGKILL)
        case Act.STOP_WRITER:
            _send(pid, signal.SIGSTOP)
        case _:
            _strike(act, folder)


def _strike(act: Act, folder: Path) -> None:
    """What happens to the storage, and not to a process."""
    match act:
        case Act.FILL:
            _fill(folder / FILLER)
        case Act.FREE:
            (folder / FILLER).unlink()
        case Act.VANISH:
            folder.rename(folder.with_name(AWAY))
        case Act.RETURN:
            folder.with_name(AWAY).rename(folder)
        case Act.READ_ONLY:
            _remount(folder, _MS_RDONLY)
        case Act.WRITABLE:
            _remount(folder, 0)


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"\0" * 4096)


def _remount(folder: Path, flags: int) -> None:
    """What ``folder`` lies on, which must be a mount point, and no file may be open for writing."""
    libc = ctypes.CDLL(None, use_errno=True)
    mounted = str(folder).encode()
    if libc.mount(b"none", mounted, None, _MS_REMOUNT | _MS_BIND | flags, None):
        raise OSError(ctypes.get_errno(), f"remounting {folder}")


def _trainer(order: Order, rank: int) -> Callable[[], None]:
    def run() -> None:
        log = os.open(f"{order.log}.{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for descriptor in (1, 2):
            os.dup2(log, descriptor)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.environ |= {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(WORLD_SIZE),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(order.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
        }
        if not order.spawns:
            contexts: dict[str, Any] = multiprocessing.context._concrete_contexts  # type: ignore[attr-defined]
            contexts["spawn"] = contexts["fork"]
        importlib.import_module("trainer.train").main(order.arguments)

    return run


if __name__ == "__main__":
    main()
