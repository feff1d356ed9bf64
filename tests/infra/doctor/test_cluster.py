"""Kubernetes versions of a cluster that exists."""

import pytest

from deployment import Deployment
from infra.doctor.case import Case
from infra.doctor.cluster import check_upgrade, judge_upgrade
from infra.doctor.findings import Level
from tests.infra.doctor.conftest import NOW
from tests.infra.doctor.stand_ins import stubbed


def test_no_cluster_can_become_any_version(moto_case: Case) -> None:
    [finding] = check_upgrade(moto_case)
    assert (finding.level, finding.what) == (Level.OK, "none is deployed yet")


@pytest.mark.parametrize(
    ("deployed", "level", "remedy"),
    [
        ("1.35", Level.OK, ""),
        ("1.34", Level.WARNING, "replace the training nodes afterwards, group by group"),
        ("1.33", Level.ERROR, 'set kubernetes_version to "1.34" first'),
        ("1.36", Level.ERROR, 'set kubernetes_version to "1.36" first'),
    ],
)
def test_versions_go_up_one_at_a_time(deployed: str, level: Level, remedy: str) -> None:
    finding = judge_upgrade({"version": deployed, "status": "ACTIVE"}, "1.35")
    assert (finding.level, finding.remedy) == (level, remedy)


@pytest.mark.parametrize(
    ("status", "level"), [("UPDATING", Level.WARNING), ("FAILED", Level.ERROR)]
)
def test_a_cluster_that_is_not_active_is_not_good(
    settings: Deployment, status: str, level: Level
) -> None:
    answer = {"cluster": {"version": "1.35", "status": status}}
    [finding] = check_upgrade(Case(stubbed(("eks", "describe_cluster", answer)), settings, NOW))
    assert finding.level is level
