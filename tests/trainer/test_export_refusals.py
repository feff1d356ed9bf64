"""What is not exported, and what is left then: one line, the right exit code, and no folder."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.trainer.stored import flip_a_bit, parameters, store
from trainer import weights_writer
from trainer.checkpoint.layout import folder_name
from trainer.export import main


def refusal(capsys: pytest.CaptureFixture[str], code: int, *arguments: str) -> str:
    """The one line with which ``arguments`` are refused."""
    assert main(list(arguments)) == code
    out, err = capsys.readouterr()
    assert not out
    lines: list[str] = err.splitlines()
    assert len(lines) == 1
    return lines[0]


def test_a_damaged_checkpoint_is_not_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = store(tmp_path / "run", parameters())
    flip_a_bit(checkpoint / "__1_0.distcp")
    out = tmp_path / "out"
    for path in (checkpoint, tmp_path / "run"):
        assert main([str(path), "--out", str(out)]) == 1
    assert "__1_0.distcp has a wrong checksum" in capsys.readouterr().err
    assert not out.exists()


def test_an_uncommitted_save_is_not_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run" / "checkpoints" / folder_name(10, 1)
    folder.mkdir(parents=True)
    message = refusal(capsys, 1, str(folder), "--out", str(tmp_path / "out"))
    assert "has no commit record" in message


def test_what_is_no_checkpoint_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ("--out", str(tmp_path / "out"))
    assert "no such folder" in refusal(capsys, 2, str(tmp_path / "nowhere"), *out)
    assert "holds no folder 'checkpoints'" in refusal(capsys, 2, str(tmp_path), *out)


def test_an_occupied_out_is_refused_and_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = store(tmp_path / "run", parameters())
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").write_text("precious")
    assert "is no empty folder" in refusal(capsys, 2, str(checkpoint), "--out", str(out))
    assert [path.name for path in out.iterdir()] == ["mine"]
    file = tmp_path / "file"
    file.touch()
    assert "is no empty folder" in refusal(capsys, 2, str(checkpoint), "--out", str(file))


def test_an_out_that_no_folder_can_be_renamed_to_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = store(tmp_path / "run", parameters())
    empty = tmp_path / "empty"
    empty.mkdir()
    (tmp_path / "link").symlink_to(empty)
    message = refusal(capsys, 2, str(checkpoint), "--out", str(tmp_path / "link"))
    assert "is no empty folder" in message
    monkeypatch.setattr(Path, "is_mount", lambda path: path == empty)  # a container's volume
    message = refusal(capsys, 2, str(checkpoint), "--out", str(empty))
    assert "is a mount point; give a new folder in it" in message


def test_a_checkpoint_that_is_deleted_meanwhile_is_one_line_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = store(tmp_path / "run", parameters())
    write_all = weights_writer._write_all

    def deleting(descriptor: int, content: object) -> None:
        shutil.rmtree(checkpoint, ignore_errors=True)
        write_all(descriptor, content)

    monkeypatch.setattr(weights_writer, "_write_all", deleting)
    out = tmp_path / "there" / "out"
    message = refusal(capsys, 1, str(checkpoint), "--out", str(out))
    assert "__0_0.distcp: No such file or directory; nothing was exported" in message
    assert not list(out.parent.iterdir())


def test_a_disk_that_fills_is_one_line_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = store(tmp_path / "run", parameters())

    def full(_descriptor: int, _content: object) -> int:  # the disk, at its boundary
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    out = tmp_path / "there" / "out"
    message = refusal(capsys, 1, str(checkpoint), "--out", str(out))
    monkeypatch.undo()
    assert "No space left on device" in message
    assert not list(out.parent.iterdir())


def test_too_little_space_is_found_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = store(tmp_path / "run", parameters())
    monkeypatch.setattr("trainer.checkpoint.layout.free_bytes", lambda _: 1000)
    message = refusal(capsys, 1, str(checkpoint), "--out", str(tmp_path / "out"))
    assert "has 0.00 GiB free" in message
    assert not (tmp_path / "out").exists()


def test_a_tensor_of_another_shape_is_refused_with_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = store(tmp_path / "run", parameters() | {"model.model.norm.weight": torch.ones(63)})
    message = refusal(capsys, 1, str(checkpoint), "--out", str(tmp_path / "out"))
    assert "model.norm.weight has shape (63,) where its model has (64,)" in message


def test_a_missing_tensor_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tensors = parameters()
    del tensors["model.model.norm.weight"]
    checkpoint = store(tmp_path / "run", tensors)
    message = refusal(capsys, 1, str(checkpoint), "--out", str(tmp_path / "out"))
    assert "model.norm.weight has shape none" in message


def test_sigterm_leaves_no_partial_folder(tmp_path: Path) -> None:
    checkpoint = store(tmp_path / "run", parameters())
    program = (
        "import os, signal, runpy, trainer.weights_writer as w\n"
        "write = w._write_all\n"
        "def told_to_stop(*arguments):\n"
        "    write(*arguments)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "w._write_all = told_to_stop\n"
        "runpy.run_module('trainer.export', run_name='__main__', alter_sys=True)\n"
    )
    out = tmp_path / "there" / "out"
    command = [sys.executable, "-c", program, str(checkpoint), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 130, done.stderr
    assert not list(out.parent.iterdir())
