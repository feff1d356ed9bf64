"""Whether EKS says that each add-on of the cluster works, and if not, why."""

from collections.abc import Mapping, Sequence
from typing import Any

from infra.doctor.case import Case
from infra.doctor.findings import Finding, error, ok, warning
from infra.doctor.lookups import all_pages
from infra.settings import InfraSettings

ADDONS = "add-ons"

_CHANGING = frozenset({"CREATING", "UPDATING", "DELETING"})


def check_addons(case: Case) -> list[Finding]:
    eks, cluster = case.clients("eks"), case.settings.name
    installed = all_pages(eks, "list_addons", "addons", clusterName=cluster)
    facts = [eks.describe_addon(clusterName=cluster, addonName=name)["addon"] for name in installed]
    return judge_addons(facts, case.settings)


def judge_addons(addons: Sequence[Mapping[str, Any]], settings: InfraSettings) -> list[Finding]:
    """``addons`` are EKS's descriptions."""
    findings = []
    for addon in addons:
        name, status = addon["addonName"], addon.get("status", "unknown")
        issues = [
            f"{issue.get('code', 'issue')}: {' '.join(issue.get('message', '').split())}"
            for issue in addon.get("health", {}).get("issues", ())
        ]
        value = "; ".join([status, *issues])
        if status == "ACTIVE":
            continue
        if status in _CHANGING and not issues:
            findings.append(warning(ADDONS, f"{name} is changing", value, "wait some minutes"))
            continue
        look = (
            f"aws eks describe-addon --cluster-name {settings.name} --addon-name {name} "
            f"--region {settings.region}"
        )
        # No deploy asks for it again while the template stays as it is.
        again = look.replace("describe-addon", "update-addon") + " --resolve-conflicts PRESERVE"
        remedy = f"mend what it says; EKS then looks again, or have it do so: {again}; see {look}"
        findings.append(error(ADDONS, f"{name} does not work", value, remedy))
    return findings or [ok(ADDONS, "all are active", f"{len(addons)} add-ons")]
