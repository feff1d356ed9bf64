"""Whether nodes can mount the file system: the volume's address, and the nodes' Lustre client.

Not covered: the client's own version, which a node does not tell Kubernetes.
"""

from infra.bootstrap import GROUP_LABEL
from infra.doctor.file_system import FileSystem
from infra.doctor.findings import Finding, error, ok
from infra.doctor.objects import Cluster, name_of
from infra.doctor.platform import made_anew
from infra.lustre import LUSTRE_VERSION, volume_name
from infra.settings import InfraSettings
from infra.wording import some_of

VOLUME = "volume"
CLIENT = "Lustre client"

OPERATING_SYSTEM = "Amazon Linux 2023"
"""Its repository has the client for Lustre 2.15 (FSx for Lustre User Guide, Lustre client)."""


def judge_volume(cluster: Cluster, settings: InfraSettings, has: FileSystem) -> list[Finding]:
    """Nothing where there is no volume or it is of another file system: the claim's check says."""
    name = volume_name(settings)
    volume = next((each for each in cluster.volumes if name_of(each) == name), None)
    source = volume["spec"].get("csi", {}) if volume else {}
    if source.get("volumeHandle") != has.id:
        return []
    attributes = source.get("volumeAttributes", {})
    findings = [
        error(
            VOLUME,
            f"{name} mounts {has.id} by another {key} than FSx gives it",
            f"volume {attributes.get(key, 'none')}, FSx {wanted}",
            made_anew(settings),
        )
        for key, wanted in (("dnsname", has.dns_name), ("mountname", has.mount_name))
        if attributes.get(key) != wanted
    ]
    address = f"{has.dns_name}:/{has.mount_name}"
    return findings or [ok(VOLUME, f"mounts Lustre {has.lustre_version}", address)]


def judge_clients(cluster: Cluster) -> list[Finding]:
    """Of training nodes, by what they run; the others mount nothing."""
    nodes_by_system: dict[tuple[str, str], list[str]] = {}
    for node in cluster.nodes:
        if GROUP_LABEL not in node["metadata"].get("labels", {}):
            continue
        facts = node["status"].get("nodeInfo", {})
        system = facts.get("osImage", "unknown"), facts.get("kernelVersion", "unknown")
        nodes_by_system.setdefault(system, []).append(name_of(node))
    findings = []
    for (image, kernel), nodes in sorted(nodes_by_system.items()):
        value = f"{image}, kernel {kernel}: {some_of(nodes)}"
        if image.startswith(OPERATING_SYSTEM):
            findings.append(ok(CLIENT, f"nodes can mount Lustre {LUSTRE_VERSION}", value))
            continue
        what = f"{len(nodes)} nodes do not run {OPERATING_SYSTEM}, whose client mounts it"
        remedy = "correct or remove ami_id of their group, then replace them"
        findings.append(error(CLIENT, what, value, remedy))
    return findings
