"""The report, for people and for machines."""

import io
import json

from rich.console import Console

from infra.doctor.findings import error, ok, warning
from infra.doctor.report import as_json, as_text

FINDINGS = [
    ok("region", "enabled", "us-east-1"),
    warning("container image", "not pushed", "trainer:0.1.0", "docker push trainer:0.1.0"),
    error("claim", "not bound [yet]", "training/fsx", "kubectl -n training describe pvc fsx"),
]


def text(width: int) -> str:
    console = Console(file=io.StringIO(), width=width, markup=False)
    return as_text("steadfast-p5", FINDINGS, console=console)


def test_the_table_has_each_finding_with_its_remedy_below() -> None:
    assert text(100) == (
        "level    check            found\n"
        "-----------------------------------------------------------------\n"
        "ok       region           enabled: us-east-1\n"
        "warning  container image  not pushed: trainer:0.1.0\n"
        "                          -> docker push trainer:0.1.0\n"
        "error    claim            not bound [yet]: training/fsx\n"
        "                          -> kubectl -n training describe pvc fsx\n"
        "\n"
        "steadfast-p5: 1 error, 1 warning, 1 ok"
    )


def test_a_narrow_terminal_loses_no_text() -> None:
    words = "".join(text(60).split())
    assert "kubectl-ntrainingdescribepvcfsx" in words


def test_the_json_says_whether_all_is_well() -> None:
    report = json.loads(as_json("steadfast-p5", FINDINGS))
    assert (report["deployment"], report["ok"]) == ("steadfast-p5", False)
    assert report["findings"][1] == {
        "check": "container image",
        "level": "warning",
        "what": "not pushed",
        "value": "trainer:0.1.0",
        "remedy": "docker push trainer:0.1.0",
    }
    assert json.loads(as_json("steadfast-p5", FINDINGS[:2]))["ok"] is True
