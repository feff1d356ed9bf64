"""Finds run folders, accounts for each run, and picks the one that the others are compared with.

A run folder holds ``events/`` and, once training began, ``settings.json``. The
reference is the run that is named, or the only one that finished without saving
and without faults. It is compared with the runs that train the same: a run whose
model, data, optimizer or last step differ has a step time of its own.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from trainer.events import Event, read_events
from trainer.goodput.ledger import Account, account_for
from trainer.settings import CheckpointMode, SettingsError, TrainerSettings

_WHAT_IS_TRAINED = frozenset({"device", "max_steps", "model", "data", "optimizer"})


class RunError(ValueError):
    """A folder that holds no run that can be reported; one line."""


class Verdict(StrEnum):
    EQUAL = "yes"
    DIFFERENT = "NO"
    NOT_COMPARED = "-"


@dataclass(frozen=True, slots=True)
class Run:
    name: str
    folder: Path
    settings: TrainerSettings | None
    account: Account
    verdict: Verdict
    """Whether digests and sample ids equal the reference's, bit for bit."""


@dataclass(frozen=True, slots=True)
class Comparison:
    runs: tuple[Run, ...]
    """In the order in which they began."""

    reference: Run | None


@dataclass(frozen=True, slots=True)
class _Recorded:
    folder: Path
    settings: TrainerSettings | None
    events: list[Event]
    account: Account
    """With the run's own step time."""


def compare(directories: Sequence[Path], reference: Path | None = None) -> Comparison:
    """Account for every run below ``directories``.

    Raises:
        RunError: a folder does not exist, holds no events, or they are not those of a run.
    """
    folders = {folder for directory in directories for folder in _run_folders(directory)}
    recorded = [_read(folder) for folder in folders]
    recorded.sort(key=lambda run: (float(run.events[0]["wall"]), run.folder))
    chosen = _read(_only_run(reference)) if reference else _yardstick(recorded)
    if chosen and not chosen.account.finished:
        raise RunError(f"{chosen.folder}: did not finish, so nothing can be compared with it")
    names = _names([run.folder for run in (*recorded, *([chosen] if chosen else []))])
    return Comparison(
        runs=tuple(_compared(run, chosen, names[run.folder]) for run in recorded),
        reference=_compared(chosen, chosen, names[chosen.folder]) if chosen else None,
    )


def _run_folders(directory: Path) -> list[Path]:
    if not directory.is_dir():
        raise RunError(f"{directory}: no such folder; give a run's folder or one that holds runs")
    found = sorted({path.parent.parent for path in _event_files(directory.resolve())})
    if not found:
        raise RunError(f"{directory}: holds no events; has a run of it begun?")
    return found


def _event_files(directory: Path) -> Iterator[Path]:
    own = sorted((directory / "events").glob("*.jsonl"))
    yield from own or directory.rglob("events/*.jsonl")


def _only_run(directory: Path) -> Path:
    first, *others = _run_folders(directory)
    if others:
        raise RunError(f"{directory}: holds {1 + len(others)} runs; name one as the reference")
    return first


def _read(folder: Path) -> _Recorded:
    path = folder / "settings.json"
    try:
        settings = TrainerSettings.from_file(path) if path.exists() else None
        events = read_events(folder)
        account = account_for(events)
    except SettingsError as error:
        raise RunError(str(error).splitlines()[0]) from error
    except (KeyError, TypeError, ValueError) as error:
        problem = f"lacks {error}" if isinstance(error, KeyError) else str(error)
        raise RunError(f"{folder}/events: not the events of a run ({problem})") from error
    return _Recorded(folder, settings, events, account)


def _yardstick(recorded: Sequence[_Recorded]) -> _Recorded | None:
    unfaulted = [
        run
        for run in recorded
        if run.settings
        and run.settings.checkpoint.mode is CheckpointMode.NONE
        and not run.account.recoveries
        and run.account.finished
    ]
    return unfaulted[0] if len(unfaulted) == 1 else None


def _compared(run: _Recorded, reference: _Recorded | None, name: str) -> Run:
    account, verdict = run.account, Verdict.NOT_COMPARED
    if reference and _trains_the_same(run, reference):
        account = account_for(run.events, reference_step_seconds=reference.account.step_seconds)
        if account.finished and run.folder != reference.folder:
            same = _result(account) == _result(reference.account)
            verdict = Verdict.EQUAL if same else Verdict.DIFFERENT
    return Run(name, run.folder, run.settings, account, verdict)


def _trains_the_same(run: _Recorded, reference: _Recorded) -> bool:
    """Told by the settings; a run that left none is taken at the caller's word."""
    if run.settings is None or reference.settings is None:
        return True
    return _trained(run.settings) == _trained(reference.settings)


def _trained(settings: TrainerSettings) -> dict[str, Any]:
    return settings.model_dump(include=set(_WHAT_IS_TRAINED))


def _result(account: Account) -> tuple[Any, ...]:
    return account.final_step, account.sample_ids_digest, account.digests


def _names(folders: Sequence[Path]) -> dict[Path, str]:
    """The folder's own name, or all of its path where two would have the same."""
    num_namesakes = Counter(folder.name for folder in set(folders))
    return {f: f.name if num_namesakes[f.name] == 1 else str(f) for f in folders}
