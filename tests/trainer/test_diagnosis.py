"""The diagnosis of a run's folder: what is read of it, torn or missing, and the command."""

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from trainer.diagnosis.__main__ import main
from trainer.diagnosis.blame import Cause
from trainer.diagnosis.evidence import TAIL_BYTES, diagnose_attempt
from trainer.diagnosis.flight_recorder import furthest_behind, last_collectives
from trainer.diagnosis.previous import announce_previous
from trainer.diagnosis.stack_file import StackFile, attempt_folder
from trainer.diagnosis.stacks import read_stacks, waits_in
from trainer.events import EventLog, read_events
from trainer.node import node_name
from trainer.optimization import wait_for_gpu

# As written by Python 3.11 and PyTorch 2.13 on two ranks, shortened.
HANGS = """no progress for 5.2 s
Current thread 0x00007f45dac276c0 (most recent call first):
  File "/app/trainer/watchdog.py", line 121 in _notice
  File "/usr/lib/python3.11/threading.py", line 982 in run

Thread 0x00007f45fdfcbb80 (most recent call first):
  File "/app/trainer/faults/injector.py", line 78 in _suffer
  File "/app/trainer/loop.py", line 185 in _step
Timeout (0:00:06)!
Thread 0x00007f45dac276c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait

Thread 0x00007f45fdfcbb80 (most recent call first):
  File "/app/trainer/faults/injector.py", line 78 in _suffer
  File "/app/trainer/loop.py", line 185 in _step
"""
WAITS = """no progress for 5.1 s
Thread 0x00007fdfd3046b80 (most recent call first):
  File "/venv/site-packages/torch/_ops.py", line 1279 in __call__
  File "/venv/site-packages/torch/distributed/_functional_collectives.py", line 142 in wait_tensor
  File "/venv/site-packages/torch/distributed/tensor/_ops/_math_ops.py", line 110 in _reduce_value
  File "/venv/site-packages/torch/nn/utils/clip_grad.py", line 105 in _get_total_norm
  File "/app/trainer/optimization.py", line 105 in clip_gradients
  File "/app/trainer/loop.py", line 186 in _step
"""
SAID = (
    "rank 1 on node ip-10-0-1-7 hung in step 57: its stack ends in _suffer at "
    "faults/injector.py:78; the others wait for it in clip_gradients"
)


def leave(run: Path, rank: int, stacks: str, *, attempt: int = 1, step: int = 56) -> EventLog:
    """What a rank leaves of an attempt in which it completed ``step``."""
    run.mkdir(exist_ok=True)
    events = EventLog(run, rank=rank)
    events.attempt, events.step = attempt, step
    events.record("step_completed", seconds=0.03)
    file = StackFile(attempt_folder(run, attempt), rank)
    file.write(stacks.rstrip("\n"))
    file.close()
    *_, main = re.findall("0x[0-9a-f]{16}", stacks) or [""]
    header = f"{threading.main_thread().ident:#x}"
    file.path.write_text(file.path.read_text().replace(header, main))  # that of the process told of
    return events


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEADFAST_NODE", "ip-10-0-1-7")
    for rank, stacks in enumerate((WAITS, HANGS)):
        leave(tmp_path / "run", rank, stacks).close()
    return tmp_path / "run"


def test_a_hang_is_told_from_what_two_ranks_left(run: Path) -> None:
    found = diagnose_attempt(run, 1)
    assert (found.cause, found.rank, found.line) == (Cause.HUNG, 1, SAID)


def test_the_main_threads_latest_stack_is_read() -> None:
    left = read_stacks('{"node": "a"}\n' + HANGS)
    assert left.node == "a"
    assert str(left.frames[0]) == "_suffer at faults/injector.py:78"
    assert [frame.function for frame in left.frames] == ["_suffer", "_step"]
    assert waits_in(left.frames) == ""


