"""Where checkpoints lie: only a whole record makes one, and no clean-up takes the last."""

import gc
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.checkpoint import layout
from trainer.checkpoint.layout import Checkpoint, CommitRecord, ShardFormat

ROOT = Path(__file__).parents[2]
RUN = "a-run"
SHARD = "__0_0.distcp"
VALUES = b"the values of one rank" * 10


def begin(root: Path, *, step: int, attempt: int = 1, folder: str = "") -> Path:
    """A save that is written but not committed."""
    path = root / (folder or layout.folder_name(step, attempt))
    path.mkdir(parents=True)
    (path / SHARD).write_bytes(VALUES)
    return path


def commit(root: Path, *, step: int, attempt: int = 1, folder: str = "", run: str = RUN) -> Path:
    path = begin(root, step=step, attempt=attempt, folder=folder)
    files = (layout.record_file(path / SHARD),)
    fingerprint = {"model": {"preset": "tiny"}}
    layout.commit(path, CommitRecord(step, attempt, 2, fingerprint, files, ShardFormat.DCP, run))
    return path


def names(root: Path) -> list[str]:
    return [checkpoint.path.name for checkpoint in layout.committed(root)]


def damage_of(checkpoint: Checkpoint) -> str | None:
    return layout.what_is_damaged(checkpoint, checkpoint.record.files)


