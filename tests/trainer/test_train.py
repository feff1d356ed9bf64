"""The trainer's command line: what it refuses, it refuses in one line and for good."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.ranks import trainer_settings
from trainer import exit_codes
from trainer.train import _keep_settings, main

ROOT = Path(__file__).parents[2]
SETTINGS: dict[str, Any] = {
    "device": "cpu",
    "max_steps": 10,
    "model": {"preset": "tiny"},
    "data": {"sequence_length": 16, "global_batch_size": 4},
    "checkpoint": {"interval_steps": 5},
    "recovery": {"layer": "none"},
}


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv("STEADFAST_EXIT_FILE", str(tmp_path / "exit"))
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({**SETTINGS, "run_directory": str(tmp_path / "run")}))
    return path


def refusal(capsys: pytest.CaptureFixture[str], settings: Path, *changes: str) -> tuple[int, str]:
    """Exit code and the one line; both are also left for the pod."""
    sets = [word for change in changes for word in ("--set", change)]
    code = main(["--settings", str(settings), *sets])
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert f"steadfast: {last_word(settings, code)}" == line
    return code, line


def last_word(settings: Path, code: int) -> str:
    """What was left for the pod's entry point, beside the code."""
    left = (settings.parent / "exit").read_text()
    assert left.startswith(f"{code} ")
    return left.removeprefix(f"{code} ")


def test_a_misspelt_change_is_refused_by_name(
    settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, line = refusal(capsys, settings, "checkpoint.intervall_steps=5")
    assert code == 78
    assert line.startswith("steadfast: ")
    assert "checkpoint.intervall_steps: unknown setting" in line
    assert "did you mean 'interval_steps'?" in line


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("max_steps=0", "max_steps: input should be greater than 0, got 0"),
        ("checkpoint.mode=asink", "checkpoint.mode: input should be 'none', 'sync', 'async' or"),
        ("model=5", "model: "),
        ("max_steps.x=5", "'max_steps' is a value, not a group"),
        ("=5", "unknown setting ''"),
        (f"max_steps={10_000 * chr(91)}", "max_steps: input should be a valid integer"),
        ("faults.count=50", "faults.count 50 does not fit"),
        ("timeouts.hang_seconds=4", "timeouts.shortest_hang_seconds 5 must not exceed"),
        ("checkpoint.resume_step=0", "checkpoint.resume_step: input should be greater than 0"),
        ("checkpoint.resume_step=11", "checkpoint.resume_step 11 is after the last step"),
    ],
)
def test_a_change_that_cannot_be_is_refused(
    change: str, complaint: str, settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, line = refusal(capsys, settings, change)
    assert code == 78
    assert complaint in line


def test_a_slow_rank_that_would_be_taken_for_hung_is_refused(
    settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = 'faults.planned=[{"kind": "slow", "step": 5, "rank": 1}]'
    code, line = refusal(capsys, settings, slow, "faults.slow_seconds=5")
    assert code == 78
    assert "faults.slow_seconds 5 must be below timeouts.shortest_hang_seconds 5" in line


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_a_file_that_holds_no_settings_is_refused(
    content: bytes, settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.write_bytes(content)
    code, line = refusal(capsys, settings)
    assert code == 78
    assert str(settings) in line


def test_changes_are_json_or_else_text(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # All of them are right, so the next thing to miss is the launcher.
    changes = ("max_steps=20", "checkpoint.mode=sync", "model.activation_checkpointing=true")
    assert refusal(capsys, settings, *changes)[0] == 64


def test_a_later_change_of_the_same_setting_wins(
    settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refusal(capsys, settings, "max_steps=0", "max_steps=20")[0] == 64


def test_the_option_resume_step_is_the_setting(
    settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["--settings", str(settings), "--resume-step", "11"])
    assert code == 78
    assert "checkpoint.resume_step 11 is after the last step, max_steps 10" in (
        capsys.readouterr().err
    )


def test_without_a_launcher_it_says_what_to_start_it_with(
    settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, line = refusal(capsys, settings)
    assert code == 64
    assert "RANK is not set; start this with torchrun or ft_launcher" in line


def test_a_run_folder_that_cannot_be_written_is_refused(
    settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    (settings.parent / "run").write_text("a file")
    code, line = refusal(capsys, settings)
    assert code == 73
    assert "cannot be written (File exists)" in line


def test_a_restart_whose_run_folder_vanished_is_tried_again_and_makes_none(
    settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert main(["--settings", str(settings)]) == 1
    assert "cannot be written (No such file or directory)" in capsys.readouterr().err
    assert not (settings.parent / "run").exists()
    assert exit_codes.read_final_word() is None


def test_a_change_without_a_value_is_a_mistake_of_usage(
    settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--settings", str(settings), "--set", "max_steps"])
    assert ended.value.code == 2
    assert "'max_steps' is not KEY=VALUE" in capsys.readouterr().err


def test_wrong_settings_are_refused_without_importing_torch(settings: Path) -> None:
    script = """
import sys
from trainer.train import main
assert main(sys.argv[1:]) == 78
assert 'torch' not in sys.modules
"""
    arguments = ["--settings", str(settings), "--set", "max_step=1"]
    subprocess.run([sys.executable, "-c", script, *arguments], cwd=ROOT, check=True)


def run_alone(settings: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The trainer as the only rank of its job, to its end."""
    rank_of_one = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    command = [sys.executable, "-W", "ignore", "-m", "trainer.train", "--settings", str(settings)]
    return subprocess.run(
        [*command, *arguments],
        cwd=ROOT,
        env={**os.environ, **rank_of_one, **meeting},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.distributed
def test_data_that_is_not_there_ends_the_run_in_one_line(settings: Path) -> None:
    done = run_alone(settings, "--set", "data.dataset=/no/such/folder")
    assert done.returncode == 78
    (line,) = done.stderr.splitlines()
    assert line.startswith("steadfast: ")
    assert "/no/such/folder" in line
    assert f"steadfast: {last_word(settings, 78)}" == line


@pytest.mark.distributed
def test_a_step_that_was_never_saved_is_refused_with_what_was(settings: Path) -> None:
    sync = ("--set", "checkpoint.mode=sync")
    assert run_alone(settings, *sync).returncode == 0
    done = run_alone(settings, *sync, "--resume-step", "7")
    assert done.returncode == 78
    assert "checkpoint.resume_step 7: " in done.stderr.splitlines()[-1]
    assert "step 10 of attempt 1 (valid), step 5 of attempt 1 (valid)" in done.stderr


def test_a_run_that_goes_on_with_another_schedule_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    longer = trainer_settings(tmp_path).model_copy(update={"max_steps": 200})
    for settings in (trainer_settings(tmp_path), longer, longer):
        _keep_settings(settings)
    assert [record.getMessage() for record in caplog.records] == [
        "The next step follows another schedule: max_steps 100 is now 200"
    ]
