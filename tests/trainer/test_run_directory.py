"""A run's folder that cannot be written: final, tried again, or trained through."""

import errno
import os
import tempfile
from pathlib import Path

import pytest

from trainer.entry import why_not_writable


def answer(number: int, monkeypatch: pytest.MonkeyPatch, folder: Path) -> tuple[str, int] | None:
    """Where the storage, which is not ours to break, answers with this error."""

    def refuse(**_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    return why_not_writable(folder)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_stops_no_process_from_starting(
    number: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert answer(number, monkeypatch, tmp_path) is None


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.EACCES, 73), (errno.EROFS, 73), (errno.EIO, 1), (errno.ESTALE, 1), (errno.ENOTCONN, 1)],
)
def test_only_what_another_try_meets_again_is_final(
    number: int, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    problem = answer(number, monkeypatch, tmp_path)
    assert problem is not None
    assert os.strerror(number) in problem[0]
    assert problem[1] == code


def test_a_folder_that_vanished_is_not_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / "volume" / "run"
    problem = why_not_writable(folder, make=False)
    assert problem is not None
    assert "cannot be written (No such file or directory); is the volume mounted" in problem[0]
    assert problem[1] == 1
    assert list(tmp_path.iterdir()) == []


def test_a_first_try_makes_the_folder(tmp_path: Path) -> None:
    assert why_not_writable(tmp_path / "volume" / "run") is None
    assert (tmp_path / "volume" / "run").is_dir()