def flip_bit(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


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


def test_the_newest_are_kept_and_their_debris_is_not(tmp_path: Path) -> None:
    for step in (20, 40, 60):
        commit(tmp_path, step=step)
    begin(tmp_path, step=70, attempt=1)
    begin(tmp_path, step=80, attempt=2)
    commit(tmp_path, step=90, attempt=2)
    layout.clean_up(tmp_path, run=RUN, keep_latest=2, attempt=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "step-00000060-attempt-0001",
        "step-00000080-attempt-0002",
        "step-00000090-attempt-0002",
    ]


def test_an_attempt_keeps_its_commit_though_damaged_ones_have_later_steps(tmp_path: Path) -> None:
    for step in (60, 80):
        os.truncate(commit(tmp_path, step=step, attempt=1) / SHARD, 0)
    commit(tmp_path, step=50, attempt=2)
    layout.clean_up(tmp_path, run=RUN, keep_latest=1, attempt=2)
    assert names(tmp_path) == ["step-00000050-attempt-0002"]


def test_a_file_with_the_name_of_a_checkpoint_is_left_alone(tmp_path: Path) -> None:
    intruder = tmp_path / layout.folder_name(20, 1)
    intruder.write_text("not a folder")
    commit(tmp_path, step=40, attempt=2)
    layout.clean_up(tmp_path, run=RUN, keep_latest=1, attempt=2)
    assert intruder.read_text() == "not a folder"


@contextmanager
def without_waiting_for_the_disk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@dataclass(frozen=True)
class Save:
    step: int
    attempt: int
    fate: str


def step_and_attempt(save: Save) -> tuple[int, int]:
    return save.step, save.attempt


a_save = st.builds(
    Save,
    step=st.integers(1, 6),
    attempt=st.integers(1, 4),
    fate=st.sampled_from(["committed", "damaged", "torn record", "debris"]),
)
saves = st.lists(a_save, unique_by=step_and_attempt, max_size=12)


def make(root: Path, save: Save) -> Path:
    if save.fate == "debris":
        return begin(root, step=save.step, attempt=save.attempt)
    path = commit(root, step=save.step, attempt=save.attempt)
    if save.fate == "damaged":
        flip_bit(path / SHARD, 5)
    if save.fate == "torn record":
        os.truncate(path / layout.COMMIT_RECORD, 30)
    return path


@given(saves=saves, keep_latest=st.integers(1, 4))
@settings(deadline=None)
def test_a_clean_up_takes_neither_the_last_valid_checkpoint_nor_what_is_foreign(
    saves: list[Save], keep_latest: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, without_waiting_for_the_disk():
        root = Path(folder)
        paths = {save: make(root, save) for save in saves}
        attempt = max((save.attempt for save in saves), default=1)
        last = max((save.step for save in saves if save.attempt == attempt), default=0) + 1
        newest = commit(root, step=last, attempt=attempt)
        foreign = commit(root, step=1, folder="moved away by hand")
        layout.clean_up(root, run=RUN, keep_latest=keep_latest, attempt=attempt)

        left = layout.committed(root)
        assert {newest, foreign} <= {c.path for c in left if damage_of(c) is None}
        assert len(left) <= keep_latest + 1
        readable = [save for save in saves if save.fate in ("committed", "damaged")]
        assert len(left) - 1 >= min(keep_latest, len(readable) + 1) - 1
        for save, path in paths.items():
            if save.fate == "debris":
                assert path.exists() == (save.attempt == attempt)


class Crash(BaseException):
    """The process is gone: nothing of it handles this."""


@contextmanager
def crash_at(call: int) -> Iterator[list[str]]:
    """Crash instead of the ``call``-th deletion, or right after it if negative."""
    calls: list[str] = []

    def wrapped(real: Callable[..., None]) -> Callable[..., None]:
        def delete(path: str, **options: Any) -> None:
            calls.append(str(path))
            if len(calls) == call:
                raise Crash
            real(path, **options)
            if len(calls) == -call:
                raise Crash

        return delete

    gc.collect()  # a forgotten temporary folder deletes itself, which is not meant here
    with pytest.MonkeyPatch.context() as patch:
        # As the module has them: shutil and pathlib look them up at each call.
        patch.setattr(os, "unlink", wrapped(os.unlink))
        patch.setattr(os, "rmdir", wrapped(os.rmdir))
        yield calls


def valid(root: Path) -> set[Path]:
    return {c.path for c in layout.committed(root) if damage_of(c) is None}


@given(
    saves=st.lists(a_save, unique_by=step_and_attempt, max_size=4), keep_latest=st.integers(1, 3)
)
@settings(max_examples=5, deadline=None)
def test_a_clean_up_that_is_cut_short_anywhere_leaves_what_is_kept_and_can_be_done_again(
    saves: list[Save], keep_latest: int
) -> None:
    cut, is_done = 0, False
    while not is_done:
        cut += 1
        for call in (cut, -cut):
            with tempfile.TemporaryDirectory() as folder, without_waiting_for_the_disk():
                root = Path(folder)
                for save in saves:
                    make(root, save)
                newest = commit(root, step=9, attempt=5)
                before = valid(root)

                def clean_up(root: Path = root) -> None:
                    layout.clean_up(root, run=RUN, keep_latest=keep_latest, attempt=5)

                with crash_at(call) as calls:
                    try:
                        clean_up()
                    except Crash:
                        assert newest in valid(root) <= before
                    else:
                        is_done = True
                        assert len(calls) < cut
                clean_up()
                assert newest in valid(root)
                assert len(layout.committed(root)) <= keep_latest


def test_old_checkpoints_go_only_after_their_records(tmp_path: Path) -> None:
    old = commit(tmp_path, step=20)
    commit(tmp_path, step=40)
    with crash_at(-1) as calls, pytest.raises(Crash):
        layout.clean_up(tmp_path, run=RUN, keep_latest=1, attempt=1)
    assert calls == [str(old / layout.COMMIT_RECORD)]
    assert names(tmp_path) == ["step-00000040-attempt-0001"]


def test_another_runs_checkpoint_is_neither_deleted_nor_counted(tmp_path: Path) -> None:
    commit(tmp_path, step=99, attempt=8, run="another")
    for step in (20, 40):
        commit(tmp_path, step=step, attempt=9)
    layout.clean_up(tmp_path, run=RUN, keep_latest=1, attempt=9)
    assert names(tmp_path) == ["step-00000040-attempt-0009", "step-00000099-attempt-0008"]


def test_debris_of_attempts_before_makes_room_and_nothing_else_does(tmp_path: Path) -> None:
    begin(tmp_path, step=30, attempt=1)
    kept = [commit(tmp_path, step=20, attempt=1), begin(tmp_path, step=40, attempt=2)]
    os.truncate(commit(tmp_path, step=25, attempt=1) / layout.COMMIT_RECORD, 10)
    layout.clear_debris(tmp_path, attempt=2)
    assert sorted(tmp_path.iterdir()) == sorted([*kept, tmp_path / layout.folder_name(25, 1)])


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
    record = commit(tmp_path, step=20) / layout.COMMIT_RECORD
    fields = json.loads(record.read_text())["record"] | changes
    checksum = zlib.crc32(json.dumps(fields, sort_keys=True).encode())
    record.write_text(json.dumps({"crc32": checksum, "record": fields}))
    assert layout.examine(tmp_path) == (
        [],
        ["step-00000020-attempt-0001: COMMITTED.json is damaged"],
    )


def test_a_step_of_ten_digits_is_cleaned_up_like_any_other(tmp_path: Path) -> None:
    for step in (1_000_000_000, 1_000_000_001):
        commit(tmp_path, step=step)
    layout.clean_up(tmp_path, run=RUN, keep_latest=1, attempt=1)
    assert names(tmp_path) == ["step-1000000001-attempt-0001"]
