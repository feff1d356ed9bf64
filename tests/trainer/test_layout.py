"""Where checkpoints lie: only a whole record makes one, and only the record says which is newer."""

import errno
import json
import os
import resource
import signal
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.saved_folders import SHARD, begin, commit, damage_of, flip_bit, names
from trainer.checkpoint import layout
from trainer.checkpoint.layout import Unusable

ROOT = Path(__file__).parents[2]


def test_a_folder_is_a_checkpoint_once_it_has_its_record(tmp_path: Path) -> None:
    begin(tmp_path, step=20)
    assert names(tmp_path) == []
    commit(tmp_path, step=40)
    assert names(tmp_path) == ["step-00000040-attempt-0001"]
    (found,) = layout.committed(tmp_path)
    assert (found.record.step, found.record.attempt, found.record.world_size) == (40, 1, 2)
    assert damage_of(found) is None


def test_a_missing_root_holds_no_checkpoints(tmp_path: Path) -> None:
    assert layout.committed(tmp_path / "checkpoints") == []


def test_a_record_torn_anywhere_is_skipped(tmp_path: Path) -> None:
    record = commit(tmp_path, step=40) / layout.COMMIT_RECORD
    whole = record.read_bytes()
    for length in range(len(whole)):
        record.write_bytes(whole[:length])
        assert names(tmp_path) == [], length


def test_a_flipped_bit_never_changes_what_a_record_says(tmp_path: Path) -> None:
    record = commit(tmp_path, step=40) / layout.COMMIT_RECORD
    whole = record.read_bytes()
    expected = layout.committed(tmp_path)
    for bit in range(8 * len(whole)):
        flip_bit(record, bit)
        assert layout.committed(tmp_path) in ([], expected), bit
        record.write_bytes(whole)


@pytest.mark.parametrize(
    "content", [b"", b"null", b"5", b"[]", b"{}", b'{"record": 3, "crc32": 1}', b"[" * 100_000]
)
def test_a_garbled_record_hides_no_other_checkpoint(content: bytes, tmp_path: Path) -> None:
    commit(tmp_path, step=20)
    (commit(tmp_path, step=40) / layout.COMMIT_RECORD).write_bytes(content)
    assert names(tmp_path) == ["step-00000020-attempt-0001"]


def test_a_truncated_file_is_named_with_its_sizes(tmp_path: Path) -> None:
    os.truncate(commit(tmp_path, step=20) / SHARD, 100)
    (found,) = layout.committed(tmp_path)
    assert damage_of(found) == "__0_0.distcp has 100 of 220 bytes"


def test_a_flipped_bit_in_a_file_is_named(tmp_path: Path) -> None:
    flip_bit(commit(tmp_path, step=20) / SHARD, 1000)
    (found,) = layout.committed(tmp_path)
    assert damage_of(found) == "__0_0.distcp has a wrong checksum"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (commit(tmp_path, step=20) / SHARD).unlink()
    (found,) = layout.committed(tmp_path)
    assert damage_of(found) == "__0_0.distcp is missing"


def test_order_is_that_of_the_records_not_of_names_or_times(tmp_path: Path) -> None:
    last = commit(tmp_path, step=60, attempt=2, folder="a")
    commit(tmp_path, step=60, attempt=1, folder="z")
    commit(tmp_path, step=80, attempt=1, folder="m")
    os.utime(last, (0, 0))
    assert names(tmp_path) == ["a", "m", "z"]


def test_a_write_that_finds_no_room_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "record"
    layout.write_durably(path, b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            layout.write_durably(path, b"new" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == b"old"


def test_a_reader_sees_the_old_file_or_the_new_one_even_if_the_writer_is_killed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "record"
    script = """
import sys
from pathlib import Path
from trainer.checkpoint.layout import write_durably
while True:
    for letter in (b'a', b'b'):
        write_durably(Path(sys.argv[1]), letter * 300_000)
        print(flush=True)
"""
    command = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        seen = {path.read_bytes() for _ in range(100)}
        writer.send_signal(signal.SIGKILL)
    assert seen | {path.read_bytes()} <= {b"a" * 300_000, b"b" * 300_000}


def test_a_record_of_a_later_version_is_not_called_damaged(tmp_path: Path) -> None:
    rewrite(commit(tmp_path, step=20) / layout.COMMIT_RECORD, version=2, more=1)
    (found,) = layout.examine(tmp_path)[1]
    assert "is of version 2 and this trainer reads 1" in found.reason


def test_a_folder_with_the_name_of_a_record_hides_no_checkpoint(tmp_path: Path) -> None:
    commit(tmp_path, step=20)
    (tmp_path / "foreign" / layout.COMMIT_RECORD).mkdir(parents=True)
    assert names(tmp_path) == ["step-00000020-attempt-0001"]
    (found,) = layout.examine(tmp_path)[1]
    assert (found.name, found.may_heal) == ("foreign", True)
    assert "[Errno 21]" in found.reason


def test_storage_that_is_gone_says_nothing_about_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "foreign" / layout.COMMIT_RECORD).mkdir(parents=True)

    def fail(_: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "statvfs", fail)
    with pytest.raises(OSError, match="Input/output error"):
        layout.examine(tmp_path)


def rewrite(record: Path, **changes: Any) -> None:
    """As a trainer would that writes these fields too: its checksum is right."""
    fields = json.loads(record.read_text())["record"] | changes
    checksum = zlib.crc32(json.dumps(fields, sort_keys=True).encode())
    record.write_text(json.dumps({"crc32": checksum, "record": fields}))


@pytest.mark.parametrize(
    "changes",
    [
        {"step": "20"},
        {"attempt": None},
        {"world_size": True},
        {"format": "pickle"},
        {"fingerprint": []},
        {"files": [{"name": "../elsewhere", "size_bytes": 1, "crc32": 1}]},
        {"more": 1},
    ],
)
def test_a_record_that_says_the_impossible_is_damaged(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    rewrite(commit(tmp_path, step=20) / layout.COMMIT_RECORD, **changes)
    assert layout.examine(tmp_path) == (
        [],
        [Unusable("step-00000020-attempt-0001", "COMMITTED.json is damaged")],
    )