def test_a_dump_that_is_cut_short_passes_no_other_thread_off_as_the_main_one() -> None:
    header = '{"node": "a", "main_thread": "0x7f45fdfcbb80"}\n'
    torn = HANGS[: HANGS.rindex("Thread 0x00007f45fdfcbb80")]  # its last dump has no main thread
    assert [frame.function for frame in read_stacks(header + torn).frames] == ["_suffer", "_step"]


def test_a_rank_that_made_progress_again_has_no_stack() -> None:
    assert read_stacks('{"node": "a"}\n' + HANGS + "progress again\n").frames == ()
    assert read_stacks('{"node": "a"}\n' + HANGS + "progress again\n" + WAITS).frames != ()


def test_a_killed_rank_that_was_late_long_before_was_killed(tmp_path: Path) -> None:
    leave(tmp_path, 0, "told to stop").close()
    leave(tmp_path, 1, HANGS + "progress again").close()
    found = diagnose_attempt(tmp_path, 1)
    assert (found.cause, found.rank) == (Cause.VANISHED, 1)


def test_the_stack_file_names_the_main_thread_as_its_dumps_do(tmp_path: Path) -> None:
    file = StackFile(tmp_path, 0)
    other = threading.Thread(target=file.add_stacks)
    other.start()
    other.join()
    file.close()
    left = read_stacks(file.path.read_text())
    assert "test_the_stack_file_names_the_main_thread_as_its_dumps_do" in {
        frame.function for frame in left.frames
    }


def test_a_stack_file_that_was_closed_takes_nothing_and_raises_nothing(tmp_path: Path) -> None:
    file = StackFile(tmp_path, 0)
    file.close()
    before = file.path.read_text()
    file.write("told to stop")
    file.add_stacks()
    assert file.path.read_text() == before


def test_a_rank_whose_host_waits_for_the_gpu_waits_for_others() -> None:
    waits = wait_for_gpu.__name__
    assert waits_in(read_stacks(HANGS.replace("_suffer", waits)).frames) == waits


@pytest.mark.parametrize("text", ["", "\n", "{", "[1]", '{"node": 3}\n  File "x", line', "\0\0"])
def test_a_torn_stack_file_holds_no_stack(text: str) -> None:
    assert read_stacks(text).frames == ()


def test_events_of_other_attempts_and_torn_lines_tell_nothing(run: Path) -> None:
    events = run / "events/rank-0.jsonl"
    other = {"name": "attempt_failed", "wall": 1.0, "attempt": 2, "reason": "OSError: other"}
    events.write_text(f"{json.dumps(other)}\n{events.read_text()}" + '{"name": "attempt_fai')
    assert diagnose_attempt(run, 1).line == SAID


def test_a_rank_without_events_still_has_its_stacks(run: Path) -> None:
    (run / "events/rank-1.jsonl").unlink()
    assert diagnose_attempt(run, 1).rank == 1


def test_only_the_tail_of_a_long_run_is_read(run: Path) -> None:
    events = run / "events/rank-1.jsonl"
    events.write_bytes(b"x" * (3 * TAIL_BYTES) + b"\n" + events.read_bytes())
    assert diagnose_attempt(run, 1).line == SAID


def test_a_killed_rank_is_told_from_one_that_was_stopped_for_it(tmp_path: Path) -> None:
    leave(tmp_path, 0, "told to stop").close()
    leave(tmp_path, 1, "").close()
    assert (diagnose_attempt(tmp_path, 1).cause, diagnose_attempt(tmp_path, 1).rank) == (
        Cause.VANISHED,
        1,
    )


def test_a_failure_before_the_next_attempt_has_its_number_hides_none(tmp_path: Path) -> None:
    events = leave(tmp_path, 0, "")
    events.record("attempt_failed", reason="ValueError: bad token")
    events.record("attempt_failed", reason="ContextBroken: node a: cuda")
    events.close()
    assert diagnose_attempt(tmp_path, 1).line.endswith("raised ValueError: bad token in step 57")


