"""A run over its budget is refused, whatever the disk says to that."""

import errno
from pathlib import Path

import pytest

from trainer.recovery.budget import claim_within_budget
from trainer.settings import RecoverySettings


def test_a_refusal_that_a_full_disk_cannot_mark_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    none = RecoverySettings(max_restarts=0)
    claim_within_budget(tmp_path, none)
    monkeypatch.setattr(Path, "write_bytes", refuse)
    assert "restarted 1 times" in claim_within_budget(tmp_path, none)[1]
    assert "cannot be marked as refused (No space left on device)" in caplog.text
