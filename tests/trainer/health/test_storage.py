"""Storage that is full, read-only, gone or silent. A FIFO stands in for a dead mount:

to open one waits in the kernel until somebody else does.
"""

import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainer.bounded import bounded
from trainer.entry import why_not_writable
from trainer.health import storage
from trainer.health.finding import Finding, Verdict


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[Path]:
    """Blocks whoever opens it, until the test is over and nothing is left behind."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    yield path
    waiting = [thread for thread in threading.enumerate() if thread.name == "bounded"]
    assert waiting  # given up, as the docstring of bounded says, and not ended
    os.close(os.open(path, os.O_RDWR))
    writer = os.open(path, os.O_RDWR)
    for thread in waiting:
        thread.join(10)
        assert not thread.is_alive()
    os.close(writer)


def refuse(number: int) -> Finding:
    def probe(_: Path) -> None:
        raise OSError(number, os.strerror(number))

    return storage.check_storage(Path("/run"), probe=probe)


def test_a_call_that_blocks_is_given_up_in_time(silent: Path) -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"no answer within 0\.05 s"):
        bounded(lambda: os.close(os.open(silent, os.O_RDONLY)), seconds=0.05)
    assert time.monotonic() - began < 5


def test_a_dead_mount_fails(silent: Path) -> None:
    finding = storage.check_storage(
        silent,
        probe=lambda path: bounded(lambda: os.close(os.open(path, os.O_RDONLY)), seconds=0.05),
    )
    assert finding.verdict is Verdict.FAILED
    assert "no answer within 0.05 s; its mount is dead" in finding.reason


def test_a_dead_mount_keeps_no_pod_waiting(silent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def temporary_file(**_: object) -> None:
        os.close(os.open(silent, os.O_RDONLY))

    monkeypatch.setattr("tempfile.TemporaryFile", temporary_file)
    monkeypatch.setattr(storage.probe, "__kwdefaults__", {"make": False, "seconds": 0.05})
    problem = why_not_writable(silent.parent)
    assert problem is not None
    assert "cannot be written (no answer within 0.05 s); is the volume mounted" in problem[0]
    assert problem[1] == 1  # it may come back


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_passes(number: int) -> None:
    finding = refuse(number)
    assert finding.verdict is Verdict.PASSED
    assert "full" in finding.reason


def test_a_disk_that_went_read_only_fails_in_these_words() -> None:
    assert "mounted read-only" in refuse(errno.EROFS).reason


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.EACCES])
def test_storage_that_refuses_fails(number: int) -> None:
    finding = refuse(number)
    assert finding.verdict is Verdict.FAILED
    assert os.strerror(number) in finding.reason


def test_a_folder_that_vanished_fails_and_is_not_made(tmp_path: Path) -> None:
    assert storage.check_storage(tmp_path / "run").verdict is Verdict.FAILED
    assert list(tmp_path.iterdir()) == []


def test_what_a_bounded_call_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        bounded(lambda: 1 // 0, seconds=10)
