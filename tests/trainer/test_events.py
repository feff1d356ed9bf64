"""The event log: what was recorded can be read, whatever happened to the writer."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trainer import events
from trainer.events import EventLog, read_events

WRITES_TWO_EVENTS_AND_IS_KILLED = """
import os, signal, sys
from pathlib import Path
from trainer.events import EventLog

log = EventLog(Path(sys.argv[1]), rank=3)
log.record("attempt_started")
log.step = 7
log.record("fault_injected", kind="sigkill", fault="f0")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_an_event_carries_who_wrote_it_and_where_training_stood(tmp_path: Path) -> None:
    log = EventLog(tmp_path, rank=3)
    log.attempt, log.step = 2, 41
    log.record("restored", source="durable")
    log.close()
    (event,) = read_events(tmp_path)
    assert {key: event[key] for key in ("name", "rank", "attempt", "step", "source")} == {
        "name": "restored",
        "rank": 3,
        "attempt": 2,
        "step": 41,
        "source": "durable",
    }
    assert event["wall"] > event["mono"] > 0


def test_a_field_given_for_one_event_replaces_what_the_log_would_write(tmp_path: Path) -> None:
    log = EventLog(tmp_path, rank=0)
    log.step = 9
    log.record("process_started", wall=12.5, mono=2.5)
    log.record("checkpoint_committed", step=5)
    log.close()
    started, committed = read_events(tmp_path)
    assert (started["wall"], started["mono"]) == (12.5, 2.5)
    assert committed["step"] == 5


def test_a_new_log_of_the_same_rank_goes_on_after_the_old_one(tmp_path: Path) -> None:
    for _ in range(2):
        log = EventLog(tmp_path, rank=0)
        log.record("process_started")
        log.close()
    assert [event["name"] for event in read_events(tmp_path)] == ["process_started"] * 2


def test_events_of_all_ranks_and_pods_are_read_in_order_of_time(tmp_path: Path) -> None:
    for wall, who in ((3.0, {"rank": 0}), (1.0, {"pod": 0}), (2.0, {"rank": 1})):
        log = EventLog(tmp_path, **who)
        log.record("anything", wall=wall)
        log.close()
    assert [event["wall"] for event in read_events(tmp_path)] == [1.0, 2.0, 3.0]


def test_a_torn_line_is_skipped_and_costs_only_its_own_event(tmp_path: Path) -> None:
    log = EventLog(tmp_path, rank=0)
    log.record("first")
    log.record("torn")
    log.close()
    path = tmp_path / "events" / "rank-0.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    log = EventLog(tmp_path, rank=0)
    log.record("second")
    log.close()
    assert [event["name"] for event in read_events(tmp_path)] == ["first", "second"]


def test_a_line_that_is_no_event_is_skipped(tmp_path: Path) -> None:
    log = EventLog(tmp_path, rank=0)
    log.record("first")
    log.close()
    with (tmp_path / "events" / "rank-0.jsonl").open("ab") as file:
        file.write(b'[1, 2]\n{"name": "without a time"}\n\xff\xfe\n\n')
    assert [event["name"] for event in read_events(tmp_path)] == ["first"]


def test_events_survive_the_sigkill_of_their_writer(tmp_path: Path) -> None:
    writer = subprocess.run(
        [sys.executable, "-c", WRITES_TWO_EVENTS_AND_IS_KILLED, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        env={"PATH": os.environ["PATH"]},
        check=False,
    )
    assert writer.returncode == -signal.SIGKILL
    started, fault = read_events(tmp_path)
    assert (started["name"], fault["name"], fault["step"]) == (
        "attempt_started",
        "fault_injected",
        7,
    )


def test_a_folder_without_events_reads_as_no_events(tmp_path: Path) -> None:
    assert read_events(tmp_path) == []


@contextmanager
def full_at(size_bytes: int) -> Iterator[None]:
    """No file may grow beyond: as on a full disk, a write takes a part and the next one fails."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def names(run_directory: Path) -> list[str]:
    return [event["name"] for event in read_events(run_directory)]


def test_what_a_full_disk_did_not_take_is_written_in_order_once_it_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = EventLog(tmp_path, rank=0)
    log.record("first")
    size = (tmp_path / "events" / "rank-0.jsonl").stat().st_size
    with full_at(size + 10):
        for name in ("torn by the disk", "second", "third"):
            log.record(name)
        assert names(tmp_path) == ["first"]
    log.record("fourth")
    log.close()
    assert names(tmp_path) == ["first", "torn by the disk", "second", "third", "fourth"]
    (warning,) = caplog.messages
    assert warning.endswith("rank-0.jsonl: File too large; events wait until it can be written")


def test_of_more_events_than_may_wait_the_oldest_are_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MOST_WAITING", 2)
    log = EventLog(tmp_path, rank=0)
    with full_at(0):
        for name in ("head", "oldest", "newer", "newest"):
            log.record(name)
    log.close()
    # The head was about to be written, and may be torn already: the rest of it must follow.
    assert names(tmp_path) == ["head", "newer", "newest"]


def test_what_still_waits_at_the_end_is_said_to_be_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = EventLog(tmp_path, rank=0)
    with full_at(0):
        log.record("first")
        log.record("second")
        log.close()
    assert caplog.messages[-1].endswith("2 events are lost")


def test_a_run_folder_that_vanished_is_not_made_anew(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "run", rank=0)
    log.record("first")
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    log.record("second")
    log.close()
    assert names(tmp_path / "run") == ["first", "second"]
