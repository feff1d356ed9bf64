"""checkov over the templates of every shipped deployment, from an environment of its own.

It pins an older boto3 than ours, so `make test-slow` installs it into .venv-checkov.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.infra.conftest import Synthesize
from tests.infra.templates import NAMES, ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CHECKOV = ROOT / ".venv-checkov/bin/checkov"
ARGUMENTS = ["--framework", "cloudformation", "--output", "json", "--compact", "--skip-download"]


def checkov(folder: Path) -> dict[str, Any]:
    """Its report on all templates in ``folder``."""
    assert CHECKOV.exists(), "checkov is not installed; run: make test-slow"
    done = subprocess.run(
        [str(CHECKOV), "--directory", str(folder), *ARGUMENTS],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
    )
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["summary"]["parsing_errors"] == 0
    return report


def findings(report: dict[str, Any]) -> list[str]:
    failed = report["results"]["failed_checks"]
    return sorted(f"{f['file_path']} {f['resource']}: {f['check_id']}" for f in failed)


def test_checkov_finds_nothing_that_is_not_accepted(
    synthesized: Synthesize, tmp_path: Path
) -> None:
    written = 0
    for name in NAMES:
        for purpose, template in synthesized(name).stacks.items():
            (tmp_path / f"{name}-{purpose}.template.json").write_text(json.dumps(template))
            written += len(template["Resources"])
    report = checkov(tmp_path)
    assert findings(report) == []
    assert report["summary"]["resource_count"] >= written
    accepted = report["results"]["skipped_checks"]
    assert accepted
    assert all(check["check_result"]["suppress_comment"] for check in accepted)


def test_checkov_finds_a_planted_fault(tmp_path: Path) -> None:
    repository = {"Type": "AWS::ECR::Repository", "Properties": {"RepositoryName": "planted"}}
    template = {"AWSTemplateFormatVersion": "2010-09-09", "Resources": {"Planted": repository}}
    (tmp_path / "planted.template.json").write_text(json.dumps(template))
    found = findings(checkov(tmp_path))
    assert "/planted.template.json AWS::ECR::Repository.Planted: CKV_AWS_51" in found
