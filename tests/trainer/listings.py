"""Checkpoints of a few bytes, written here, and what ``trainer.inspect`` says of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.ranks import trainer_settings
from trainer.checkpoint.fingerprint import fingerprint
from trainer.checkpoint.layout import CommitRecord, ShardFormat, commit, folder_name, record_file
from trainer.inspect import main

SHARD = "__0_0.distcp"


def save(run: Path, /, step: int, attempt: int = 1, **changes: Any) -> Path:
    """A checkpoint of two files of 1000 bytes each; ``changes`` are of its record."""
    folder = run / "checkpoints" / folder_name(step, attempt)
    folder.mkdir(parents=True)
    for name in (SHARD, "__1_0.distcp"):
        (folder / name).write_bytes(bytes([step % 256]) * 1000)
    fields: dict[str, Any] = {
        "step": step,
        "attempt": attempt,
        "world_size": 2,
        "fingerprint": fingerprint(trainer_settings(run)),
        "files": tuple(record_file(folder / name) for name in (SHARD, "__1_0.distcp")),
        "format": ShardFormat.DCP,
        "run": run.name,
        "max_steps": 100,
    }
    commit(folder, CommitRecord(**(fields | changes)))
    return folder


def keep_settings(run: Path, **groups: dict[str, Any]) -> None:
    settings = trainer_settings(run, **groups)
    (run / "settings.json").write_text(settings.model_dump_json())


def listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[500] ^= 1
    path.write_bytes(content)
