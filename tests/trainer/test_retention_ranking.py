"""What is kept first: an attempt's own, then what it restored; and what is never deleted."""

import json
import os
import zlib
from pathlib import Path

import pytest

from tests.trainer.saved_folders import SHARD, begin, clean_up, commit, damage_of, flip_bit
from trainer.checkpoint import layout, retention


def test_what_was_restored_stays_until_the_attempt_has_enough_of_its_own(tmp_path: Path) -> None:
    restored = commit(tmp_path, step=4, attempt=1)
    commit(tmp_path, step=6, attempt=1)  # it cannot be restored
    newest = commit(tmp_path, step=6, attempt=2)
    clean_up(tmp_path, keep_latest=2, attempt=2, restored=restored)
    assert sorted(tmp_path.iterdir()) == [restored, newest]
    flip_bit(newest / SHARD, 5)
    assert [c.path for c in layout.committed(tmp_path) if damage_of(c) is None] == [restored]
    last = commit(tmp_path, step=8, attempt=2)
    clean_up(tmp_path, keep_latest=2, attempt=2, restored=restored)
    assert sorted(tmp_path.iterdir()) == [newest, last]


def test_what_was_passed_over_stays_only_where_fewer_than_wished_for_are_better(
    tmp_path: Path,
) -> None:
    first, restored, _, worse = (commit(tmp_path, step=step) for step in (1, 2, 3, 4))
    newest = commit(tmp_path, step=3, attempt=2)
    clean_up(tmp_path, keep_latest=4, attempt=2, restored=restored)
    assert set(tmp_path.iterdir()) == {first, restored, worse, newest}
    clean_up(tmp_path, keep_latest=3, attempt=2, restored=restored)
    assert set(tmp_path.iterdir()) == {first, restored, newest}


@pytest.mark.parametrize("spoil", ["later version", "torn", "unreadable"])
def test_a_checkpoint_whose_record_cannot_be_read_stays(spoil: str, tmp_path: Path) -> None:
    old = commit(tmp_path, step=20)
    record = old / layout.COMMIT_RECORD
    if spoil == "torn":
        os.truncate(record, 30)
    elif spoil == "unreadable":
        record.unlink()
        record.mkdir()
    else:
        fields = json.loads(record.read_text())["record"] | {"version": 2, "more": 1}
        checksum = zlib.crc32(json.dumps(fields, sort_keys=True).encode())
        record.write_text(json.dumps({"crc32": checksum, "record": fields}))
    commit(tmp_path, step=40, attempt=2)
    clean_up(tmp_path, keep_latest=1, attempt=2)
    assert old.exists()
    assert record.exists()


def test_an_attempt_that_was_replaced_deletes_nothing_its_successor_may_need(
    tmp_path: Path,
) -> None:
    for step, attempt in ((20, 1), (40, 1), (30, 2), (60, 1)):
        commit(tmp_path, step=step, attempt=attempt)
    begin(tmp_path, step=50, attempt=2)
    before = sorted(tmp_path.iterdir())
    clean_up(tmp_path, keep_latest=1, attempt=1)
    assert sorted(tmp_path.iterdir()) == before


def test_what_is_committed_while_the_records_are_read_is_no_debris(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(tmp_path, step=40, attempt=2)
    late = begin(tmp_path, step=30, attempt=1)
    real = layout.saves

    def saves_as_it_commits(root: Path) -> dict[Path, tuple[int, int]]:
        (late / layout.COMMIT_RECORD).write_text("by another process, just now")
        return real(root)

    monkeypatch.setattr(retention, "saves", saves_as_it_commits)
    clean_up(tmp_path, keep_latest=1, attempt=2)
    assert (late / SHARD).exists()
