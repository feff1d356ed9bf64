"""What lies in a checkpoints folder, and which of it can be trusted: no process group, no torch.

Nothing is changed, so a folder may be surveyed while its run trains. Not covered:
what a restore asks beyond this, that the settings of the run are still the same.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainer.checkpoint.layout import COMMIT_RECORD, Checkpoint, committed, what_is_damaged
from trainer.settings import SettingsError, TrainerSettings

CHECKPOINTS = "checkpoints"
UNCOMMITTED = "has no commit record: a save that is in flight, or never finished"
TORN = f"its {COMMIT_RECORD} is torn or not from this trainer"

LONG_BYTES = 256 << 20
"""Files from this size on are announced before they are read or written: a second or more."""

Say = Callable[[str], None]
"""Takes a line for people who wait."""


class NoCheckpoints(ValueError):
    """A path that is not what it should be; one line with the remedy."""


class NothingValid(ValueError):
    """Checkpoints that are damaged or of another run; one line with the remedy."""


@dataclass(frozen=True, slots=True)
class Found:
    """One folder in a checkpoints folder."""

    path: Path
    checkpoint: Checkpoint | None
    """None: it has no commit record that can be read."""

    size_bytes: int
    age_seconds: float
    """Since the commit record, or failing that the folder, was last written."""

    problem: str
    """Why it is no valid checkpoint, in words; empty if it is one."""


def checkpoints_folder(path: Path) -> Path:
    """The checkpoints folder that ``path``, a run's folder or itself one, means.

    Raises:
        NoCheckpoints: it means none.
    """
    if not path.is_dir():
        raise NoCheckpoints(f"{path}: no such folder; give a run's folder")
    if (path / CHECKPOINTS).is_dir():
        return path / CHECKPOINTS
    if (path / COMMIT_RECORD).exists():
        raise NoCheckpoints(f"{path}: is one checkpoint; give its run's folder")
    if path.resolve().name == CHECKPOINTS or any(path.glob(f"*/{COMMIT_RECORD}")):
        return path
    raise NoCheckpoints(
        f"{path}: holds no folder {CHECKPOINTS!r}; give a run's folder, in which training has begun"
    )


def survey(root: Path, *, quick: bool, say: Say, now: float) -> list[Found]:
    """Every folder in ``root``: checkpoints, newest first, then the rest.

    ``now`` is wall time, for their age.

    Raises:
        OSError: ``root`` cannot be listed.
    """
    names = {path for path in root.iterdir() if path.is_dir()}
    checkpoints = committed(root)
    others = sorted(names - {checkpoint.path for checkpoint in checkpoints})
    found = [_found(c.path, c, why_invalid(c, quick=quick, say=say), now) for c in checkpoints]
    found += [_found(path, None, why_uncommitted(path), now) for path in others]
    return [each for each in found if each is not None]


def choose(path: Path, *, say: Say) -> Checkpoint:
    """The checkpoint that ``path`` is or, of a run's folder, its newest valid one; verified.

    Raises:
        NoCheckpoints: ``path`` is neither a checkpoint nor the folder of a run.
        NothingValid: it, or every checkpoint in it, is damaged.
        OSError: the storage fails to answer.
    """
    own = path.resolve()
    if (path / COMMIT_RECORD).exists() or (path.is_dir() and own.parent.name == CHECKPOINTS):
        here = [checkpoint for checkpoint in committed(own.parent) if checkpoint.path == own]
        problem = why_invalid(here[0], quick=False, say=say) if here else why_uncommitted(own)
        if problem:
            raise NothingValid(
                f"{path}: {problem}; take another checkpoint (python -m trainer.inspect lists them)"
            )
        return here[0]
    root = checkpoints_folder(path)
    run = run_of(root, settings_of(root))
    for checkpoint in committed(root):
        if checkpoint.record.run != run:
            problem = f"it is of run {checkpoint.record.run!r}; to take it, give its own folder"
        else:
            problem = why_invalid(checkpoint, quick=False, say=say)
        if not problem:
            return checkpoint
        say(f"passed over {checkpoint.path.name}: {problem}")
    raise NothingValid(f"{root}: holds no valid checkpoint; see python -m trainer.inspect {path}")


def settings_of(root: Path) -> TrainerSettings | None:
    """What the run to which ``root`` belongs was last started with, if that can be told."""
    try:
        return TrainerSettings.from_file(root.resolve().parent / "settings.json")
    except SettingsError:
        return None


def run_of(root: Path, settings: TrainerSettings | None) -> str:
    """The name that the run's own checkpoints have in their records."""
    return settings.run_directory.absolute().name if settings else root.resolve().parent.name


def why_invalid(checkpoint: Checkpoint, *, quick: bool, say: Say) -> str:
    """The first damage in it, in words; ``quick`` compares sizes and reads nothing."""
    for file in checkpoint.record.files:
        try:
            if quick:
                size = (checkpoint.path / file.name).stat().st_size
                if size != file.size_bytes:
                    return f"{file.name} has {size} of {file.size_bytes} bytes"
                continue
            if file.size_bytes >= LONG_BYTES:
                where = f"{checkpoint.path.name}/{file.name}"
                say(f"checking {where} ({gib(file.size_bytes)} GiB)")
            if problem := what_is_damaged(checkpoint, [file]):
                return problem
        except FileNotFoundError:
            return f"{file.name} is missing"
        except OSError as error:
            return f"{file.name} cannot be read ({error.strerror})"
    return ""


def why_uncommitted(path: Path) -> str:
    """Why a folder without a readable commit record has none."""
    try:
        (path / COMMIT_RECORD).open("rb").close()
    except FileNotFoundError:
        return UNCOMMITTED
    except OSError as error:
        return f"its {COMMIT_RECORD} cannot be read ({error.strerror})"
    return TORN


def gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.2f}"


def _found(path: Path, checkpoint: Checkpoint | None, problem: str, now: float) -> Found | None:
    """None where the run's retention has deleted it meanwhile."""
    try:
        marker = path / COMMIT_RECORD
        written = (marker if marker.exists() else path).stat().st_mtime
        if checkpoint is not None:
            size = sum(file.size_bytes for file in checkpoint.record.files)
        else:
            size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    except FileNotFoundError:
        return None
    except PermissionError:
        written, size = path.stat().st_mtime, 0
    return Found(path, checkpoint, size, max(0.0, now - written), problem)
