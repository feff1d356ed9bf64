"""What `make deploy` runs and in which order, with stand-ins for Python and the CLI of CDK."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCTOR = "python -m infra.doctor --deployment ours.yaml --phase before"


def deploy(folder: Path, *, doctor_says: int) -> tuple[int, list[str]]:
    """Exit code, and what was called. Runs in ``folder``, where nothing but stand-ins is."""
    tools = {".venv/bin/python": doctor_says, "node_modules/.bin/cdk": 0}
    for path, code in tools.items():
        tool = folder / path
        tool.parent.mkdir(parents=True)
        tool.write_text(f'#!/bin/sh\necho "${{0##*/}} $*" >> {folder}/called\nexit {code}\n')
        tool.chmod(0o755)
    # As if everything were installed.
    command = ["make", "-f", str(ROOT / "Makefile"), "-o", "setup", "deploy"]
    done = subprocess.run(
        [*command, "DEPLOYMENT=ours.yaml"], cwd=folder, capture_output=True, timeout=60, check=False
    )
    return done.returncode, (folder / "called").read_text().splitlines()


def test_a_deploy_comes_after_the_doctor_has_looked(tmp_path: Path) -> None:
    code, called = deploy(tmp_path, doctor_says=0)
    assert code == 0
    assert called[0] == DOCTOR
    assert called[1].startswith("cdk deploy --all -c deployment=ours.yaml ")
    assert len(called) == 2


@pytest.mark.parametrize("code", [1, 2])
def test_nothing_is_deployed_where_the_doctor_finds_errors(tmp_path: Path, code: int) -> None:
    made, called = deploy(tmp_path, doctor_says=code)
    assert made != 0
    assert called == [DOCTOR]