def test_what_the_recorder_saved_settles_who_is_behind(tmp_path: Path) -> None:
    for rank, count in enumerate((12, 12, 11)):
        leave(tmp_path, rank, WAITS).close()
        path = attempt_folder(tmp_path, 1) / f"collectives-{rank}.json"
        path.write_text(json.dumps(recorded(count)))
    found = diagnose_attempt(tmp_path, 1)
    assert (found.cause, found.rank) == (Cause.OUT_OF_STEP, 2)


def recorded(*counts: int) -> dict[str, Any]:
    """What a process recorded that made a group for each attempt, all of the same name."""
    entries = [
        {
            "collective_seq_id": number,
            "pg_id": group,
            "process_group": ["0", "default_pg"],
            "state": "scheduled",
        }
        for group, count in enumerate(counts)
        for number in range(1, count + 1)
    ]
    return {"version": "2.10", "entries": entries}


def behind(*recordings: dict[str, Any]) -> frozenset[int]:
    return furthest_behind(
        {rank: last_collectives(json.dumps(each).encode()) for rank, each in enumerate(recordings)}
    )


def test_collectives_of_earlier_attempts_in_the_process_put_nobody_behind() -> None:
    assert behind(recorded(9, 3), recorded(8, 3)) == frozenset()
    assert behind(recorded(8, 3), recorded(9, 2)) == {1}
    assert behind(recorded(9), recorded(9, 1)) == frozenset()  # it cannot be told


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"entries": [{}]}', b'{"entries": 3}'])
def test_a_torn_recording_tells_nothing(content: bytes) -> None:
    assert last_collectives(content) == {}


def test_ranks_that_began_as_many_collectives_are_not_behind() -> None:
    assert furthest_behind({0: {"a": 5}, 1: {"a": 5}, 2: {}}) == frozenset()
    assert furthest_behind({0: {"a": 5, "b": 2}, 1: {"a": 5, "b": 1}}) == {1}
    assert furthest_behind({}) == frozenset()


def test_the_next_attempt_records_whom_the_last_ended_for(run: Path) -> None:
    events = EventLog(run, rank=0)
    events.attempt = 2
    announce_previous(run, events)
    events.close()
    (event,) = (event for event in read_events(run) if event["name"] == "diagnosed")
    assert (event["of_attempt"], event["culprit"], event["line"]) == (1, 1, SAID)


def test_a_diagnosis_that_cannot_be_made_stops_no_attempt(run: Path) -> None:
    (run / "stacks/attempt-1/rank-0.txt").unlink()
    (run / "stacks/attempt-1/rank-0.txt").mkdir()
    events = EventLog(run, rank=0)
    events.attempt = 2
    announce_previous(run, events)
    events.close()
    assert not [event for event in read_events(run) if event["name"] == "diagnosed"]


def test_a_node_without_a_given_name_is_called_by_its_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("STEADFAST_NODE", raising=False)
    monkeypatch.setattr("socket.gethostname", lambda: "host-a")
    assert node_name() == "host-a"


def test_the_command_prints_the_newest_attempt_in_one_line(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leave(run, 0, "told to stop", attempt=10, step=80).close()
    assert main([str(run)]) == 0
    assert main([str(run), "--attempt", "1"]) == 0
    assert capsys.readouterr().out == (
        f"attempt 10: stopped on request after step 80\nattempt 1: {SAID}\n"
    )


def test_the_command_prints_json(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "attempt": 1,
        "cause": "hung",
        "line": SAID,
        "rank": 1,
        "node": "ip-10-0-1-7",
    }


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "no attempt has left anything under stacks/"),
        (["--attempt", "9"], "attempt 9 has left"),
    ],
)
def test_a_folder_without_the_attempt_is_refused(
    words: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path), *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert complaint in err
    assert err.count("\n") == 1
