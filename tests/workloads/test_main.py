"""``python -m workloads`` does what it says, or says in one line why not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.workloads.conftest import DEPLOYMENTS, Manifests
from workloads import __main__ as command_line
from workloads.__main__ import main

P5 = str(next(path for path in DEPLOYMENTS if path.stem == "p5"))
NO_PROVIDER = "kubectl_provider: false\n"


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    """As ``cdk deploy --outputs-file`` writes it."""
    keys = ("FileSystemId", "FileSystemDnsName", "FileSystemMountName")
    path = tmp_path / "cdk-outputs.json"
    path.write_text(json.dumps({"steadfast-p5-storage": {key: f"a-{key}" for key in keys}}))
    return path


@pytest.fixture
def by_hand(tmp_path: Path) -> str:
    """The p5 deployment without a platform stack, and with a run called 'platform'."""
    text = Path(P5).read_text().replace("  baseline: ", "  platform: ")
    path = tmp_path / "by-hand.yaml"
    path.write_text(text.replace("node_groups:", f"{NO_PROVIDER}node_groups:"))
    return str(path)


def test_synth_writes_the_reviewed_manifests_one_file_a_run(
    tmp_path: Path, manifests: Manifests, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["synth", "--deployment", P5, "--out", str(tmp_path), "--json"]) == 0
    written = json.loads(capsys.readouterr().out)["manifests"]
    assert list(written) == ["baseline", "in-job", "in-process", "faults-in-job"]
    for run_name, path in written.items():
        assert Path(path) == tmp_path / "steadfast-p5" / f"{run_name}.yaml"
        assert list(yaml.safe_load_all(Path(path).read_text())) == manifests["p5"][run_name]


def test_synth_says_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["synth", "--deployment", P5, "--out", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == str(tmp_path / "steadfast-p5" / "baseline.yaml")
    assert lines[-1].startswith("4 runs of steadfast-p5")


def test_synth_with_outputs_writes_and_prints_how_to_install_the_platform(
    tmp_path: Path, by_hand: str, outputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["synth", "--deployment", by_hand, "--out", str(tmp_path), "--outputs", str(outputs)]
    assert main(asked) == 0
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    folder = tmp_path / "steadfast-p5"
    run, platform = folder / "platform.yaml", folder / "platform" / "manifest.yaml"
    assert {str(run), str(platform)} <= set(lines)
    assert "kind: Job" in run.read_text()
    assert "volumeHandle: a-FileSystemId" in platform.read_text()
    commands = [line for line in lines if line.startswith(("kubectl ", "helm "))]
    assert [command.split()[0] for command in commands] == ["kubectl", "helm", "helm"]
    for command in commands:
        assert Path(command.split()[-1]).exists()
    assert shown.err == ""


def test_synth_with_outputs_as_json_has_the_commands_that_it_prints(
    tmp_path: Path, by_hand: str, outputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["synth", "--deployment", by_hand, "--out", str(tmp_path), "--outputs", str(outputs)]
    assert main(asked) == 0
    lines = capsys.readouterr().out.splitlines()
    assert main([*asked, "--json"]) == 0
    platform = json.loads(capsys.readouterr().out)["platform"]
    assert len(platform["commands"]) == 3
    assert set(platform["commands"]) <= set(lines)
    assert list(platform["values"]) == ["nvidia-device-plugin", "aws-efa-k8s-device-plugin"]
    assert Path(platform["manifest"]).exists()


def test_synth_with_outputs_installs_nothing_that_a_stack_does(
    tmp_path: Path, outputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["synth", "--deployment", P5, "--out", str(tmp_path), "--outputs", str(outputs)]
    assert main(asked) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "stack steadfast-p5-platform installs the platform" in lines
    assert not [line for line in lines if line.startswith(("kubectl ", "helm "))]
    assert (tmp_path / "steadfast-p5/platform/manifest.yaml").exists()


def test_synth_without_outputs_says_that_it_left_the_platform_out(
    tmp_path: Path, by_hand: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["synth", "--deployment", by_hand, "--out", str(tmp_path), "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["platform"] is None
    assert len(shown.err.splitlines()) == 1
    assert f"'make deploy DEPLOYMENT={by_hand}'" in shown.err
    assert "add --outputs cdk-outputs.json" in shown.err
    assert not (tmp_path / "steadfast-p5/platform").exists()


def test_synth_writes_nothing_from_a_wrong_outputs_file(
    tmp_path: Path, by_hand: str, outputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs.write_text('{"steadfast-p5-storage": {"FileSystemId": "fs-1"}}')
    out = tmp_path / "dist"
    asked = ["synth", "--deployment", by_hand, "--out", str(out), "--outputs", str(outputs)]
    assert main(asked) == 2
    shown = capsys.readouterr()
    assert "has no output 'FileSystemDnsName'; write it with: make deploy DEPLOYMENT=" in shown.err
    assert len(shown.err.splitlines()) == 1
    assert shown.out == ""
    assert not out.exists()


def test_the_command_of_cdk8s_yaml_renders_the_deployment_of_the_environment(
    tmp_path: Path,
) -> None:
    command = yaml.safe_load(Path(P5).parents[1].joinpath("cdk8s.yaml").read_text())["app"]
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "STEADFAST_DEPLOYMENT": "deployments/g5.yaml",
        "CDK8S_OUTDIR": str(tmp_path),
    }
    subprocess.run(
        command, shell=True, check=True, env=environment, cwd=Path(P5).parents[1], timeout=60
    )
    assert (tmp_path / "steadfast-g5" / "in-job.yaml").exists()


def test_a_missing_file_is_one_line_and_exit_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nope.yaml"
    assert main(["synth", "--deployment", str(path), "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        f"workloads synth: {path}: cannot be read (No such file or directory)\n"
    )


def test_a_folder_that_cannot_be_written_is_one_line_and_exit_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["synth", "--deployment", P5, "--out", str(tmp_path / "file")]) == 2
    error = capsys.readouterr().err
    assert "cannot be written (Not a directory); choose another --out" in error
    assert len(error.splitlines()) == 1


def test_an_interrupted_command_is_exit_status_130(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "load", interrupted)
    assert main(["synth", "--deployment", P5, "--out", str(tmp_path)]) == 130


def test_rehearsing_an_unknown_run_names_the_nearest_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rehearse", "in_job", "--deployment", P5, "--out", str(tmp_path)]) == 2
    assert "unknown run 'in_job'; did you mean 'in-job'?" in capsys.readouterr().err


def test_schema_writes_the_file_that_is_shipped(tmp_path: Path) -> None:
    path = tmp_path / "new" / "schema.json"
    assert main(["schema", "--out", str(path)]) == 0
    assert path.read_text() == Path(P5).with_name("schema.json").read_text()


def test_help_shows_examples_and_units(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    shown = capsys.readouterr().out
    assert "python -m workloads synth --deployment deployments/p5.yaml" in shown
    assert "in seconds" in shown
    assert "--outputs cdk-outputs.json" in shown
