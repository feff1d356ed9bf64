"""app.py as a process: its exit codes, its one-line errors, and that it needs nobody's help."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.infra.templates import ROOT

PASSED_ON = ("PATH", "CDK_VALIDATION")
# Shared, because unpacking CDK anew takes seconds; a stack reads nothing from it.
JSII_CACHE = Path.home() / ".cache/aws/jsii/package-cache"


def run_app(
    deployment: object,
    *,
    folder: Path,
    key: str = "deployment",
    program: tuple[str, ...] = ("app.py",),
) -> subprocess.CompletedProcess[str]:
    """With no credentials, no AWS settings and a home folder that holds neither."""
    context = {"aws:cdk:disable-asset-staging": True, key: deployment}
    environment = {name: os.environ[name] for name in PASSED_ON} | {
        "HOME": str(folder),
        "JSII_RUNTIME_PACKAGE_CACHE_ROOT": str(JSII_CACHE),
        "CDK_OUTDIR": str(folder / "out"),
        "CDK_CONTEXT_JSON": json.dumps(context),
    }
    return subprocess.run(
        [sys.executable, *program],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_a_missing_file_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    result = run_app("deployments/p6.yaml", folder=tmp_path)
    assert result.returncode == 2
    assert result.stderr == "deployments/p6.yaml: cannot be read (No such file or directory)\n"


@pytest.mark.parametrize(
    ("key", "value", "got"),
    [
        ("deploymnt", "deployments/g5.yaml", "None"),
        ("deployment", "", "''"),
        ("deployment", ["deployments/g5.yaml"], "['deployments/g5.yaml']"),
    ],
)
def test_without_a_named_deployment_nothing_is_rendered(
    key: str, value: object, got: str, tmp_path: Path
) -> None:
    result = run_app(value, folder=tmp_path, key=key)
    assert result.returncode == 2
    assert result.stderr == (
        f"the context key 'deployment' must name a file, got {got}; "
        "add -c deployment=deployments/p5.yaml\n"
    )
    assert not (tmp_path / "out/manifest.json").exists()


def test_an_output_folder_that_is_a_file_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    result = run_app("deployments/g5.yaml", folder=tmp_path)
    assert result.returncode == 2
    problem = "cannot be a folder (File exists); choose another"
    assert result.stderr == f"CDK_OUTDIR {str(tmp_path / 'out')!r} {problem}\n"


def test_a_misspelt_key_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    text = (ROOT / "deployments/g5.yaml").read_text()
    bad = tmp_path / "bad.yaml"
    bad.write_text(text.replace("size_gib:", "size_gb:"))
    result = run_app(str(bad), folder=tmp_path)
    assert result.returncode == 2
    problem = "storage.size_gb: unknown setting 'size_gb'; did you mean 'size_gib'?"
    assert result.stderr == f"{bad}: {problem}\n"
    assert not (tmp_path / "out/manifest.json").exists()


def test_it_synthesizes_without_credentials_or_command_line(tmp_path: Path) -> None:
    result = run_app("deployments/p5.yaml", folder=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    stacks = sorted(f.name for f in (tmp_path / "out").glob("*.template.json"))
    assert stacks == [
        f"steadfast-p5-{stack}.template.json"
        for stack in ("cluster", "network", "nodes-p5", "platform", "registry", "storage")
    ]
    assert '"missing"' not in (tmp_path / "out/manifest.json").read_text()


def test_templates_that_the_guard_refuses_are_no_assembly(tmp_path: Path) -> None:
    planted = (
        "import sys, app; app.problems = lambda *_: ['nodes-g5: LaunchTemplate: is wrong'];"
        "sys.exit(app.main())"
    )
    result = run_app("deployments/g5.yaml", folder=tmp_path, program=("-c", planted))
    assert (result.returncode, result.stderr) == (2, "nodes-g5: LaunchTemplate: is wrong\n")
    assert not (tmp_path / "out/manifest.json").exists()
