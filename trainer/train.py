"""Trains: ``python -m trainer.train --settings FILE [--set KEY=VALUE ...]``, started by a launcher.

Read top to bottom: settings, the run's folder, what this process keeps across
attempts, then the recovery layer around ``run_attempt``. Torch is imported only
once the settings are known to be right; the checkpoint worker, which imports
this module again, never pays for it here.
"""

if __name__ == "__main__":
    # Before anything else is imported: where a fork can train, no more of this file is needed.
    from trainer.standby.client import train_in_a_fork

    train_in_a_fork()

import argparse
import gc
import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from trainer import exit_codes
from trainer.entry import why_not_writable
from trainer.errors import CannotTrain, LastSaveFailed, NodeUnhealthy, Repeats
from trainer.events import EventLog
from trainer.node import node_name
from trainer.recovery.repeats import note_failure
from trainer.schedule import what_changed
from trainer.settings import SettingsError, TrainerSettings
from trainer.standby.client import is_forked

if TYPE_CHECKING:
    from trainer.process import Process
    from trainer.recovery.layer import Attempt

logger = logging.getLogger("trainer")


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parse(argv)
    changes = dict(arguments.changes)
    if arguments.resume_step is not None:
        changes["checkpoint.resume_step"] = arguments.resume_step
    try:
        settings = TrainerSettings.from_file(arguments.settings, changes)
    except SettingsError as error:
        return _refuse(str(error), exit_codes.CONFIG)
    if "RANK" not in os.environ:
        return _refuse(
            "RANK is not set; start this with torchrun or ft_launcher, or rehearse a run with "
            "`python -m workloads rehearse`",
            exit_codes.USAGE,
        )
    is_first_try = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    if problem := why_not_writable(settings.run_directory, make=is_first_try):
        return _refuse(*problem)
    exit_codes.note_worker_started()
    rank = int(os.environ["RANK"])
    _log_to_stderr(rank)
    events = EventLog(settings.run_directory, rank=rank)
    who = {"node": node_name(), "pid": os.getpid(), "forked": is_forked()}
    events.record("process_started", **who, **_process_start())
    if rank == 0:
        _keep_settings(settings)
    return _train(settings, events)


def _train(settings: TrainerSettings, events: EventLog) -> NoReturn:
    from trainer.checkpoint.background import BackgroundWorker
    from trainer.diagnosis import flight_recorder
    from trainer.loop import run_attempt
    from trainer.process import Process
    from trainer.recovery.layer import layer_for
    from trainer.snapshots.snapshots import Snapshots
    from trainer.stopping import StopSignal
    from trainer.timeouts import derive_timeouts
    from trainer.watchdog import Watchdog

    timeouts = derive_timeouts(settings.timeouts, device=settings.device)
    snapshots = Snapshots(settings)
    layer = layer_for(settings, timeouts, before_abort=snapshots.gate.close)
    flight_recorder.switch_on()
    watchdog = Watchdog(
        settings.run_directory,
        rank=int(os.environ["RANK"]),
        seconds=settings.timeouts.hang_seconds,
        shortest=settings.timeouts.shortest_hang_seconds,
        exits=layer.exits_when_hung,
    )
    process = Process(
        settings=settings,
        timeouts=timeouts,
        events=events,
        worker=BackgroundWorker(),
        watchdog=watchdog,
        snapshots=snapshots,
        stop=StopSignal(watchdog, drain_seconds=timeouts.drain_seconds),
    )
    try:
        layer.run(lambda attempt: _attempt(run_attempt, process, attempt))
    except Repeats as error:
        logger.error("The failure that comes again", exc_info=error.__cause__)
        _end_now(process, _refuse(str(error), error.exit_code))
    except (CannotTrain, NodeUnhealthy) as error:
        _end_now(process, _refuse(str(error), error.exit_code))
    except LastSaveFailed as error:
        logger.error("Training ended, and its end is not durable: %s", error)
        _end_now(process, exit_codes.ORDINARY_FAILURE)
    except BaseException:
        logger.exception("Training failed")
        _end_now(process, exit_codes.ORDINARY_FAILURE)
    _end_now(process, 0 if process.stop.is_finished else exit_codes.STOPPED_BY_SIGTERM)


def _attempt(
    run_attempt: Callable[["Process", "Attempt"], None], process: "Process", attempt: "Attempt"
) -> None:
    try:
        run_attempt(process, attempt)
    except BaseException as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        process.events.record("attempt_failed", reason=reason)
        try:
            # What collectives raise that are being aborted has many names, and none is a bug's.
            if not process.snapshots.gate.is_closed:
                note_failure(
                    process.settings.run_directory,
                    step=process.events.step + 1,
                    error=error,
                    attempt=process.events.attempt,
                )
        finally:
            # The frames hold the model, and through it the process group's sockets. Gloo
            # cannot be aborted: only when they close do the other ranks stop waiting for us.
            traceback.clear_frames(error.__traceback__)
            gc.collect()
        raise


def _end_now(process: "Process", code: int) -> NoReturn:
    """Leave without Python's slow farewell: other ranks wait for our sockets to close.

    Nothing is lost by it. Checkpoints are written without buffers, and events too, but for
    those that wait for a disk.
    """
    if code == 0:
        exit_codes.note_run_finished()
    process.worker.kill()
    process.events.close()
    logging.shutdown()
    os._exit(code)


def _process_start() -> dict[str, float]:
    """When this process began, on both clocks: imports until here are part of its start-up."""
    ticks = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
    age = float(Path("/proc/uptime").read_text().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")
    return {"wall": time.time() - age, "mono": time.monotonic() - age}


def _keep_settings(settings: TrainerSettings) -> None:
    """Leave the settings beside the events, for whoever reads the run."""
    path = settings.run_directory / "settings.json"
    with suppress(SettingsError):  # none yet, or of another version
        if changed := what_changed(TrainerSettings.from_file(path), settings):
            logger.warning("The next step follows another schedule: %s", changed)
    temporary = path.with_suffix(f".{os.getpid()}")
    try:
        temporary.write_text(json.dumps(settings.model_dump(mode="json"), indent=2) + "\n")
        temporary.replace(path)
    except OSError as error:
        logger.warning("%s: cannot be written (%s)", path, error.strerror)


def _log_to_stderr(rank: int) -> None:
    logging.basicConfig(
        level=logging.INFO if rank == 0 else logging.WARNING,
        format=f"%(asctime)s rank {rank} %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m trainer.train",
        description="Train one run. A launcher starts one of these for each rank.",
        epilog="example: torchrun --nproc-per-node 2 -m trainer.train --settings run.json "
        "--resume-step 400",
    )
    parser.add_argument("--settings", type=Path, required=True, help="JSON file of the settings")
    parser.add_argument(
        "--set",
        dest="changes",
        metavar="KEY=VALUE",
        type=_change,
        action="append",
        default=[],
        help="replace one setting, e.g. checkpoint.mode=sync (repeatable)",
    )
    parser.add_argument(
        "--resume-step",
        metavar="N",
        type=int,
        help="go back to the checkpoint of step N, once: restarts go on from what was saved since",
    )
    return parser.parse_args(argv)


def _change(text: str) -> tuple[str, Any]:
    key, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    try:
        return key, json.loads(value)
    except (ValueError, RecursionError):
        return key, value


def _refuse(message: str, code: int) -> int:
    if code != exit_codes.ORDINARY_FAILURE:
        exit_codes.leave_final_word(code, message)
    sys.stderr.write(f"steadfast: {message}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
