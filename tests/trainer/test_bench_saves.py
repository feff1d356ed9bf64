"""The benchmark of saves: its arithmetic, its guard over processes, and a run of it on the CPU."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.trainer import bench_saves
from tests.trainer.bench_table import Row, as_text, summary


def save(**changes: Any) -> dict[str, Any]:
    return {
        "idle_step_seconds": [0.4, 0.5, 0.6],
        "writing_step_seconds": [0.6],
        "begin_seconds": 0.1,
        "before_update_seconds": 0.02,
        "asking_seconds": 0.003,
        "finished_seconds": 7.0,
        "durable_seconds": 8.0,
        "num_bytes": 4000,
        "number": 1,
    } | changes


def test_the_first_save_is_no_part_of_the_medians() -> None:
    first = save(begin_seconds=5.0, writing_step_seconds=[9.0], durable_seconds=20.0)
    row = summary("async", [first, save()], failure="")
    assert row.first_stall_seconds == pytest.approx(5.023)
    assert row.stall_seconds == pytest.approx(0.123)
    assert (row.idle_step_seconds, row.writing_step_seconds) == (0.5, 0.6)
    assert row.slowdown_fraction == pytest.approx(0.2)
    assert (row.first_durable_seconds, row.durable_seconds, row.num_bytes) == (20.0, 8.0, 4000)


def test_a_save_that_blocks_slows_no_step_down() -> None:
    row = summary("sync", [save(), save(writing_step_seconds=[])], failure="")
    assert row.slowdown_fraction is None


def test_a_contender_that_fails_keeps_what_it_measured_and_its_own_words() -> None:
    records = [save(), {"failure": "rank 1: OSError: full"}, {"failure": "rank 0: peer closed"}]
    row = summary("async", records, failure="rank 0 ended with exit code 1")
    assert (row.num_saves, row.failure) == (1, "rank 1: OSError: full")
    assert "* async: rank 1: OSError: full" in as_text([row])


def test_a_contender_without_a_save_says_why_it_has_none() -> None:
    assert summary("sync", [], "") == Row("sync", failure="no save was measured")


def test_ranks_that_hang_are_killed_with_all_that_they_started() -> None:
    reading, writing = os.pipe()
    failure = bench_saves.run_ranks(["sh", "-c", "sleep 600 & wait"], 2, writing, limit=0.5)
    os.close(writing)
    assert failure == "killed: not done in 0 s"
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.read() == b""  # it ends only once nobody holds the other end any more


def test_one_rank_that_fails_ends_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_saves, "GRACE_SECONDS", 0.1)
    command = ["sh", "-c", "test $RANK = 0 && exit 3; exec sleep 600"]
    with Path(os.devnull).open("wb") as log:
        failure = bench_saves.run_ranks(command, 2, log.fileno(), limit=60)
    assert failure == "rank 0 ended with exit code 3"


def test_a_model_that_needs_a_gpu_is_refused_without_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_saves, "_num_gpus", lambda: 0)
    with pytest.raises(SystemExit, match="2"):
        bench_saves.main([])
    assert "try --preset tiny" in capsys.readouterr().err


@pytest.mark.distributed
def test_our_default_mode_is_measured_on_the_cpu(tmp_path: Path) -> None:
    rows = measured(tmp_path, "async")
    assert rows["async"]["failure"] == ""
    assert rows["async"]["num_saves"] >= 2
    assert rows["async"]["num_bytes"] > 100_000
    assert not (tmp_path / "storage" / "async").exists()


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.timeout(600)
def test_every_contender_is_measured_on_the_cpu(tmp_path: Path) -> None:
    rows = measured(tmp_path, *bench_saves.NAMES)
    assert {name: row["failure"] for name, row in rows.items()} == dict.fromkeys(rows, "")
    assert all(row["num_saves"] >= 2 for row in rows.values())


def measured(folder: Path, *names: str) -> dict[str, dict[str, Any]]:
    arguments = ["--preset", "tiny", "--out", str(folder), "--seconds", str(60 * len(names))]
    assert bench_saves.main([*arguments, "--only", *names]) == 0
    _, *rows = map(json.loads, (folder / "results.jsonl").read_text().splitlines())
    return {row["contender"]: row for row in rows}
