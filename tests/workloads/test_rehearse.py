"""The command: what it refuses, what it reports, and that Ctrl-C leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest

from deployment import load
from tests.workloads.rehearsal_jobs import documents, is_alive
from workloads.rehearsal.interrupts import Interrupts
from workloads.rehearsal.job import RehearsalError
from workloads.rehearsal.report import RunResult, as_records, as_text
from workloads.rehearsal.run_job import Limits
from workloads.rehearsal.this_computer import free_ports
from workloads.rehearse import RunToRehearse, exit_code_for, main_rehearse, rehearse

REPOSITORY = Path(__file__).parents[2]
SHORT = Limits(backoff_factor=0.001, seconds=30.0)

IGNORES_SIGTERM = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open('FOLDER/up-' + os.environ['JOB_COMPLETION_INDEX'], 'w') as up:
    up.write(str(os.getpid()))
os.mkfifo('/tmp/never')
open('/tmp/never').read()
"""


def a_run(script: str = "pass", name: str = "demo") -> RunToRehearse:
    return RunToRehearse(
        name=name,
        documents=documents("python", "-c", script, backoff_limit=0),
        run_directory=PurePosixPath("/fsx/runs/demo"),
        max_steps=3,
    )


def rehearsed(out: Path, *runs: RunToRehearse, fresh: bool = False) -> list[RunResult]:
    with Interrupts() as interrupts:
        return rehearse(runs, out, limits=SHORT, fresh=fresh, interrupts=interrupts)


def test_an_unknown_run_is_refused_with_the_nearest_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deployment = load(REPOSITORY / "deployments" / "rehearsal.yaml")
    assert main_rehearse(deployment, ["in-jobs"], tmp_path) == 2
    said = capsys.readouterr().err
    assert said.startswith("unknown run 'in-jobs'; did you mean 'in-job'?")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("deployment", "changes", "complaint"),
    [
        ("p5.yaml", {}, "node_groups.p5.instance_type 'p5.48xlarge' trains on GPUs"),
        ("rehearsal.yaml", {"nvrx_version": "0.6.0"}, "image.nvrx_version is 0.6.0 and"),
    ],
)
def test_what_cannot_run_here_is_refused_before_anything_starts(
    deployment: str,
    changes: dict[str, str],
    complaint: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    loaded = load(REPOSITORY / "deployments" / deployment)
    image = loaded.image.model_copy(update=changes)
    assert main_rehearse(loaded.model_copy(update={"image": image}), ["in-job"], tmp_path) == 2
    said = capsys.readouterr().err
    assert said.startswith(complaint)
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_ports_are_free_and_keep_their_distances() -> None:
    ports = free_ports([29500, 29502])
    assert ports[29502] - ports[29500] == 2


@pytest.mark.distributed
def test_a_complete_run_says_where_everything_is(tmp_path: Path) -> None:
    results = rehearsed(tmp_path, a_run())
    assert exit_code_for(results, was_interrupted=False) == 0
    text = as_text(results)
    assert f"logs in {tmp_path}/demo/pods" in text
    assert f"events in {tmp_path}/demo/volumes/fsx/runs/demo/events" in text


@pytest.mark.distributed
def test_what_differs_from_the_cluster_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rehearsed(tmp_path, a_run(name="a"), a_run(name="b"))
    assert capsys.readouterr().err.count("multiplied by 0.001") == 1
    assert "multiplied by 0.001" in (tmp_path / "b/rehearsal.txt").read_text()


@pytest.mark.distributed
def test_a_failed_run_names_index_code_and_last_lines(tmp_path: Path) -> None:
    results = rehearsed(tmp_path, a_run("raise SystemExit('no such preset')"))
    assert exit_code_for(results, was_interrupted=False) == 1
    text = as_text(results)
    assert "index 0 exited with code 1" in text
    assert f"{tmp_path}/demo/pods/demo-0-r0.log" in text
    assert "no such preset" in text


@pytest.mark.distributed
def test_a_failed_run_does_not_keep_the_next_from_being_rehearsed(tmp_path: Path) -> None:
    results = rehearsed(tmp_path, a_run("raise SystemExit(3)", "a"), a_run(name="b"))
    records = json.loads(json.dumps(as_records(results)))
    assert [(each["run"], each["outcome"]) for each in records] == [
        ("a", "failed"),
        ("b", "complete"),
    ]
    assert records[0]["failed_pod"]["exit_code"] == 3
    assert exit_code_for(results, was_interrupted=False) == 1


@pytest.mark.distributed
def test_an_earlier_rehearsal_is_kept_unless_a_fresh_one_is_asked_for(tmp_path: Path) -> None:
    rehearsed(tmp_path, a_run("open('/fsx/saved', 'w').close()"))
    saved = tmp_path / "demo/volumes/fsx/saved"
    with pytest.raises(RehearsalError, match="--fresh"):
        rehearsed(tmp_path, a_run())
    assert saved.exists()
    assert rehearsed(tmp_path, a_run(), fresh=True)[0].is_complete
    assert not saved.exists()


def test_a_folder_that_no_rehearsal_made_is_never_deleted(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    with pytest.raises(RehearsalError, match="was not made by a rehearsal"):
        rehearsed(tmp_path, a_run(), fresh=True)
    assert (tmp_path / "demo").exists()


def test_an_out_folder_that_is_a_file_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(RehearsalError, match=r"cannot be written \(Not a directory\)"):
        rehearsed(tmp_path / "out", a_run())


@pytest.mark.distributed
def test_a_second_ctrl_c_cuts_the_grace_period_short_and_leaves_nothing(tmp_path: Path) -> None:
    reports = [tmp_path / f"up-{index}" for index in (0, 1)]
    for report in reports:
        os.mkfifo(report)
    # Relative, since an absolute path below /tmp would be that of the pod.
    script = IGNORES_SIGTERM.replace("FOLDER", os.path.relpath(tmp_path, REPOSITORY))
    driver = subprocess.Popen(
        [sys.executable, "-m", "tests.workloads.rehearsal_driver", str(tmp_path / "out"), script],
        cwd=REPOSITORY,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    with driver:
        pids = [int(report.read_text()) for report in reports]
        driver.send_signal(signal.SIGINT)
        assert driver.stderr is not None
        assert any("Stopping" in line for line in driver.stderr)
        assert all(map(is_alive, pids))
        driver.send_signal(signal.SIGINT)
        assert driver.wait(20) == 130
    assert not any(map(is_alive, pids))
