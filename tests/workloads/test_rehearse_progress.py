"""How far a run has come, and how that is shown where there is no terminal."""

import io
from pathlib import Path

from trainer.events import EventLog
from workloads.rehearsal.display import DisplayWatcher, PlainDisplay
from workloads.rehearsal.progress import EventTail, Progress, advance


def test_the_step_is_that_of_rank_zero() -> None:
    events = [
        {"name": "step_completed", "rank": 0, "step": 3},
        {"name": "step_completed", "rank": 1, "step": 9},
    ]
    progress = Progress()
    for event in events:
        progress = advance(progress, event)
    assert progress.step == 3


def test_a_restore_takes_the_bar_back() -> None:
    before = Progress(step=7, num_attempts=2)
    after = advance(before, {"name": "restored", "rank": 0, "step": 5, "source": "durable"})
    assert (after.step, after.num_restarts, after.latest) == (5, 1, "restored step 5")


def test_an_unknown_event_changes_nothing() -> None:
    before = Progress(step=7, num_attempts=2, latest="finished")
    assert advance(before, {"name": "pod_started", "pod": 0}) == before


def test_a_line_still_being_written_is_read_once_it_is_whole(tmp_path: Path) -> None:
    tail = EventTail(tmp_path)
    first, second = (f'{{"name": "{name}", "wall": 1.0}}\n' for name in "ab")
    file = tmp_path / "rank-0.jsonl"
    file.write_text(first + second[:9])
    assert [event["name"] for event in tail.new_events()] == ["a"]
    file.write_text(first + second)
    assert [event["name"] for event in tail.new_events()] == ["b"]


def test_events_of_several_ranks_come_in_order_of_time(tmp_path: Path) -> None:
    (tmp_path / "rank-0.jsonl").write_text('{"name": "late", "wall": 2.0}\n')
    (tmp_path / "rank-1.jsonl").write_text('{"name": "early", "wall": 1.0}\n')
    assert [event["name"] for event in EventTail(tmp_path).new_events()] == ["early", "late"]


def test_a_long_reason_is_cut_to_what_says_something() -> None:
    reason = "RuntimeError: [/build/gloo/transport/tcp/pair.cc:81] Connection closed by peer"
    event = {"name": "attempt_failed", "rank": 0, "reason": reason}
    latest = advance(Progress(), event).latest
    assert latest == "attempt failed: RuntimeError: Connection closed by peer"


def test_every_notable_event_gets_a_line_and_steps_do_not(tmp_path: Path) -> None:
    stream = io.StringIO()
    watcher = DisplayWatcher(PlainDisplay(stream), EventTail(tmp_path / "events"))
    watcher._display.begin("in-job", max_steps=9)
    log = EventLog(tmp_path, rank=0)
    for step in (1, 2, 3):
        log.step = step
        log.record("step_completed")
    log.record("fault_injected", kind="hang", fault="f")
    log.record("attempt_failed", reason="gave\nup")
    log.close()
    watcher.tick(num_replaced=1)
    watcher.tick(num_replaced=1)
    assert stream.getvalue().splitlines() == [
        "in-job: starting",
        "in-job: step 3 of 9; hang injected in rank 0, step 3, 1 pod replaced",
        "in-job: step 3 of 9; attempt failed: gave up, 1 pod replaced",
    ]
